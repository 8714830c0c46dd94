"""Blocks that several threads put together out of parts, each thread on a stream of its own."""

import math
from typing import Any

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend
from gzarr.concurrency import new_lock
from gzarr.indexing.keys import Coords
from gzarr.indexing.regions import Region


class GatheredBlock:
    """Memory that parts are laid into, allocated when the first one comes.

    Parameters
    ----------
    backend : Backend
        Whose memory it is.
    shape, dtype
        Of the block.
    fill : scalar, optional
        What lies where no part comes.

    Attributes
    ----------
    shape : tuple of int
        The same.
    n_present : int
        How many elements have come.
    """

    def __init__(self, backend: Backend, shape: Coords, dtype: np.dtype[Any], fill: Any = None) -> None:
        self.shape, self.n_present, self._fill = shape, 0, fill
        self._backend, self._dtype = backend, dtype
        self._lock = new_lock()
        self._memory: AnyArray = None
        self._stream: object = None  # that the memory belongs to
        self._marks: list[object] = []  # of the streams that allocated it and copied parts

    @property
    def nbytes(self) -> int:
        """Bytes of the block."""
        return math.prod(self.shape) * self._dtype.itemsize

    def add(self, place: Region, part: AnyArray, *, counts: bool = True) -> int:
        """Lay a part into the block. counts: whether it is a new one. Returns: how many elements have come."""
        with self._lock:
            if self._memory is None:
                self._memory = self._backend.empty(self.shape, self._dtype)
                if self._fill is not None:
                    self._memory[...] = self._fill
                self._stream = self._backend.current_stream()
                self._marks.append(self._backend.record())
        self._backend.wait(self._marks[0])  # its memory may belong to another stream
        self._memory[place] = part
        mark = self._backend.record()
        with self._lock:
            self._marks.append(mark)
            self.n_present += part.size if counts else 0
            return self.n_present

    def take(self) -> AnyArray:
        """Take the block out; the current stream waits for all of its parts."""
        for mark in self._marks:
            self._backend.wait(mark)
        memory, self._memory = self._memory, None
        return memory

    def free(self) -> None:
        """Let the memory that was taken out be used again after the work of the current stream."""
        self._backend.wait(self._backend.record(), self._stream)
