"""Fetches the encoded chunks of a batch into host memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gzarr.layout.chunk_layout import Located
from gzarr.layout.shard import shard_error
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
                start, there = request.start or 0, f"of which {size or 0} are there"
                where = f"bytes {start} to {start + request.length}, {there}"
                raise shard_error(f"the shard index points outside the shard: {where}", i)
        buffers[i] = buffer
    return buffers
