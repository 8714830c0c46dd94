"""Proof of what threads do at once, and of what ends them, on however busy a machine."""

import itertools
import threading
import time
from collections.abc import Iterator

PATIENCE_S = 60.0


def while_patient() -> Iterator[int]:
    """Numbers without an end, for runs that something must stop: whoever stops them may get no processor for long."""
    end = time.monotonic() + PATIENCE_S
    for number in itertools.count():
        assert time.monotonic() < end, "nothing has stopped the run"
        yield number


class Meeting:
    """A place where calls wait until ``n`` of them have come, or one has waited too long.

    Attributes:
        met: whether so many were there at once.
        most: the most that were there at once.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self.most = self._there = 0
        self._lock, self._over = threading.Lock(), threading.Event()
        self.met = False

    def attend(self, stay_s: float = 0.0) -> None:
        """Wait for the others, and stay a while; later calls than those that met do not wait."""
        with self._lock:
            self._there += 1
            self.most = max(self.most, self._there)
            if self._there >= self.n:
                self.met = True
                self._over.set()
        self._over.wait(PATIENCE_S)
        self._over.set()  # a meeting that failed shall not keep the other calls
        time.sleep(stay_s)
        with self._lock:
            self._there -= 1
