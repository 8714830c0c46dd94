"""The reference path, the last executor: it reads and writes whatever the others leave, and leaves nothing.

Theory of operation. A batch is a handful of stored objects with the parts wanted of each. To read one: locate, load,
place. To write one, whose objects the engine has locked: load the objects that are only partly covered, merge and
encode (the backend also drops chunks that equal the fill value), build the objects' new bytes, store.

The backend says how many decoded bytes a batch may hold. Where a store takes many requests at once, batches are larger,
and several of them are under way.

Rule: the lock of an object is held from reading its old bytes to storing its new ones, even by writes that cover the
object whole. Otherwise a partial write beside such a write could bring the old contents back. Other processes are
excluded by the locks where the store has such locks; `gzarr.chunk_io.merging` is for stores that have conditions.
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain as chained
from operator import attrgetter, eq
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from gzarr.backend import Array, Chain, Fields, Work
from gzarr.chunk_io.array_io import ArrayIO
from gzarr.chunk_io.chunk_cache import Place
from gzarr.chunk_io.merging import merge_unless_replaced
from gzarr.concurrency import Turns
from gzarr.errors import ChunkError, ChunkNotFoundError, CodecError, ReplacedError, SelectionError
from gzarr.indexing.copies import CopyPlan, Plan, Slots
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import Groups, Part
from gzarr.layout.chunk_layout import PINNED, Located
from gzarr.layout.shard_file import ShardFile, find_shard_file
from gzarr.profiling.recorder import count_buffers, count_bytes, here, staged, sum_nbytes
from gzarr.storage.base import Buffer, Request, Store, tokens_of
from gzarr.storage.wrappers import PinnedStore

T = TypeVar("T")

#: Decoded bytes of a batch where a store takes many requests at once: what waiting for a server costs is shared by the
#: requests of a batch, and the cache that smaller batchs are made for is of no use to it.
WAITING_BATCH_NBYTES = 1 << 24
#: Decoded bytes of all batchs that are under way at once there. A connection brings 50 to 100 MB/s, so the shards of 16
#: MiB that fit keep a network of 10 Gbit/s busy; what is written is encoded meanwhile, which takes longer.
READING_NBYTES, WRITING_NBYTES = 1 << 28, 7 << 23
#: The same for objects so large that each is a batch: a connection takes long for one of them.
_WRITING_LARGE_NBYTES = 1 << 27
#: Batches of a short read there, so that one is decoded while others come, and of what is written at once.
_WAITING_BATCHES = 4
#: Chunks of so many bytes take long enough to decode for that.
PARALLEL_NBYTES = 1 << 18

#: One stored object: as many of them at once as a server takes, which is more than there are threads.
_SINGLE = Work(1, 0, 1, at_once=64)

#: How often a read starts over because a shard was replaced under it, before it gives up.
MAX_RETRIES = 100
#: Seconds to wait for a turn to build objects.
_TURN_S = 0.5

#: For each core one: what objects are built from takes as much memory as they do.
_builders = Turns(os.cpu_count() or 1, _TURN_S)
_is_full = attrgetter("full")


class ReadJob(NamedTuple):
    """A selection to read into ``out``, which has the plan's shape and is on the backend's device.

    For a `CopyPlan`, ``out`` is a tuple of the blocks that hold its slots: arrays of shape (rows, *size) and one dtype,
    to which the array's dtype can be cast without a change of kind.
    """

    io: ArrayIO
    plan: Plan
    out: Array
    fields: Fields = None


class WriteJob(NamedTuple):
    """A selection to write from ``value``, which has the plan's shape.

    Chunks equal to the fill value are removed, unless ``write_empty``. Where a store has conditions, ``check`` is
    called between the reading and the storing of objects, and raises what keeps these from being stored.
    """

    io: ArrayIO
    plan: Plan
    value: Array
    fields: Fields = None
    write_empty: bool = False
    check: Callable[[], object] | None = None


class ReferenceRead(NamedTuple):
    """A read by the reference path (as `gzarr.backend.ReadExecutor`, with nothing to retry)."""

    job: ReadJob
    batches: Iterable[Groups] = ()
    work: Work = _SINGLE

    def read(self, batch: Groups) -> Groups:
        """Read a batch. Returns: nothing, as nothing is left. Raises: ChunkError, StoreError."""
        job, io = self.job, self.job.io
        place: Place = io.backend.place
        out = job.out if type(job.out) is not tuple else _slots(job)
        if io.cache is not None:
            batch, place = io.cache.serve(io.layout, io.backend, batch, (out, job.fields))
            if not batch:
                return []
        parts = batch[0][1] if len(batch) == 1 else [part for _, members in batch for part in members]
        buffers = load(io, batch, parts)
        if not io.read_missing:
            check_present(io, batch, buffers)
        for chain, positions in by_chain(io, parts):
            some = buffers, parts
            if len(positions) < len(parts):
                some = pick(buffers, positions), pick(parts, positions)
            try:
                count = partial(_count_placed, chain, *some, out)
                staged("place", place, chain, *some, out, job.fields, count=count)
            except CodecError as error:
                raise chunk_error(io, batch, error, positions) from error
        return []


#: Stored objects with their parts, and which of them the parts cover, so that their old bytes are not needed.
Covered: TypeAlias = tuple[Groups, Sequence[bool]]


class ReferenceWrite(NamedTuple):
    """A write by the reference path (`gzarr.backend.WriteExecutor`)."""

    job: WriteJob
    batches: Iterable[Covered] = ()
    work: Work = _SINGLE
    stage: str = "build"

    def objects(self, batch: Covered) -> tuple[list[str], list[str]]:
        """The objects of a batch, and those that are merged."""
        groups, covered = batch
        keys = [self.job.io.layout.key(coords) for coords, _ in groups]
        return keys, [key for key, whole in zip(keys, covered, strict=True) if not whole]

    def write(self, batch: Covered, keys: Sequence[str], merged: Sequence[str]) -> Groups:
        """Write a batch. Returns: nothing, as nothing is left. Raises: ChunkError, StoreError."""
        job, (groups, covered) = self.job, batch
        store = job.io.store
        conditional = store.conditional if merged else None
        if conditional is None:
            _merge_and_store(job, groups, keys, merged)
        else:
            build = partial(_rebuild, job, groups, keys)
            merge_unless_replaced(store, conditional, (keys, covered), build, job.check)
        return []


def make_reference_write(job: WriteJob, nparts: int) -> ReferenceWrite:
    """Cut a write into batches. nparts: of the plan."""
    batches, work = cut_job(job, nparts, job.value)
    return ReferenceWrite(job, chained.from_iterable(map(partial(find_covered, job), batches)), work)


def find_covered(job: WriteJob, groups: Groups) -> list[Covered]:
    """Find out which objects of a batch are covered, and cut it if the store does not lock as many others at once."""
    (_, cut), checks = job.io.layout.cut or job.io.layout.find_cut(), job.check is not None
    # Of objects that reach beyond the array, others may have written what is there.
    covered = [
        not checks and True not in map(eq, coords, cut) and _covers_known(job, coords, parts)
        for coords, parts in groups
    ]
    most = job.io.store.max_locked
    if most is None or len(groups) <= most or all(covered):
        return [(groups, covered)]
    merged = [position for position, whole in enumerate(covered) if not whole]
    whole_ones = [position for position, whole in enumerate(covered) if whole]
    cuts = whole_ones, *(merged[start : start + most] for start in range(0, len(merged), most))
    return [(pick(groups, some), pick(covered, some)) for some in cuts if some]


def cut_job(job: ReadJob | WriteJob, nparts: int, value: Array) -> tuple[Iterable[Groups], Work]:
    """Return the batches of a job and how much there is to do in all. value: what is read into, or written."""
    io, plan = job.io, job.plan
    if nparts == 1:
        return (list(plan.groups(io.layout.objects)),), _SINGLE
    nbytes = max(io.chunk_nbytes, 1)
    least = io.backend.batch_nchunks(io.only_chain, nparts, nbytes, writing=isinstance(job, WriteJob))
    first = value[0] if type(value) is tuple else value
    itemsize = first.dtype.itemsize if hasattr(first, "dtype") else 1
    nelements = plan.nelements if isinstance(plan, CopyPlan) else math.prod(plan.shape)
    work = Work(nparts, nelements * itemsize // max(nparts, 1), least)
    if io.store.concurrency == 1:
        return _cut(io, plan, (least, least), 1), work
    return _waiting_batches(job, work, nbytes)


def _waiting_batches(job: ReadJob | WriteJob, work: Work, nbytes: int) -> tuple[Iterable[Groups], Work]:
    """Return the batches of a job whose store takes many requests at once, and how much there is to do in all.

    work: how much there is to do where nothing waits. nbytes: of a decoded chunk.
    """
    requests, least = job.io.store.concurrency, work.batch_nchunks
    batch_nbytes = WRITING_NBYTES // _WAITING_BATCHES if isinstance(job, WriteJob) else WAITING_BATCH_NBYTES
    most = max(least, batch_nbytes // nbytes)
    if nbytes >= PARALLEL_NBYTES:
        most = max(least, min(most, work.nchunks // _WAITING_BATCHES))
    batches = _cut(job.io, job.plan, (least, most), requests)
    first = next(batches, [])
    batch_nbytes = nbytes * sum(len(parts) for _, parts in first)
    under_way = READING_NBYTES
    if isinstance(job, WriteJob):
        under_way = WRITING_NBYTES if len(first) > 1 else _WRITING_LARGE_NBYTES
    at_once = min(2 * requests // max(len(first), 1), under_way // max(batch_nbytes, 1))
    return chained((first,), batches), work._replace(batch_nchunks=most, waits=True, at_once=max(at_once, 1))


def _cut(io: ArrayIO, plan: Plan, limits: tuple[int, int], nobjects: int) -> Iterator[Groups]:
    """Cut a plan into batches of whole objects.

    limits: chunks of a batch, or few more: so many if they are in so many objects, and in any case.
    """
    least, most = limits
    batch: Groups = []
    count = 0
    for group in plan.groups(io.layout.objects):
        batch.append(group)
        count += len(group[1])
        if count >= most or (count >= least and len(batch) >= nobjects):
            yield batch
            batch, count = [], 0
    if batch:
        yield batch


def _slots(job: ReadJob) -> Slots:
    """The slots of a `CopyPlan`. Raises: SelectionError for fields, or for values that they cannot hold."""
    slots, dtype = Slots(job.out), job.io.chain((0,) * len(job.io.layout.grid)).chunk.dtype
    if job.fields is not None:
        raise SelectionError(f"{job.io.name}: copies are made of whole elements, not of the fields {job.fields!r}")
    if not np.can_cast(dtype, slots.dtype, "same_kind"):
        raise SelectionError(f"{job.io.name}: {dtype} cannot become {slots.dtype} without a change of kind")
    return slots


def load(io: ArrayIO, groups: Groups, parts: Sequence[Part]) -> list[Buffer | None]:
    """Fetch the encoded chunks of a batch into host memory."""
    layout, store = io.layout, io.store
    if layout.objects is layout.grid:
        try:
            return _fetch(io, store, [Request(layout.key(part.coords)) for part in parts])
        except CodecError as error:
            raise chunk_error(io, groups, error, range(len(parts))) from error
    keys = [layout.key(coords) for coords, _ in groups]
    versions = store.versions
    if versions is not None and versions.pins:
        return _load_pinned(io, groups, parts)
    for _ in range(MAX_RETRIES):
        before = tokens_of(store, keys)
        try:
            located = _locate(io, store, groups, before)
            buffers = _fetch(io, store, located)
        except (CodecError, ChunkError) as error:
            if tokens_of(store, keys) != before:
                continue
            if isinstance(error, ChunkError):
                raise
            raise chunk_error(io, groups, error, range(len(parts))) from error
        # Ranges and the index they came from must be of one version of the shard.
        if not any(isinstance(item, Request) for item in located) or tokens_of(store, keys) == before:
            return buffers
    raise _replaced_too_often(io, keys[0])


def _load_pinned(io: ArrayIO, groups: Groups, parts: Sequence[Part]) -> list[Buffer | None]:
    """Fetch the chunks of a batch from a store that ties reads to versions itself.

    A version whose index is cached is assumed to be the current one; if it is, reading takes a single round trip.
    Otherwise the answer that brings the index says which version that is, and the chunks are of the same version.
    A shard of which a cached index has none of the chunks is asked for its version, as no other request would be made.
    """
    keys = [io.layout.key(coords) for coords, _ in groups]
    cached = {key: io.layout.cached_token(key) for key in keys}
    versions = {key: token for key, token in cached.items() if token is not None}
    for _ in range(MAX_RETRIES):
        pinned = PinnedStore(io.store, versions)
        try:
            located = _locate(io, pinned, groups, [PINNED] * len(keys))
            assumed = _without_chunks(keys, groups, located, versions)
            if assumed and tokens_of(io.store, assumed) != [versions[key] for key in assumed]:
                versions = {}
                continue
            return _fetch(io, pinned, located)
        except ReplacedError:
            versions = {}
        except CodecError as error:
            raise chunk_error(io, groups, error, range(len(parts))) from error
    raise _replaced_too_often(io, keys[0])


def _fetch(io: ArrayIO, store: Store, wanted: Sequence[Located]) -> list[Buffer | None]:
    """Fetch located chunks into host memory. Raises: CodecError(index)."""
    return staged("read", io.backend.load, store, wanted, count=count_buffers)


def _count_placed(
    chain: Chain, buffers: Sequence[Buffer | None], parts: Sequence[Part], out: Array | Slots, _placed: None
) -> tuple[int, int, int]:
    """Count what was decoded and placed, for a profile."""
    n, indices, shape = sum(buffer is not None for buffer in buffers), [part.out for part in parts], ()
    nbytes = n * (chain.chunk.nbytes or 0)
    if noted := here():
        noted.within("decode").count(n, sum_nbytes(buffers), nbytes)
    if isinstance(out, Slots):
        indices, shape = [copy.out[1:] for copies in indices for copy in copies], out.blocks[0].shape
    elements = np.broadcast_to(np.False_, getattr(out, "shape", shape))  # takes no memory
    return len(parts), nbytes, sum(elements[index].size for index in indices) * out.dtype.itemsize


def _without_chunks(
    keys: Sequence[str], groups: Groups, located: Sequence[Located], versions: Mapping[str, object]
) -> list[str]:
    """Keys of the shards with known versions of which no chunk is there."""
    if not versions or all(item is not None for item in located):
        return []
    owners = (key for key, (_, members) in zip(keys, groups, strict=True) for _ in members)
    with_chunks = {key for key, item in zip(owners, located, strict=True) if item is not None}
    return [key for key in versions if key not in with_chunks]


def _replaced_too_often(io: ArrayIO, key: str) -> ChunkError:
    return ChunkError(f"the shard was replaced {MAX_RETRIES} times while it was read", path=io.name, key=key)


def _locate(io: ArrayIO, store: Store, groups: Groups, tokens: Sequence[object | None]) -> list[Located]:
    """Say where the chunks of a batch are."""

    def locate(item: "tuple[tuple[Coords, list[Part]], object | None]") -> "Sequence[Located]":
        (coords, parts), token = item
        key = io.layout.key(coords)
        try:
            places = io.layout.locate(store, coords, token, wanted=len(parts))
            return places.located(key, [part.coords for part in parts])
        except CodecError as error:
            raise _object_error(io, key, error) from error

    return [place for places in store.together(locate, list(zip(groups, tokens, strict=True))) for place in places]


def _object_error(io: ArrayIO, key: str, error: CodecError) -> ChunkError:
    """Return an error that names the object."""
    return ChunkError(str(error), path=io.name, key=key, codec=error.codec)


def _covers_known(job: WriteJob, coords: Coords, parts: Sequence[Part]) -> bool:
    """Whether parts cover what an object holds within the array, as far as its extents are known here."""
    return job.fields is None and all(map(_is_full, parts)) and job.io.layout.is_whole(coords, len(parts))


def _merge_and_store(job: WriteJob, groups: Groups, keys: Sequence[str], merged: Sequence[str]) -> None:
    """Merge and store the objects of a batch, which are locked."""
    store = job.io.store
    if merged:
        left = [i for i, key in enumerate(keys) if key not in merged or not _append(job, groups[i])]
        if not left:
            return
        groups, keys = pick(groups, left), pick(keys, left)
        merged = [key for key in merged if key in keys]
    old = _load_old(job, keys, merged) if merged else [None] * len(keys)
    segments = store.segments
    build = job.io.layout.build if segments is None else job.io.layout.segments
    if store.concurrency == 1:
        built = _build(job, groups, keys, old, build)
    else:
        built = _builders.call(partial(_build, job, groups, keys, old, build))
    items: list[tuple[str, Any]] = []
    emptied: list[str] = []
    for key, data in zip(keys, built, strict=True):
        if data is None or (segments is not None and not data):
            emptied.append(key)
        else:
            items.append((key, data))
    if items:
        each = (data if segments is not None else (data,) for _, data in items)
        staged("store", (segments or store).set_many, items, count=lambda _: count_bytes(chained.from_iterable(each)))
    if emptied:
        staged("store", store.delete_many, emptied)


def _append(job: WriteJob, group: tuple[Coords, list[Part]]) -> bool:
    """Replace chunks of an object, which is locked, in a copy of its file. Returns: whether that was done."""
    coords, parts = group
    shard = find_shard_file(job.io.layout, job.io.store, coords, len(parts))
    try:
        return shard is not None and shard.replace(_new_chunks(job, [group], [shard])[0])
    except (CodecError, ChunkError):  # damaged or just replaced by others: its bytes will tell, read at once
        return False


def _rebuild(
    job: WriteJob,
    groups: Groups,
    keys: Sequence[str],
    positions: Sequence[int],
    stored: Sequence[Buffer | None],
    write_empty: bool,
) -> list[Buffer | None]:
    """Build some objects of a batch (`gzarr.chunk_io.merging.Build`)."""
    if write_empty:
        job = job._replace(write_empty=True)
    if len(positions) < len(groups):
        groups, keys = pick(groups, positions), pick(keys, positions)
    return _build(job, groups, keys, stored, job.io.layout.build)


def _build(
    job: WriteJob, groups: Groups, keys: Sequence[str], stored: Sequence[Buffer | None], build: Callable[..., T]
) -> list[T]:
    """The new bytes of every object as `build` gives them. stored: their old bytes. build: of the layout."""
    built: list[T] = []
    changed = _new_chunks(job, groups, stored)
    for (coords, parts), key, old, chunks in zip(groups, keys, stored, changed, strict=True):
        try:
            built.append(build(old, coords, chunks))
        except CodecError as error:
            if not _covers_known(job, coords, parts):
                raise _object_error(job.io, key, error) from error
            built.append(build(None, coords, chunks))
    return built


def _load_old(job: WriteJob, keys: Sequence[str], merged: Sequence[str]) -> list[Buffer | None]:
    """The old bytes of the objects that are merged; None for the others, and for those that are missing."""
    asked = list(map(Request, merged))
    stored = staged("load old", job.io.store.get_many, asked, count=count_bytes)
    old = dict(zip(merged, stored, strict=True))
    return [old.get(key) for key in keys]


def _new_chunks(
    job: WriteJob, groups: Groups, stored: Sequence[Buffer | ShardFile | None]
) -> list[dict[Coords, Buffer | None]]:
    """The new encoded contents of the chunks of each object; None for those that are now empty."""
    io = job.io
    parts = [part for _, members in groups for part in members]
    owners = [number for number, (_, members) in enumerate(groups) for _ in members]
    is_new = {*map(type, stored)} == {type(None)}
    old: list[Buffer | None] = [None] * len(parts) if is_new else _old_chunks(job, groups, stored)
    changed: list[dict[Coords, Buffer | None]] = [{} for _ in groups]
    for chain, positions in by_chain(io, parts):
        some, members = old, parts
        if len(positions) < len(parts):
            some, members = pick(old, positions), pick(parts, positions)
        encoded = _merge_and_encode(job, groups, chain, (some, members), positions)
        for position, part, data in zip(positions, members, encoded, strict=True):
            changed[owners[position]][part.coords] = data
    return changed


def _merge_and_encode(
    job: WriteJob,
    groups: Groups,
    chain: Chain,
    some: tuple[list[Buffer | None], Sequence[Part]],
    positions: Sequence[int],
) -> Sequence[Buffer | None]:
    """Encode the new contents of chunks. some: their old contents, and their parts. Raises: ChunkError."""
    old, parts = some
    encode = partial(job.io.backend.merge_and_encode, keep_empty=job.write_empty)

    def count(encoded: Sequence[Buffer | None]) -> tuple[int, int, int]:
        return len(encoded), len(encoded) * (chain.chunk.nbytes or 0), sum_nbytes(encoded)

    while True:
        try:
            return staged("encode", encode, chain, old, job.value, parts, job.fields, count=count)
        except CodecError as error:
            at = error.index
            if at >= len(parts) or old[at] is None or not parts[at].full or job.fields is not None:
                raise chunk_error(job.io, groups, error, positions) from error
            old[at] = None  # damaged, and all of it that is known to lie in the array is replaced


def _old_chunks(job: WriteJob, groups: Groups, stored: Sequence[Buffer | ShardFile | None]) -> list[Buffer | None]:
    """The encoded old contents of the chunks that are not replaced whole; None for the others."""
    layout = job.io.layout
    cut = layout.cut or layout.find_cut()
    old_chunks: list[Buffer | None] = []
    for (object_coords, parts), data in zip(groups, stored, strict=True):
        old: list[Buffer | None] = [None] * len(parts)
        if data is not None:
            merged = [
                i
                for i, part in enumerate(parts)
                if not part.full or job.fields is not None or True in map(eq, part.coords, cut[0])
            ]
            for i, buffer in zip(merged, _extract(job, object_coords, parts, merged, data), strict=True):
                old[i] = buffer
        old_chunks += old
    return old_chunks


def _extract(
    job: WriteJob, object_coords: Coords, parts: Sequence[Part], merged: Sequence[int], data: Buffer | ShardFile
) -> Sequence[Buffer | None]:
    """The encoded old contents of some chunks of an object. Raises: ChunkError."""
    chunks = [parts[i].coords for i in merged]
    if not chunks:
        return ()
    try:
        if isinstance(data, ShardFile):
            return data.extract(chunks)
        return job.io.layout.extract(data, object_coords, chunks)
    except CodecError as error:
        if not _covers_known(job, object_coords, parts):
            raise _object_error(job.io, job.io.layout.key(object_coords), error) from error
        return [None] * len(merged)  # damaged, and all of it that is known to lie in the array is replaced


def by_chain(io: ArrayIO, parts: Sequence[Part]) -> Iterable[tuple[Chain, Sequence[int]]]:
    """Group the parts of a batch by the chain of their chunks: (chain, positions)."""
    if io.only_chain is not None:
        return ((io.only_chain, range(len(parts))),)
    chains: dict[int, tuple[Chain, list[int]]] = {}
    for position, part in enumerate(parts):
        chain = io.chain(part.coords)
        chains.setdefault(id(chain), (chain, []))[1].append(position)
    return chains.values()


def pick(items: Sequence[T], positions: Sequence[int]) -> list[T]:
    """Some of the items, by their positions."""
    return [items[i] for i in positions]


def check_present(io: ArrayIO, groups: Groups, buffers: Sequence[Any]) -> None:
    """Raise ChunkNotFoundError for the first chunk of a batch that is not stored."""
    owners = [(coords, part) for coords, parts in groups for part in parts]
    for (object_coords, part), buffer in zip(owners, buffers, strict=True):
        if buffer is None:
            why = (
                "the chunk is not stored, and array.read_missing_chunks is False, so that it is not read as fill value"
            )
            key = io.layout.key(object_coords)
            raise ChunkNotFoundError(why, path=io.name, key=key, chunk_coords=part.coords)


def chunk_error(io: ArrayIO, groups: Groups, error: CodecError, positions: Sequence[int]) -> ChunkError:
    """Return an error that names the chunk of a batch. positions: of the batch's items in the groups."""
    owners: list[tuple[Any, Part]] = [(coords, part) for coords, parts in groups for part in parts]
    object_coords, part = owners[positions[min(error.index, len(positions) - 1)]]
    key = io.layout.key(object_coords)
    return ChunkError(str(error), path=io.name, key=key, chunk_coords=part.coords, codec=error.codec)
