"""The kinds of locks that the setting ``locks`` chooses, for file systems that differ in what excludes whom."""

import contextlib
import io
import os
import struct
import tempfile
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from pathlib import Path
from zlib import crc32

from gzarr.config import config
from gzarr.storage.locks import key_locks, wait_for

try:
    import fcntl as fcntl  # noqa: PLC0414 - for the modules that lock files
except ImportError:  # Windows, where files that are open for writing are not protected from each other
    fcntl = None  # type: ignore[assignment]

#: Files that are locks of a machine.
_NODE_FILES = 1 << 12


def file_locker() -> Callable[[int, int], None] | None:
    """What locks a file, or lets it go, as `fcntl.flock` does; None if temporary files are no locks.

    It raises BlockingIOError if others hold the lock, and other OSErrors.
    """
    kind = None if fcntl is None else config["locks"]
    return fcntl.flock if kind == "flock" else _lock_open_file if kind == "fcntl" else None


def _lock_open_file(descriptor: int, how: int) -> None:
    """As flock, of the open file and not of the process."""
    kind = fcntl.F_UNLCK if how & fcntl.LOCK_UN else fcntl.F_WRLCK
    told = struct.pack("hhqqi", kind, os.SEEK_SET, 0, 0, 0)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK if how & fcntl.LOCK_NB else fcntl.F_OFD_SETLKW, told)


@contextlib.contextmanager
def node_locks(names: Sequence[Hashable]) -> Iterator[None]:
    """Lock objects against this user's other processes on this machine alone, by files in its temporary folder."""
    folder = Path(tempfile.gettempdir(), f"gzarr-locks-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    with key_locks(names), contextlib.ExitStack() as held:
        for number in sorted({crc32(repr(name).encode()) % _NODE_FILES for name in names}):
            file = held.enter_context(io.FileIO(folder / str(number), "a"))
            wait_for(str(folder / str(number)), partial(fcntl.flock, file, fcntl.LOCK_EX))
            held.callback(fcntl.flock, file, fcntl.LOCK_UN)  # a forked child may have a copy
        yield
