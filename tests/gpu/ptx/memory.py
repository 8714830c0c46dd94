"""The memory of a launch: the host's own addresses, every access checked and logged, and all stores undone at the end.

A GPU faults on an access that is not a multiple of its size; the host's processor does not, so the kernels built for it
cannot show this. Reads and writes outside known allocations would show there under AddressSanitizer only.
"""

from typing import Any, NamedTuple

import numpy as np

#: No memory lies below, as the first page of a process is never mapped.
_FIRST = 4096


class Fault(Exception):
    """What a device would stop at, or do differently from run to run."""


class Accesses(NamedTuple):
    """One load or store of several threads."""

    addresses: np.ndarray
    nbytes: int
    threads: np.ndarray


class _Everything:
    """The whole address space as an array; only checked addresses are looked up."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        shape = ((1 << 47) // dtype.itemsize,)
        self.__array_interface__ = {"data": (_FIRST, False), "shape": shape, "typestr": dtype.str, "version": 3}


_VIEWS = {size: np.asarray(_Everything(np.dtype(f"u{size}"))) for size in (1, 2, 4, 8)}


def peek(addresses: np.ndarray) -> np.ndarray:
    """Bytes of the host's memory."""
    return _VIEWS[1][addresses - _FIRST]


class Global:
    """The device's memory.

    Parameters
    ----------
    allocations : ndarray, optional
        int64 (n, 2): first addresses, and those past the ends, sorted and disjoint. None knows none and allows all.
    """

    def __init__(self, allocations: np.ndarray | None = None) -> None:
        self._allocations = allocations
        self._undo: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.loads: list[Accesses] = []
        self.stores: list[Accesses] = []

    def load(self, addresses: np.ndarray, size: int, count: int, threads: np.ndarray) -> list[np.ndarray]:
        """``count`` numbers of ``size`` bytes for every thread."""
        self._check(addresses, size * count, threads, "load")
        self.loads.append(Accesses(addresses, size * count, threads))
        view, first = _VIEWS[size], (addresses - _FIRST) // size
        return [view[first + k] for k in range(count)]

    def store(self, addresses: np.ndarray, values: list[np.ndarray], size: int, threads: np.ndarray) -> None:
        """Numbers of ``size`` bytes of every thread."""
        self._check(addresses, size * len(values), threads, "store")
        self.stores.append(Accesses(addresses, size * len(values), threads))
        view, first = _VIEWS[size], (addresses - _FIRST) // size
        for k, value in enumerate(values):
            self._undo.append((view, first + k, view[first + k]))
            view[first + k] = value

    def atomic(self, addresses: np.ndarray, size: int, threads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(view, indices) of numbers that are to be changed one after the other."""
        self._check(addresses, size, threads, "atomic access")
        view, first = _VIEWS[size], (addresses - _FIRST) // size
        self._undo.append((view, first, view[first]))
        return view, first

    def written(self) -> tuple[np.ndarray, np.ndarray]:
        """Addresses and present values of all bytes that were stored."""
        addresses, _ = _bytes_of(self.stores)
        addresses = np.unique(addresses)
        return addresses, peek(addresses)

    def undo(self) -> None:
        """Give all memory its old contents."""
        for view, index, old in reversed(self._undo):
            view[index] = old
        self._undo.clear()

    def check_races(self) -> None:
        """Raises: Fault if a byte is stored by two threads, or stored by one and loaded by another."""
        stored, owner = _bytes_of(self.stores)
        order = np.lexsort((owner, stored))
        stored, owner = stored[order], owner[order]
        twice = np.flatnonzero((stored[1:] == stored[:-1]) & (owner[1:] != owner[:-1]))
        if twice.size:
            i = twice[0]
            raise Fault(f"the byte at {stored[i]:#x} is stored by threads {owner[i]} and {owner[i + 1]}")
        if not stored.size:
            return
        low, high = stored[0], stored[-1]
        near = [one for one in self.loads if ((one.addresses <= high) & (one.addresses + one.nbytes > low)).any()]
        loaded, reader = _bytes_of(near)
        place = np.minimum(np.searchsorted(stored, loaded), stored.size - 1)
        bad = np.flatnonzero((stored[place] == loaded) & (owner[place] != reader))
        if bad.size:
            i = bad[0]
            raise Fault(
                f"the byte at {loaded[i]:#x} is stored by thread {owner[place[i]]} and loaded by thread {reader[i]}"
            )

    def _check(self, addresses: np.ndarray, nbytes: int, threads: np.ndarray, what: str) -> None:
        if nbytes > 1 and (addresses & nbytes - 1).any():
            odd = np.flatnonzero(addresses % nbytes)
            raise Fault(f"thread {threads[odd[0]]}: misaligned {what} of {nbytes} bytes at {addresses[odd[0]]:#x}")
        if self._allocations is None:
            outside = addresses < _FIRST
        else:
            row = np.searchsorted(self._allocations[:, 0], addresses, "right") - 1
            outside = (row < 0) | (addresses + nbytes > self._allocations[row, 1])
        if outside.any():
            i = np.flatnonzero(outside)[0]
            raise Fault(f"thread {threads[i]}: {what} of {nbytes} bytes at {addresses[i]:#x}, outside every allocation")


def _bytes_of(accesses: list[Accesses]) -> tuple[np.ndarray, np.ndarray]:
    """The address of every byte, and the thread."""
    if not accesses:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    spread = [(one.addresses[:, None] + np.arange(one.nbytes)).reshape(-1) for one in accesses]
    return np.concatenate(spread), np.concatenate([np.repeat(one.threads, one.nbytes) for one in accesses])


class Shared:
    """The shared memory of each block, where threads may only meet at a barrier if that is checked."""

    is_checked = True

    def __init__(self, n_blocks: int, nbytes: int) -> None:
        self._bytes = np.full((n_blocks, nbytes), 0xA5, np.uint8)
        self._epoch = np.zeros(n_blocks, np.int64)
        self._stored, self._loaded = (np.full((2, n_blocks, nbytes), -1, np.int64) for _ in range(2))

    def synchronize(self, block: int) -> None:
        """All threads of a block have met."""
        self._epoch[block] += 1

    def load(self, blocks: np.ndarray, addresses: np.ndarray, size: int, count: int, threads: np.ndarray) -> Any:
        """``count`` numbers of ``size`` bytes for every thread."""
        places = self._places(addresses, size * count, threads, "load")
        rows = blocks[:, None]
        self._check(rows, places, threads, self._stored, "stored")
        epoch = self._epoch[rows]
        before = (self._loaded[1][rows, places] == epoch) & (self._loaded[0][rows, places] != threads[:, None])
        self._loaded[0][rows, places] = np.where(before, -2, threads[:, None])
        self._loaded[1][rows, places] = epoch
        # Of several threads that load the same byte at once, only one was noted.
        i, k = np.nonzero(self._loaded[0][rows, places] != threads[:, None])
        self._loaded[0][blocks[i], places[i, k]] = -2
        raw = np.ascontiguousarray(self._bytes[rows, places])
        return list(raw.view(f"u{size}").T)

    def store(
        self, blocks: np.ndarray, addresses: np.ndarray, values: list[np.ndarray], size: int, threads: np.ndarray
    ) -> None:
        """Numbers of ``size`` bytes of every thread."""
        places = self._places(addresses, size * len(values), threads, "store")
        rows = blocks[:, None]
        self._check(rows, places, threads, self._stored, "stored")
        self._check(rows, places, threads, self._loaded, "loaded")
        self._stored[0][rows, places] = threads[:, None]
        self._stored[1][rows, places] = self._epoch[rows]
        self._check(rows, places, threads, self._stored, "stored")
        raw = np.stack([value.astype(f"u{size}") for value in values], axis=1)
        self._bytes[rows, places] = np.ascontiguousarray(raw).view(np.uint8)

    def _places(self, addresses: np.ndarray, nbytes: int, threads: np.ndarray, what: str) -> np.ndarray:
        bad = np.flatnonzero((addresses % nbytes != 0) | (addresses + nbytes > self._bytes.shape[1]))
        if bad.size:
            at = addresses[bad[0]]
            raise Fault(f"thread {threads[bad[0]]}: misaligned or outside {what} of {nbytes} shared bytes at {at}")
        return addresses[:, None] + np.arange(nbytes)

    def _check(self, rows: np.ndarray, places: np.ndarray, threads: np.ndarray, log: np.ndarray, verb: str) -> None:
        if not self.is_checked:
            return
        other = (log[1][rows, places] == self._epoch[rows]) & (log[0][rows, places] != threads[:, None])
        if other.any():
            i, k = np.argwhere(other)[0]
            raise Fault(
                f"no barrier between thread {threads[i]} and thread {log[0][rows, places][i, k]}, which {verb} the "
                f"shared byte {places[i, k]}"
            )
