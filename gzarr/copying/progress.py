"""Reports the progress of a copy to a function or as a bar in the terminal."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Self, TypeAlias

from gzarr.errors import MissingExtraError

#: True for a bar; a function of (bytes done, bytes in all, name of the array); None for nothing.
ProgressLike: TypeAlias = bool | Callable[[int, int, str], object] | None


class Progress:
    """Counts decoded bytes from several threads. Raises MissingExtraError for a bar without tqdm."""

    def __init__(self, wanted: ProgressLike, total: int) -> None:
        self._total = total
        self._done = 0
        self._lock = threading.Lock()
        self._report = wanted if callable(wanted) else None
        self._bar: Any = _bar(total) if wanted is True else None

    def add(self, nbytes: int, name: str) -> None:
        """Count bytes as done."""
        with self._lock:
            self._done += nbytes
            if self._bar is not None:
                self._bar.set_description_str(name, refresh=False)
                self._bar.update(nbytes)
            if self._report is not None:
                self._report(self._done, self._total, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.close()


def _bar(total: int) -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise MissingExtraError(
            "progress=True needs tqdm, which is not installed: pip install 'gzarr[progress]', or pass a function"
        ) from error
    return tqdm(total=total, unit="B", unit_scale=True, unit_divisor=1024)
