"""A store that logs every call and its duration."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gzarr.storage.base import Store
from gzarr.storage.watching import WatchedStore


class LoggingStore(WatchedStore):
    """Pass everything on to a store and log it under the name "gzarr.storage".

    Parameters
    ----------
    store : Store
        The store to watch.
    log_level : str
        Level of the messages.
    log_handler : logging.Handler, optional
        Where messages go, besides the handlers that the logging module is configured with.
    """

    files, versions, conditional = WatchedStore.files, WatchedStore.versions, WatchedStore.conditional

    def __init__(self, store: Store, log_level: str = "DEBUG", log_handler: logging.Handler | None = None) -> None:
        super().__init__(store)
        self._level = logging.getLevelNamesMapping()[log_level]
        self._logger = logging.getLogger("gzarr.storage")
        self._logger.setLevel(min(self._level, self._logger.level or self._level))
        if log_handler is not None and log_handler not in self._logger.handlers:
            self._logger.addHandler(log_handler)

    @contextmanager
    def _watching(self, verb: str, what: Sequence[Any]) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._logger.log(self._level, "%s %s: %.6f s", f"{self}: {verb}", list(what), time.perf_counter() - start)
