"""The texts of the kernels, for NVRTC, nvcc and the C++ compiler of the host.

``setup.py`` loads this file by itself, where nothing is installed: it imports the standard library alone.
"""

import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

#: Bytes that a thread reads and writes at once: the widest memory access of a GPU.
UNIT_NBYTES = 16
#: Threads of a block. With the 64 registers that kernels may take, four blocks are half of the 2048 threads of a
#: multiprocessor; rounding up to 256 wastes few threads on small launches.
BLOCK_THREADS = 256
#: How NVRTC makes them; CuPy adds options of its own.
COMPILER_OPTIONS = ("-std=c++17",)
#: How the host's compiler makes the kernels. -fno-strict-aliasing: kernels read raw bytes as wider numbers, which
#: device compilers allow. -ffp-contract=off: compilers may fuse two operations into one with another result.
HOST_FLAGS = ("-std=c++17", "-O2", "-fno-strict-aliasing", "-ffp-contract=off")


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


@cache
def source(name: str) -> str:
    """The self-contained CUDA C++ text of a kernel. Raises: KeyError if there is no such kernel."""
    if name not in KERNELS:
        raise KeyError(f"no kernel {name!r}; there are {', '.join(KERNELS)}")
    return "\n".join([*_DEFINES, *_expanded(f"{name}.cu", set())]) + "\n"


@cache
def all_sources() -> str:
    """The text of all kernels together, each in its own namespace, with each shared file once."""
    done: set[str] = set()
    files = ("common", "unit", "source", "floats", "casts", "parts", "words", "rows", "windows")
    shared = [line for name in files for line in _expanded(f"{name}.cuh", done)]
    lines = [*_DEFINES, *shared]
    for name in KERNELS:
        lines += [f"namespace in_{name} {{", *_expanded(f"{name}.cu", done), "}"]
    return "\n".join(lines) + "\n"


def host_source() -> str:
    """The C++ source of the host's library: the shim, the kernels, and for each a function that loops over its threads.

    It ends with a constant that says what the library was built from: `host_digest`.
    """
    text = _host_functions()
    name = "gzarr_kernels_digest"
    return text + f'extern "C" {{ extern const char {name}[]; const char {name}[] = "{host_digest()}"; }}\n'


@cache
def host_digest() -> str:
    """Of all that the host's library is built from, except the compiler. It stands in the library."""
    return hashlib.sha256("\0".join([*HOST_FLAGS, _host_functions()]).encode()).hexdigest()


@cache
def _host_functions() -> str:
    wrappers = []
    for name, arguments in KERNELS.items():
        params = "".join(f", {a.type} {a.name}" for a in arguments)
        passed = "".join(f", {a.name}" for a in arguments)
        run = "run_blocks" if "__syncthreads()" in _text(f"{name}.cu") else "run_threads"
        wrappers.append(
            f'extern "C" void host_{name}(long long n_threads, unsigned block_threads{params}) '
            f"{{ {run}(n_threads, block_threads, in_{name}::{name}{passed}); }}"
        )
    shim = _text("host_shim.h").replace("#pragma once", "")
    return "\n".join(['#line 1 "host_shim.h"', shim, all_sources(), *wrappers]) + "\n"


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
    return (FOLDER / name).read_text(encoding="utf-8")


def _arguments(name: str) -> tuple[Argument, ...]:
    """The arguments of a kernel, from the declaration in its source."""
    # A launch bound may be before the name.
    _, _, after = _text(f"{name}.cu").partition('extern "C" __global__ void ')
    declaration = after.partition(f"{name}(")[2].partition(")")[0]
    plain = re.sub(r"\s*\*\s*", "* ", " ".join(declaration.split()))
    pairs = (argument.rpartition(" ") for argument in plain.split(", "))
    return tuple(Argument(argument, type_) for type_, _, argument in pairs)


_DEFINES = (f"#define UNIT_NBYTES {UNIT_NBYTES}", f"#define BLOCK_THREADS {BLOCK_THREADS}")
#: Where the source files lie.
FOLDER = Path(__file__).parent
#: The arguments of every kernel, in order.
KERNELS: dict[str, tuple[Argument, ...]] = {path.stem: _arguments(path.stem) for path in sorted(FOLDER.glob("*.cu"))}
