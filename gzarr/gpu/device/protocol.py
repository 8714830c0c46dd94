"""The protocol between the GPU pipeline and hardware. Everything above it runs on any device.

`gzarr.gpu.device.cuda.CudaDevice` implements it with CuPy and nvCOMP; `gzarr.gpu.device.emulated.EmulatedDevice` with
NumPy memory, host codecs for the batched calls, and the same kernel sources compiled by g++. Tables (addresses, sizes)
are int64 NumPy arrays that the host makes. Results that the host needs (statuses, sizes) stay on the device until
`Device.download` or `Device.download_all`; only these two wait.

Memory: within `Device.activate`, everything is allocated from its arenas, and freed at once when these are rewound;
outside of it, from the device's own allocator.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Protocol, TypeAlias
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array, T
from gzarr.gpu.device.allocators import is_out_of_memory
from gzarr.gpu.device.memory import Arena, Staging
from gzarr.profiling.recorder import Marker

#: Addresses, sizes or offsets, made on the host.
Table: TypeAlias = NDArray[np.int64]


class Outcome(NamedTuple):
    """The result of a batched decoder or encoder, on the device.

    Attributes
    ----------
    statuses : Array
        int32, 0 for success.
    sizes : Array
        int64 or uint64, bytes that were written.
    """

    statuses: Array
    sizes: Array


class Checksums(NamedTuple):
    """Checksums of many byte ranges, on the device.

    Attributes
    ----------
    sums : Array
        uint32; valid where the status is 0.
    statuses : Array
        int32, 0 for success.
    """

    sums: Array
    statuses: Array


class Device(Marker, Protocol):
    """A device with its own memory, kernels and batched decoders; as a `Marker`, it marks the stages of a profile.

    What devices do alike is here: each thread takes its memory from the arenas that are active.

    Attributes
    ----------
    name : str
        "cuda:0", or "emulated".
    xp : object
        The array module of the device's memory: cupy or numpy.
    keepers : WeakSet
        What keeps memory for later, and frees it by ``release()`` when there is none left.
    """

    name: str
    xp: Any
    keepers: WeakSet[Any]
    decoders: frozenset[str]
    encoders: frozenset[str]
    _local: threading.local

    def __init__(self) -> None:
        self._local = threading.local()
        self.keepers = WeakSet()

    def owns(self, array: Any) -> bool:
        """Whether an array is in the device's memory."""

    def adopt(self, value: Any, stream: Any = None) -> Array | None:
        """An array of `xp` that shares the memory of another library's array; None if that is not in device memory.

        Its values are ready for later work on the stream; None for the current one.
        """

    def current_stream(self) -> Any:
        """The stream to which this thread's work is submitted."""

    def as_stream(self, stream: Any) -> Any:
        """A caller's stream as a stream of this device. stream: any object of CUDA's stream protocol, or a handle.

        Raises: DeviceError if it is not a stream.
        """

    def new_stream(self) -> Any:
        """A new stream, which does not wait for the default stream."""

    def use(self, stream: Any) -> AbstractContextManager[Any]:
        """A context in which this thread's work goes to a stream."""

    def record(self, stream: Any) -> Any:
        """An event after everything that has been submitted to a stream."""

    def wait(self, stream: Any, event: Any) -> None:
        """Make all later work of a stream wait for an event."""

    def is_done(self, event: Any) -> bool:
        """Whether everything before an event is done."""

    def activate(self, stream: Any, memory: Arena, staging: Staging) -> AbstractContextManager[Any]:
        """A context in which this thread's work goes to a stream, and its memory comes from arenas.

        memory: for all device memory, including that of the array module. staging: for pinned host memory.
        """

    def allocate(self, nbytes: int) -> Array:
        """A block of device memory for an arena: a flat uint8 array. Raises: OutOfMemoryError."""

    def allocate_pinned(self, nbytes: int) -> NDArray[np.uint8]:
        """A block of pinned host memory, which is freed when nothing refers to it."""

    def empty(self, nbytes: int) -> Array:
        """Device memory of the active arena: a flat uint8 array."""

    def result(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: Any = None) -> Array:
        """An uninitialized array that the caller keeps, so not from an arena.

        stream: the caller's, in whose order the memory is free; None for the current one.
        """

    def mapped(self, host: NDArray[Any]) -> Array:
        """Host memory, C-contiguous, as an array that kernels read, pinned while it lives. Raises: DeviceError."""

    def owned_by(self, array: Array, owner: object) -> Array:
        """An array in the same memory, C-contiguous, which keeps an owner alive as long as any view of it lives."""

    def staging(self, nbytes: int) -> NDArray[np.uint8]:
        """Host memory of the active arena, from which uploads are fast."""
        arena = self._staging
        return self.allocate_pinned(nbytes) if arena is None else arena.take(nbytes)

    @property
    def _staging(self) -> Staging | None:
        """The active pinned memory."""
        return getattr(self._local, "staging", None)

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

    def upload(self, host: NDArray[Any]) -> Array:
        """Copy a host array to the device in stream order. The host array must not change before `synchronize`."""

    def download(self, array: Array, into: NDArray[Any] | None = None) -> NDArray[Any]:
        """Copy a device array to the host. Waits for earlier work. into: target of the same shape and dtype."""

    def download_all(self, arrays: Sequence[Array]) -> list[NDArray[Any]]:
        """Copy C-contiguous device arrays to the host. Waits once, for all copies and earlier work.

        The results are in staging memory, and valid until the active arena is rewound.
        """
        copies = [self.staging(array.nbytes).view(array.dtype).reshape(array.shape) for array in arrays]
        for array, host in zip(arrays, copies, strict=True):
            self._begin_download(array, host)
        self.synchronize()
        return copies

    def _begin_download(self, array: Array, host: NDArray[Any]) -> None:
        """Copy an array to pinned memory in stream order, without a wait."""

    def synchronize(self) -> None:
        """Wait for the stream."""

    def address(self, array: Array) -> int:
        """Address of an array's first byte."""

    def launch(self, kernel: str, n_threads: int, args: tuple[Any, ...]) -> None:
        """Run a kernel of `gzarr.gpu.kernels` with at least ``n_threads`` threads; device arrays pass as addresses."""

    def decompress(self, decoder: str, source: Table, nbytes: Table, target: Table, capacity: Table) -> Outcome:
        """Decode at least one stream in one call. All tables are on the host.

        source, nbytes: addresses and sizes of the encoded streams. target, capacity: addresses for the decoded bytes,
            and how many may be written.
        """

    def compress(
        self, encoder: str, source: Table, nbytes: Table, target: Table, capacity: int, typesize: int = 1
    ) -> Outcome:
        """Encode at least one chunk in one call. All tables are on the host. There are no compression levels.

        source, nbytes: addresses and sizes of the chunks. target: addresses for the streams. capacity: bytes that may
            be written at each target.
        typesize: bytes (1, 2, 4, 8) of the integers that an encoder of numbers counts in; sizes are multiples of it.
        Raises: DeviceError for a call that nvCOMP refuses, or if the capacity is below the bound of the largest chunk
            (`gzarr.gpu.device.nvcomp_tables`).
        """

    def crc(self, kind: str, source: Table, nbytes: Table) -> Checksums:
        """Checksums of many byte ranges. kind: "crc32c", or "crc32" (of gzip and zlib)."""

    def measured(self, call: Callable[[], T]) -> tuple[T, int | None]:
        """The result of a call, and the most memory that arrays of `xp` took at once in it; None if that is unknown."""

    def free_nbytes(self) -> int:
        """Free device memory in bytes."""
