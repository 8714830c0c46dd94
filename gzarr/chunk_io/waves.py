"""The reference path: reads and writes one wave of chunks at a time.

Theory of operation. A wave is a handful of stored objects with the parts wanted of each. To read a wave: locate, load,
place. To write a wave: lock its objects, load the objects that are only partly covered, merge and encode (the backend
also drops chunks that equal the fill value), build the objects' new bytes, store.

Rule: the lock of an object is held from reading its old bytes to storing its new ones, even by writes that cover the
object whole. Otherwise a partial write beside such a write could bring the old contents back. Other processes are
excluded by the locks where the store has such locks; `gzarr.chunk_io.merging` is for stores that have conditions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter, eq
from typing import Any, NamedTuple, TypeVar

import numpy as np

from gzarr.backend import Array, Chain, Fields
from gzarr.chunk_io.array_io import ArrayIO, Wave, by_chain, check_present, chunk_error, pick
from gzarr.chunk_io.chunk_cache import Place
from gzarr.chunk_io.merging import Covered, merge_unless_replaced
from gzarr.concurrency import Turns
from gzarr.errors import ChunkError, CodecError, ReplacedError, SelectionError
from gzarr.indexing.copies import Plan, Slots
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import Part
from gzarr.layout.chunk_layout import PINNED, Located
from gzarr.profiling.recorder import stage, sum_nbytes
from gzarr.storage.base import Buffer, Request, Store, tokens_of
from gzarr.storage.invalidation import announce
from gzarr.storage.locks import while_locked
from gzarr.storage.wrappers import PinnedStore

T = TypeVar("T")

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


def read_wave(job: ReadJob, wave: Wave) -> None:
    """Read a wave into the result. Raises: ChunkError, StoreError."""
    io = job.io
    place: Place = io.backend.place
    out = job.out if type(job.out) is not tuple else _slots(job)
    if io.cache is not None:
        wave, place = io.cache.serve(io.layout, io.backend, wave, (out, job.fields))
        if not wave:
            return
    parts = wave[0][1] if len(wave) == 1 else [part for _, members in wave for part in members]
    buffers = load(io, wave, parts, io.only_chain or io.chain(parts[0].coords))
    if not io.read_missing:
        check_present(io, wave, buffers)
    for chain, positions in by_chain(io, parts):
        some = buffers, parts
        if len(positions) < len(parts):
            some = pick(buffers, positions), pick(parts, positions)
        try:
            place(chain, *some, out, job.fields)
        except CodecError as error:
            raise chunk_error(io, wave, error, positions) from error


def _slots(job: ReadJob) -> Slots:
    """The slots of a `CopyPlan`. Raises: SelectionError for fields, or for values that they cannot hold."""
    slots, dtype = Slots(job.out), job.io.chain((0,) * len(job.io.layout.grid)).chunk.dtype
    if job.fields is not None:
        raise SelectionError(f"{job.io.name}: copies are made of whole elements, not of the fields {job.fields!r}")
    if not np.can_cast(dtype, slots.dtype, "same_kind"):
        raise SelectionError(f"{job.io.name}: {dtype} cannot become {slots.dtype} without a change of kind")
    return slots


def load_encoded(io: ArrayIO, wave: Wave, parts: Sequence[Part]) -> list[Buffer | None]:
    """Fetch the encoded chunks of a wave, all of their bytes, into host memory whatever the backend."""
    return load(io._replace(backend=io.backend.host), wave, parts, None)


def load(io: ArrayIO, wave: Wave, parts: Sequence[Part], chain: Chain | None) -> list[Any]:
    """Fetch what `Backend.place` will place. chain: as of `Backend.load`."""
    layout, store = io.layout, io.store
    if layout.objects is layout.grid:
        try:
            return io.backend.load(store, [Request(layout.key(part.coords)) for part in parts], chain)
        except CodecError as error:
            raise chunk_error(io, wave, error, range(len(parts))) from error
    keys = [layout.key(coords) for coords, _ in wave]
    versions = store.versions
    if versions is not None and versions.pins:
        return _load_pinned(io, wave, parts, chain)
    for _ in range(MAX_RETRIES):
        before = tokens_of(store, keys)
        try:
            located = _locate(io, store, wave, before)
            buffers = io.backend.load(store, located, chain)
        except (CodecError, ChunkError) as error:
            if tokens_of(store, keys) != before:
                continue
            if isinstance(error, ChunkError):
                raise
            raise chunk_error(io, wave, error, range(len(parts))) from error
        # Ranges and the index they came from must be of one version of the shard.
        if not any(isinstance(item, Request) for item in located) or tokens_of(store, keys) == before:
            return buffers
    raise _replaced_too_often(io, keys[0])


def _load_pinned(io: ArrayIO, wave: Wave, parts: Sequence[Part], chain: Chain | None) -> list[Any]:
    """Fetch what `Backend.place` will place from a store that ties reads to versions itself.

    A version whose index is cached is assumed to be the current one; if it is, reading takes a single round trip.
    Otherwise the answer that brings the index says which version that is, and the chunks are of the same version.
    A shard of which a cached index has none of the chunks is asked for its version, as no other request would be made.
    """
    keys = [io.layout.key(coords) for coords, _ in wave]
    cached = {key: io.layout.cached_token(key) for key in keys}
    versions = {key: token for key, token in cached.items() if token is not None}
    for _ in range(MAX_RETRIES):
        pinned = PinnedStore(io.store, versions)
        try:
            located = _locate(io, pinned, wave, [PINNED] * len(keys))
            assumed = _without_chunks(keys, wave, located, versions)
            if assumed and tokens_of(io.store, assumed) != [versions[key] for key in assumed]:
                versions = {}
                continue
            return io.backend.load(pinned, located, chain)
        except ReplacedError:
            versions = {}
        except CodecError as error:
            raise chunk_error(io, wave, error, range(len(parts))) from error
    raise _replaced_too_often(io, keys[0])


def _without_chunks(
    keys: Sequence[str], wave: Wave, located: Sequence[Located], versions: Mapping[str, object]
) -> list[str]:
    """Keys of the shards with known versions of which no chunk is there."""
    if not versions or all(item is not None for item in located):
        return []
    owners = (key for key, (_, members) in zip(keys, wave, strict=True) for _ in members)
    with_chunks = {key for key, item in zip(owners, located, strict=True) if item is not None}
    return [key for key in versions if key not in with_chunks]


def _replaced_too_often(io: ArrayIO, key: str) -> ChunkError:
    return ChunkError(f"the shard was replaced {MAX_RETRIES} times while it was read", path=io.name, key=key)


def _locate(io: ArrayIO, store: Store, wave: Wave, tokens: Sequence[object | None]) -> list[Located]:
    """Say where the chunks of a wave are."""

    def locate(item: tuple[tuple[Coords, list[Part]], object | None]) -> list[Located]:
        (coords, parts), token = item
        try:
            files = store.files if io.backend.reads_files else None
            may_fetch = files is None or files.path(io.layout.key(coords)) is None
            return io.layout.locate(store, coords, [part.coords for part in parts], token, may_fetch=may_fetch)
        except CodecError as error:
            raise _object_error(io, io.layout.key(coords), error) from error

    return [place for places in store.together(locate, list(zip(wave, tokens, strict=True))) for place in places]


def _object_error(io: ArrayIO, key: str, error: CodecError) -> ChunkError:
    """Return an error that names the object."""
    return ChunkError(str(error), path=io.name, key=key, codec=error.codec)


def write_wave(job: WriteJob, wave: Wave) -> None:
    """Write a wave. Raises: ChunkError, StoreError."""
    covered = [job.check is None and _covers(job, coords, parts) for coords, parts in wave]
    most = job.io.store.max_locked
    if most is None or len(wave) <= most or all(covered):
        _write_locked(job, wave, covered)
        return
    partial = [position for position, whole in enumerate(covered) if not whole]
    whole_ones = [position for position, whole in enumerate(covered) if whole]
    batches = (partial[start : start + most] for start in range(0, len(partial), most))
    for some in (whole_ones, *batches):
        if some:
            _write_locked(job, pick(wave, some), pick(covered, some))


def _covers(job: WriteJob, coords: Coords, parts: Sequence[Part]) -> bool:
    """Whether parts cover a stored object, so that its old bytes are not needed."""
    cut = job.io.layout.cut or job.io.layout.find_cut()
    return True not in map(eq, coords, cut[1]) and _covers_known(job, coords, parts)


def _covers_known(job: WriteJob, coords: Coords, parts: Sequence[Part]) -> bool:
    """Whether parts cover what an object holds within the array, as far as its extents are known here."""
    return job.fields is None and all(map(_is_full, parts)) and job.io.layout.is_whole(coords, len(parts))


def _write_locked(job: WriteJob, wave: Wave, covered: Sequence[bool]) -> None:
    """Write a wave, its objects locked. covered: which of them need not be read."""
    store = job.io.store
    keys = [job.io.layout.key(coords) for coords, _ in wave]
    merged = [key for key, whole in zip(keys, covered, strict=True) if not whole]
    conditional = store.conditional if merged else None

    def task() -> None:
        if conditional is None:
            _merge_and_store(job, wave, keys, merged)
        else:
            build = partial(_rebuild, job, wave, keys)
            merge_unless_replaced(store, conditional, Covered(keys, covered), build, job.check)

    try:
        while_locked(store.locked(keys, merged), task)
    finally:
        announce(lambda: [store.lock_name(key) for key in keys])


def _merge_and_store(job: WriteJob, wave: Wave, keys: Sequence[str], merged: Sequence[str]) -> None:
    """Merge and store the objects of a wave, which are locked."""
    store = job.io.store
    old = _load_old(job, keys, merged) if merged else [None] * len(keys)
    segments = store.segments
    build = job.io.layout.build if segments is None else job.io.layout.segments
    if store.concurrency == 1:
        built = _build(job, wave, keys, old, build)
    else:
        built = _builders.call(partial(_build, job, wave, keys, old, build))
    items: list[tuple[str, Any]] = []
    emptied: list[str] = []
    for key, data in zip(keys, built, strict=True):
        if data is None or (segments is not None and not data):
            emptied.append(key)
        else:
            items.append((key, data))
    with stage("store") as noted:
        if items:
            (segments or store).set_many(items)
        if emptied:
            store.delete_many(emptied)
        if noted:
            nbytes = sum(sum_nbytes((data,) if segments is None else data) for _, data in items)
            noted.count(0, nbytes, nbytes)


def _rebuild(
    job: WriteJob,
    wave: Wave,
    keys: Sequence[str],
    positions: Sequence[int],
    stored: Sequence[Buffer | None],
    write_empty: bool,
) -> list[Buffer | None]:
    """Build some objects of a wave (`gzarr.chunk_io.merging.Build`)."""
    if write_empty:
        job = job._replace(write_empty=True)
    if len(positions) < len(wave):
        wave, keys = pick(wave, positions), pick(keys, positions)
    return _build(job, wave, keys, stored, job.io.layout.build)


def _build(
    job: WriteJob, wave: Wave, keys: Sequence[str], stored: Sequence[Buffer | None], build: Callable[..., T]
) -> list[T]:
    """The new bytes of every object as `build` gives them. stored: their old bytes. build: of the layout."""
    built: list[T] = []
    changed = _new_chunks(job, wave, stored)
    for (coords, parts), key, old, chunks in zip(wave, keys, stored, changed, strict=True):
        try:
            built.append(build(old, coords, chunks))
        except CodecError as error:
            if not _covers_known(job, coords, parts):
                raise _object_error(job.io, key, error) from error
            built.append(build(None, coords, chunks))
    return built


def _load_old(job: WriteJob, keys: Sequence[str], merged: Sequence[str]) -> list[Buffer | None]:
    """The old bytes of the objects that are merged; None for the others, and for those that are missing."""
    with stage("load old") as noted:
        stored = job.io.store.get_many([Request(key) for key in merged])
        if noted:
            noted.count(0, sum_nbytes(stored), sum_nbytes(stored))
    old = dict(zip(merged, stored, strict=True))
    return [old.get(key) for key in keys]


def _new_chunks(job: WriteJob, wave: Wave, stored: Sequence[Buffer | None]) -> list[dict[Coords, Buffer | None]]:
    """The new encoded contents of the chunks of each object; None for those that are now empty."""
    io = job.io
    parts = [part for _, members in wave for part in members]
    owners = [number for number, (_, members) in enumerate(wave) for _ in members]
    old = _old_chunks(job, wave, stored)
    changed: list[dict[Coords, Buffer | None]] = [{} for _ in wave]
    for chain, positions in by_chain(io, parts):
        some, members = old, parts
        if len(positions) < len(parts):
            some, members = pick(old, positions), pick(parts, positions)
        encoded = _merge_and_encode(job, wave, chain, (some, members), positions)
        for position, part, data in zip(positions, members, encoded, strict=True):
            changed[owners[position]][part.coords] = data
    return changed


def _merge_and_encode(
    job: WriteJob, wave: Wave, chain: Chain, some: tuple[list[Buffer | None], Sequence[Part]], positions: Sequence[int]
) -> Sequence[Buffer | None]:
    """Encode the new contents of chunks. some: their old contents, and their parts. Raises: ChunkError."""
    old, parts = some
    while True:
        try:
            return job.io.backend.merge_and_encode(chain, old, job.value, parts, job.fields, keep_empty=job.write_empty)
        except CodecError as error:
            at = error.index
            if at >= len(parts) or old[at] is None or not parts[at].full or job.fields is not None:
                raise chunk_error(job.io, wave, error, positions) from error
            old[at] = None  # damaged, and all of it that is known to lie in the array is replaced


def _old_chunks(job: WriteJob, wave: Wave, stored: Sequence[Buffer | None]) -> list[Buffer | None]:
    """The encoded old contents of the chunks that are not replaced whole; None for the others."""
    layout = job.io.layout
    cut = layout.cut or layout.find_cut()
    old_chunks: list[Buffer | None] = []
    for (object_coords, parts), data in zip(wave, stored, strict=True):
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
    job: WriteJob, object_coords: Coords, parts: Sequence[Part], merged: Sequence[int], data: Buffer
) -> Sequence[Buffer | None]:
    """The encoded old contents of some chunks of an object. Raises: ChunkError."""
    try:
        return job.io.layout.extract(data, object_coords, [parts[i].coords for i in merged]) if merged else ()
    except CodecError as error:
        if not _covers_known(job, object_coords, parts):
            raise _object_error(job.io, job.io.layout.key(object_coords), error) from error
        return [None] * len(merged)  # damaged, and all of it that is known to lie in the array is replaced
