"""Runs the kernel tests' launches on a CUDA device: what lies in host memory is copied there and back.

Tables of addresses point into host arrays. Each range that such a table names is copied to device memory, at an address
that is aligned alike, and the table is made anew; what the kernel wrote is copied back.
"""

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gzarr.gpu.codecs import checksums
from gzarr.gpu.codecs.batch import BatchContext
from gzarr.gpu.kernels import TABLE_DTYPES
from gzarr.gpu.kernels.sources import KERNELS
from tests.gpu.hardware.opening import pipeline_slot_of

#: Tables of addresses: kernel -> (argument, argument that has the sizes, whether the kernel writes there).
POINTERS = {
    "shuffle": (("src", "nbytes", False), ("dst", "nbytes", True)),
    "unshuffle": (("src", "nbytes", False), ("dst", "nbytes", True)),
    "copy_streams": (("src", "nbytes", False), ("dst", "nbytes", True)),
}
#: Each range is surrounded by so many bytes: writes beside it would show in another range.
_ALIGNMENT = 64


def pointed(named: Mapping[str, Any], table: str, sizes: str) -> list[tuple[int, int]]:
    """Where the bytes of each row of a table of addresses begin and end. sizes: a table, or one number for all."""
    pairs = zip(named[table].tolist(), np.broadcast_to(named[sizes], named[table].shape).tolist(), strict=True)
    return [(low, low + nbytes) for low, nbytes in pairs]


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges of addresses, in order, those that overlap as one."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low < found[-1][1]:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    return found


class DeviceKernels:
    """Launches kernels as `gzarr.gpu.device.hostbuild.launch` does, on a `CudaDevice`."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._ranges: list[tuple[int, int, Any, bool]] = []
        self._kept: list[Any] = []

    def launch(self, name: str, n_threads: int, args: Sequence[Any]) -> None:
        """Run a kernel to its end. args: integers, NumPy arrays, addresses of host arrays."""
        self._ranges, self._kept = [], []
        named = {a.name: value for a, value in zip(KERNELS[name], args, strict=True)}
        for table, sizes, written in POINTERS.get(name, ()):
            named[table] = self._moved(named[table], pointed(named, table, sizes), written)
        given, back = [], []
        for argument in KERNELS[name]:
            value = named[argument.name]
            if not isinstance(value, np.ndarray):
                given.append(int(value))
            else:
                address, array, bounds = self._table(value)
                given.append(address)
                if not argument.type.startswith("const"):
                    back.append((value, array, bounds))
        self._device.launch(name, n_threads, tuple(given))
        self._device.synchronize()
        for value, array, (low, nbytes) in back:
            _write(low, self._device.download(array)[:nbytes] if nbytes else None)
            if value.dtype == TABLE_DTYPES["u64"] and value.size:
                value[...] = [self._host_address(int(a)) for a in value]
        for low, nbytes, array, written in self._ranges:
            if written and nbytes:
                offset = low % _ALIGNMENT
                _write(low, self._device.download(array)[offset : offset + nbytes])

    def checksums(self, kind: str, streams: Sequence[np.ndarray]) -> list[int]:
        """Checksums of byte streams, as `tests.gpu.kernels.launching.Sums.of` gives them."""
        starts = []
        end = 0
        for stream in streams:
            starts.append(-(-end // _ALIGNMENT) * _ALIGNMENT + stream.ctypes.data % _ALIGNMENT)
            end = starts[-1] + stream.size
        staging_buffer = np.zeros(end + 1, np.uint8)
        for stream, start in zip(streams, starts, strict=True):
            staging_buffer[start : start + stream.size] = stream
        with pipeline_slot_of(self._device) as pipeline_slot:
            source = self._device.address(self._device.upload(staging_buffer)) + np.array(starts, np.int64)
            pending = checksums.queue(
                BatchContext(pipeline_slot.device), kind, source, np.array([s.size for s in streams], np.int64)
            )
            return pending.values(self._device.download(pending.raw)).tolist()

    def _table(self, value: np.ndarray) -> tuple[int, Any, tuple[int, int]]:
        """(address on the device of an array's first element, its memory there, its bounds here)."""
        low, high = np.lib.array_utils.byte_bounds(value) if value.size else (value.ctypes.data, value.ctypes.data)
        offset = low % _ALIGNMENT
        memory = np.zeros(offset + max(high - low, 1), np.uint8)
        if high > low:
            memory[offset : offset + high - low] = np.frombuffer(ctypes.string_at(low, high - low), np.uint8)
        array = self._device.upload(memory)
        self._kept.append(array)
        return self._device.address(array) + offset + value.ctypes.data - low, array[offset:], (low, high - low)

    def _moved(self, addresses: np.ndarray, ranges: list[tuple[int, int]], written: bool) -> np.ndarray:
        """Copy ranges to the device. Returns: the addresses there."""
        moved: list[tuple[int, int, int]] = []
        for low, high in joined(known for known, address in zip(ranges, addresses, strict=True) if address):
            memory = np.zeros(low % _ALIGNMENT + high - low + 1, np.uint8)
            memory[low % _ALIGNMENT : -1] = np.frombuffer(ctypes.string_at(low, high - low), np.uint8)
            array = self._device.upload(memory)
            self._ranges.append((low, high - low, array, written))
            moved.append((low, high, self._device.address(array) + low % _ALIGNMENT))
        out = np.zeros_like(addresses)
        for i, (address, (low, high)) in enumerate(zip(addresses.tolist(), ranges, strict=True)):
            if address:
                start, there = next((start, there) for start, end, there in moved if start <= low and high <= end)
                out[i] = there + address - start
        return out

    def _host_address(self, address: int) -> int:
        """The host address of an address that a kernel gave."""
        for low, nbytes, array, _ in self._ranges:
            start = self._device.address(array) + low % _ALIGNMENT
            if start <= address <= start + nbytes:
                return low + address - start
        return address


class DeviceBoxes:
    """Where `tests.gpu.kernels.boxes` copies boxes: in the memory of a `CudaDevice`, made by such a class."""

    def __init__(self, cuda_device: type) -> None:
        class Noting(cuda_device):  # type: ignore[misc]
            launches: list[str]

            def launch(self, kernel: str, *args: Any) -> None:
                self.launches.append(kernel)
                super().launch(kernel, *args)

        self._device = Noting()

    def make(self) -> Any:
        self._device.launches = []
        return self._device

    def put(self, device: Any, data: np.ndarray) -> Any:
        offset = data.ctypes.data % _ALIGNMENT
        return device.upload(np.concatenate([np.zeros(offset, np.uint8), data, np.zeros(1, np.uint8)]))[offset:]

    def got(self, device: Any, there: Any) -> np.ndarray:
        return device.download(there)[:-1]


def _write(address: int, data: np.ndarray | None) -> None:
    if data is not None:
        ctypes.memmove(address, data.tobytes(), data.nbytes)
