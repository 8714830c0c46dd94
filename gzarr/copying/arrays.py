"""Copies one array into another: region by region, or without decoding if both store the same chunks."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

from gzarr.backend import Work
from gzarr.chunk_io.array_io import ArrayIO
from gzarr.chunk_io.prepare import find_shardings, prepare_array
from gzarr.chunk_io.reference import load
from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.chain import prepare
from gzarr.codecs.registry import standard
from gzarr.codecs.spec import ArrayRepr, CodecSpec
from gzarr.copying.sources import Source
from gzarr.cpu.backend import CpuBackend
from gzarr.cpu.threads import thread_count
from gzarr.dtypes import DataType
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.resizing import objects_stored
from gzarr.indexing.grid import Grid, largest_chunk, nchunks
from gzarr.indexing.keys import Coords, join_path
from gzarr.indexing.plan import box_between, make_plan
from gzarr.indexing.regions import Region, Regions, chunk_spans, chunks_region, cut, size_of
from gzarr.metadata.conventions import same_value
from gzarr.metadata.model import ArrayMeta
from gzarr.scale.blocks import BlockPlan, one_by_one
from gzarr.scale.running import run
from gzarr.storage.base import Buffer, Request
from gzarr.storage.tables import chains_of

#: Default host memory in bytes for the data that a copy has read.
BUDGET_NBYTES = 256 << 20
#: Blocks for each thread, at least, where objects are small.
_BLOCKS_A_THREAD = 4


@dataclass(frozen=True, slots=True)
class Route:
    """How one array will be copied.

    Attributes
    ----------
    how : {"decode", "chunks", "objects"}
        Decode region by region, put encoded chunks into other objects, or copy whole objects.
    regions : Regions
        Of whole objects of the destination.
    workers : int
        How many regions are copied at once.
    """

    how: str
    regions: Regions
    workers: int


def plan_route(source: Source, meta: ArrayMeta, budget_nbytes: int) -> Route:
    """Choose how a source is copied into an array with this metadata."""
    if (
        source.array is not None
        and not source.array.is_view
        and not chains_of(source.array.store.tables, source.array.path)
    ):
        before = source.array.metadata
        if not same_fill(before, meta) and _stores_all(source.array):
            before = replace(before, fill_value=meta.fill_value)  # no chunk shows it
        how = "objects" if same_objects(before, meta) else "chunks" if same_chunks(before, meta) else None
        if how is not None:
            threads = thread_count()
            most = min(budget_nbytes // threads, max(source.nbytes // (threads * _BLOCKS_A_THREAD), 1))
            return Route(how, cut(meta.grid, meta.grid, source.itemsize, most), threads)
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
    """The codecs of the innermost chunks, resolved for their dtype and shape; crc32c is the same of either name."""
    specs = find_shardings(meta.codecs, len(meta.shape))[1]
    chunk = ArrayRepr(meta.data_type.dtype, meta.chunks, meta.fill_value)
    return tuple(standard(step.spec) for step in prepare(specs, chunk))


def _same_elements(one: ArrayMeta, other: ArrayMeta) -> bool:
    return one.shape == other.shape and _ordered(one) == _ordered(other) and same_fill(one, other)


def _ordered(meta: ArrayMeta) -> tuple[DataType, str | None]:
    """The data type and its byte order, which v2 has in the one and v3 in the codec bytes."""
    dtype, orders = meta.data_type.dtype, [spec.endian for spec in _resolved(meta) if isinstance(spec, BytesCodec)]
    if dtype.fields is not None or not orders:
        return meta.data_type, None
    return replace(meta.data_type, dtype=dtype.newbyteorder("=")), orders[0]


class CopyBlock:
    """Copies the region with a number; see `gzarr.scale.blocks.BlockPlan.do`.

    What need not be written is skipped: objects that are present if a copy is resumed, and, if the source's fill value
    is undefined, objects for which the source stores nothing. With a fill value, chunks equal to it are never stored,
    so missing chunks stay missing. If ChunkError or StoreError is raised, what was written before stays; every object
    is whole or missing.
    """

    def __init__(self, source: Source, dest: Callable[[], Array], route: Route, *, resuming: bool) -> None:
        """Say what is copied. dest: makes the array, of which no metadata are stored yet."""
        self._source, self._make, self._route, self._resuming = source, dest, route, resuming

    def __call__(self, number: int) -> None:
        """Copy it."""
        region = self._route.regions.at(number)
        objects = list(product(*chunk_spans(self._route.regions.grid, region)))
        missing = self._missing(objects) if self._resuming else objects
        if not missing:
            return
        if self._route.how == "objects":
            _copy_objects(*self._sides, missing)
        elif self._route.how == "chunks":
            for coords in missing:
                _build_object(*self._sides, coords)
        else:
            wanted = [coords for coords in objects if self._has_data(coords)]
            if wanted:
                self._decode(region, objects, wanted)

    def _decode(self, region: Region, objects: Sequence[Coords], wanted: Sequence[Coords]) -> None:
        data = self._source.read(region)
        if len(wanted) == len(objects):
            self._dest[region] = data
            return
        for coords in wanted:
            box = chunks_region(self._route.regions.grid, coords)
            inside = tuple(slice(b.start - r.start, b.stop - r.start) for b, r in zip(box, region, strict=True))
            self._dest[box] = data[inside]

    def _missing(self, objects: Sequence[Coords]) -> list[Coords]:
        store, keys = self._dest.store, [self._dest.metadata.keys.encode(coords) for coords in objects]
        sizes = store.together(store.getsize, [join_path(self._dest.path, key) for key in keys])
        return [coords for coords, size in zip(objects, sizes, strict=True) if size is None]

    @cached_property
    def _dest(self) -> Array:
        return self._make()

    @cached_property
    def _sides(self) -> tuple[ArrayIO, ArrayIO]:
        """Both arrays, if the source is one and is not decoded."""
        sides: tuple[Any, Any] = (self._source.array, self._dest)
        before, after = (prepare_array(a.metadata, a.store, a.path, *a.opened_with.reading) for a in sides)
        return before, after

    @cached_property
    def _stored(self) -> set[Coords] | None:
        array = self._source.array
        if array is None or array.is_view or array.metadata.fill_value is not None:
            return None
        return set(objects_stored(array.metadata, array.store, array.path))

    def _has_data(self, coords: Coords) -> bool:
        if self._stored is None or self._source.array is None:
            return True
        spans = chunk_spans(self._source.array.metadata.grid, chunks_region(self._route.regions.grid, coords))
        return not self._stored.isdisjoint(product(*spans))


def copy_blocks(source: Source, route: Route, do: Callable[[int], object], **how: Any) -> BlockPlan:
    """The regions of a route as blocks. how: other fields of `BlockPlan`."""
    regions = route.regions

    def threads(task: Callable[[int], None], numbers: Iterable[int]) -> None:
        if route.workers == 1:
            one_by_one(task, numbers)
            return
        n = max(math.prod(axis.nchunks for axis in regions.grid) if route.how != "decode" else len(regions), 1)
        backend = CpuBackend() if source.array is None else source.array.backend
        backend.run(task, numbers, Work(n, source.nbytes // n, -(-n // max(len(regions), 1))))

    def size(number: int) -> int:
        return size_of(regions.at(number)) * source.itemsize

    return BlockPlan(name=source.name, n=len(regions), do=do, size=size, threads=threads, **how)


def copy_regions(source: Source, write: Callable[[Region, Any], None], route: Route) -> None:
    """Read and write every region, as many at once as the route says."""

    def copy_one(number: int) -> None:
        region = route.regions.at(number)
        write(region, source.read(region))

    run([copy_blocks(source, route, copy_one)])


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
