"""Fetches the encoded chunks of a batch into host memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gzarr.errors import CodecError
from gzarr.layout.chunk_layout import Located
from gzarr.storage.base import Buffer, Request, Store, host_view
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


def _outside(request: Request, there: int, index: int) -> CodecError:
    start, length = request.start or 0, request.length or 0
    return CodecError(
        f"the shard index points outside the shard: bytes {start} to {start + length}, of which {there} are there",
        index=index,
        codec="sharding_indexed",
    )
