"""The list of workloads, in the order of the tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.cpu import workloads as w
from benchmarks.cpu.data import GROUP, Scale
from benchmarks.cpu.rows_codecs import ROWS as CODECS_ROWS
from benchmarks.cpu.rows_many import ROWS as MANY_ROWS
from benchmarks.cpu.rows_memory import ROWS as MEMORY_ROWS
from benchmarks.cpu.rows_points import ROWS as POINT_ROWS
from benchmarks.cpu.rows_s3 import ROWS as S3_ROWS
from benchmarks.cpu.rows_strings import ROWS as STRING_ROWS
from benchmarks.cpu.workloads import Bench, Task, Workload


def _one(name: str, dataset: str, prepare: Callable[[Bench], Task], section: str) -> Workload:
    return Workload(name, section, (dataset,), prepare)


def _row(scale: Scale) -> Any:
    return np.s_[scale.side // 3]


def _column(scale: Scale) -> Any:
    return np.s_[:, scale.side // 3]


def _strided(scale: Scale) -> Any:
    return np.s_[3::7, 5::11]


def _few_strided(scale: Scale) -> Any:
    return np.s_[:: scale.large, :: scale.large]


def _window(scale: Scale) -> Any:
    half = scale.large // 2
    return np.s_[half : 3 * half, half : 3 * half]


def _in_one_shard(scale: Scale) -> Any:
    half = scale.small // 2
    return np.s_[half : 3 * half, half : 3 * half]


def _small_chunk(scale: Scale) -> Any:
    return np.s_[scale.small : 2 * scale.small, scale.small : 2 * scale.small]


def _reads() -> list[Workload]:
    rows = [
        ("read all, lz4 i4", "lz4-i4", w.basic("lz4-i4", w.whole)),
        ("read all, zstd f4", "zstd-f4", w.basic("zstd-f4", w.whole)),
        ("read all, lz4 i4, 6,400 chunks", "lz4-i4-small", w.basic("lz4-i4-small", w.whole)),
        ("read all, uncompressed f4", "raw-f4", w.basic("raw-f4", w.whole)),
        ("read all, sharded zstd i4", "sharded-zstd-i4", w.basic("sharded-zstd-i4", w.whole)),
        ("read all, 10,000 tiny chunks", "tiny", w.basic("tiny", w.whole)),
        ("one row, large chunks", "lz4-i4", w.basic("lz4-i4", _row)),
        ("one column, 80 small chunks", "lz4-i4-small", w.basic("lz4-i4-small", _column)),
        ("one row, 80 small chunks", "lz4-i4-small", w.basic("lz4-i4-small", _row)),
        ("strided, every chunk", "lz4-i4", w.basic("lz4-i4", _strided)),
        ("strided, one element a chunk", "lz4-i4", w.basic("lz4-i4", _few_strided)),
        ("window over four large chunks", "lz4-i4", w.basic("lz4-i4", _window)),
        ("oindex, 64 random images", "images", w.oindex("images", lambda s: w.scattered(s.images, min(64, s.images)))),
        ("oindex, 100 scattered rows", "lz4-i4", w.oindex("lz4-i4", lambda s: w.scattered(s.side, 100))),
        ("vindex, 200 points", "lz4-i4-small", w.vindex("lz4-i4-small", lambda _: 200)),
        ("vindex, 100,000 points", "lz4-i4-small", w.vindex("lz4-i4-small", lambda s: s.points)),
        ("vindex, 100,000 points, large chunks", "lz4-i4", w.vindex("lz4-i4", lambda s: s.points)),
        ("100 small chunks, one call each", "lz4-i4-small", w.several("lz4-i4-small", w.chunk_calls)),
        ("100 inner chunks of shards, one call each", "sharded-zstd-i4", w.several("sharded-zstd-i4", w.chunk_calls)),
        ("100 random windows, one call each", "lz4-i4-small", w.several("lz4-i4-small", w.windows)),
        ("one element", "lz4-i4-small", w.basic("lz4-i4-small", lambda _: np.s_[5, 5])),
        ("one chunk in memory", "lz4-i4-small", w.in_memory("lz4-i4-small", _small_chunk)),
        ("one element in memory", "lz4-i4-small", w.in_memory("lz4-i4-small", lambda _: np.s_[5, 5])),
    ]
    return [_one(*row, "reads") for row in rows]


def _hierarchies() -> list[Workload]:
    names = w.group_of(lambda bench, group: bench.driver.names(group), w.member_names)
    shapes = w.group_of(
        lambda bench, group: bench.driver.members(group), lambda s: [(name, (10,)) for name in w.member_names(s)]
    )
    rows = [
        ("open an array", "lz4-i4", w.opening("lz4-i4")),
        ("open a group, list its 1,000 names", GROUP, names),
        ("open a group, its 1,000 arrays", GROUP, shapes),
        ("open 1,000 arrays by path", GROUP, w.open_members(GROUP)),
    ]
    return [_one(*row, "hierarchies") for row in rows]


def _writes() -> list[Workload]:
    rows = [
        ("write all, lz4 i4", "lz4-i4", w.writing("lz4-i4", w.whole)),
        ("write all, zstd f4", "zstd-f4", w.writing("zstd-f4", w.whole)),
        ("write all, lz4 i4, 6,400 chunks", "lz4-i4-small", w.writing("lz4-i4-small", w.whole)),
        ("write all, uncompressed f4", "raw-f4", w.writing("raw-f4", w.whole)),
        ("write all, sharded zstd i4", "sharded-zstd-i4", w.writing("sharded-zstd-i4", w.whole)),
        ("fill a new array, lz4 i4", "lz4-i4", w.filling("lz4-i4")),
        ("fill a new array, lz4 i4, 6,400 chunks", "lz4-i4-small", w.filling("lz4-i4-small")),
        ("fill a new array, uncompressed f4", "raw-f4", w.filling("raw-f4")),
        ("fill a new array, sharded zstd i4", "sharded-zstd-i4", w.filling("sharded-zstd-i4")),
        ("write a part of four large chunks", "lz4-i4", w.writing("lz4-i4", _window)),
        ("write one small chunk", "lz4-i4-small", w.writing("lz4-i4-small", _small_chunk)),
        ("write a part of a shard", "sharded-zstd-i4", w.writing("sharded-zstd-i4", _in_one_shard)),
        ("append four times half a row of chunks", "lz4-i4", w.appending("lz4-i4")),
    ]
    return [_one(*row, "writes") for row in rows]


def _remote() -> list[Workload]:
    rows = [
        ("open and read one chunk, 20 ms away", "lz4-i4-small", w.remote("lz4-i4-small", _small_chunk)),
        ("open and read a row of 80 chunks, 20 ms away", "lz4-i4-small", w.remote("lz4-i4-small", _row)),
        ("open and read all 64 chunks, 20 ms away", "lz4-i4", w.remote("lz4-i4", w.whole)),
        ("open and read a row of a sharded array, 20 ms away", "sharded-zstd-i4", w.remote("sharded-zstd-i4", _row)),
    ]
    return [_one(*row, "remote") for row in rows]


WORKLOADS: tuple[Workload, ...] = (
    *_reads(),
    *_hierarchies(),
    *_writes(),
    *_remote(),
    *CODECS_ROWS,
    *MANY_ROWS,
    *MEMORY_ROWS,
    *POINT_ROWS,
    *S3_ROWS,
    *STRING_ROWS,
)
# Those that are timed through zarr-python, too.
THROUGH: tuple[str, ...] = (
    "read all, lz4 i4",
    "read all, zstd f4",
    "read all, lz4 i4, 6,400 chunks",
    "read all, sharded zstd i4",
    "one row, 80 small chunks",
    "oindex, 64 random images",
    "vindex, 100,000 points",
    "100 small chunks, one call each",
    "100 random windows, one call each",
    "one element",
    "write all, lz4 i4",
    "write all, lz4 i4, 6,400 chunks",
    "write all, sharded zstd i4",
    "write a part of four large chunks",
    "write one small chunk",
)
_LARGE = ("read all", "write all", "S3: read all", "S3: write")
MEMORY: tuple[Workload, ...] = tuple(w_ for w_ in WORKLOADS if w_.name.startswith(_LARGE))
CHUNKS_TOUCHED: tuple[Workload, ...] = tuple(
    Workload(f"{10**n:,} missing chunks", "chunks", ("missing",), w.missing(10**n), 10**n) for n in range(7)
)
ARRAY_SIZES: tuple[Workload, ...] = tuple(
    Workload(f"one chunk of {nbytes:.0e} bytes", "sizes", (name,), w.last_chunk(name))
    for name, nbytes in w.SIZES.items()
)
BY_NAME = {each.name: each for each in (*WORKLOADS, *CHUNKS_TOUCHED, *ARRAY_SIZES)}
