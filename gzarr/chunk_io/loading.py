"""Fetches the chunks of a wave: says where they are, and sees to it that those of a shard are of one version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gzarr.backend import Chain
from gzarr.chunk_io.array_io import ArrayIO, Wave, chunk_error
from gzarr.errors import ChunkError, CodecError, ReplacedError
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import Part
from gzarr.layout.chunk_layout import PINNED, Located
from gzarr.storage.base import Buffer, Request, Store, tokens_of
from gzarr.storage.wrappers import PinnedStore

#: How often a read starts over because a shard was replaced under it, before it gives up.
MAX_RETRIES = 100


def load_encoded(io: ArrayIO, wave: Wave, parts: Sequence[Part]) -> list[Buffer | None]:
    """Fetch the encoded chunks of a wave, all of their bytes, into host memory whatever the backend."""
    return load(io._replace(backend=io.backend.host), wave, parts, (None, ()))


def load(io: ArrayIO, wave: Wave, parts: Sequence[Part], near: tuple[Chain | None, Sequence[Part]]) -> list[Any]:
    """Fetch what `Backend.place` will place. near: the last arguments of `Backend.load`."""
    layout, store = io.layout, io.store
    if layout.objects is layout.grid:
        try:
            return io.backend.load(store, [Request(layout.key(part.coords)) for part in parts], *near)
        except CodecError as error:
            raise chunk_error(io, wave, error, range(len(parts))) from error
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
            raise chunk_error(io, wave, error, range(len(parts))) from error
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

    A version whose index is cached is assumed to be the current one; if it is, reading takes a single round trip.
    Otherwise the answer that brings the index says which version that is, and the chunks are of the same version.
    """
    keys = [io.layout.key(coords) for coords, _ in wave]
    cached = {key: io.layout.cached_token(key) for key in keys}
    versions = {key: token for key, token in cached.items() if token is not None}
    for _ in range(MAX_RETRIES):
        pinned = PinnedStore(io.store, versions)
        try:
            return io.backend.load(pinned, _locate(io, pinned, wave, [PINNED] * len(keys)), *near)
        except ReplacedError:
            versions = {}
        except CodecError as error:
            raise chunk_error(io, wave, error, range(len(parts))) from error
    raise _replaced_too_often(io, keys[0])


def _replaced_too_often(io: ArrayIO, key: str) -> ChunkError:
    return ChunkError(f"the shard was replaced {MAX_RETRIES} times while it was read", path=io.name, key=key)


def _locate(io: ArrayIO, store: Store, wave: Wave, tokens: Sequence[object | None]) -> list[Located]:
    """Say where the chunks of a wave are."""

    def locate(item: tuple[tuple[Coords, list[Part]], object | None]) -> list[Located]:
        (coords, members), token = item
        return _locate_in(io, store, coords, members, token)

    return [place for places in store.together(locate, list(zip(wave, tokens, strict=True))) for place in places]


def _locate_in(
    io: ArrayIO, store: Store, object_coords: Coords, parts: Sequence[Part], token: object | None
) -> list[Located]:
    try:
        files = store.files if io.backend.reads_files else None
        may_fetch = files is None or files.path(io.layout.key(object_coords)) is None
        chunks = [part.coords for part in parts]
        return io.layout.locate(store, object_coords, chunks, token, may_fetch=may_fetch)
    except CodecError as error:
        raise ChunkError(str(error), path=io.name, key=io.layout.key(object_coords), codec=error.codec) from error
