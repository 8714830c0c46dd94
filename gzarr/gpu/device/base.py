"""What devices do alike: each thread takes its memory from what is active."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from gzarr.gpu.device.allocators import is_out_of_memory
from gzarr.gpu.device.memory import Staging


class ThreadedDevice:
    """A device whose memory comes, for each thread, from the arenas that are active.

    Attributes
    ----------
    keepers
        What keeps memory for later, and frees it by ``release()``.
    """

    def __init__(self) -> None:
        self._local = threading.local()
        self.keepers: WeakSet[Any] = WeakSet()

    def _allocated(self, allocate: Callable[[], Any]) -> Any:
        """Allocate, once more if there is no memory before what is kept for later has been given back."""
        try:
            return allocate()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        for keeper in list(self.keepers):
            keeper.release()
        self._empty_pools()
        return allocate()

    def _empty_pools(self) -> None:
        """Give back the unused memory of pools."""

    @contextmanager
    def _active(self, **state: Any) -> Iterator[None]:
        """Set what this thread's memory comes from."""
        current = self._local.__dict__
        outer = dict(current)
        current.update(state)
        try:
            yield
        finally:
            current.clear()
            current.update(outer)

    @property
    def _staging(self) -> Staging | None:
        """The active pinned memory."""
        return getattr(self._local, "staging", None)

    def staging(self, nbytes: int) -> NDArray[np.uint8]:
        """Pinned host memory."""
        arena = self._staging
        return self.allocate_pinned(nbytes) if arena is None else arena.take(nbytes)

    def download_all(self, arrays: Sequence[Any]) -> list[NDArray[Any]]:
        """Copy device arrays to pinned memory. Waits once."""
        copies = [self.staging(array.nbytes).view(array.dtype).reshape(array.shape) for array in arrays]
        for array, host in zip(arrays, copies, strict=True):
            self._begin_download(array, host)
        self.synchronize()
        return copies

    def allocate_pinned(self, nbytes: int) -> NDArray[np.uint8]:
        """A block of pinned host memory."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait for the stream."""
        raise NotImplementedError

    def _begin_download(self, array: Any, host: NDArray[Any]) -> None:
        """Copy an array to pinned memory in stream order, without a wait."""
        raise NotImplementedError
