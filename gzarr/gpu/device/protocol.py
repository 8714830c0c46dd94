"""The seam between the GPU pipeline and hardware: what a device must do. Everything above it runs on any device.

`gzarr.gpu.device.cuda.CudaDevice` does it with CuPy and nvCOMP; `gzarr.gpu.device.emulated.EmulatedDevice` with NumPy
memory, host codecs for the batched calls and the same kernel sources compiled by g++. Tables (addresses, sizes) are
made on the host as int64 NumPy arrays and handed over; results that the host must see (statuses, sizes) stay on the
device until `Device.download` and `Device.download_all`, which are the places that wait.

Memory: within `Device.activate` everything comes from the arenas given to it, and goes back all at once when these are
rewound; outside of it, from the device's own allocator.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array
from gzarr.gpu.device.memory import Arena
from gzarr.gpu.device.nvcomp_tables import Alignment
from gzarr.profiling.recorder import Marker

#: Addresses, sizes and offsets, made on the host.
Table: TypeAlias = NDArray[np.int64]


class Outcome(NamedTuple):
    """What a batched decoder or encoder said, on the device: statuses (0 is success) and sizes of what it wrote.

    statuses: int32. sizes: int64 or uint64.
    """

    statuses: Array
    sizes: Array


class Device(Marker, Protocol):
    """A device with memory of its own, kernels and batched decoders; it shows the stages of a profile as a `Marker`.

    Attributes:
        name: "cuda:0", or "emulated".
        xp: the array module of the device's memory: cupy or numpy.
    """

    name: str
    xp: Any

    def owns(self, array: Any) -> bool:
        """Whether an array lies in the device's memory."""
        ...

    def adopt(self, value: Any) -> Array | None:
        """An array of `xp` that shares the memory of any library's array in device memory; None if it is not there."""
        ...

    def current_stream(self) -> Any:
        """The stream that this thread's work goes to."""
        ...

    def as_stream(self, stream: Any) -> Any:
        """A stream of the caller, in the words of this device: any object of CUDA's stream protocol, or a handle.

        Raises: DeviceError if it is none.
        """
        ...

    def new_stream(self) -> Any:
        """A stream of its own, which does not wait for the default stream."""
        ...

    def record(self, stream: Any) -> Any:
        """An event behind everything that was submitted to a stream so far."""
        ...

    def wait(self, stream: Any, event: Any) -> None:
        """Make what is submitted to a stream from now on wait for an event."""
        ...

    def activate(self, stream: Any, memory: Arena, staging: Arena) -> AbstractContextManager[Any]:
        """A context in which this thread's work goes to a stream, and its memory comes from arenas.

        memory: for whatever is allocated on the device, by the array module too. staging: pinned host memory.
        """
        ...

    def allocate(self, nbytes: int) -> Array:
        """A block for an arena: device memory that belongs to no arena, as a flat uint8 array."""
        ...

    def allocate_pinned(self, nbytes: int) -> NDArray[np.uint8]:
        """A block for an arena: pinned host memory."""
        ...

    def empty(self, nbytes: int) -> Array:
        """Device memory of the arena at hand: a flat uint8 array."""
        ...

    def result(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: Any = None) -> Array:
        """An uninitialized array for the caller to keep, in no arena.

        stream: the caller's, in whose order the memory is free; None for the one that is current.
        """
        ...

    def staging(self, nbytes: int) -> NDArray[np.uint8]:
        """Host memory of the arena at hand, from which copies to the device are fast."""
        ...

    def upload(self, host: NDArray[Any]) -> Array:
        """Copy a host array to the device, in stream order. The host array must not change before `synchronize`."""
        ...

    def download(self, array: Array, into: NDArray[Any] | None = None) -> NDArray[Any]:
        """Copy a device array to the host; waits for the work before it. into: where to, of its shape and dtype."""
        ...

    def download_all(self, arrays: Sequence[Array]) -> list[NDArray[Any]]:
        """Copy C-contiguous device arrays to the host; waits once, for all of them and the work before them.

        What comes back lies in staging memory: it is valid until the arena at hand is rewound.
        """
        ...

    def synchronize(self) -> None:
        """Wait for the stream."""
        ...

    def address(self, array: Array) -> int:
        """Address of an array's first byte."""
        ...

    def launch(self, kernel: str, n_threads: int, args: tuple[Any, ...]) -> None:
        """Run a kernel of `gzarr.gpu.kernels` with at least ``n_threads`` threads; device arrays pass as addresses."""
        ...

    def decoders(self) -> frozenset[str]:
        """The batched decoders that the device has."""
        ...

    def decompress(self, decoder: str, source: Table, nbytes: Table, target: Table, capacity: Table) -> Outcome:
        """Decode many streams in one call.

        source, nbytes: addresses and sizes of the encoded streams. target, capacity: where the decoded bytes go, and
            how many may be written. All on the host; at least one stream.
        """
        ...

    def scratch_nbytes(self, decoder: str, n: int, max_nbytes: int, total_nbytes: int) -> int:
        """Temporary device memory that `decompress` takes for a batch."""
        ...

    def alignment(self, decoder: str) -> int:
        """Alignment that `decompress` needs of its sources."""
        ...

    def encoders(self) -> frozenset[str]:
        """The batched encoders that the device has."""
        ...

    def compress(
        self, encoder: str, source: Table, nbytes: Table, target: Table, capacity: int, typesize: int = 1
    ) -> Outcome:
        """Encode many chunks in one call. There are no levels: nvCOMP's encoders know none, or others.

        source, nbytes: addresses and sizes of the chunks. target: where the streams go. capacity: bytes that may be
            written at each target. All on the host; at least one chunk.
        typesize: bytes (1, 2, 4, 8) of the integers that an encoder of numbers counts in; sizes are multiples of it.
        Raises: DeviceError for a call that nvCOMP refuses, or if the capacity is below `compress_max_nbytes` of the
            largest chunk.
        """
        ...

    def compress_max_nbytes(self, encoder: str, nbytes: int) -> int:
        """Capacity that `compress` needs for chunks of ``nbytes``, whatever is in them."""
        ...

    def compress_scratch_nbytes(self, encoder: str, n: int, max_nbytes: int, total_nbytes: int) -> int:
        """Temporary device memory that `compress` takes for a batch."""
        ...

    def compress_alignment(self, encoder: str, typesize: int = 1) -> Alignment:
        """Alignment that `compress` needs of its sources and targets."""
        ...

    def crc32c(self, source: Table, nbytes: Table) -> Array:
        """crc32c of many byte ranges: uint32, on the device."""
        ...

    def crc32(self, source: Table, nbytes: Table) -> Array:
        """CRC-32 (of gzip and zlib) of many byte ranges: uint32, on the device."""
        ...

    def free_nbytes(self) -> int:
        """Device memory that is free."""
        ...
