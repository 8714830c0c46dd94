"""Verifies a hierarchy: decodes all stored chunks, region by region, and finds those that cannot be decoded.

Theory of operation. The keys of the array are listed once. Regions that hold a stored object are read with the engine,
on all threads and into the same memory, as any read is. A region that fails is halved until the bad chunks are alone.
Chunks are read whole, padding included: the array is read as if it ended with its last chunk, unless that takes too
much memory.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from gzarr.backend import Array
from gzarr.checking.nodes import Findings, find_leftovers, list_objects, listed, survey
from gzarr.checking.report import Place, Problem, Verification
from gzarr.chunk_io import engine
from gzarr.chunk_io.array_io import ArrayIO
from gzarr.chunk_io.prepare import find_shardings, prepare_array
from gzarr.chunk_io.reference import ReadJob
from gzarr.codecs.numcodecs import trusted
from gzarr.display.progress import ProgressLike, counted
from gzarr.errors import ChunkError, CodecError, GzarrError, MetadataError, StoreError
from gzarr.indexing.grid import Grid, largest_chunk, nchunks
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import box_between, make_plan
from gzarr.indexing.regions import Region, Regions, chunk_spans, chunks_region, cut, size_of
from gzarr.layout.sharded import Sharded
from gzarr.metadata.documents import expect_node
from gzarr.metadata.model import ArrayMeta
from gzarr.scale.blocks import BlockPlan, JobPart, parse_part
from gzarr.scale.running import run

#: Decoded bytes that are held at a time, or one chunk.
REGION_NBYTES = 64 << 20
#: Longer axes and chunks have no indices of 64 bits, padding included.
_MAX_EXTENT = 2**61


class CheckedChunks(NamedTuple):
    """The chunks of an array, ready to be checked in regions.

    Attributes
    ----------
    io : ArrayIO
        The array, up to the end of its last chunks.
    regions : Regions
        Of stored objects, or of the chunks of large shards.
    """

    io: ArrayIO
    regions: Regions

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the elements."""
        return self.io.chain((0,) * len(self.io.layout.grid)).chunk.dtype


class WantedRegions:
    """The regions that hold stored objects, each cut to those.

    Parameters
    ----------
    chunks : CheckedChunks
        The chunks of the array.
    """

    def __init__(self, chunks: CheckedChunks) -> None:
        self._regions, self._objects = chunks.regions, chunks.io.layout.objects
        # An object that is larger than a region lies in several.
        whole = self._regions.grid == self._objects
        self._counts = self._regions.counts if whole else (1,) * len(self._objects)
        self._found: dict[Coords, tuple[Coords, Coords]] = {}

    def add(self, coords: Coords) -> None:
        """Add a stored object."""
        number = tuple([c // n for c, n in zip(coords, self._counts, strict=True)])
        first, last = self._found.get(number, (coords, coords))
        self._found[number] = tuple(map(min, first, coords)), tuple(map(max, last, coords))

    def __iter__(self) -> Iterator[Region]:
        for _, (first, last) in sorted(self._found.items()):
            yield from self._regions.within(chunks_region(self._objects, first, last))


def prepare_chunks(place: Place, meta: ArrayMeta) -> CheckedChunks:
    """Prepare the check of an array. Raises: MetadataError, UnknownCodecError, MissingExtraError."""
    specs = find_shardings(meta.codecs, len(meta.shape))[1]
    if not place.allow_pickle and tuple(map(trusted, specs)) != specs:
        raise MetadataError("the array holds pickled objects; if you trust the data, allow_pickle=True loads them")
    if max((*meta.shape, *largest_chunk(meta.grid)), default=0) > _MAX_EXTENT:
        raise MetadataError(f"extents and chunks have at most {_MAX_EXTENT} elements here, got shape {meta.shape}")
    itemsize = max(meta.data_type.dtype.itemsize, 16 if meta.data_type.variable else 1)
    objects, chunks = (padded(grid) for grid in (meta.grid, meta.chunk_grid))
    fits = [math.prod(largest_chunk(grid)) * itemsize <= REGION_NBYTES for grid in (objects, chunks)]
    grid = objects if fits[0] else chunks if fits[1] else meta.chunk_grid
    extents = tuple(axis.extent for axis in grid)
    whole = replace(
        meta, shape=extents, grid=tuple(replace(a, extent=n) for a, n in zip(meta.grid, extents, strict=True))
    )
    io = prepare_array(whole, place.store, place.path, place.backend, None, place.allow_pickle)
    return CheckedChunks(io, cut(grid, grid, itemsize, REGION_NBYTES, REGION_NBYTES))


def padded(grid: Grid) -> Grid:
    """A grid that ends with its last chunks."""
    return tuple(replace(axis, extent=axis.bounds(axis.nchunks - 1)[1]) if axis.nchunks else axis for axis in grid)


def check_chunks(
    chunks: CheckedChunks, place: Place, wanted: Iterable[Region], done: Callable[[int], None]
) -> Iterator[Problem]:
    """Yield what is wrong with the chunks of an array.

    wanted: the regions that hold anything. done: called with decoded bytes.
    """
    io = chunks.io
    buffer: Array | None = None
    for region in wanted:
        nelements = size_of(region)
        if buffer is None or buffer.size < nelements:
            buffer = io.backend.empty((nelements,), chunks.dtype)
        bad: set[str] = set()
        for problem in _unread(io, place, region, buffer):
            bad.add(problem.key)
            yield problem
        yield from _bad_indexes(io, place, region, bad)
        done(nelements * chunks.dtype.itemsize)


def check_object(chunks: CheckedChunks, place: Place, coords: Coords) -> list[Problem]:
    """What is wrong with the chunks of one object."""
    io = chunks.io
    regions = [chunks_region(io.layout.objects, coords)]
    problems: dict[Problem, None] = {}
    while regions:
        region = regions.pop()
        n = size_of(region)
        halves = _halves(io.layout.grid, region) if n * chunks.regions.itemsize > REGION_NBYTES else []
        regions += halves
        if not halves:
            buffer = io.backend.empty((n,), chunks.dtype)
            problems |= dict.fromkeys(_unread(io, place, region, buffer))
    return list(problems)


def read_region(io: ArrayIO, region: Region, buffer: Array) -> Any:
    """Read a region into memory that is at least as large. Raises: GzarrError."""
    box = box_between([part.start for part in region], [part.stop for part in region])
    out = buffer[: math.prod(box.shape)].reshape(box.shape)
    engine.read([ReadJob(io, make_plan(box, io.layout.grid), out)])
    return out


def _unread(io: ArrayIO, place: Place, region: Region, buffer: Array) -> Iterator[Problem]:
    """Yield the chunks of a region that cannot be read."""
    layout = io.layout
    try:
        read_region(io, region, buffer)
    except (GzarrError, MemoryError) as error:
        halves, is_chunk = _halves(layout.objects, region), False
        if not halves and isinstance(error, ChunkError):
            is_chunk = error.chunk_coords is not None or _has_index(io, region)
            halves = _halves(layout.grid, region) if is_chunk else []
        for half in halves:
            yield from _unread(io, place, half, buffer)
        if not halves:
            yield _problem(io, place, region, error, is_chunk=is_chunk)


def _has_index(io: ArrayIO, region: Region) -> bool:
    """Whether the shard that a region lies in has an index that can be read."""
    try:
        return isinstance(io.layout, Sharded) and io.layout.initialized(io.store, _first(io.layout.objects, region)) > 0
    except (CodecError, StoreError):
        return False


def _problem(io: ArrayIO, place: Place, region: Region, error: GzarrError | MemoryError, *, is_chunk: bool) -> Problem:
    key = io.layout.key(_first(io.layout.objects, region))
    if not isinstance(error, ChunkError) or _is_of_machine(error):
        kind = "unreadable" if isinstance(error, StoreError) else "codec"
        return Problem(kind, key, str(error) or type(error).__name__, place.path)
    if is_chunk:
        return Problem("chunk", key, error.reason, place.path, _first(io.layout.grid, region), error.codec)
    return Problem("shard", key, error.reason, place.path, None, error.codec)


def _is_of_machine(error: BaseException) -> bool:
    """Whether a codec failed for want of a module or a resource: the chunk may be sound, and must not be dropped."""
    cause = error.__cause__
    lacks = isinstance(cause, (ImportError, AttributeError)) or (isinstance(cause, OSError) and cause.errno is not None)
    return lacks or (cause is not None and _is_of_machine(cause))


def _first(grid: Grid, region: Region) -> Coords:
    return tuple(axis.locate(part.start) for axis, part in zip(grid, region, strict=True))


def _halves(grid: Grid, region: Region) -> list[Region]:
    """A region cut in two along the axis with the most chunks of a grid; nothing if it lies in one."""
    spans = chunk_spans(grid, region)
    axis = max(range(len(spans)), key=lambda i: len(spans[i]), default=None)
    if axis is None or len(spans[axis]) < 2:
        return []
    middle = grid[axis].bounds(spans[axis][len(spans[axis]) // 2])[0]
    before, after = list(region), list(region)
    before[axis], after[axis] = slice(region[axis].start, middle), slice(middle, region[axis].stop)
    return [tuple(before), tuple(after)]


def _bad_indexes(io: ArrayIO, place: Place, region: Region, bad: set[str]) -> Iterator[Problem]:
    """Yield the shards that begin in a region and whose chunks overlap."""
    layout = io.layout
    if not isinstance(layout, Sharded):
        return
    sharded = layout

    def check(coords: Coords) -> Problem | None:
        key = sharded.key(coords)
        try:
            if key not in bad:
                sharded.check(io.store, coords)
        except CodecError as error:
            return Problem("index", key, str(error), place.path, None, error.codec)
        except StoreError as error:
            return Problem("unreadable", key, str(error), place.path)
        return None

    spans = [
        [c for c in span if axis.bounds(c)[0] >= part.start]
        for span, axis, part in zip(chunk_spans(layout.objects, region), layout.objects, region, strict=True)
    ]
    yield from filter(None, io.store.together(check, list(itertools.product(*spans))))


# -- verification ------------------------------------------------------------------------------------------------------


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
    nbytes = {path: meta.nbytes for path, meta in found.arrays}
    n_objects = 0
    with counted(progress, sum(nbytes.values())) as add:
        for path, meta in found.arrays:
            progressed = _Progress(add, path, nbytes[path])
            array = place._replace(path=path), meta
            n_objects += _verify_array(array, found, progressed.done, on, parse_part(part))
            progressed.done(progressed.left)
    for key in find_leftovers(place.store, place.path, found):
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


def _verify_array(
    array: tuple[Place, ArrayMeta], found: Findings, done: Callable[[int], None], on: Any, part: JobPart | None
) -> int:
    """Verify an array's objects. Returns: how many it has."""
    place, meta = array
    chunks: CheckedChunks | None = None
    try:
        chunks = prepare_chunks(place, meta)
    except GzarrError as error:
        found.problems.append(Problem("codec", f"{place.path}/", str(error), place.path))
    wanted = WantedRegions(chunks) if chunks is not None and on is None and part is None else None

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
    elif chunks is not None:
        found.problems += _checked_elsewhere(array, chunks, done, on, part)
    return nchunks(meta.grid) if n_objects is None else n_objects


def _checked_elsewhere(
    array: tuple[Place, ArrayMeta], chunks: CheckedChunks, done: Callable[[int], None], on: Any, part: JobPart | None
) -> list[Problem]:
    """What is wrong with all regions of an array, or those of a part, in the order of the regions."""
    made: dict[int, list[Problem]] = {}

    def take(numbers: range, problems: list[list[Problem]]) -> None:
        made.update((number, some) for number, some in zip(numbers, problems, strict=True) if some)

    blocks = BlockPlan(
        name=str(array[0]),
        n=len(chunks.regions),
        do=_Check(*array, chunks.regions),
        size=lambda number: size_of(chunks.regions.at(number)) * chunks.dtype.itemsize,
        take=take,
    )
    run([blocks], on, part, lambda nbytes, _: done(nbytes))
    return [problem for number in sorted(made) for problem in made[number]]
