"""A store that logs every call and its duration."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

from gzarr.storage.base import Buffer, Files, Opened, Request, Store, Versioned, Versions
from gzarr.storage.wrappers import ForwardedVersions, WrapperStore

#: Logs what happens in a ``with`` statement: a verb, and what it is about.
_Log: TypeAlias = Callable[[str, object], AbstractContextManager[None]]


class _LoggedFiles(Files):
    """Logs what is opened; the reads themselves are not logged."""

    def __init__(self, files: Files, logged: _Log) -> None:
        self._files, self._logged = files, logged

    def open(self, key: str) -> Opened | None:
        with self._logged("open", key):
            return self._files.open(key)


class _LoggedVersions(ForwardedVersions):
    """Logs reads that are tied to versions."""

    def __init__(self, versions: Versions, logged: _Log) -> None:
        super().__init__(versions)
        self._logged = logged

    def get_pinned(self, requests: Sequence[Request], versions: Mapping[str, object]) -> list[Buffer | None]:
        with self._logged("get of one version", list(requests)):
            return super().get_pinned(requests, versions)

    def get_versioned(self, requests: Sequence[Request]) -> list[Versioned | None]:
        with self._logged("get with version", list(requests)):
            return super().get_versioned(requests)


class LoggingStore(WrapperStore):
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

    def __init__(self, store: Store, log_level: str = "DEBUG", log_handler: logging.Handler | None = None) -> None:
        super().__init__(store)
        self._level = logging.getLevelNamesMapping()[log_level]
        self._logger = logging.getLogger("gzarr.storage")
        self._logger.setLevel(min(self._level, self._logger.level or self._level))
        if log_handler is not None and log_handler not in self._logger.handlers:
            self._logger.addHandler(log_handler)

    @property
    def files(self) -> Files | None:
        """Objects that can be opened; nobody else reads or replaces their files."""
        files = self._store.files
        return None if files is None else _LoggedFiles(files, self._logged)

    @property
    def versions(self) -> Versions | None:
        """The versions of the store below."""
        versions = self._store.versions
        return None if versions is None else _LoggedVersions(versions, self._logged)

    @contextmanager
    def _logged(self, verb: str, what: object) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._logger.log(self._level, "%s: %s %s: %.6f s", self, verb, what, time.perf_counter() - start)

    def get_one(self, request: Request) -> Buffer | None:
        """Fetch one request."""
        with self._logged("get", request):
            return super().get_one(request)

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order."""
        with self._logged("get", list(requests)):
            return super().get_many(requests)

    def set(self, key: str, value: Buffer) -> None:
        """Store one object atomically."""
        with self._logged("set", key):
            super().set(key, value)

    def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
        """Store every (key, bytes) pair."""
        items = list(items)
        with self._logged("set", [key for key, _ in items]):
            super().set_many(items)

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete the keys."""
        keys = list(keys)
        with self._logged("delete", keys):
            super().delete_many(keys)

    def delete_prefix(self, path: str = "") -> None:
        """Delete every key under a path."""
        with self._logged("delete all under", path):
            super().delete_prefix(path)

    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        """Names directly under a path, sorted: (objects, sub-paths)."""
        with self._logged("list", path):
            return super().list_dir(path)

    def getsize(self, key: str) -> int | None:
        """Size of an object in bytes."""
        with self._logged("size of", key):
            return super().getsize(key)
