"""Pinned host memory, from which and to which the device copies at full speed, without a copy of the driver's own.

Pinning takes about 0.3 s for each GiB (measured by others; `benchmarks.gpu.questions` asks), and takes the memory from
the page cache and from other processes. So a pipeline slot pins one staging buffer for the encoded chunks of its
batches, and a small arena for tables; blocks are as large as batches need, are used again, and are freed by
`gzarr.gpu.backend.GpuBackend.release`. Beyond a cap, large blocks are pageable: copies are then slower, but correct.

Rules: a block is replaced when its batch is done, and what still refers to the old block keeps it. So nothing is freed
that the device may still use, if a batch holds what it copies (`gzarr.gpu.codecs.batch.BatchContext.held`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.concurrency import Collected, new_lock
from gzarr.gpu.device.memory import MIN_BLOCK_NBYTES, Arena
from gzarr.gpu.device.memory import Mark as ArenaMark
from gzarr.storage.base import host_view

#: Most pinned bytes of a backend, but for tables: 341 MiB a pipeline slot. Batches of 128 MiB take less even if they
#: are not compressed. Larger ones are those of few large chunks, whose decoding is slower than a copy of pageable
#: memory.
MAX_PINNED_NBYTES = 1 << 30
#: Larger pieces than this come from a staging buffer, smaller ones from the arena for tables.
MAX_TABLE_NBYTES = 1 << 20
#: Share of a block that is added for batches that are a little larger, so that they do not pin anew. Readers that guess
#: sizes add a share of their own.
_SLACK = 1 / 16

Block: TypeAlias = NDArray[np.uint8]
#: Makes a block of so many bytes, and a little more if it may: (bytes, bytes with slack) -> block.
Allocate: TypeAlias = Callable[[int, int], Block]


class Mark(NamedTuple):
    """How much of a pipeline slot's memory was taken: staging buffers, and bytes of the arena's blocks."""

    staging_buffers: int = 0
    tables: ArenaMark = ()


class Results:
    """Pinned blocks for encoded chunks on their way to a store, which outlive the pipeline slot that encoded them.

    A block can be taken again when nothing refers to its bytes any more, such as when the store has written them.
    """

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._blocks = Collected()

    def take(self, nbytes: int) -> Block:
        """Take a flat uint8 array. Any view of it keeps its block."""
        block = self._pop(nbytes)
        if block is None:
            block = self._allocate(nbytes, nbytes + int(nbytes * _SLACK))
        # A view of the block itself would not be kept by its views: they would refer to the block.
        taken = np.frombuffer(host_view(block), np.uint8, nbytes) if nbytes else np.empty(0, np.uint8)
        self._blocks.watch(taken, block)
        return taken

    def release(self) -> None:
        """Free the blocks that are not taken."""
        while self._blocks.pop() is not None:
            pass

    def _pop(self, nbytes: int) -> Block | None:
        """One of the blocks that are large enough. The others are freed: batches have grown."""
        block: Block | None = self._blocks.pop()
        while block is not None and block.nbytes < nbytes:
            block = self._blocks.pop()
        return block


class Pinned:
    """All pinned memory of a backend.

    Parameters
    ----------
    allocate : callable
        Pins a block of so many bytes; it is freed when nothing refers to it.
    cap : int
        Most pinned bytes, but for tables.

    Attributes
    ----------
    results
        What is pinned for encoded chunks on their way to a store.
    """

    def __init__(self, allocate: Callable[[int], Block], cap: int = MAX_PINNED_NBYTES) -> None:
        self._allocate = allocate
        self._cap = cap
        self._nbytes = 0
        self._sizes = Collected()
        self._lock = new_lock()
        self.results = Results(self.block)

    def block(self, nbytes: int, most: int) -> Block:
        """A block of ``most`` bytes if the cap allows it, of ``nbytes`` otherwise; pageable if it allows neither."""
        for size in (most, nbytes):
            if self._claim(size):
                return self._pin(size)
        return np.empty(nbytes, np.uint8)

    def table_block(self, nbytes: int) -> Block:
        """A block for tables, which are small: pinned in any case."""
        return self._allocate(nbytes)

    def _claim(self, nbytes: int) -> bool:
        with self._lock:
            while (freed := self._sizes.pop()) is not None:
                self._nbytes -= freed
            fits = self._nbytes + nbytes <= self._cap
            self._nbytes += nbytes if fits else 0
        return fits

    def _pin(self, nbytes: int) -> Block:
        try:
            block = self._allocate(nbytes)
        except BaseException:
            with self._lock:
                self._nbytes -= nbytes
            raise
        self._sizes.watch(block, nbytes)
        return block


class StagingBuffer:
    """One block, which is replaced if a batch asks for more than it has."""

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._block: Block | None = None

    def take(self, nbytes: int) -> Block:
        """The first bytes of the block, which may be one with more."""
        if not nbytes:
            return np.empty(0, np.uint8)
        if self._block is None or self._block.nbytes < nbytes:
            self._block = None  # freed first, unless the batch that took it is still under way
            self._block = self._allocate(nbytes, max(nbytes + int(nbytes * _SLACK), MIN_BLOCK_NBYTES))
        return self._block[:nbytes]


class Staging:
    """The pinned memory of a pipeline slot, for one batch and one thread at a time."""

    def __init__(self, pinned: Pinned) -> None:
        self._pinned = pinned
        self._tables = Arena(pinned.table_block)
        self._staging_buffers: list[StagingBuffer] = []
        self._taken = 0

    def staging_buffer(self, nbytes: int) -> Block:
        """Take one part for what is large: encoded chunks, values. A batch that takes a second one gets another buffer.

        Returns: uint8, pinned unless the cap is reached, valid until the memory is rewound.
        """
        if self._taken == len(self._staging_buffers):
            self._staging_buffers.append(StagingBuffer(self._pinned.block))
        staging_buffer = self._staging_buffers[self._taken]
        self._taken += 1
        return staging_buffer.take(nbytes)

    def take(self, nbytes: int) -> Block:
        """Take a flat uint8 array, which is valid until the memory is rewound."""
        if nbytes > MAX_TABLE_NBYTES:
            return self.staging_buffer(nbytes)
        block: Block = self._tables.take(nbytes)
        return block

    def mark(self) -> Mark:
        """The present state, to rewind to."""
        return Mark(self._taken, self._tables.mark())

    def rewind(self, mark: Mark = Mark()) -> None:  # noqa: B008 - it cannot be changed
        """Take back everything that was handed out since a mark. Nothing may use it any more."""
        self._taken = mark.staging_buffers
        self._tables.rewind(mark.tables)

    def release(self) -> None:
        """Free everything."""
        self._tables.release()
        self._staging_buffers.clear()
        self._taken = 0
