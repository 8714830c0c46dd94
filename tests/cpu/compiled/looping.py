"""What the tests of the compiled loop share: chains, arrays, a loop that counts."""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

import gzarr
from gzarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    NumcodecsCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)
from gzarr.cpu.compiled import library

ROOT = Path(__file__).parents[3]
SHAPE, CHUNK = (70, 45, 3), (20, 15, 3)
STRUCT = np.dtype([("a", "<i4"), ("b", ">f4"), ("c", "u1", (3,))])
DTYPES = ["<i4", ">f4", "u1", "<c16", "<M8[s]", STRUCT]

SMALL = BloscCodec("lz4", 5, "shuffle", 4, 256)
#: Chains that the loop knows.
CHAINS: dict[str, list[Any]] = {
    "plain": [BytesCodec()],
    "big-endian": [BytesCodec("big")],
    "plain with checksum": [BytesCodec(), Crc32cCodec()],
    "blosc": [BytesCodec(), SMALL],
    "blosc of transposed": [TransposeCodec((2, 0, 1)), BytesCodec("big"), BloscCodec("zstd", 1, "bitshuffle", 4)],
    "blosc stored": [BytesCodec(), BloscCodec("lz4", 0, "noshuffle", typesize=4)],
    "zstd": [BytesCodec(), ZstdCodec(1)],
    "zstd with checksum": [BytesCodec(), ZstdCodec(1, checksum=True), Crc32cCodec()],
    "lz4": [BytesCodec(), NumcodecsCodec("lz4", {})],
    "gzip": [BytesCodec("big"), GzipCodec(1), Crc32cCodec()],
    "shards": [ShardingCodec((10, 5, 3), [BytesCodec(), ZstdCodec(1)])],
    "shards of plain": [ShardingCodec((10, 5, 1), [BytesCodec(), Crc32cCodec()], index_location="start")],
    "transposed shards": [TransposeCodec((2, 0, 1)), ShardingCodec((3, 10, 5), [BytesCodec(), SMALL])],
}


class Watched:
    """Counts what the loop is asked to read and to write, and what it leaves of each."""

    def __init__(self) -> None:
        self.done = self.left = self.written = self.refused = self.calls = self.buffered = 0
        self._guard = threading.Lock()

    def _count(self, **more: int) -> None:
        with self._guard:  # several threads call the loop
            vars(self).update({name: getattr(self, name) + n for name, n in more.items()})

    def read(self, *args: Any) -> tuple[int, int, int]:
        found: tuple[int, int, int] = library._loaded()[0].read(*args)
        self._count(calls=1, done=len(args[-1]), left=found[0])
        return found

    def read_buffers(self, *args: Any) -> tuple[int, int, int]:
        found: tuple[int, int, int] = library._loaded()[0].read_buffers(*args)
        self._count(buffered=len(args[-1]) - found[0])
        return found

    def write_buffers(self, *args: Any) -> tuple[int, int, int, list[bytes | None]]:
        found: tuple[int, int, int, list[bytes | None]] = library._loaded()[0].write_buffers(*args)
        self._count(written=len(args[9]), refused=found[0])
        return found

    def read_copies(self, *args: Any) -> tuple[int, int, int]:
        found: tuple[int, int, int] = library._loaded()[0].read_copies(*args)
        self._count(done=len(args[-1]), left=found[0])
        return found

    def write(self, *args: Any) -> tuple[int, int, int, int, int]:
        found: tuple[int, int, int, int, int] = library._loaded()[0].write(*args)
        self._count(written=len(args[10]), refused=found[0])
        return found


def values(dtype: Any, shape: Sequence[int] = SHAPE) -> np.ndarray:
    numbers = np.random.default_rng(1).integers(0, 250, shape)
    dtype = np.dtype(dtype)
    if dtype.names is None:
        return numbers.astype("i8").astype(dtype)
    out = np.zeros(shape, dtype)
    out["a"], out["b"], out["c"] = numbers, numbers / 2, numbers[..., None] % 200
    return out


def stored(codecs: list[Any], dtype: Any, store: Any, missing: bool = False) -> tuple[gzarr.Array, np.ndarray]:
    """An array at "a/b" and what it holds. missing: four chunks of files, or one shard with eight, are not there."""
    model = values(dtype)
    fill = 7 if np.dtype(dtype).kind in "iufc" else None
    if missing:
        model[: CHUNK[0], : CHUNK[1] * 2] = np.zeros((), model.dtype) if fill is None else fill
    array = gzarr.create_array(
        store, name="a/b", shape=SHAPE, chunks=CHUNK, dtype=dtype, fill_value=fill, codecs=codecs, overwrite=True
    )
    array[...] = model
    return array, model


def made_to_lie(data: st.DataObject, table: bytes, *, is_job: bool) -> bytes:
    """A table of the loop with one number changed to anything, perhaps cut off. is_job: what says where the result or
    the value is stays as it is.
    """
    lying = bytearray(table)
    ndim = int.from_bytes(table[:8], "little", signed=True) if is_job else 0
    words = [i for i in range(len(lying) // 8) if not is_job or not (i == 8 or i >= 10 + 2 * ndim)]
    if words:
        at = 8 * data.draw(st.sampled_from(words))
        small = st.integers(-3, 80)
        number = data.draw(st.one_of(small, small, st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**32)))
        lying[at : at + 8] = struct.pack("<q", number)
    if data.draw(st.integers(0, 9)) == 0:
        # A job that is cut between two numbers could fit another number of axes, and then say where the result is.
        del lying[len(lying) - data.draw(st.integers(1, 7)) if is_job else data.draw(st.integers(0, len(lying))) :]
    return bytes(lying)
