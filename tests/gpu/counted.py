"""A device that counts what is asked of it, around any other one: launches, waits, copies and bytes, allocations.

What the array module does by itself is not seen, but for the memory that it takes: blocks of arenas are counted.
"""

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from gzarr.gpu.device import emulated_cupy
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.kernels.sources import KERNELS
from gzarr.tensors import to_host


class CountingDevice:
    """A device around a device.

    Args:
        inner: the device; None for an emulated one that tells its memory from the host's.

    Attributes:
        counts: "launch NAME" of each kernel, "decode NAME" and "encode NAME" of each batched call, "crc32" and
            "crc32c"; "waits" of the host; "uploads", "bytes up" and "table bytes up", of what a batched call uploads
            itself; "bytes down"; "allocations" and "pinned allocations" of blocks; "results".
        up: bytes of each copy to the device so far, but for "table bytes up".
        down: bytes of each time that the host waited for copies to it.
    """

    def __init__(self, inner: Any = None) -> None:
        self.inner = EmulatedDevice(arrays="device") if inner is None else inner
        self.counts: Counter[str] = Counter()
        self.up: list[int] = []
        self.down: list[int] = []
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def taken(self) -> dict[str, int]:
        """What was counted since this was last called."""
        with self._lock:
            found, self.counts = dict(self.counts), Counter()
        return found

    def forget(self) -> None:
        """Count anew."""
        self.taken()
        self.inner.launches.clear()
        self.up.clear()
        self.down.clear()

    @property
    def kernels(self) -> list[str]:
        """Kernels launched on an emulated device, in order; decoders and encoders left out."""
        return [name for name in self.inner.launches if name in KERNELS]

    def _count(self, **amounts: int) -> None:
        with self._lock:
            for name, amount in amounts.items():
                self.counts[name.replace("_", " ")] += amount

    def _count_named(self, name: str, table_nbytes: int = 0) -> None:
        with self._lock:
            self.counts[name] += 1
            if table_nbytes:
                self.counts["table bytes up"] += table_nbytes

    def allocate(self, nbytes: int) -> Any:
        self._count(allocations=1)
        return self.inner.allocate(nbytes)

    def allocate_pinned(self, nbytes: int) -> Any:
        self._count(pinned_allocations=1)
        return self.inner.allocate_pinned(nbytes)

    def result(self, shape: tuple[int, ...], dtype: Any, stream: Any = None) -> Any:
        self._count(results=1)
        return self.inner.result(shape, dtype, stream)

    def upload(self, host: np.ndarray) -> Any:
        self._count(uploads=1, bytes_up=host.nbytes)
        self.up.append(host.nbytes)
        return self.inner.upload(host)

    def download(self, array: Any, into: np.ndarray | None = None) -> np.ndarray:
        self._count(waits=1, bytes_down=array.nbytes)
        self.down.append(array.nbytes)
        return self.inner.download(array, into)

    def download_all(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        nbytes = sum(array.nbytes for array in arrays)
        self._count(waits=1, bytes_down=nbytes)
        self.down.append(nbytes)
        return self.inner.download_all(arrays)

    def synchronize(self) -> None:
        self._count(waits=1)
        self.inner.synchronize()

    def launch(self, kernel: str, n_threads: int, args: tuple[Any, ...]) -> None:
        self._count_named(f"launch {kernel}")
        self.inner.launch(kernel, n_threads, args)

    def decompress(self, decoder: str, source: np.ndarray, *tables: np.ndarray, **options: Any) -> Any:
        self._count_named(f"decode {decoder}", 4 * source.nbytes)
        return self.inner.decompress(decoder, source, *tables, **options)

    def compress(self, encoder: str, source: np.ndarray, *others: Any) -> Any:
        self._count_named(f"encode {encoder}", 3 * source.nbytes)
        return self.inner.compress(encoder, source, *others)

    def crc(self, kind: str, source: np.ndarray, nbytes: np.ndarray) -> Any:
        self._count_named(kind, 2 * source.nbytes)
        return self.inner.crc(kind, source, nbytes)


def assert_equal(found: Any, expected: Any) -> None:
    """Compare an array, of a device or of the host, with what is expected."""
    np.testing.assert_array_equal(to_host(found), expected)


def on_device(array: np.ndarray) -> emulated_cupy.ndarray:
    """An array of an emulated device, which does not follow what becomes of the given one."""
    return emulated_cupy.array(array)
