"""An emulated device that interprets some warps of every launch, and compares what they store with the host's build."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.concurrency import new_lock
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.kernels.sources import KERNELS
from tests.gpu.ptx.cost import Cost, cost_of
from tests.gpu.ptx.launching import allocations, grid_of, interpret, programs
from tests.gpu.ptx.machine import Grid
from tests.gpu.ptx.memory import Fault, Global, peek


class Launch(NamedTuple):
    """One launch that was interpreted in part."""

    kernel: str
    n_threads: int
    cost: Cost | None


#: Chooses warps of a launch with so many threads.
Sample: TypeAlias = Callable[[Grid, int], Sequence[int]]


#: A launch of so many warps is run as a whole, which shows that no byte of it is stored twice.
_FEW = 96


def edges(grid: Grid, n_threads: int) -> Sequence[int]:
    """All of a few; of many the first and the last with work, one beyond, the edges of blocks, and some between."""
    per_block = grid.block_threads // 32
    total = grid.blocks[0] * per_block
    if total <= _FEW:
        return range(total)
    last = (n_threads - 1) // 32
    wanted = {0, 1, per_block - 1, per_block, last // 3, 2 * last // 3, last - 1, last, last + 1, total - 1}
    return sorted(warp for warp in wanted if 0 <= warp < total)


def middle(grid: Grid, n_threads: int) -> Sequence[int]:
    """Warps that are typical of a large launch."""
    last = (n_threads - 1) // 32
    return sorted({last // 5, last // 3, last // 2, 2 * last // 3})


def all_warps(grid: Grid, n_threads: int) -> Sequence[int]:
    """For launches whose warps do different things."""
    return range(grid.blocks[0] * grid.block_threads // 32)


#: Of memory that CUDA allocates (CUDA C++ Programming Guide, "Device Memory Accesses").
ALIGNMENT = 256


def _aligned(memory: Any) -> Any:
    return memory[-memory.ctypes.data % ALIGNMENT :]


class PtxDevice(EmulatedDevice):
    """Loads and stores must lie within what the device has allocated, or in arrays whose address it was asked for.

    Attributes
    ----------
    runs
        The launches, in order.
    """

    def __init__(self, sample: Sample = edges, *, free: int = 1 << 30) -> None:
        super().__init__(free=free)
        self._sample = sample
        self.runs: list[Launch] = []
        self._known: list[tuple[int, int]] = []
        self._one_at_a_time = new_lock()

    def allocate(self, nbytes: int) -> Any:
        """A new block, aligned as those of CUDA."""
        return _aligned(super().allocate(nbytes + ALIGNMENT))[:nbytes]

    def result(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: Any = None) -> Any:
        """An uninitialized array, aligned as those of CUDA."""
        nbytes = math.prod(shape) * dtype.itemsize
        memory = super().result((nbytes + ALIGNMENT,), np.dtype(np.uint8), stream)
        return _aligned(memory)[:nbytes].view(dtype).reshape(shape)

    def empty(self, nbytes: int) -> NDArray[np.uint8]:
        """Memory that takes the place of what lay there before."""
        memory = super().empty(nbytes)
        low, high = super().address(memory), super().address(memory) + nbytes
        with self._one_at_a_time:
            self._known = [known for known in self._known if known[1] <= low or known[0] >= high]
            self._known.append((low, high))
        return memory

    def address(self, array: NDArray[Any]) -> int:
        """The address, of memory that is known from now on.

        Also if it lies in memory that is known already: that may be gone, and taken out by `empty` when others follow.
        """
        if array.size:
            bounds = np.lib.array_utils.byte_bounds(array)
            with self._one_at_a_time:
                if bounds not in self._known:
                    self._known.append(bounds)
        return super().address(array)

    def launch(self, kernel: str, n_threads: int, args: tuple[Any, ...]) -> None:
        """Interpret some warps, run all threads on the host, and compare."""
        plain = tuple(self.address(a) if isinstance(a, np.ndarray) else int(a) for a in args)
        if not n_threads:
            super().launch(kernel, n_threads, args)
            return
        with self._one_at_a_time:
            known, grid = allocations(self._known), grid_of(n_threads)
            memory = Global(known)
            try:
                done = interpret(kernel, grid, plain, self._warps(kernel, grid, n_threads), memory)
                addresses, values = memory.written()
            finally:
                memory.undo()
            tables = table_ranges(kernel, plain, known)
            cost = cost_of(programs()[kernel], done, tables)
            self.runs.append(Launch(kernel, n_threads, cost))
            super().launch(kernel, n_threads, plain)
            wrong = np.flatnonzero(peek(addresses) != values)
            if wrong.size:
                raise Fault(f"{kernel}: {wrong.size} of {values.size} bytes differ from those of the host's build")

    def _warps(self, kernel: str, grid: Grid, n_threads: int) -> Sequence[int]:
        """The sampled warps; whole blocks of them if threads wait for each other."""
        warps = self._sample(grid, n_threads)
        if not programs()[kernel].has_barrier:
            return warps
        each = grid.block_threads // 32
        return sorted({block * each + i for block in {warp // each for warp in warps} for i in range(each)})


def table_ranges(kernel: str, args: Sequence[int], known: np.ndarray) -> np.ndarray:
    """The allocations that hold a kernel's tables: those that its typed arguments point to."""
    return allocations(_tables(kernel, args, known))


def _tables(kernel: str, args: Sequence[int], known: np.ndarray) -> Iterator[tuple[int, int]]:
    for argument, value in zip(KERNELS[kernel], args, strict=True):
        if argument.type not in ("i64", "void*", "const void*") or argument.name in ("parts", "fill"):
            row = int(np.searchsorted(known[:, 0], value, "right")) - 1
            if row >= 0:
                yield int(known[row, 0]), int(known[row, 1])
