"""Rows about gzip, zlib and filters: arrays of Zarr v2, as older data are, of 16 MB in 64 chunks."""

from __future__ import annotations

from benchmarks.cpu import workloads as w
from benchmarks.cpu.workloads import Workload

ROWS: tuple[Workload, ...] = (
    Workload("read all, zlib i4", "codecs", ("zlib-i4",), w.basic("zlib-i4", w.whole)),
    Workload("read all, shuffle and gzip f4", "codecs", ("shuffle-gzip-f4",), w.basic("shuffle-gzip-f4", w.whole)),
    Workload("read all, delta and blosc i4", "codecs", ("delta-blosc-i4",), w.basic("delta-blosc-i4", w.whole)),
    Workload("read all, f4 packed in i2, zlib", "codecs", ("packed-zlib-f4",), w.basic("packed-zlib-f4", w.whole)),
    Workload("read all, bits", "codecs", ("bits-lz4",), w.basic("bits-lz4", w.whole)),
    Workload("write all, zlib i4", "codecs", ("zlib-i4",), w.writing("zlib-i4", w.whole)),
    Workload("write all, bitround and lz4 f4", "codecs", ("bitround-lz4-f4",), w.writing("bitround-lz4-f4", w.whole)),
)
