"""Counts what crosses between host and device, so that a test can state what must not."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from gzarr.concurrency import new_lock
from gzarr.profiling.transfers import Transfer, observed_by

#: Packages whose functions are not the place of a transfer: what called them is.
_NOT_PLACES = ("gzarr", "numpy", "cupy", "cupyx", "contextlib", "weakref")
#: Places that are listed by `repr`.
_MAX_PLACES = 5


@dataclass(slots=True)
class Crossed:
    """Transfers of one kind. It is false if there were none, and its ``repr`` says where in your code they happened.

    Attributes
    ----------
    count : int
        How many there were.
    nbytes : int
        Their bytes together.
    places : Counter of str
        How many each line of code made, as "path:line"; "gzarr" stands for its own threads.
    """

    count: int = 0
    nbytes: int = 0
    places: Counter[str] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return self.count > 0

    def __repr__(self) -> str:
        if not self.count:
            return "none"
        lines = [f"{place} ({n} times)" if n > 1 else place for place, n in self.places.most_common(_MAX_PLACES)]
        more = ["..."] if len(self.places) > _MAX_PLACES else []
        nbytes = f", {self.nbytes} bytes" if self.nbytes else ""
        return f"{self.count}{nbytes}: {', '.join([*lines, *more])}"


@dataclass(slots=True)
class Traffic:
    """What crossed between host and device.

    Attributes
    ----------
    to_device, to_host : Crossed
        Copies.
    synchronizations : Crossed
        Waits of the host for the device. Every copy to the host is one.
    allocations : Crossed
        Allocations of device memory.
    peak_nbytes : int
        Most device memory that was allocated at once, in bytes, of what was allocated since the start.
    """

    to_device: Crossed = field(default_factory=Crossed)
    to_host: Crossed = field(default_factory=Crossed)
    synchronizations: Crossed = field(default_factory=Crossed)
    allocations: Crossed = field(default_factory=Crossed)
    peak_nbytes: int = 0
    _live: int = field(default=0, repr=False)

    def _count(self, what: Transfer, nbytes: int) -> None:
        if what == "free":
            self._live -= nbytes
            return
        crossed = {
            "to_device": self.to_device,
            "to_host": self.to_host,
            "synchronize": self.synchronizations,
            "allocate": self.allocations,
        }[what]
        crossed.count += 1
        crossed.nbytes += nbytes
        crossed.places[_place()] += 1
        if what == "allocate":
            self._live += nbytes
            self.peak_nbytes = max(self.peak_nbytes, self._live)


@dataclass(slots=True)
class Transfers(Traffic):
    """What crossed between host and device for your code, and beside it what gzarr needed to read and write.

    The attributes of `Traffic` count your arrays: what ``.get()``, ``float(x)`` or ``print(x)`` copy to the host,
    what ``xp.asarray(x)`` copies to the device, and results. A host array that is written to an array on the device is
    a copy to the device, also where gzarr finds it faster to encode it on the host.

    Attributes
    ----------
    inside : Traffic
        What gzarr moved at work: encoded chunks, tables and statuses of kernels, its working memory. Decoded chunks too
        where a codec runs on the host, as `Array.placement` tells.
    """

    inside: Traffic = field(default_factory=Traffic)
    _lock: Any = field(default_factory=new_lock, repr=False, compare=False)

    def crossed(self, what: Transfer, nbytes: int, *, inside: bool) -> None:
        """Count a transfer."""
        with self._lock:
            (self.inside if inside else self)._count(what, nbytes)  # noqa: SLF001 - of its own class


@contextmanager
def transfers() -> Iterator[Transfers]:
    """Count what crosses between host and device in a block of code, on all threads.

    Returns
    -------
    context manager of Transfers
        The counts, which go on until the block ends.

    Examples
    --------
    >>> import gzarr
    >>> from gzarr.testing import transfers
    >>> z = gzarr.ones((4, 4), chunks=(2, 2), dtype="f8", device="cpu")
    >>> with transfers() as t:
    ...     total = z[...].sum()
    >>> assert not t.to_host and not t.to_device
    >>> t.to_host
    none
    """
    counts = Transfers()
    with observed_by(counts):
        yield counts


def _place() -> str:
    """The line of code that made this transfer, outside of libraries; "gzarr" on its own threads."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the stack, without the cost of reading its source
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_PLACES:
        frame = frame.f_back
    return "gzarr" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
