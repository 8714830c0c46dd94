"""The CUDA kernels: their names, argument types, sources and launch sizes, the same on a device and on the host.

Sources are CUDA C++ that includes nothing but the ``.cuh`` files here, which `source` inlines, so that NVRTC, nvcc and
g++ all compile one self-contained text. Arguments are flat: 64-bit integers, pointers to tables, and addresses of raw
memory. Kernels step by the grid, so any number of threads is correct; the functions below give the best one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Bytes that a thread reads and writes at once: the widest memory access of a GPU.
UNIT_NBYTES = 16
#: Threads of a block. Kernels use neither shared memory nor barriers, so any multiple of a warp is right; 256 lets
#: eight blocks fill a multiprocessor of 2048 threads, and rounding up wastes few threads on small launches.
BLOCK_THREADS = 256

#: Bytes that one thread of weighted_sums adds up.
PIECE_NBYTES = 1024

#: Values of ``mode``: how the bytes of a decoded chunk are still shuffled (Blosc's filters).
PLAIN, BYTE_SHUFFLED, BIT_SHUFFLED = 0, 1, 2

#: Dtypes of ``source`` and ``target`` of calculate, and its operations; their positions are their numbers there.
NUMBERS = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
OPERATIONS = ("", "add", "subtract", "multiply", "divide", "rint")

#: Values of ``stream_error`` of blosc_parse, as the end of a sentence that begins with "the Blosc frame".
BLOSC_ERRORS = {
    0: "is sound",
    1: "is truncated",
    2: "has a bad header",
    3: "does not have the blocks that its header was counted to have",
    4: "has a block that begins outside it",
    5: "has a stream that reaches past its end",
}


class Argument(NamedTuple):
    """One argument of a kernel.

    Attributes:
        name: as in the source.
        type: as in the source: "i64"; "const i32*", a table that is read; "u64*", a table that is written; "void*" or
            "const void*", the address of raw memory.
    """

    name: str
    type: str


_SOURCE_TABLES = "const u8* {0}mode, const i32* {0}typesize, const i64* {0}blocksize, const i64* {0}nbytes"
_SPAN_TABLES = (
    "const i32* part_span, const i64* axis_base, const i64* in_start, const i64* in_step, const i64* out_start, "
    "const i64* out_step, const i64* count, const i64* in_list, const i64* out_list, const i64* index_pool, "
    "const i64* elem_start, "
)
_SIGNATURES = {
    "place_box": "i64 n_parts, i64 ndim, const u64* part_src, "
    + _SPAN_TABLES
    + "const i64* chunk_stride, void* out, const i64* out_stride, i64 src_itemsize, i64 field_offset, "
    "i64 copy_nbytes, i64 swap_unit, const void* fill, " + _SOURCE_TABLES.format("part_"),
    "place_points": "i64 n_points, const i32* point_part, const i64* point_elem, const i64* point_out, "
    "const u64* part_src, void* out, i64 src_itemsize, i64 field_offset, i64 copy_nbytes, i64 swap_unit, "
    "const void* fill, " + _SOURCE_TABLES.format("part_"),
    "shuffle": "i64 n_chunks, const u64* src, const u64* dst, const i64* unit_start, " + _SOURCE_TABLES.format(""),
    "gather_box": "i64 n_parts, i64 ndim, const void* value, const i64* part_from, const i64* part_stride, "
    + _SPAN_TABLES
    + "const i64* chunk_stride, void* rows, i64 row_nbytes, i64 itemsize, i64 swap_unit",
    "gather_points": "i64 n_points, const i32* point_part, const i64* point_elem, const i64* point_from, "
    "const void* value, void* rows, i64 row_nbytes, i64 itemsize, i64 swap_unit",
    "find_written": "i64 n_rows, i64 row_nbytes, const void* rows, const void* fill, u8* written",
    "unshuffle": "i64 n_chunks, const u64* src, const u64* dst, const i64* unit_start, " + _SOURCE_TABLES.format(""),
    "copy_streams": "i64 n_streams, const u64* src, const u64* dst, const i64* nbytes, const i64* unit_start",
    "blosc_parse": "i64 n_frames, const u64* frame, const i64* frame_nbytes, const i64* block_start, "
    "const i64* stream_start, u64* stream_address, i64* stream_csize, u8* stream_raw, u8* stream_error",
    "calculate": "i64 n_numbers, i64 source, i64 work, i64 target, i64 op_1, i64 operand_1, i64 op_2, i64 operand_2, "
    "i64 op_3, i64 operand_3, i64 own_nan, i64 spread, const void* src, void* dst",
    "differences": "i64 n_rows, i64 n_floats, i64 itemsize, i64 parts, i64 own_nan, const void* src, void* dst",
    "running_sums": "i64 n_rows, i64 n_floats, i64 itemsize, i64 parts, i64 own_nan, i64 later_nan, const void* src, "
    "void* dst",
    "weighted_sums": "i64 n_streams, const u64* src, const i64* nbytes, const i64* piece_start, i64 word, u64* sums",
    "xxh64": "i64 n_streams, const u64* src, const i64* nbytes, u64* hash",
}


def _arguments(signature: str) -> tuple[Argument, ...]:
    pairs = (argument.rpartition(" ") for argument in signature.split(", "))
    return tuple(Argument(name, type_) for type_, _, name in pairs)


#: The arguments of every kernel, in order.
KERNELS: dict[str, tuple[Argument, ...]] = {name: _arguments(text) for name, text in _SIGNATURES.items()}

#: NumPy type of a table's elements.
TABLE_DTYPES: dict[str, np.dtype[Any]] = {
    "u8": np.dtype(np.uint8),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u64": np.dtype(np.uint64),
}


@cache
def source(name: str) -> str:
    """The self-contained CUDA C++ text of a kernel. Raises: KeyError if there is no such kernel."""
    if name not in KERNELS:
        raise KeyError(f"no kernel {name!r}; there are {', '.join(KERNELS)}")
    return "\n".join([f"#define UNIT_NBYTES {UNIT_NBYTES}", *_expanded(f"{name}.cu", set())]) + "\n"


def all_sources() -> str:
    """The text of all kernels together, each in its own namespace, with each shared file once."""
    done: set[str] = set()
    files = ("common.cuh", "unit.cuh", "box.cuh", "source.cuh", "floats.cuh")
    shared = [line for name in files for line in _expanded(name, done)]
    lines = [f"#define UNIT_NBYTES {UNIT_NBYTES}", *shared]
    for name in KERNELS:
        lines += [f"namespace in_{name} {{", *_expanded(f"{name}.cu", done), "}"]
    return "\n".join(lines) + "\n"


def shim() -> str:
    """The text before the kernels if they are compiled for the host."""
    return _text("host_shim.h")


def box_threads(n_elements: int, copy_nbytes: int) -> int:
    """Threads for place_box and gather_box: one for a unit of elements of 1, 2, 4 or 8 bytes, or for a unit of one."""
    if copy_nbytes in (1, 2, 4, 8):
        return -(-n_elements * copy_nbytes // UNIT_NBYTES)
    return n_elements * -(-copy_nbytes // UNIT_NBYTES)


def point_threads(n_points: int, copy_nbytes: int) -> int:
    """Threads for place_points and gather_points: one for each 16-byte piece of each element."""
    return n_points * -(-copy_nbytes // UNIT_NBYTES)


def row_threads(n_rows: int, row_nbytes: int) -> int:
    """Threads for find_written: one for each 16 bytes of each row."""
    return n_rows * -(-row_nbytes // UNIT_NBYTES)


def prefix_sums(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions of consecutive rows of given lengths, and the end of the last one: int64[n + 1]."""
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


def unit_starts(nbytes: NDArray[np.int64]) -> NDArray[np.int64]:
    """``unit_start`` of kernels that copy or shuffle rows of ``nbytes``; its last entry is the number of threads."""
    return prefix_sums(-(-np.asarray(nbytes, np.int64) // UNIT_NBYTES))


def piece_starts(nbytes: NDArray[np.int64]) -> NDArray[np.int64]:
    """``piece_start`` of weighted_sums for streams of ``nbytes``; its last entry is the number of threads."""
    return prefix_sums(-(-np.asarray(nbytes, np.int64) // PIECE_NBYTES))


def _expanded(name: str, done: set[str]) -> Iterator[str]:
    """The lines of a source file with its includes inlined; #line keeps compilers' messages correct."""
    if name in done:
        return
    done.add(name)
    yield f'#line 1 "{name}"'
    for number, line in enumerate(_text(name).splitlines(), start=1):
        include = re.fullmatch(r'#include "([a-z_]+\.cuh)"', line)
        if include:
            yield from _expanded(include[1], done)
            yield f'#line {number + 1} "{name}"'
        elif line != "#pragma once":  # a warning in a main file; `done` does its work
            yield line


@cache
def _text(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
