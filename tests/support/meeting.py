"""Proof that calls are under way at once, on however busy a machine: they wait for each other."""

import threading

PATIENCE_S = 60.0


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

    def attend(self) -> None:
        """Wait for the others; later calls than those that met do not wait."""
        with self._lock:
            self._there += 1
            self.most = max(self.most, self._there)
            if self._there >= self.n:
                self.met = True
                self._over.set()
        self._over.wait(PATIENCE_S)
        self._over.set()  # a meeting that failed shall not keep the other calls
        with self._lock:
            self._there -= 1
