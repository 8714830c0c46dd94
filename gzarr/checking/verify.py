"""Verifies a hierarchy: documents, chunks, shard indexes, leftover files, consolidated metadata. Changes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from gzarr.checking.chunks import CheckedChunks, WantedRegions, check_chunks, prepare_chunks
from gzarr.checking.leftovers import find_leftovers
from gzarr.checking.nodes import Findings, list_objects, listed, survey
from gzarr.checking.report import Place, Problem, Verification
from gzarr.display.progress import ProgressLike, counted
from gzarr.errors import GzarrError
from gzarr.indexing.grid import nchunks
from gzarr.indexing.regions import Regions, size_of
from gzarr.metadata.documents import expect_node
from gzarr.metadata.model import ArrayMeta
from gzarr.scale.blocks import BlockPlan, JobPart, parse_part
from gzarr.scale.running import run


@dataclass(slots=True)
class _Progress:
    """What is left of an array, of which only the regions are read that hold anything, with their padding."""

    add: Callable[[int, str], None]
    path: str
    left: int

    def done(self, nbytes: int) -> None:
        """Note decoded bytes."""
        nbytes = min(nbytes, self.left)
        self.left -= nbytes
        self.add(nbytes, self.path)


def verify_place(
    place: Place, progress: ProgressLike = None, on: Any = None, part: tuple[int, int] | None = None
) -> Verification:
    """Verify the node at a place and everything below it. Raises: NodeNotFoundError, StoreError, MissingExtraError."""
    found = Findings()
    survey(place, found)
    if not (found.groups or found.arrays or found.problems):
        expect_node(place.store, place.path, None)
    nbytes = {path: _nbytes(meta) for path, meta in found.arrays}
    n_objects = 0
    with counted(progress, sum(nbytes.values())) as add:
        for path, meta in found.arrays:
            progressed = _Progress(add, path, nbytes[path])
            one = _Verified(place._replace(path=path), meta, found, progressed.done)
            n_objects += _verify_array(one, on, parse_part(part))
            progressed.done(progressed.left)
    for key in find_leftovers(place.store, place.path):
        what = "a half-deleted folder" if key.endswith("/") else "a temporary file"
        found.problems.append(Problem("temporary", key, f"{what} that a killed writer has left"))
    return Verification(
        name=str(place),
        problems=tuple(found.problems),
        leftover_files=tuple(found.leftover_files),
        unchecked=tuple(dict.fromkeys(found.unchecked)),
        ngroups=len(found.groups),
        narrays=len(found.arrays),
        nobjects=n_objects,
        nbytes=sum(nbytes.values()),
    )


def _nbytes(meta: ArrayMeta) -> int:
    return math.prod(meta.shape) * meta.data_type.dtype.itemsize


class _Verified(NamedTuple):
    """An array that is verified, and what is told of it."""

    place: Place
    meta: ArrayMeta
    found: Findings
    done: Callable[[int], None]


class _Check:
    """Checks the region with a number, in whichever process."""

    def __init__(self, place: Place, meta: ArrayMeta, regions: Regions) -> None:
        self._place, self._meta, self._regions = place, meta, regions

    @cached_property
    def _chunks(self) -> CheckedChunks:
        return prepare_chunks(self._place, self._meta)

    def __call__(self, number: int) -> list[Problem]:
        """What is wrong."""
        return list(check_chunks(self._chunks, self._place, [self._regions.at(number)], lambda _: None))


def _verify_array(array: _Verified, on: Any, part: JobPart | None) -> int:
    """Verify an array's objects. Returns: how many it has."""
    place, meta, found, done = array
    chunks: CheckedChunks | None = None
    wanted: WantedRegions | None = None
    try:
        chunks = prepare_chunks(place, meta)
        wanted = WantedRegions(chunks)
    except GzarrError as error:
        found.problems.append(Problem("codec", f"{place.path}/", str(error), place.path))

    def note_objects() -> int:
        n_objects = 0
        for coords in list_objects(place.store, place.path, meta, found):
            n_objects += 1
            if wanted is not None and on is None and part is None:
                wanted.add(coords)
        return n_objects

    n_objects = listed(found, place.store, place.path, note_objects)
    if chunks is not None and wanted is not None and on is None and part is None:
        found.problems += check_chunks(chunks, place, chunks.regions if n_objects is None else wanted, done)
    elif chunks is not None:
        _check_elsewhere(array, chunks, on, part)
    return nchunks(meta.grid) if n_objects is None else n_objects


def _check_elsewhere(array: _Verified, chunks: CheckedChunks, on: Any, part: JobPart | None) -> None:
    """Check all regions of an array, or those of a part, and note what is wrong in the order of the regions."""
    made: dict[int, list[Problem]] = {}

    def take(numbers: range, problems: list[list[Problem]]) -> None:
        made.update((number, some) for number, some in zip(numbers, problems, strict=True) if some)

    blocks = BlockPlan(
        name=str(array.place),
        n=len(chunks.regions),
        do=_Check(array.place, array.meta, chunks.regions),
        size=lambda number: size_of(chunks.regions.at(number)) * chunks.dtype.itemsize,
        take=take,
    )
    run([blocks], on, part, lambda nbytes, _: array.done(nbytes))
    array.found.problems += [problem for number in sorted(made) for problem in made[number]]
