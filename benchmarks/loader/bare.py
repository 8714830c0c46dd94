"""The bare work: every chunk read from its file and decoded once by numcodecs, in one loop of one thread."""

from __future__ import annotations

import itertools
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np

from benchmarks.loader.data import Dataset


def objects(data: Dataset, path: Path) -> Iterator[Path]:
    """The file of every chunk, or of every shard."""
    grid = [-(-n // c) for n, c in zip(data.shape, data.shards or data.chunks, strict=True)]
    for coords in itertools.product(*map(range, grid)):
        yield path.joinpath("c", *map(str, coords))


def chunks(data: Dataset, content: bytes) -> list[Any]:
    """The encoded chunks of a file; of a shard by the index at its end (the layout of zarr v3)."""
    if data.shards is None:
        return [content]
    count = int(np.prod(data.shards)) // int(np.prod(data.chunks))
    index = struct.unpack(f"<{2 * count}Q", content[-16 * count - 4 : -4])
    view = memoryview(content)
    return [view[at : at + size] for at, size in zip(index[::2], index[1::2], strict=True) if at < 2**64 - 1]


def decode_all(data: Dataset, path: Path) -> dict[str, float]:
    """Read and decode everything. Returns: CPU seconds of both, and the bytes and chunks that there were."""
    codec = numcodecs.Zstd() if data.codec == "zstd" else numcodecs.Blosc()
    out = np.empty(data.chunks, data.dtype)
    read_s = decode_s = 0.0
    nbytes = count = 0
    for name in objects(data, path):
        start = time.process_time()
        content = name.read_bytes()
        middle = time.process_time()
        for chunk in chunks(data, content):
            codec.decode(chunk, out)
            count += 1
        read_s, decode_s = read_s + middle - start, decode_s + time.process_time() - middle
        nbytes += len(content)
    return {"read_cpu_s": read_s, "decode_cpu_s": decode_s, "stored_bytes": nbytes, "chunks": count}


def first_read(array: Any, task: Any, epoch: int) -> Any:
    """Read the samples of a first batch from an open array of gzarr, with nothing around it."""
    ids = task.batches(epoch)[0]
    if task.case.order != "crops":
        return array.oindex[ids]
    return [array[task.box(start)] for start in task.crops[ids]]
