"""Verifies a hierarchy: documents, chunks, shard indexes, leftover files, consolidated metadata. Changes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gzarr.checking.chunks import CheckedChunks, WantedRegions, check_chunks, prepare_chunks
from gzarr.checking.leftovers import find_leftovers
from gzarr.checking.nodes import Findings, list_objects, listed, survey
from gzarr.checking.report import Place, Problem, Verification
from gzarr.display.progress import ProgressLike, counted
from gzarr.errors import GzarrError
from gzarr.indexing.grid import nchunks
from gzarr.metadata.documents import expect_node
from gzarr.metadata.model import ArrayMeta


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


def verify_place(place: Place, progress: ProgressLike = None) -> Verification:
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
            n_objects += _verify_array(place._replace(path=path), meta, found, progressed.done)
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


def _verify_array(place: Place, meta: ArrayMeta, found: Findings, done: Callable[[int], None]) -> int:
    """Verify an array's objects. Returns: how many it has."""
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
            if wanted is not None:
                wanted.add(coords)
        return n_objects

    n_objects = listed(found, place.store, place.path, note_objects)
    if chunks is not None and wanted is not None:
        found.problems += check_chunks(chunks, place, chunks.regions if n_objects is None else wanted, done)
    return nchunks(meta.grid) if n_objects is None else n_objects
