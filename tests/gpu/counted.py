"""A device that counts what is asked of it, around any other one: launches, waits, copies and bytes, allocations.

What the array module does by itself is not seen, but for the memory that it takes: blocks of arenas are counted.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np


class CountingDevice:
    """A device around a device.

    Attributes:
        counts: "launch NAME" of each kernel, "decode NAME" of each batched decoder, "crc32" and "crc32c"; "waits" of
            the host; "uploads", "bytes up" and "table bytes up", of what a decoder uploads itself; "bytes down";
            "allocations" and "pinned allocations" of blocks; "results".
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def taken(self) -> dict[str, int]:
        """What was counted since this was last called."""
        with self._lock:
            found, self.counts = dict(self.counts), Counter()
        return found

    def _count(self, **amounts: int) -> None:
        with self._lock:
            for name, amount in amounts.items():
                self.counts[name.replace("_", " ")] += amount

    def _count_named(self, name: str) -> None:
        with self._lock:
            self.counts[name] += 1

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
        return self.inner.upload(host)

    def download(self, array: Any) -> np.ndarray:
        self._count(waits=1, bytes_down=array.nbytes)
        return self.inner.download(array)

    def download_all(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        self._count(waits=1, bytes_down=sum(array.nbytes for array in arrays))
        return self.inner.download_all(arrays)

    def synchronize(self) -> None:
        self._count(waits=1)
        self.inner.synchronize()

    def launch(self, kernel: str, n_threads: int, args: tuple[Any, ...]) -> None:
        self._count_named(f"launch {kernel}")
        self.inner.launch(kernel, n_threads, args)

    def decompress(self, decoder: str, source: np.ndarray, *tables: np.ndarray) -> Any:
        self._count_named(f"decode {decoder}")
        self._count(table_bytes_up=4 * source.nbytes)
        return self.inner.decompress(decoder, source, *tables)

    def crc32c(self, source: np.ndarray, nbytes: np.ndarray) -> Any:
        self._count_named("crc32c")
        self._count(table_bytes_up=2 * source.nbytes)
        return self.inner.crc32c(source, nbytes)

    def crc32(self, source: np.ndarray, nbytes: np.ndarray) -> Any:
        self._count_named("crc32")
        self._count(table_bytes_up=2 * source.nbytes)
        return self.inner.crc32(source, nbytes)
