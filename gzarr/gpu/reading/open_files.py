"""A cache of files that are open for reading straight into device memory, which are slow to open.

Opening a file with KvikIO and registering it with cuFile takes 1 ms, or 3 ms in compatibility mode (measured by czarr's
author on an H100). So files that are missing are opened on several threads at once, and stay open; those that were used
least recently are closed if there are too many.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from gzarr.concurrency import Pool, new_lock, run_in_threads
from gzarr.gpu.device.pipeline_slots import N_PIPELINE_SLOTS

#: Threads that open files: an open waits for the driver most of the time.
N_THREADS = 16
#: Open descriptors that a process may have where the system does not say (Linux's default).
_DEFAULT_LIMIT = 1024
#: Share of them that these files may take, and descriptors of each: one with O_DIRECT, one without.
_SHARE, _DESCRIPTORS = 0.75, 2
_pool = Pool()


def file_version(info: os.stat_result) -> tuple[int, ...]:
    """The version of a file: device, inode, size, and time of the last change."""
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


class Future(Protocol):
    """A read under way."""

    def get(self) -> int:
        """Wait for it. Returns: bytes read. Raises: RuntimeError if it failed."""
        ...


class OpenFile(Protocol):
    """A file open for reading into device memory, as `kvikio.CuFile`."""

    def fileno(self) -> int:
        """Its descriptor."""
        ...

    def pread(self, buf: Any, size: int | None = None, file_offset: int = 0) -> Future:
        """Begin a read into a buffer."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


class Limits(NamedTuple):
    """How many files may be open.

    Attributes
    ----------
    cached : int
        While nothing is read.
    at_once : int
        In use by one batch, besides the cached ones.
    """

    cached: int
    at_once: int


def limits() -> Limits:
    """How many files the descriptors of this process allow, of which half are for the batches under way."""
    try:
        import resource

        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        soft = 1 << 20 if soft == resource.RLIM_INFINITY else soft
    except ImportError:  # not Unix
        soft = _DEFAULT_LIMIT
    n_files = int(soft * _SHARE) // _DESCRIPTORS
    return Limits(max(n_files // 2, 1), max(n_files // 2 // N_PIPELINE_SLOTS, 1))


class _Handle:
    """An open file, the number of batches that use it, and whether it must not be used again."""

    def __init__(self, file: OpenFile) -> None:
        self.file = file
        self.users = 0
        self.retired = False

    def version(self) -> tuple[int, ...]:
        """The version of the open file, even if its path now names another one."""
        return file_version(os.fstat(self.file.fileno()))


class FileCache:
    """A cache of open files. Files in use are never closed.

    If a file was replaced, its version differs from that of the open one, which is not used again.

    Attributes
    ----------
    limits : Limits
        How many may be open.
    """

    def __init__(self, open_file: Callable[[str], OpenFile], most: Limits | None = None) -> None:
        self.limits = most or limits()
        self._open_file = open_file
        self._lock = new_lock()
        self._cached: OrderedDict[str, _Handle] = OrderedDict()  # the last used one at the end

    def __len__(self) -> int:
        return len(self._cached)

    def has_all(self, paths: Iterable[str]) -> bool:
        """Whether files, by their paths, are all open."""
        return all(path in self._cached for path in paths)

    @contextmanager
    def open(self, versions: dict[str, tuple[int, ...]]) -> Iterator[dict[str, OpenFile]]:
        """Open files, by path and version, for a while.

        Raises: OSError or RuntimeError if one cannot be opened or has another version by now.
        """
        held: dict[str, _Handle] = {}
        try:
            missing = [item for item in versions.items() if not self._hold_cached(held, *item)]
            run_in_threads(lambda item: self._hold_new(held, *item), missing, min(len(missing), N_THREADS), _pool)
            yield {path: held[path].file for path in versions}
        finally:
            with self._lock:
                for handle in held.values():
                    handle.users -= 1
                unused = [path for path, handle in self._cached.items() if not handle.users]
                surplus = max(len(self._cached) - self.limits.cached, 0)
                dropped = [self._retire(path) for path in unused[:surplus]]
                closing = dropped + [h for h in held.values() if h.retired and not h.users and h not in dropped]
            for handle in closing:
                handle.file.close()

    def close(self) -> None:
        """Close all files; those in use are closed when their users are done."""
        with self._lock:
            idle = [handle for handle in map(self._retire, list(self._cached)) if not handle.users]
        for handle in idle:
            handle.file.close()

    def _hold_cached(self, held: dict[str, _Handle], path: str, version: tuple[int, ...]) -> bool:
        with self._lock:
            handle = self._cached.get(path)
            if handle is None or handle.version() != version:
                return False
            handle.users += 1
            self._cached.move_to_end(path)
            held[path] = handle
            return True

    def _hold_new(self, held: dict[str, _Handle], path: str, version: tuple[int, ...]) -> None:
        handle = _Handle(self._open_file(path))
        if handle.version() != version:
            handle.file.close()
            raise OSError(f"{path} was replaced while it was opened")
        handle.users = 1
        with self._lock:
            old = self._retire(path) if path in self._cached else None
            is_idle = old is not None and not old.users
            held[path] = self._cached[path] = handle
        if is_idle and old is not None:
            old.file.close()

    def _retire(self, path: str) -> _Handle:
        """Take a file out of the cache. The caller holds the lock, and closes the file if it has no users."""
        handle = self._cached.pop(path)
        handle.retired = True
        return handle
