"""Launches kernels as the host build does, by interpreting their PTX."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from gzarr.gpu.kernels.sources import BLOCK_THREADS, KERNELS
from tests.gpu.hardware.on_device import POINTERS, joined, pointed
from tests.gpu.ptx import nvrtc
from tests.gpu.ptx.machine import Grid, Run, run
from tests.gpu.ptx.memory import Global
from tests.gpu.ptx.program import Entry, entries

#: The architecture whose PTX is run: the instructions for the others are the same.
ARCH = 90
#: Kernels in which several threads store the same byte: all the same value.
SAME_STORES = {"find_written"}


@cache
def programs() -> dict[str, Entry]:
    """The kernels, by name."""
    return entries(nvrtc.kernels(ARCH).ptx)


def grid_of(n_threads: int) -> Grid:
    """The launch that `gzarr.gpu.device.cuda` makes for so many threads."""
    return Grid((-(-n_threads // BLOCK_THREADS), 1, 1), (BLOCK_THREADS, 1, 1))


def interpret(kernel: str, grid: Grid, args: Sequence[Any], warps: Sequence[int], memory: Global) -> Run:
    """Run some warps of a launch; what they store stays."""
    addresses = [value.ctypes.data if isinstance(value, np.ndarray) else int(value) for value in args]
    done = run(programs()[kernel], grid, addresses, warps, memory)
    if kernel not in SAME_STORES:
        memory.check_races()
    return done


class PtxKernels:
    """Launches all threads of a kernel, as `gzarr.gpu.device.hostbuild.launch` does."""

    def launch(self, name: str, n_threads: int, args: Sequence[Any]) -> None:
        """Run a kernel to its end."""
        if n_threads:
            grid = grid_of(n_threads)
            n_warps = grid.blocks[0] * grid.block_threads // 32
            interpret(name, grid, args, range(n_warps), Global(allocations(_ranges(name, args))))


def allocations(ranges: Iterable[tuple[int, int]]) -> np.ndarray:
    """Ranges of addresses, as `Global` takes them: those that overlap are one."""
    return np.array(joined((low, high) for low, high in ranges if low < high) or [[0, 0]], np.int64)


def _ranges(kernel: str, args: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """What a kernel may touch: the arrays that it is given, and what tables of addresses name."""
    named = {argument.name: value for argument, value in zip(KERNELS[kernel], args, strict=True)}
    for value in named.values():
        if isinstance(value, np.ndarray) and value.size:
            yield np.lib.array_utils.byte_bounds(value)
    for table, sizes, _ in POINTERS.get(kernel, ()):
        yield from pointed(named, table, sizes)
