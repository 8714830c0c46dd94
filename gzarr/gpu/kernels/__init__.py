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
#: Threads of a block. With the 64 registers that the copies may take, four blocks are half of the 2048 threads of a
#: multiprocessor; rounding up to 256 wastes few threads on small launches.
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

    Attributes
    ----------
    name : str
        As in the source.
    type : str
        As in the source: "i64"; "const i32*", a table that is read; "u64*", a table that is written; "void*" or
        "const void*", the address of raw memory.
    """

    name: str
    type: str


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
    return "\n".join([*_DEFINES, *_expanded(f"{name}.cu", set())]) + "\n"


def all_sources() -> str:
    """The text of all kernels together, each in its own namespace, with each shared file once."""
    done: set[str] = set()
    files = ("common", "unit", "box", "source", "floats", "casts", "parts", "words", "rows")
    shared = [line for name in files for line in _expanded(f"{name}.cuh", done)]
    lines = [*_DEFINES, *shared]
    for name in KERNELS:
        lines += [f"namespace in_{name} {{", *_expanded(f"{name}.cu", done), "}"]
    return "\n".join(lines) + "\n"


def has_barriers(name: str) -> bool:
    """Whether the threads of a block wait for each other in a kernel."""
    return "__syncthreads()" in _text(f"{name}.cu")


def shim() -> str:
    """The text before the kernels if they are compiled for the host."""
    return _text("host_shim.h")


def box_threads(n_elements: int, copy_nbytes: int) -> int:
    """Threads for place_box and gather_box: one for a unit of elements of 1, 2, 4 or 8 bytes, or for a unit of one."""
    if copy_nbytes in (1, 2, 4, 8):
        return -(-n_elements * copy_nbytes // UNIT_NBYTES)
    return n_elements * -(-copy_nbytes // UNIT_NBYTES)


def xxh64_threads(n_streams: int) -> int:
    """Threads for xxh64: four for each stream."""
    return 4 * n_streams


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
    return (_FOLDER / name).read_text(encoding="utf-8")


def _arguments(name: str) -> tuple[Argument, ...]:
    """The arguments of a kernel, from the declaration in its source."""
    # A launch bound may be before the name.
    _, _, after = _text(f"{name}.cu").partition('extern "C" __global__ void ')
    declaration = after.partition(f"{name}(")[2].partition(")")[0]
    plain = re.sub(r"\s*\*\s*", "* ", " ".join(declaration.split()))
    pairs = (argument.rpartition(" ") for argument in plain.split(", "))
    return tuple(Argument(argument, type_) for type_, _, argument in pairs)


_DEFINES = (f"#define UNIT_NBYTES {UNIT_NBYTES}", f"#define BLOCK_THREADS {BLOCK_THREADS}")
_FOLDER = files(__package__)
_NAMES = sorted(file.name.removesuffix(".cu") for file in _FOLDER.iterdir() if file.name.endswith(".cu"))
#: The arguments of every kernel, in order.
KERNELS: dict[str, tuple[Argument, ...]] = {name: _arguments(name) for name in _NAMES}
