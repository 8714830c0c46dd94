"""Memory that the processes of a host share, and how they find it.

Theory of operation. The memory is anonymous (``memfd``): the system frees it when the last process that has it ends,
however it ends. Processes find it through a small file in ``/dev/shm`` that lists who has it, and open it as
``/proc/PID/fd/N``. Whoever changes the list holds a lock on it and leaves out those that have ended; the last one
deletes it. Lists of processes that were all killed are deleted by the next one that looks for any memory.

Locks belong to open files, which forked children have, too. So a child closes the file of the lock at once: it would
keep the lock of a parent that is killed.
"""

import os
import sys
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from mmap import mmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gzarr.backend import Array, Backend
from gzarr.concurrency import after_fork, new_lock
from gzarr.errors import DeviceError
from gzarr.loader.order import word_of

if sys.platform == "linux":
    import fcntl

FOLDER = Path("/dev/shm")  # noqa: S108 - files are opened only if they are this user's
_HEADER, _RECORD, _PAGE = 4, 6, 4096
#: Seconds between two tries to take a lock, and the most that giving memory up waits for the list of processes.
_POLL_S, _CLOSE_S = 0.0002, 1.0


class LocalRanks(NamedTuple):
    """The ranks of this host that share a pool.

    Attributes
    ----------
    ranks : tuple of int
        Their numbers, ascending.
    me : int
        Which of them this one is.
    strict : bool
        Whether the death of one is an error.
    asked : bool
        Whether the user has asked for it.
    """

    ranks: tuple[int, ...]
    me: int
    strict: bool
    asked: bool


def started(pid: int) -> int:
    """When a process was started, in ticks since the boot; 0 if it has ended. Raises: OSError if that is unknown."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if state in (b"Z", b"X") else int(fields[18])


def _lock(descriptor: int, timeout_s: float) -> None:
    """Take the lock of an open file. Raises: TimeoutError if others keep it, as a process does that was stopped."""
    end = time.monotonic() + timeout_s
    while True:
        with suppress(BlockingIOError):
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if time.monotonic() > end:
            raise TimeoutError("another process keeps the lock of the ranks of this host")
        time.sleep(_POLL_S)


@contextmanager
def _locked(path: Path, timeout_s: float = 10.0) -> Iterator[list[tuple[int, int, int]]]:
    """The processes that have a memory: (pid, start, descriptor), to be changed in place; those that died are left out.

    Raises: OSError, also if the file is another user's.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _lock(descriptor, timeout_s)
            with suppress(FileNotFoundError):
                if os.path.samestat(path.stat(), found := os.fstat(descriptor)):
                    break
        except TimeoutError:
            os.close(descriptor)
            raise
        os.close(descriptor)  # somebody has deleted it meanwhile
    try:
        if found.st_uid != os.getuid():
            raise PermissionError(f"{path} belongs to another user")
        lines = os.pread(descriptor, found.st_size, 0).decode().splitlines()
        entries: Any = [tuple(map(int, line.split())) for line in lines if len(line.split()) == 3]
        entries = [entry for entry in entries if started(entry[0]) == entry[1]]
        yield entries
        if entries:
            os.pwrite(descriptor, (text := "".join(f"{a} {b} {c}\n" for a, b, c in entries).encode()), 0)
            os.ftruncate(descriptor, len(text))
        else:
            path.unlink()
    except OSError:
        if not found.st_size:  # no space for the first line
            path.unlink(missing_ok=True)
        raise
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that was forked meanwhile has the file, too
        os.close(descriptor)


def _open_memory(path: Path, nbytes: int) -> int:
    """A descriptor of the memory that others have, or of a new one."""
    _sweep(path)
    descriptor = -1
    try:
        with _locked(path) as entries:
            for pid, _, number in entries:
                with suppress(OSError):
                    if Path(f"/proc/{pid}/fd/{number}").readlink().name.startswith(f"memfd:{path.name}"):
                        descriptor = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
                        break
            else:
                entries.clear()
                descriptor = os.memfd_create(path.name)
                os.ftruncate(descriptor, nbytes)
            entries.append((os.getpid(), started(os.getpid()), descriptor))
    except BaseException:
        if descriptor >= 0:
            os.close(descriptor)
        raise
    return descriptor


def _sweep(path: Path) -> None:
    """Delete the lists of processes that have all been killed."""
    for other in path.parent.glob(f"{path.name.rpartition('-')[0]}-*"):
        with suppress(OSError, ValueError):
            if other != path and not any(started(int(line.split()[0])) for line in other.read_text().splitlines()):
                with _locked(other):
                    pass


def _close(path: Path, descriptor: int, lock: int, pid: int) -> None:
    """Give a memory up. pid: the process that has opened it, which a forked child is not."""
    if pid == os.getpid():
        # A finalizer may run on a thread that has the lock: it does not wait for long.
        with suppress(OSError), _locked(path, _CLOSE_S) as entries:
            entries[:] = [entry for entry in entries if (entry[0], entry[2]) != (pid, descriptor)]
        os.close(descriptor)
        os.close(lock)


_live: "weakref.WeakSet[NodeMemory]" = weakref.WeakSet()


@after_fork
def _leave_to_parent() -> None:
    for memory in list(_live):  # all are the parent's, which may have ended by now
        if memory.close.alive:
            os.close(memory.descriptor)
            os.close(memory.lock)
    _live.clear()


class NodeMemory:
    """Memory that the ranks of a host share.

    Parameters
    ----------
    local : LocalRanks
        The ranks.
    name : str
        Tells it from others.
    arrays : mapping
        Shapes and types of the arrays in it, by name.
    window : int
        How many steps are under way at once.
    """

    def __init__(
        self, local: LocalRanks, name: str, arrays: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]], window: int
    ) -> None:
        n = len(local.ranks)
        self.local, self.window, self.pid = local, window, os.getpid()
        ring = 2 + n
        first = -(-8 * (_HEADER + n * _RECORD + window * ring) // _PAGE) * _PAGE
        sizes = {name: int(np.prod(shape)) * dtype.itemsize for name, (shape, dtype) in arrays.items()}
        nbytes = first + sum(-(-size // _PAGE) * _PAGE for size in sizes.values())
        digest = word_of(os.getuid(), name, repr(arrays), window, repr(local.ranks))
        path = FOLDER / f"gzarr-loader-{os.getuid()}-{digest:016x}"
        self.descriptor = _open_memory(path, nbytes)
        self.lock = os.open(f"/proc/self/fd/{self.descriptor}", os.O_RDWR | os.O_CLOEXEC)
        self.close = weakref.finalize(
            self, _close, path, self.descriptor, self.lock, self.pid
        )  # at the latest at its end
        _live.add(self)
        self._mutex = new_lock()
        self.over = 0  # the last place of this rank that was given up
        memory = mmap(self.descriptor, nbytes)
        words = np.frombuffer(memory, np.int64, first // 8)
        self.head = words[:_HEADER]  # number of the turn, key, how many steps were opened, places taken
        self.records = words[_HEADER : _HEADER + n * _RECORD].reshape(n, _RECORD)
        self.ring = words[_HEADER + n * _RECORD :][: window * ring].reshape(window, ring)
        self.arrays: dict[str, Any] = {}
        self._mapped: dict[str, Array | None] = {}
        for array, (shape, dtype) in arrays.items():
            count = int(np.prod(shape))
            self.arrays[array] = np.frombuffer(memory, dtype, count, first).reshape(shape)
            first += -(-sizes[array] // _PAGE) * _PAGE

    def mapped(self, name: str, backend: Backend) -> Array | None:
        """An array in it as a device reads it, pinned once; None if CUDA cannot pin so much."""
        if name not in self._mapped:
            self._mapped[name] = None
            with suppress(DeviceError):
                self._mapped[name] = backend.mapped(self.arrays[name])
        return self._mapped[name]

    @contextmanager
    def locked(self, timeout_s: float = 10.0) -> Iterator[None]:
        """Hold the lock of all ranks. Raises: TimeoutError."""
        with self._mutex:
            _lock(self.lock, timeout_s)
            try:
                yield
            finally:
                fcntl.flock(self.lock, fcntl.LOCK_UN)
