"""Copies one array into another: region by region, or without decoding if both store the same chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any

from gzarr.backend import Work
from gzarr.chunk_io.array_io import ArrayIO
from gzarr.chunk_io.prepare import find_shardings, prepare_array
from gzarr.chunk_io.reference import load
from gzarr.codecs.chain import prepare
from gzarr.codecs.spec import ArrayRepr, CodecSpec
from gzarr.copying.sources import Source
from gzarr.cpu.backend import CpuBackend
from gzarr.cpu.threads import thread_count
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.resizing import objects_stored
from gzarr.indexing.grid import Grid, largest_chunk, nchunks
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import box_between, make_plan
from gzarr.indexing.regions import Region, Regions, chunk_spans, chunks_region, cut, size_of
from gzarr.metadata.conventions import same_value
from gzarr.metadata.model import ArrayMeta
from gzarr.storage.base import Buffer, Request

#: Default host memory in bytes for the data that a copy has read.
BUDGET_NBYTES = 256 << 20
#: Encoded objects that are fetched at once if no shard has to be built.
_BATCH = 16


@dataclass(frozen=True, slots=True)
class Route:
    """How one array will be copied.

    Attributes
    ----------
    how : {"decode", "chunks", "objects"}
        Decode region by region, put encoded chunks into other objects, or copy whole objects.
    regions : Regions or None
        The regions, if chunks are decoded.
    workers : int
        How many regions are copied at once.
    """

    how: str
    regions: Regions | None = None
    workers: int = 1


def plan_route(source: Source, meta: ArrayMeta, budget_nbytes: int) -> Route:
    """Choose how a source is copied into an array with this metadata."""
    if source.array is not None and not source.array.is_view:
        before = source.array.metadata
        if not same_fill(before, meta) and _stores_all(source.array):
            before = replace(before, fill_value=meta.fill_value)  # no chunk shows it
        if same_objects(before, meta):
            return Route("objects")
        if same_chunks(before, meta):
            return Route("chunks")
    return decoding_route(source, meta.grid, budget_nbytes)


def decoding_route(source: Source, dest: Grid, budget_nbytes: int) -> Route:
    """Cut a copy that decodes into regions; as many run at once as the budget and the source's device allow."""
    several = source.array is None or source.array.device == "cpu"
    threads = thread_count() if several else 1
    scratch = sum(math.prod(largest_chunk(grid)) for grid in (source.grid, dest)) * source.itemsize
    regions = cut(source.grid, dest, source.itemsize, budget_nbytes // threads - scratch)
    if len(regions) >= threads and (regions.nbytes + scratch) * threads <= budget_nbytes:
        return Route("decode", regions, threads)
    # few or large regions: one at a time, with all threads in it
    regions = cut(source.grid, dest, source.itemsize, budget_nbytes - threads * scratch)
    return Route("decode", regions, 1)


def same_fill(source: ArrayMeta, dest: ArrayMeta) -> bool:
    """Whether missing chunks may stay missing: they read the same, bit for bit, or were undefined before."""
    return source.fill_value is None or same_value(source.fill_value, dest.fill_value, dest.data_type)


def _stores_all(array: Array) -> bool:
    """Whether an array without shards stores all its chunks. Lists its keys."""
    meta = array.metadata
    return meta.sharding is None and len(objects_stored(meta, array.store, array.path)) == nchunks(meta.grid)


def same_objects(one: ArrayMeta, other: ArrayMeta) -> bool:
    """Whether the stored objects of two arrays are encoded alike, shards included."""
    if one.grid != other.grid or not _same_elements(one, other):
        return False
    return one.codecs == other.codecs or (one.sharding is other.sharding is None and _resolved(one) == _resolved(other))


def same_chunks(one: ArrayMeta, other: ArrayMeta) -> bool:
    """Whether the chunks of two arrays are encoded alike, wherever they are stored."""
    if not one.shape or one.chunk_grid != other.chunk_grid or not _same_elements(one, other):
        return False
    return _resolved(one) == _resolved(other)


def _resolved(meta: ArrayMeta) -> tuple[CodecSpec, ...]:
    """The codecs of the innermost chunks, resolved for their dtype and shape."""
    specs = find_shardings(meta.codecs, len(meta.shape))[1]
    chunk = ArrayRepr(meta.data_type.dtype, meta.chunks, meta.fill_value)
    return tuple(step.spec for step in prepare(specs, chunk))


def _same_elements(one: ArrayMeta, other: ArrayMeta) -> bool:
    return one.shape == other.shape and one.data_type == other.data_type and same_fill(one, other)


def copy_array(
    source: Source, dest: Array, route: Route, present: frozenset[Coords], done: Callable[[int], None]
) -> None:
    """Copy a source into an array of the same shape, without the objects at the coordinates ``present``.

    ``done`` is called with the decoded bytes of every part. If ChunkError or StoreError is raised, what was written
    before stays; every object is whole or missing.
    """
    if route.how == "decode":
        target = _Destination(source, dest, present)
        copy_regions(source, target.write, route, target.is_done, done)
    elif source.array is not None:
        _copy_encoded(source, source.array, dest, route.how, present, done)


def copy_regions(
    source: Source,
    write: Callable[[Region, Any], None],
    route: Route,
    skip: Callable[[Region], bool] = lambda _region: False,
    done: Callable[[int], None] = lambda _nbytes: None,
) -> None:
    """Read and write every region that is not skipped, as many at once as the route says."""
    regions = route.regions or ()

    def copy_one(region: Region) -> None:
        if not skip(region):
            write(region, source.read(region))
        done(size_of(region) * source.itemsize)

    if route.workers > 1:
        backend = CpuBackend() if source.array is None else source.array.backend
        backend.run(copy_one, regions, Work(len(regions), source.nbytes // max(len(regions), 1), 1))
    else:
        for region in regions:
            copy_one(region)


class _Destination:
    """The destination of a copy that decodes, which skips what need not be written.

    That is objects that are present. If the source's fill value is undefined, it is also objects for which the source
    stores nothing. With a fill value, chunks equal to it are never stored, so missing chunks stay missing.
    """

    def __init__(self, source: Source, dest: Array, present: frozenset[Coords]) -> None:
        self._dest = dest
        self._grid = dest.metadata.grid
        self._present = present
        self._stored: set[Coords] | None = None
        array = source.array
        if array is not None and not array.is_view and array.metadata.fill_value is None:
            self._stored = set(objects_stored(array.metadata, array.store, array.path))
            self._source_grid = array.metadata.grid

    def is_done(self, region: Region) -> bool:
        """Whether a region need not be read at all."""
        if self._present and self._present.issuperset(product(*chunk_spans(self._grid, region))):
            return True
        return not self._has_data(region)

    def write(self, region: Region, data: Any) -> None:
        """Write a region."""
        objects = list(Regions(self._grid, (1,) * len(self._grid), 1).within(region)) if self._stored else [region]
        wanted = [box for box in objects if self._has_data(box)]
        if len(wanted) == len(objects):
            self._dest[region] = data
            return
        for box in wanted:
            inside = tuple(slice(b.start - r.start, b.stop - r.start) for b, r in zip(box, region, strict=True))
            self._dest[box] = data[inside]

    def _has_data(self, box: Region) -> bool:
        return self._stored is None or not self._stored.isdisjoint(product(*chunk_spans(self._source_grid, box)))


def _copy_encoded(
    source: Source, array: Array, dest: Array, how: str, present: frozenset[Coords], done: Callable[[int], None]
) -> None:
    """Copy without decoding."""
    grid = dest.metadata.grid
    wanted = (coords for coords in product(*(range(axis.nchunks) for axis in grid)) if coords not in present)
    before, after = (prepare_array(a.metadata, a.store, a.path, *a.opened_with.reading) for a in (array, dest))

    def nbytes(some: Iterable[Coords]) -> int:
        return sum(size_of(chunks_region(grid, coords)) for coords in some) * source.itemsize

    def copy_some(batch: Sequence[Coords]) -> None:
        if how == "objects":
            _copy_objects(before, after, batch)
        else:
            _build_object(before, after, batch[0])
        done(nbytes(batch))

    if present:
        done(nbytes(present))
    size = _BATCH if how == "objects" else 1
    batches = iter(lambda: tuple(islice(wanted, size)), ())
    count = max(nchunks(grid), 1)
    array.backend.run(copy_some, batches, Work(count, source.nbytes // count, size))


def _copy_objects(source: ArrayIO, dest: ArrayIO, batch: Sequence[Coords]) -> None:
    buffers = source.store.get_many([Request(source.layout.key(coords)) for coords in batch])
    items = [(dest.layout.key(c), data) for c, data in zip(batch, buffers, strict=True) if data is not None]
    if items:
        dest.store.set_many(items)


def _build_object(source: ArrayIO, dest: ArrayIO, coords: Coords) -> None:
    """Build an object of the destination from encoded chunks."""
    region = chunks_region(dest.layout.objects, coords)
    plan = make_plan(box_between([part.start for part in region], [part.stop for part in region]), source.layout.grid)
    chunks: dict[Coords, Buffer | None] = {}
    for group in plan.groups(source.layout.objects):
        buffers = load(source, [group], group[1])
        chunks |= {part.coords: data for part, data in zip(group[1], buffers, strict=True)}
    data = dest.layout.build(None, coords, chunks)
    if data is not None:
        dest.store.set(dest.layout.key(coords), data)
