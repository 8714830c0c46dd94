"""Kernels and batched decoders of the double, run on the host when the stream comes to them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.hostbuild import HostKernels
from gzarr.gpu.device.nvcomp_tables import CODECS, bound_compress_temp_nbytes, compress_options
from gzarr.gpu.kernels import sources
from tests.gpu.fake_cupy.clock import Costs
from tests.gpu.fake_cupy.errors import INVALID_CONFIGURATION, CUDARuntimeError
from tests.gpu.fake_cupy.memory import bytes_at
from tests.gpu.fake_cupy.streams import current, queue_at, submit


class RawKernel:
    """A kernel, compiled by g++ and run when its stream is waited for."""

    launches: list[str] = []

    def __init__(self, code: str, name: str, options: tuple[str, ...] = (), backend: str = "nvrtc"):
        if code not in (sources.source(name), sources.all_sources()) or not isinstance(options, tuple):
            raise ValueError("not a kernel of gzarr, or options that are no tuple")
        self.name = name
        self.attributes = {"num_regs": 0, "local_size_bytes": 0, "max_threads_per_block": 1024}

    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...], shared_mem: int = 0):
        if not 1 <= grid[0] < 2**31 or not 1 <= block[0] <= 1024:
            raise CUDARuntimeError(INVALID_CONFIGURATION)
        for argument, value in zip(sources.KERNELS[self.name], args, strict=True):
            wanted = np.int64 if argument.type == "i64" else np.uint64
            if type(value) is not wanted:
                raise TypeError(f"{self.name}: {argument.name} is {type(value)}, not {wanted}")
        plain = tuple(int(value) for value in args)
        RawKernel.launches.append(self.name)

        def run() -> Callable[[Costs], float]:
            _HOST.launch(self.name, grid[0] * block[0], plain)
            return lambda costs: 16 * grid[0] * block[0] / costs.kernel_rate

        submit(run)


class RawModule:
    """Several kernels of one text, compiled when the first of them is asked for.

    As CuPy, it looks the text up without a lock: threads that ask at the same time all compile it.
    """

    #: Devices for which a text was compiled, in order; those for which it is there.
    compiled: list[int] = []
    _there: set[tuple[int, str, tuple[str, ...]]] = set()

    def __init__(self, *, code: str, options: tuple[str, ...] = (), backend: str = "nvrtc"):
        if not isinstance(options, tuple):
            raise TypeError("Argument 'options' has incorrect type")
        self.code, self.options = code, options

    def get_function(self, name: str) -> RawKernel:
        key = (current.device, self.code, self.options)
        if key not in RawModule._there:
            RawModule.compiled.append(current.device)
            time.sleep(0.02)
            RawModule._there.add(key)
        return RawKernel(self.code, name, self.options)


_HOST = HostKernels()
_DECODERS = EmulatedDevice()


def decompress_async(
    codec: str,
    in_ptrs: int,
    in_sizes: int,
    out_capacities: int,
    out_actual: int,
    n: int,
    temp: int,
    temp_nbytes: int,
    out_ptrs: int,
    statuses: int,
    stream: int,
) -> None:
    """Like gzarr.gpu.device.nvcomp.decompress_async: the tables are read at their addresses, when the stream comes to
    it."""

    def table(address: int, dtype: Any) -> np.ndarray:
        nbytes = n * np.dtype(dtype).itemsize
        return np.ctypeslib.as_array(bytes_at(address, nbytes)).view(dtype)

    def run() -> Callable[[Costs], float]:
        rows = [table(at, np.uint64).astype(np.int64) for at in (in_ptrs, in_sizes, out_ptrs, out_capacities)]
        found = _DECODERS.decompress(codec, *rows)
        table(statuses, np.int32)[:] = found.statuses
        table(out_actual, np.uint64)[:] = found.sizes
        decoded = int(found.sizes.sum())
        return lambda costs: decoded / costs.decode_rate

    RawKernel.launches.append(codec)
    queue_at(stream).submit(run)


def compress_temp_nbytes(
    codec: str, n: int, max_chunk: int, total: int, options: bytes | None = None, stream: int = 0
) -> int:
    """Like gzarr.gpu.device.nvcomp.compress_temp_nbytes, which needs a device for zstd."""
    return bound_compress_temp_nbytes(codec, n, max_chunk)


def compress_async(
    codec: str,
    in_ptrs: int,
    in_sizes: int,
    max_chunk: int,
    n: int,
    temp: int,
    temp_nbytes: int,
    out_ptrs: int,
    out_sizes: int,
    statuses: int,
    stream: int,
    options: bytes | None = None,
) -> None:
    """Like gzarr.gpu.device.nvcomp.compress_async: the tables are read at their addresses, when the stream comes to
    it."""

    def table(address: int, dtype: Any) -> np.ndarray:
        return np.ctypeslib.as_array(bytes_at(address, n * np.dtype(dtype).itemsize)).view(dtype)

    typesize = next(size for size in (1, 2, 4, 8) if options in (None, compress_options(codec, size)))
    assert temp_nbytes >= compress_temp_nbytes(codec, n, max_chunk, n * max_chunk)

    def run() -> Callable[[Costs], float]:
        source, nbytes, target = (table(at, np.uint64).astype(np.int64) for at in (in_ptrs, in_sizes, out_ptrs))
        assert nbytes.max() <= max_chunk
        capacity = CODECS[codec].compress_bound(max_chunk)
        found = _DECODERS.compress(codec, source, nbytes, target, capacity, typesize)
        table(statuses, np.int32)[:] = found.statuses
        table(out_sizes, np.uint64)[:] = found.sizes
        return lambda costs: int(nbytes.sum()) / costs.decode_rate

    RawKernel.launches.append(f"compress {codec}")
    queue_at(stream).submit(run)


def crc_async(kind: str, ptrs: int, sizes: int, n: int, max_nbytes: int, out: int, statuses: int, stream: int) -> None:
    """Like gzarr.gpu.device.nvcomp.crc_async."""

    def run() -> None:
        source, nbytes = (
            np.ctypeslib.as_array(bytes_at(at, 8 * n)).view(np.uint64).astype(np.int64) for at in (ptrs, sizes)
        )
        found = _DECODERS.crc(kind, source, nbytes)
        np.ctypeslib.as_array(bytes_at(out, 4 * n)).view(np.uint32)[:] = found.sums
        np.ctypeslib.as_array(bytes_at(statuses, 4 * n)).view(np.int32)[:] = found.statuses

    queue_at(stream).submit(run)
