"""Files that are read as KvikIO reads them, on a machine without it: in the background, and unforgiving.

As with KvikIO, nothing is kept alive for a read under way, a read past the end of a file fails after it has overwritten
part of the buffer, and closing a file under a read makes it fail.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from gzarr.gpu.reading.kvikio import KvikioReader

_POOL = ThreadPoolExecutor(4, "direct-file")


class _Reading:
    def __init__(self, future: Future[int]) -> None:
        self._future = future

    def get(self) -> int:
        return self._future.result(timeout=60)


class DirectFile:
    """Stands in for ``kvikio.CuFile``."""

    _fd = -1

    def __init__(self, path: str, log: "DirectFiles") -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY)
        self._log = log

    def fileno(self) -> int:
        return self._fd

    def pread(self, buf: Any, size: int | None = None, file_offset: int = 0) -> _Reading:
        buf = buf if isinstance(buf, np.ndarray) else buf._host  # KvikIO waits for no stream, and no stream for it
        assert buf.dtype == np.uint8
        nbytes = buf.nbytes if size is None else size
        if nbytes > buf.nbytes:
            raise ValueError("the buffer is too small")
        with self._log.lock:
            self._log.reads.append((self.path, file_offset, nbytes))
            self._log.under_way += 1
            self._log.most_under_way = max(self._log.most_under_way, self._log.under_way)
        return _Reading(_POOL.submit(self._read, buf, nbytes, file_offset))

    def _read(self, buf: np.ndarray, nbytes: int, file_offset: int) -> int:
        try:
            if self._log.delay is not None:
                self._log.delay()
            data = os.pread(self._fd, nbytes, file_offset) if self._fd >= 0 else b""
            buf[: len(data)] = np.frombuffer(data, np.uint8)
            if self._fd < 0:
                raise RuntimeError("the file was closed under a read")
            if len(data) < nbytes:
                raise RuntimeError("EOF")
            return nbytes
        finally:
            with self._log.lock:
                self._log.under_way -= 1

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def close(self) -> None:
        with self._log.lock:
            self._log.closed += 1
        os.close(self._fd)
        self._fd = -1


class DirectFiles:
    """Opens files and notes what is done with them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reads: list[tuple[str, int, int]] = []
        self.opened = self.closed = self.most_open = 0
        self.under_way = self.most_under_way = 0
        self.delay: Callable[[], None] | None = None  # what each read does first

    @property
    def wanted(self) -> list[tuple[str, int, int]]:
        """The reads, without the first one, which is compared with what the host reads."""
        return self.reads[1:]

    @property
    def read_nbytes(self) -> int:
        """Bytes of all reads."""
        return sum(nbytes for _, _, nbytes in self.reads)

    def __call__(self, path: str) -> DirectFile:
        file = DirectFile(path, self)
        with self.lock:
            self.opened += 1
            self.most_open = max(self.most_open, self.opened - self.closed)
        return file

    def reader(self, min_file_nbytes: int = 0) -> KvikioReader:
        return KvikioReader(self, min_file_nbytes)
