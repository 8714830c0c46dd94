"""Reads and writes selections: cuts plans into waves, and takes each wave through layout, store and backend.

Theory of operation. A wave is a handful of stored objects with the parts wanted of each; the backend says how many
decoded bytes it may hold, and runs several waves at once where that pays. Reading a wave: locate, load, place. Writing
a wave: lock its objects, load and decode what is only partly covered, gather, drop what equals the fill value, encode,
build the objects' new bytes, store. Every wave lies in objects of its own, so waves never meet.

Rules: the per-key lock is held from reading an object's old bytes to storing its new ones, also by writes that cover
the object whole (else a partial write beside it could bring the old contents back). A shard that is replaced between
the reading of its index and of its chunks is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gzarr.backend import Array, Backend, Chain, Fields
from gzarr.errors import ChunkError, CodecError
from gzarr.keys import Coords
from gzarr.layout import Layout, Located
from gzarr.locks import key_locks
from gzarr.plan import Part, Plan
from gzarr.storage.base import Buffer, Request, Store

#: How often a read starts over because a shard was replaced under it, before it gives up.
MAX_RETRIES = 100

#: Stored objects, by coordinates in the grid of objects, with the parts wanted of each.
Wave: TypeAlias = list[tuple[Coords, list[Part]]]


@dataclass(frozen=True, slots=True)
class ArrayIO:
    """Everything that reading and writing the chunks of one opened array needs.

    Attributes:
        name: what errors call the array.
        store: where its objects are.
        layout: where its chunks are.
        backend: what decodes them.
        chain: the prepared codecs of a chunk with given coordinates.
        uniform: whether all chunks have one shape, and so one chain.
        chunk_nbytes: size of a decoded chunk, or an estimate.
    """

    name: str
    store: Store
    layout: Layout
    backend: Backend
    chain: Callable[[Coords], Chain]
    uniform: bool
    chunk_nbytes: int


@dataclass(frozen=True, slots=True)
class ReadJob:
    """A selection to read into ``out``, which has the plan's shape and lies on the backend's device."""

    io: ArrayIO
    plan: Plan
    out: Array
    fields: Fields = None


@dataclass(frozen=True, slots=True)
class WriteJob:
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
        io = job.io
        nbytes = job.plan.nparts * io.chunk_nbytes
        io.backend.run(lambda wave, job=job: _read_wave(job, wave), _waves(io, job.plan), nbytes)  # type: ignore[misc]


def write(job: WriteJob) -> None:
    """Carry out a write. Objects written before a failure stay written; each is replaced whole or not at all.

    Raises: ChunkError for damaged old chunks or values that a codec refuses, ReadOnlyError, StoreError.
    """
    job.io.store.check_writable()
    nbytes = job.plan.nparts * job.io.chunk_nbytes
    job.io.backend.run(lambda wave: _write_wave(job, wave), _waves(job.io, job.plan), nbytes)


def _waves(io: ArrayIO, plan: Plan) -> Iterator[Wave]:
    """Cut a plan into waves of whole objects, each of chunks of one shape."""
    limit = max(io.backend.wave_nbytes // max(io.chunk_nbytes, 1), 1)
    wave: Wave = []
    count = 0
    for group in plan.groups(io.layout.objects):
        wave.append(group)
        count += len(group[1])
        if count >= limit or not io.uniform:
            yield wave
            wave, count = [], 0
    if wave:
        yield wave


def _read_wave(job: ReadJob, wave: Wave) -> None:
    io = job.io
    if not io.uniform and len(wave[0][1]) > 1:
        for part in wave[0][1]:
            _read_wave(job, [(wave[0][0], [part])])
        return
    parts = wave[0][1] if len(wave) == 1 else [part for _, members in wave for part in members]
    buffers = _load_wave(io, wave, parts)
    try:
        io.backend.place(io.chain(parts[0].coords), buffers, parts, job.out, job.fields)
    except CodecError as error:
        raise _chunk_error(io, wave, error) from error


def _load_wave(io: ArrayIO, wave: Wave, parts: Sequence[Part]) -> list[Buffer | None]:
    """Fetch the encoded chunks of a wave."""
    layout, store = io.layout, io.store
    if layout.objects is layout.grid:
        return io.backend.load(store, [Request(layout.key(part.coords)) for part in parts])
    for _ in range(MAX_RETRIES):
        keys = [layout.key(coords) for coords, _ in wave]
        before = [store.generation(key) for key in keys]
        try:
            located: list[Located] = []
            for (coords, members), generation in zip(wave, before, strict=True):
                located += _locate(io, coords, members, generation)
            buffers = io.backend.load(store, located)
        except (CodecError, ChunkError) as error:
            if [store.generation(key) for key in keys] != before:
                continue
            if isinstance(error, ChunkError):
                raise
            raise _chunk_error(io, wave, error) from error
        # Ranges and the index they came from must be of one version of the shard.
        if not any(isinstance(item, Request) for item in located):
            return buffers
        if [store.generation(key) for key in keys] == before:
            return buffers
    raise ChunkError(
        f"the shard was replaced {MAX_RETRIES} times while it was read", path=io.name, key=layout.key(wave[0][0])
    )


def _locate(io: ArrayIO, object_coords: Coords, parts: Sequence[Part], generation: object | None) -> list[Located]:
    try:
        return io.layout.locate(io.store, object_coords, [part.coords for part in parts], generation)
    except CodecError as error:
        raise ChunkError(str(error), path=io.name, key=io.layout.key(object_coords), codec=error.codec) from error


def _write_wave(job: WriteJob, wave: Wave) -> None:
    io = job.io
    keys = [io.layout.key(coords) for coords, _ in wave]
    with key_locks([io.store.lock_name(key) for key in keys]):
        stored = _load_old(job, wave, keys)
        changed = [_new_chunks(job, coords, parts, old) for (coords, parts), old in zip(wave, stored, strict=True)]
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
        if items:
            io.store.set_many(items)
        if emptied:
            io.store.delete_many(emptied)


def _load_old(job: WriteJob, wave: Wave, keys: Sequence[str]) -> list[Buffer | None]:
    """The old bytes of the objects that are not covered whole; None for those that are, or are missing."""
    covered = [
        job.fields is None and all(part.full for part in parts) and job.io.layout.is_whole(coords, len(parts))
        for coords, parts in wave
    ]
    if all(covered):
        return [None] * len(wave)
    wanted = [Request(key) for key, whole in zip(keys, covered, strict=True) if not whole]
    found = iter(job.io.store.get_many(wanted))
    return [None if whole else next(found) for whole in covered]


def _new_chunks(
    job: WriteJob, object_coords: Coords, parts: Sequence[Part], stored: Buffer | None
) -> dict[Coords, Buffer | None]:
    """The new encoded contents of an object's chunks; None for those that are now empty."""
    io = job.io
    changed: dict[Coords, Buffer | None] = {}
    batches = [parts] if io.uniform else [[part] for part in parts]
    for batch in batches:
        chain = io.chain(batch[0].coords)
        try:
            old = _old_chunks(job, chain, object_coords, batch, stored)
            chunks = io.backend.gather(chain, job.value, batch, old, job.fields)
            empty = [False] * len(chunks) if job.write_empty else io.backend.is_fill(chain, chunks)
            kept = [i for i, is_empty in enumerate(empty) if not is_empty]
            encoded = io.backend.encode(chain, [chunks[i] for i in kept])
        except CodecError as error:
            raise _chunk_error(io, [(object_coords, list(batch))], error) from error
        changed.update(dict.fromkeys((part.coords for part in batch), None))
        changed.update({batch[i].coords: data for i, data in zip(kept, encoded, strict=True)})
    return changed


def _old_chunks(
    job: WriteJob, chain: Chain, object_coords: Coords, parts: Sequence[Part], stored: Buffer | None
) -> list[Array | None]:
    """The decoded old contents of chunks that are only partly covered; None for the others."""
    old: list[Array | None] = [None] * len(parts)
    if stored is None:
        return old
    partial = [i for i, part in enumerate(parts) if not part.full or job.fields is not None]
    if not partial:
        return old
    buffers = job.io.layout.extract(stored, object_coords, [parts[i].coords for i in partial])
    there = [(i, buffer) for i, buffer in zip(partial, buffers, strict=True) if buffer is not None]
    try:
        decoded = job.io.backend.decode(chain, [buffer for _, buffer in there])
    except CodecError as error:
        error.index = there[error.index][0]
        raise
    for (i, _), chunk in zip(there, decoded, strict=True):
        old[i] = chunk
    return old


def _chunk_error(io: ArrayIO, wave: Wave, error: CodecError) -> ChunkError:
    """Name the chunk that an item of a batch is."""
    owners: list[tuple[Any, Part]] = [(coords, part) for coords, parts in wave for part in parts]
    object_coords, part = owners[min(error.index, len(owners) - 1)]
    key = io.layout.key(object_coords)
    return ChunkError(str(error), path=io.name, key=key, chunk_coords=part.coords, codec=error.codec)
