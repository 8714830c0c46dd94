"""Memory of batches: lent to the caller, and used again once every view of it is gone.

New pages cost more than decoding into old ones. A batch is therefore an array over memory that a `Lease` stands for.
All its views keep the lease alive, whatever library made them. When the last one goes, the memory is free again.

On a device, work that the caller has submitted may still read the memory then. To take it again is to wait on the
device for what the caller's stream has submitted so far. No code runs at the moment at which a lease ends, which may be
any: an interrupt (Ctrl-C) in it would be lost.

Rules, for devices:

1. Memory is allocated in the order of the caller's stream. If the loader is gone before the lease, the array module
   frees the memory in that order, and nobody else has to wait.
2. So the producer's stream waits for the caller's before it writes there (`Leases.take`). The caller's stream waits for
   the mark of a batch that is handed over, and at the end of a production for all that the producer has submitted, as
   some batches are dropped that were never handed over.
"""

from collections import deque
from typing import Any

import numpy as np

from gzarr.backend import Array, Backend
from gzarr.concurrency import Collected

#: JAX shares memory of the host at multiples of this number, and copies other memory (XLA's cpu::MinAlign).
ALIGNMENT = 64


class Lease:
    """Memory that is in use as long as this object lives."""

    __slots__ = ("__weakref__", "_user")

    def __init__(self, user: list[object]) -> None:
        self._user = user

    def hand_to(self, stream: object) -> None:
        """Note on which stream the caller uses the memory. stream: of `Backend.current_stream`."""
        self._user[0] = stream


class Leases:
    """Batch memory of one shape and dtype.

    Parameters
    ----------
    backend : Backend
        Whose memory it is.
    shape, dtype
        Of the arrays.
    most : int
        How much free memory is kept: so many arrays.
    stream : object
        The caller's stream (`Backend.current_stream`); None on the CPU.
    """

    def __init__(
        self, backend: Backend, shape: tuple[int, ...], dtype: np.dtype[Any], most: int, stream: object = None
    ) -> None:
        self._backend, self._shape, self._dtype, self._stream = backend, shape, dtype, stream
        self._free: deque[tuple[Array, list[object]]] = deque(maxlen=most)
        self._lent = Collected()

    def take(self) -> tuple[Array, Lease]:
        """Return an array whose contents are arbitrary, and its lease, which all of its views keep.

        The current stream, which is the producer's, waits for the last user of the memory.
        """
        while (ended := self._lent.pop()) is not None:
            self._free.append(ended)
        if self._free:
            memory, user = self._free.pop()
        else:
            memory = _aligned(self._backend.empty(self._shape, self._dtype, self._stream))
            user = [self._stream]
        if user[0] is not None:
            self._backend.wait(self._backend.record(user[0]))
        lease = Lease(user)
        self._lent.watch(lease, (memory, user))
        return self._backend.owned_by(memory, lease), lease


def _aligned(memory: Array) -> Array:
    """Return memory of the host at an address that suits every library; other memory as it is."""
    if not isinstance(memory, np.ndarray) or memory.dtype.hasobject or memory.ctypes.data % ALIGNMENT == 0:
        return memory
    raw = np.empty(memory.nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + memory.nbytes].view(memory.dtype).reshape(memory.shape)
