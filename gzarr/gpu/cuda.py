"""A CUDA device: CuPy for memory, streams and kernels, nvCOMP for the batched decoders.

Work goes to CuPy's current stream. Copies from staging memory (pinned) are asynchronous; `CudaDevice.download` is where
the host waits. Kernels are compiled by NVRTC at their first launch and kept in CuPy's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from gzarr.errors import DeviceError
from gzarr.gpu import nvcomp
from gzarr.gpu.device import Outcome, Table
from gzarr.gpu.kernels import BLOCK_THREADS, KERNELS, source

#: nvCOMP's decoders, but that of gzip: the parsers here take the envelope off, which leaves Deflate.
_DECODERS = frozenset(nvcomp.CODECS) - {"gzip"}
#: DLPack's numbers for memory on a CUDA device, and managed by CUDA (dlpack.h, DLDeviceType).
_DLPACK_CUDA = (2, 13)
#: Blocks of one launch: kernels step by the grid, so that more only cost scheduling.
_MAX_BLOCKS = 1 << 20


class CudaDevice:
    """One CUDA device.

    Attributes:
        name: "cuda:0" and so on.
        xp: cupy.
    """

    xp = cupy

    def __init__(self, number: int = 0) -> None:
        count = cupy.cuda.runtime.getDeviceCount()
        if not 0 <= number < count:
            raise DeviceError(f"no device cuda:{number}: there are {count}, counted from 0")
        self.name = f"cuda:{number}"
        self._device = cupy.cuda.Device(number)

    def owns(self, array: Any) -> bool:
        """Whether an array lies in the memory of this device."""
        return isinstance(array, cupy.ndarray) and array.device == self._device

    def adopt(self, value: Any) -> Any:
        """A CuPy array that shares the memory of any library's array on a CUDA device; None for what is not on one."""
        if isinstance(value, cupy.ndarray):
            return value
        if hasattr(value, "__cuda_array_interface__"):
            return cupy.asarray(value)
        if hasattr(value, "__dlpack_device__") and int(value.__dlpack_device__()[0]) in _DLPACK_CUDA:
            return cupy.from_dlpack(value)
        return None

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Work on a stream of its own: it waits for the caller's stream, which waits for it at the end."""
        with self._device:
            caller = cupy.cuda.get_current_stream()
            own = cupy.cuda.Stream(non_blocking=True)
            own.wait_event(caller.record())
            with own:
                yield
                done = own.record()
            caller.wait_event(done)

    def empty(self, nbytes: int) -> Any:
        """Device memory: a flat uint8 array."""
        return cupy.empty(nbytes, cupy.uint8)

    def staging(self, nbytes: int) -> NDArray[np.uint8]:
        """Pinned host memory."""
        return np.frombuffer(cupy.cuda.alloc_pinned_memory(max(nbytes, 1)), np.uint8, nbytes)

    def upload(self, host: NDArray[Any]) -> Any:
        """Copy a host array to the device, in stream order."""
        array = cupy.empty(host.shape, host.dtype)
        array.set(np.ascontiguousarray(host))
        return array

    def download(self, array: Any) -> NDArray[Any]:
        """Copy a device array to the host; waits for the work before it."""
        copied: NDArray[Any] = cupy.asnumpy(array)
        return copied

    def synchronize(self) -> None:
        """Wait for the stream."""
        cupy.cuda.get_current_stream().synchronize()

    def address(self, array: Any) -> int:
        """Address of an array's first element."""
        return int(array.data.ptr)

    def launch(self, kernel: str, n_threads: int, args: tuple[Any, ...]) -> None:
        """Run a kernel with at least ``n_threads`` threads."""
        if n_threads == 0:
            return
        typed = []
        for argument, value in zip(KERNELS[kernel], args, strict=True):
            plain = self.address(value) if isinstance(value, cupy.ndarray) else int(value)
            typed.append(np.int64(plain) if argument.type == "i64" else np.uint64(plain))
        blocks = min(-(-n_threads // BLOCK_THREADS), _MAX_BLOCKS)
        _kernel(kernel)((blocks,), (BLOCK_THREADS,), tuple(typed))

    def decoders(self) -> frozenset[str]:
        """The batched decoders."""
        return _DECODERS

    def decompress(self, decoder: str, source: Table, nbytes: Table, target: Table, capacity: Table) -> Outcome:
        """Decode many streams in one call of nvCOMP. Raises: DeviceError if nvCOMP refuses the call."""
        n = source.size
        tables = self.upload(np.stack([source, nbytes, target, capacity]).astype(np.uint64))
        largest, total = int(capacity.max()), int(capacity.sum())
        stream = cupy.cuda.get_current_stream().ptr
        scratch_nbytes = nvcomp.query_temp_nbytes(decoder, n, largest, total, stream)
        scratch = cupy.empty(max(scratch_nbytes, 1), cupy.uint8)
        statuses = cupy.empty(n, cupy.int32)
        sizes = cupy.empty(n, cupy.uint64)
        base, row = self.address(tables), n * 8
        nvcomp.decompress_async(
            decoder,
            base,
            base + row,
            base + 3 * row,
            self.address(sizes),
            n,
            self.address(scratch),
            scratch_nbytes,
            base + 2 * row,
            self.address(statuses),
            stream,
        )
        # The tables and the scratch return to CuPy's pool now, which hands them out again in the order of this stream.
        return Outcome(statuses, sizes)

    def scratch_nbytes(self, decoder: str, n: int, max_nbytes: int, total_nbytes: int) -> int:
        """Temporary device memory that `decompress` takes for a batch."""
        return nvcomp.decompress_temp_nbytes(decoder, n, max_nbytes, total_nbytes)

    def alignment(self, decoder: str) -> int:
        """Alignment that `decompress` needs of its sources."""
        return nvcomp.decompress_alignment(decoder).input

    def crc32c(self, source: Table, nbytes: Table) -> Any:
        """crc32c of many byte ranges: uint32, on the device."""
        return self._crc(nvcomp.crc32c_async, source, nbytes)

    def crc32(self, source: Table, nbytes: Table) -> Any:
        """CRC-32 of many byte ranges: uint32, on the device."""
        return self._crc(nvcomp.crc32_async, source, nbytes)

    def _crc(self, queue: Callable[..., None], source: Table, nbytes: Table) -> Any:
        n = source.size
        tables = self.upload(np.stack([source, nbytes]).astype(np.uint64))
        out = cupy.empty(n, cupy.uint32)
        statuses = cupy.zeros(n, cupy.int32)
        base = self.address(tables)
        stream = cupy.cuda.get_current_stream().ptr
        queue(base, base + n * 8, n, int(nbytes.max()), self.address(out), self.address(statuses), stream)
        return out

    def free_nbytes(self) -> int:
        """Device memory that is free, what CuPy's pool holds unused included."""
        with self._device:
            free, _ = cupy.cuda.runtime.memGetInfo()
            return int(free) + int(cupy.get_default_memory_pool().free_bytes())


@cache
def _kernel(name: str) -> Any:
    return cupy.RawKernel(source(name), name, options=("-std=c++17",))
