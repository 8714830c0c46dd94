"""Reads and writes selections: cuts plans into waves, and takes each wave through layout, store and backend.

Theory of operation. A wave is a handful of stored objects with the parts wanted of each; the backend says how many
decoded bytes it may hold, and runs several waves at once where that pays. Reading a wave: locate, load, place. Writing
a wave: lock its objects, load what is only partly covered, merge and encode (the backend also drops what equals the
fill value), build the objects' new bytes, store. A backend may have compiled code that takes a job and does it in
pieces instead of waves (`Compiled`, `PieceJob`); what that leaves is done in waves, the reference path. Every wave or
piece of a write lies in objects of its own, so they never meet.

Rules: the per-key lock is held from reading an object's old bytes to storing its new ones, also by writes that cover
the object whole (else a partial write beside it could bring the old contents back). A shard that is replaced between
the reading of its index and of its chunks is read again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar

from gzarr.backend import Array, Backend, Chain, Compiled, Fields, PieceJob, Placement, Work
from gzarr.chunk_io.chunk_cache import ArrayChunks, Place
from gzarr.chunk_io.profiled_backend import profiled_backend
from gzarr.errors import ChunkError, CodecError, ReplacedError
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import Part, Plan
from gzarr.layout.chunk_layout import PINNED, Layout, Located
from gzarr.profiling.recorder import Marker, Recorder, recorder_for, stage, sum_nbytes
from gzarr.storage.base import Buffer, Request, Store, tokens_of
from gzarr.storage.invalidation import announce
from gzarr.storage.wrappers import PinnedStore

T = TypeVar("T")
Job = TypeVar("Job", "ReadJob", "WriteJob")

#: How often a read starts over because a shard was replaced under it, before it gives up.
MAX_RETRIES = 100

#: Decoded bytes that a wave may hold where a store takes many requests at once: what waiting for a server costs is
#: shared by the requests of a wave, while the cache that smaller waves are made for is of no use to it.
WAITING_WAVE_NBYTES = 1 << 26

_SINGLE = Work(1, 0, 1)
_is_full = attrgetter("full")

#: Stored objects, by coordinates in the grid of objects, with the parts wanted of each.
Wave: TypeAlias = list[tuple[Coords, list[Part]]]


class ArrayIO(NamedTuple):
    """Everything that reading and writing the chunks of one opened array needs.

    Attributes:
        name: what errors call the array.
        store: where its objects are.
        layout: where its chunks are.
        backend: what decodes them.
        chain: the prepared codecs of a chunk with given coordinates.
        only_chain: the chain of all chunks; None if they differ in shape, and so in their chains.
        chunk_nbytes: size of a decoded chunk, or an estimate.
        compiled: what takes reads and writes that compiled code does; None if the backend has no such code.
        cache: where decoded chunks are kept, or None.
        marker: what shows the stages of a profile on the device; None on the host.
    """

    name: str
    store: Store
    layout: Layout
    backend: Backend
    chain: Callable[[Coords], Chain]
    only_chain: Chain | None
    chunk_nbytes: int
    compiled: Compiled | None = None
    cache: ArrayChunks | None = None
    marker: Marker | None = None

    def placement(self) -> tuple[Placement, ...]:
        """Where each step of a read runs, and who reads and writes many chunks."""
        steps = self.chain((0,) * len(self.layout.grid)).placement
        return steps if self.compiled is None else (*steps, *self.compiled.placement())


class ReadJob(NamedTuple):
    """A selection to read into ``out``, which has the plan's shape and lies on the backend's device."""

    io: ArrayIO
    plan: Plan
    out: Array
    fields: Fields = None


class WriteJob(NamedTuple):
    """A selection to write from ``value``, which has the plan's shape. Chunks equal to the fill value are removed,
    unless ``write_empty``.
    """

    io: ArrayIO
    plan: Plan
    value: Array
    fields: Fields = None
    write_empty: bool = False


def read(jobs: Sequence[ReadJob]) -> None:
    """Carry out reads. Raises: ChunkError for damaged chunks, StoreError."""
    for job in jobs:
        io, nparts = job.io, job.plan.nparts
        taken = "" if io.compiled is None else io.compiled.take_read(job.plan, nparts, job.out, job.fields)
        if isinstance(taken, str):
            _run_waves(job, _read_wave, "locate", nparts, job.out)
        else:
            _run_pieces(job, taken, _read_wave, "locate")


def write(job: WriteJob) -> None:
    """Carry out a write. Objects written before a failure stay written; each is replaced whole or not at all.

    Raises: ChunkError for damaged old chunks or values that a codec refuses, ReadOnlyError, StoreError.
    """
    io, nparts = job.io, job.plan.nparts
    io.store.check_writable()
    taken: PieceJob | str = ""
    if io.compiled is not None:
        taken = io.compiled.take_write(job.plan, nparts, job.value, job.fields, keep_empty=job.write_empty)
    if isinstance(taken, str):
        _run_waves(job, _write_wave, "build", nparts, job.value)
    else:
        _run_pieces(job, taken, _write_wave, "build")


def _run_waves(job: Job, task: Callable[[Job, Wave], None], first: str, nparts: int, value: Array) -> None:
    """Do a job wave by wave. first: the stage that a wave begins with. value: what is read into, or written."""
    recorder = recorder_for(job.io.backend.device)
    job.io.backend.run(_task(task, job, recorder, first), *_waves_and_work(job.io, job.plan, nparts, value))


def _run_pieces(job: Job, pieces: PieceJob, task: Callable[[Job, Wave], None], first: str) -> None:
    """Do a job piece by piece. task, first: as in `_run_waves`, for what is left."""
    backend = job.io.backend
    recorder = recorder_for(backend.device)
    backend.run(_task(partial(_do_piece, pieces, task, first), job, recorder, "loop"), pieces.pieces(), pieces.work)
    again = pieces.again()
    if again is not None:
        backend.run(_task(task, job, recorder, first), ([group] for group in again), pieces.work)


def _do_piece(pieces: PieceJob, task: Callable[[Job, Wave], None], first: str, job: Job, piece: Any) -> None:
    store, keys = job.io.store, pieces.keys(piece)
    if keys:
        try:
            left = _while_locked(store, keys, lambda: pieces.do(piece, keys))
        finally:
            announce(lambda: [store.lock_name(key) for key in keys])
    else:
        left = pieces.do(piece, keys)
    if left:
        with stage(first):
            task(job, left)


def _task(task: Callable[[Job, T], None], job: Job, recorder: Recorder | None, first: str) -> Callable[[T], None]:
    """The task of a job, for each of its waves. recorder: who looks on. first: the stage that a wave begins with."""
    if recorder is None:
        return partial(task, job)
    job = job._replace(io=job.io._replace(backend=profiled_backend(job.io.backend, recorder)))
    return recorder.carry(first, partial(task, job), job.io.marker)


def _waves_and_work(io: ArrayIO, plan: Plan, nparts: int, value: Array) -> tuple[Iterable[Wave], Work]:
    """What is to be done, wave by wave, and how much that is in all."""
    if nparts == 1:
        return (list(plan.groups(io.layout.objects)),), _SINGLE
    nbytes = max(io.chunk_nbytes, 1)
    limit = min(max(io.backend.wave_nbytes // nbytes, 1), io.backend.wave_nchunks)
    limit = max(limit, min(io.store.concurrency, WAITING_WAVE_NBYTES // nbytes))
    itemsize = value.dtype.itemsize if hasattr(value, "dtype") else 1
    part_nbytes = math.prod(plan.shape) * itemsize // max(nparts, 1)
    return _waves(io, plan, limit), Work(nparts, part_nbytes, limit, waits=io.store.concurrency > 1)


def _waves(io: ArrayIO, plan: Plan, limit: int) -> Iterator[Wave]:
    """Cut a plan into waves of whole objects, with ``limit`` chunks or few more."""
    wave: Wave = []
    count = 0
    for group in plan.groups(io.layout.objects):
        wave.append(group)
        count += len(group[1])
        if count >= limit:
            yield wave
            wave, count = [], 0
    if wave:
        yield wave


def _by_chain(io: ArrayIO, parts: Sequence[Part]) -> Iterable[tuple[Chain, Sequence[int]]]:
    """The parts of a wave by the chain of their chunks: (chain, positions). One chain unless chunks differ in shape."""
    if io.only_chain is not None:
        return ((io.only_chain, range(len(parts))),)
    found: dict[int, tuple[Chain, list[int]]] = {}
    for position, part in enumerate(parts):
        chain = io.chain(part.coords)
        found.setdefault(id(chain), (chain, []))[1].append(position)
    return found.values()


def _taken(items: Sequence[T], positions: Sequence[int]) -> list[T]:
    return [items[i] for i in positions]


def _read_wave(job: ReadJob, wave: Wave) -> None:
    io = job.io
    place: Place = io.backend.place
    if io.cache is not None:
        wave, place = io.cache.serve(io.layout, io.backend, wave, (job.out, job.fields))
        if not wave:
            return
    parts = wave[0][1] if len(wave) == 1 else [part for _, members in wave for part in members]
    # A cache keeps whole chunks, so whole ones are fetched for it.
    first = io.only_chain or io.chain(parts[0].coords)
    buffers = _load(io, wave, parts, (first, parts if io.only_chain is not None and io.cache is None else ()))
    for chain, positions in _by_chain(io, parts):
        some = buffers, parts
        if len(positions) < len(parts):
            some = _taken(buffers, positions), _taken(parts, positions)
        try:
            place(chain, *some, job.out, job.fields)
        except CodecError as error:
            raise _chunk_error(io, wave, error, positions) from error


def load_encoded(io: ArrayIO, wave: Wave, parts: Sequence[Part]) -> list[Buffer | None]:
    """Fetch the encoded chunks of a wave, all of their bytes, into host memory whatever the backend."""
    return _load(io._replace(backend=io.backend.host), wave, parts, (None, ()))


def _load(io: ArrayIO, wave: Wave, parts: Sequence[Part], near: tuple[Chain | None, Sequence[Part]]) -> list[Any]:
    """Fetch what `Backend.place` will place. near: the last arguments of `Backend.load`."""
    layout, store = io.layout, io.store
    if layout.objects is layout.grid:
        try:
            return io.backend.load(store, [Request(layout.key(part.coords)) for part in parts], *near)
        except CodecError as error:
            raise _chunk_error(io, wave, error, range(len(parts))) from error
    keys = [layout.key(coords) for coords, _ in wave]
    versions = store.versions
    if versions is not None and versions.pins:
        return _load_pinned(io, wave, parts, near)
    for _ in range(MAX_RETRIES):
        before = tokens_of(store, keys)
        try:
            located = _locate(io, store, wave, before)
            buffers = io.backend.load(store, located, *near)
        except (CodecError, ChunkError) as error:
            if tokens_of(store, keys) != before:
                continue
            if isinstance(error, ChunkError):
                raise
            raise _chunk_error(io, wave, error, range(len(parts))) from error
        # Ranges and the index they came from must be of one version of the shard.
        if not any(isinstance(item, Request) for item in located):
            return buffers
        if tokens_of(store, keys) == before:
            return buffers
    raise _replaced_too_often(io, keys[0])


def _load_pinned(
    io: ArrayIO, wave: Wave, parts: Sequence[Part], near: tuple[Chain | None, Sequence[Part]]
) -> list[Any]:
    """Fetch what `Backend.place` will place from a store that ties reads to versions itself.

    A version whose index is kept is taken to hold still: if it does, reading takes a single round trip. Else the answer
    that brings the index says which version that is, and the chunks are of the same.
    """
    keys = [io.layout.key(coords) for coords, _ in wave]
    known = {key: io.layout.cached_token(key) for key in keys}
    versions = {key: token for key, token in known.items() if token is not None}
    for _ in range(MAX_RETRIES):
        pinned = PinnedStore(io.store, versions)
        try:
            return io.backend.load(pinned, _locate(io, pinned, wave, [PINNED] * len(keys)), *near)
        except ReplacedError:
            versions = {}
        except CodecError as error:
            raise _chunk_error(io, wave, error, range(len(parts))) from error
    raise _replaced_too_often(io, keys[0])


def _replaced_too_often(io: ArrayIO, key: str) -> ChunkError:
    return ChunkError(f"the shard was replaced {MAX_RETRIES} times while it was read", path=io.name, key=key)


def _locate(io: ArrayIO, store: Store, wave: Wave, generations: Sequence[object | None]) -> list[Located]:
    """Say where the chunks of a wave are."""

    def locate(item: tuple[tuple[Coords, list[Part]], object | None]) -> list[Located]:
        (coords, members), generation = item
        return _locate_in(io, store, coords, members, generation)

    return [place for places in store.together(locate, list(zip(wave, generations, strict=True))) for place in places]


def _locate_in(
    io: ArrayIO, store: Store, object_coords: Coords, parts: Sequence[Part], generation: object | None
) -> list[Located]:
    try:
        files = store.files if io.backend.reads_files else None
        may_fetch = files is None or files.path(io.layout.key(object_coords)) is None
        chunks = [part.coords for part in parts]
        return io.layout.locate(store, object_coords, chunks, generation, may_fetch=may_fetch)
    except CodecError as error:
        raise ChunkError(str(error), path=io.name, key=io.layout.key(object_coords), codec=error.codec) from error


def _write_wave(job: WriteJob, wave: Wave) -> None:
    keys = [job.io.layout.key(coords) for coords, _ in wave]
    _while_locked(job.io.store, keys, lambda: _merge_and_store(job, wave, keys))


def _while_locked(store: Store, keys: Sequence[str], task: Callable[[], T]) -> T:
    """Carry out a task while objects are locked."""
    lock = store.locked(keys)
    try:
        with lock:
            return task()
    except BaseException:
        lock.__exit__(None, None, None)  # once more: an interrupt may have come just as it began
        raise


def _merge_and_store(job: WriteJob, wave: Wave, keys: Sequence[str]) -> None:
    io = job.io
    stored = _load_old(job, wave, keys)
    changed = _new_chunks(job, wave, stored)
    items: list[tuple[str, Buffer]] = []
    emptied: list[str] = []
    for (coords, _), key, old, chunks in zip(wave, keys, stored, changed, strict=True):
        try:
            data = io.layout.build(old, coords, chunks)
        except CodecError as error:
            raise ChunkError(str(error), path=io.name, key=key, codec=error.codec) from error
        if data is None:
            emptied.append(key)
        else:
            items.append((key, data))
    try:
        with stage("store") as noted:
            if items:
                io.store.set_many(items)
            if emptied:
                io.store.delete_many(emptied)
            if noted:
                nbytes = sum_nbytes([data for _, data in items])
                noted.count(0, nbytes, nbytes)
    finally:
        announce(lambda: [io.store.lock_name(key) for key in keys])


def _load_old(job: WriteJob, wave: Wave, keys: Sequence[str]) -> list[Buffer | None]:
    """The old bytes of the objects that are not covered whole; None for those that are, or are missing."""
    covered = [
        job.fields is None and all(map(_is_full, parts)) and job.io.layout.is_whole(coords, len(parts))
        for coords, parts in wave
    ]
    if all(covered):
        return [None] * len(wave)
    wanted = [Request(key) for key, whole in zip(keys, covered, strict=True) if not whole]
    with stage("load old") as noted:
        stored = job.io.store.get_many(wanted)
        if noted:
            noted.count(0, sum_nbytes(stored), sum_nbytes(stored))
    rest = iter(stored)
    return [None if whole else next(rest) for whole in covered]


def _new_chunks(job: WriteJob, wave: Wave, stored: Sequence[Buffer | None]) -> list[dict[Coords, Buffer | None]]:
    """The new encoded contents of the chunks of each object; None for those that are now empty."""
    io = job.io
    parts = [part for _, members in wave for part in members]
    owners = [number for number, (_, members) in enumerate(wave) for _ in members]
    old = _old_chunks(job, wave, stored)
    changed: list[dict[Coords, Buffer | None]] = [{} for _ in wave]
    for chain, positions in _by_chain(io, parts):
        some, members = old, parts
        if len(positions) < len(parts):
            some, members = _taken(old, positions), _taken(parts, positions)
        try:
            encoded = io.backend.merge_and_encode(
                chain, some, job.value, members, job.fields, keep_empty=job.write_empty
            )
        except CodecError as error:
            raise _chunk_error(io, wave, error, positions) from error
        for position, part, data in zip(positions, members, encoded, strict=True):
            changed[owners[position]][part.coords] = data
    return changed


def _old_chunks(job: WriteJob, wave: Wave, stored: Sequence[Buffer | None]) -> list[Buffer | None]:
    """The encoded old contents of the chunks that are only partly covered; None for the others."""
    found: list[Buffer | None] = []
    for (object_coords, parts), data in zip(wave, stored, strict=True):
        partial_ones = [i for i, part in enumerate(parts) if not part.full or job.fields is not None]
        old: list[Buffer | None] = [None] * len(parts)
        if data is not None and partial_ones:
            try:
                taken = job.io.layout.extract(data, object_coords, [parts[i].coords for i in partial_ones])
            except CodecError as error:
                key = job.io.layout.key(object_coords)
                raise ChunkError(str(error), path=job.io.name, key=key, codec=error.codec) from error
            for i, buffer in zip(partial_ones, taken, strict=True):
                old[i] = buffer
        found += old
    return found


def _chunk_error(io: ArrayIO, wave: Wave, error: CodecError, positions: Sequence[int]) -> ChunkError:
    """Name the chunk that an item of a batch is. positions: where the batch's items stand in the wave."""
    owners: list[tuple[Any, Part]] = [(coords, part) for coords, parts in wave for part in parts]
    object_coords, part = owners[positions[min(error.index, len(positions) - 1)]]
    key = io.layout.key(object_coords)
    return ChunkError(str(error), path=io.name, key=key, chunk_coords=part.coords, codec=error.codec)
