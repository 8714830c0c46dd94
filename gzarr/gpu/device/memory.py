"""Arenas, from which the GPU backend takes all its memory. Each batch fills an arena, and the next fills it again.

An arena hands out consecutive pieces of a few blocks, and takes nothing back until it is rewound. A batch that asks for
the same sizes as the batch before it gets the same addresses, and nothing is allocated. An arena of device memory has a
limit that its blocks never exceed. A request beyond it raises `OverLimitError`, and the batch is made smaller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gzarr.errors import DeviceError, OutOfMemoryError

#: Pieces begin at multiples of this many bytes, as those of cudaMalloc do (CUDA C++ Programming Guide, 5.3.2).
ALIGNMENT = 256
#: CuPy's pool rounds blocks up to multiples of this many bytes (ALLOCATION_UNIT_SIZE), beyond an arena's limit.
GRANULARITY = 512
#: Smallest block, if the limit allows it: most reads of a few chunks fit into one.
MIN_BLOCK_NBYTES = 1 << 20

#: Bytes of each block that were taken at some moment.
Mark = tuple[int, ...]


class OverLimitError(DeviceError):
    """A piece does not fit under an arena's limit.

    Attributes
    ----------
    share : float or None
        The share of what was asked for that would fit; None if it is not known, as other pieces would follow.
    """

    def __init__(self, message: str = "", share: float | None = None) -> None:
        super().__init__(message)
        self.share = share


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
    failure : str
        What the allocator said when it could not allocate a block, so that the limit was lowered; "" if it could.
    """

    def __init__(self, allocate: Callable[[int], Any], limit: int | None = None) -> None:
        self._allocate = allocate
        self._limit = limit
        self._blocks: list[Any] = []
        self._taken: list[int] = []
        self._whole = False
        self.failure = ""

    @property
    def limit(self) -> int | None:
        """Most bytes of all blocks together; None for no limit."""
        return self._limit

    def set_limit(self, limit: int) -> None:
        """Change the limit. Blocks beyond it are freed. Nothing may be taken."""
        self._limit, self.failure = limit, ""
        if self.nbytes > limit:
            self.release()

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return sum(int(block.nbytes) for block in self._blocks)

    @property
    def is_split(self) -> bool:
        """Whether there are several blocks."""
        return len(self._blocks) > 1

    def take(self, nbytes: int) -> Any:
        """Take a flat uint8 array, which is valid until the arena is rewound.

        Raises: OverLimitError if it does not fit under the limit.
        """
        for number, block in enumerate(self._blocks):
            start = self._taken[number]
            if start + nbytes <= block.nbytes:
                return self._cut(number, start, nbytes)
        self._grow(nbytes)
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
        self._whole = self._limit is not None

    def require(self, nbytes: int) -> None:
        """Have room for pieces of ``nbytes`` together, in one block. Raises: OverLimitError with its share."""
        if any(block.nbytes - taken >= nbytes for block, taken in zip(self._blocks, self._taken, strict=True)):
            return
        self._free_unused()
        if self._limit is not None and nbytes > self._limit - self.nbytes:
            left = self._limit - sum(self._taken)
            text = f"{nbytes} bytes of device memory do not fit into the {left} that are left"
            raise OverLimitError(text, min(left / nbytes, 1.0))
        self._add(nbytes, nbytes // 8)

    def merge(self) -> None:
        """Replace several blocks by one. Nothing may be taken."""
        if len(self._blocks) > 1:
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

    def _grow(self, nbytes: int) -> None:
        """Add a block as large as all others together, so that there are few blocks."""
        held = self.nbytes
        if self._limit is not None and nbytes > self._limit - held:
            left = max(self._limit - held, 0)
            raise OverLimitError(f"{nbytes} bytes of device memory do not fit into the {left} that are left")
        wanted = -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        self._add(nbytes, max(wanted, held) - nbytes)

    def _add(self, nbytes: int, more: int = 0) -> None:
        """Add a block of so many bytes, and of more if the limit allows it."""
        # When memory is short, little more than is needed.
        size = max(nbytes, MIN_BLOCK_NBYTES // 16) if self.failure else max(nbytes + more, MIN_BLOCK_NBYTES)
        if self._limit is not None:
            room = self._limit - self.nbytes
            size = room if self._whole else min(size, room)
            size = max(size - size % GRANULARITY, nbytes)
            self._whole = False
        self._blocks.append(self._block(size, nbytes))
        self._taken.append(0)

    def _block(self, size: int, least: int) -> Any:
        """Allocate a block of a size, or the least. Raises: OverLimitError, with a lower limit for what follows."""
        try:
            return self._allocate(size)
        except OutOfMemoryError as error:
            held = self.nbytes
            self._free_unused()
            if size > least or self.nbytes < held:
                return self._block(least, least)
            if self._limit is None:
                raise
            # Others have taken what was free when the limit was set. Half a batch asks for half of what this one did.
            self._limit, self.failure = (self.nbytes + least) // 2, str(error)
            raise OverLimitError(self.failure, 0.5) from error
