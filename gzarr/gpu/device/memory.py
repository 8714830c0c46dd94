"""The memory that the GPU backend takes for its batches. What one batch has taken, the next one takes again.

An arena hands out consecutive pieces of a few blocks, and takes nothing back until it is rewound. A batch that asks for
the same sizes as the batch before it gets the same addresses, and nothing is allocated. An arena of device memory has a
limit that its blocks never exceed. A request beyond it raises `OverLimitError`, and the batch is made smaller.

Pinned host memory, from which and to which the device copies at full speed, takes about 0.3 s for each GiB (measured by
others; `benchmarks.gpu.questions` asks). So each pipeline slot keeps the blocks of its batches (`Staging`), and blocks
for encoded chunks are taken again when the store has written them (`Results`), until
`gzarr.gpu.backend.GpuBackend.release`. Rule: whoever gives memory back has waited for the copies from and to it.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.concurrency import Collected
from gzarr.errors import DeviceError, OutOfMemoryError
from gzarr.storage.base import host_view

#: Pieces begin at multiples of this many bytes, as those of cudaMalloc do (CUDA C++ Programming Guide, 5.3.2).
ALIGNMENT = 256
#: CuPy's pool rounds blocks up to multiples of this many bytes (ALLOCATION_UNIT_SIZE), beyond an arena's limit.
GRANULARITY = 512
#: Smallest block, if the limit allows it: most reads of a few chunks fit into one.
MIN_BLOCK_NBYTES = 1 << 20

#: A block of pinned memory is larger than a batch has asked for by its share of 1 / this: the next one may be larger.
_SLACK = 16

Block: TypeAlias = NDArray[np.uint8]
#: Bytes of each block that were taken at some moment.
Mark = tuple[int, ...]


class OverLimitError(DeviceError):
    """A piece does not fit under an arena's limit, or into what the allocator has."""


class Arena:
    """Memory of one kind, for one batch and one thread at a time.

    Parameters
    ----------
    allocate : callable
        Makes a block: a flat uint8 array of so many bytes.
    limit : int, optional
        Most bytes of all blocks together; None for no limit.

    Attributes
    ----------
    limit : int or None
        As above.
    """

    def __init__(self, allocate: Callable[[int], Any], limit: int | None = None) -> None:
        self._allocate = allocate
        self.limit = limit
        self._blocks: list[Any] = []
        self._taken: list[int] = []
        self._whole = self._is_short = False

    def set_limit(self, limit: int) -> None:
        """Change the limit. Blocks beyond it are freed. Nothing may be taken."""
        self.limit, self._is_short = limit, False
        if self.nbytes > limit:
            self.release()

    @property
    def is_split(self) -> bool:
        """Whether there are several blocks."""
        return len(self._blocks) > 1

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return sum(int(block.nbytes) for block in self._blocks)

    def take(self, nbytes: int) -> Any:
        """Take a flat uint8 array, which is valid until the arena is rewound.

        Raises: OverLimitError if it does not fit under the limit.
        """
        for number, block in enumerate(self._blocks):
            start = self._taken[number]
            if start + nbytes <= block.nbytes:
                return self._cut(number, start, nbytes)
        self._add(nbytes)
        return self._cut(len(self._blocks) - 1, 0, nbytes)

    def mark(self) -> Mark:
        """The present state, to rewind to."""
        return tuple(self._taken)

    def rewind(self, mark: Mark = ()) -> None:
        """Take back everything that was handed out since a mark. Nothing may use it any more."""
        for number in range(len(self._taken)):
            self._taken[number] = mark[number] if number < len(mark) else 0

    def compact(self) -> None:
        """Free the unused blocks. The next block takes everything that the limit leaves."""
        self._free_unused()
        self._whole = self.limit is not None and not self._is_short

    def merge(self) -> None:
        """Replace all blocks by one. Nothing may be taken."""
        nbytes = self.nbytes
        self.release()
        self._add(nbytes)

    def release(self) -> None:
        """Free all blocks."""
        self._blocks.clear()
        self._taken.clear()
        self._whole = False

    def _cut(self, number: int, start: int, nbytes: int) -> Any:
        self._taken[number] = start + -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        return self._blocks[number][start : start + nbytes]

    def _free_unused(self) -> None:
        # From the end, as marks refer to blocks by number.
        while self._taken and self._taken[-1] == 0:
            self._blocks.pop()
            self._taken.pop()

    def _add(self, nbytes: int) -> None:
        """Add a block of so many bytes, or of what the limit leaves. Raises: OverLimitError."""
        size = nbytes if self._is_short else max(nbytes, MIN_BLOCK_NBYTES)
        if self.limit is not None:
            room = self.limit - self.nbytes
            if nbytes > room:
                raise OverLimitError(
                    f"{nbytes} bytes of device memory do not fit into the {max(room, 0)} that are left"
                )
            size = room if self._whole else min(size, room)
            size = max(size - size % GRANULARITY, nbytes)
            self._whole = False
        self._blocks.append(self._block(size, nbytes))
        self._taken.append(0)

    def _block(self, size: int, least: int) -> Any:
        """Allocate a block of a size, or the least. Raises: OverLimitError if there is less than that."""
        try:
            return self._allocate(size)
        except OutOfMemoryError as error:
            held, self._is_short = self.nbytes, True
            self._free_unused()
            if size > least or self.nbytes < held:
                return self._block(least, least)
            if self.limit is None:
                raise
            raise OverLimitError(str(error)) from error


class Staging:
    """The pinned memory of a pipeline slot, for one batch and one thread at a time: a block for each request.

    Batches ask for much the same, so that the n-th request of one gets the block of the n-th of the batch before it.
    """

    def __init__(self, allocate: Callable[[int], Block]) -> None:
        self._allocate = allocate
        self._blocks: list[Block] = []
        self._taken = 0

    def take(self, nbytes: int) -> Block:
        """Take a flat uint8 array, which is valid until the memory is rewound."""
        if self._taken == len(self._blocks):
            self._blocks.append(np.empty(0, np.uint8))
        if self._blocks[self._taken].nbytes < nbytes:
            self._blocks[self._taken] = self._allocate(nbytes + nbytes // _SLACK)
        self._taken += 1
        return self._blocks[self._taken - 1][:nbytes]

    def mark(self) -> int:
        """The present state, to rewind to."""
        return self._taken

    def rewind(self, mark: int = 0) -> None:
        """Take back everything that was handed out since a mark. Nothing may use it any more."""
        self._taken = mark

    def release(self) -> None:
        """Free everything."""
        self._blocks.clear()
        self._taken = 0


class Results:
    """Pinned blocks for encoded chunks on their way to a store, which outlive the pipeline slot that encoded them.

    A block can be taken again when nothing refers to its bytes any more, such as when the store has written them.
    """

    def __init__(self, allocate: Callable[[int], Block]) -> None:
        self._allocate = allocate
        self._blocks = Collected()

    def take(self, nbytes: int) -> Block:
        """Take a flat uint8 array. Any view of it keeps its block."""
        block = self._pop(nbytes)
        if block is None:
            block = self._allocate(nbytes + nbytes // _SLACK)
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
