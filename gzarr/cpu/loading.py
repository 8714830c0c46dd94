"""Fetches the encoded chunks of a wave into host memory; for large chunks, only the blocks a part touches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from gzarr.cpu.codecs.blosc_blocks import Read
from gzarr.cpu.codecs.per_chunk import fail
from gzarr.cpu.decode_into import DecodeInto
from gzarr.cpu.window import Touched, Window, touched
from gzarr.errors import CodecError, StoreError
from gzarr.indexing.plan import Part
from gzarr.layout.chunk_layout import Located
from gzarr.storage.base import Buffer, Files, Request, Store, host_view
from gzarr.storage.coalesce import MAX_NBYTES, WAITING_MAX_NBYTES, get_coalesced


def load_host(store: Store, wanted: Sequence[Located]) -> list[Buffer | None]:
    """Fetch located chunks into host memory, ranges of one object together. Raises: CodecError(index)."""
    positions = [i for i, item in enumerate(wanted) if isinstance(item, Request)]
    buffers: list[Any] = [None if isinstance(item, Request) else item for item in wanted]
    requests: list[Any] = [wanted[i] for i in positions]
    longest = MAX_NBYTES if store.concurrency == 1 else WAITING_MAX_NBYTES
    loaded = get_coalesced(store, requests, max_nbytes=longest)
    for i, request, buffer in zip(positions, requests, loaded, strict=True):
        if request.length is not None:
            size = None if buffer is None else host_view(buffer).nbytes
            if size != request.length:
                raise _outside(request, size or 0, i)
        buffers[i] = buffer
    return buffers


def load_windows(into: DecodeInto, store: Store, wanted: Sequence[Located], parts: Sequence[Part]) -> list[Any]:
    """Fetch chunks that can be cut: windows of chunks that the parts touch a little of, the others whole.

    Returns: for every item a buffer, a `Window`, or None if it is missing. Raises: CodecError(index).
    """
    itemsize = into.dtype.itemsize
    loaded: list[Any] = [None] * len(wanted)
    wholes: list[tuple[int, Touched | None]] = []
    for index, (item, part) in enumerate(zip(wanted, parts, strict=True)):
        near = None if part.full or item is None else touched(part, into.shape, into.order, itemsize)
        if near is not None and isinstance(item, Request) and (files := store.files) is not None:
            loaded[index] = _open_window(into, files, item, near, index)
        elif item is not None:
            wholes.append((index, near))
    if not wholes:
        return loaded
    try:
        buffers = load_host(store, [wanted[index] for index, _ in wholes])
    except CodecError as error:
        error.index = wholes[error.index][0]
        raise
    for (index, near), buffer in zip(wholes, buffers, strict=True):
        loaded[index] = buffer
        if near is not None and buffer is not None:
            read = partial(_slice, host_view(buffer))
            loaded[index] = _cut(into, read, host_view(buffer).nbytes, near, index) or buffer
    return loaded


def _slice(view: memoryview, start: int, nbytes: int) -> memoryview:
    return view[start : start + nbytes]


def _open_window(into: DecodeInto, files: Files, item: Request, near: Touched, index: int) -> Any:
    opened = files.open(item.key)
    if opened is None:
        return None
    with opened:
        start = item.start or 0
        nbytes = opened.nbytes if item.length is None else item.length
        if start + nbytes > opened.nbytes:
            raise _outside(item, max(opened.nbytes - start, 0), index)
        read = opened.read
        window = _cut(into, lambda at, n: read(start + at, n), nbytes, near, index)
        return read(start, nbytes) if window is None else window


def _cut(into: DecodeInto, read: Read, nbytes: int, near: Touched, index: int) -> Window | None:
    if into.cut is None:
        return None
    try:
        return into.cut(read, nbytes, near, into.nbytes, into.dtype.itemsize)
    except (MemoryError, StoreError):
        raise
    except Exception as error:  # noqa: BLE001  whatever a damaged header leads to
        fail(into.codec, index, error)


def _outside(request: Request, there: int, index: int) -> CodecError:
    start, length = request.start or 0, request.length or 0
    return CodecError(
        f"the shard index points outside the shard: bytes {start} to {start + length}, of which {there} are there",
        index=index,
        codec="sharding_indexed",
    )
