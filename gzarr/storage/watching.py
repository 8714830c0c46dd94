"""The common part of stores that watch another store: every call is seen, none is changed."""

# WatchedStore has the verbs of Store, which are documented there.
# ruff: noqa: D102

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeAlias

from gzarr.storage.capabilities import Buffer, Change, Conditional, Files, Request, Versioned, Versions
from gzarr.storage.wrappers import ForwardedConditional, ForwardedVersions, WrapperStore

#: Watches a call in a ``with`` statement: a verb, and the requests, keys or paths that it is about.
_Watch: TypeAlias = Callable[[str, Sequence[Any]], AbstractContextManager[None]]


class _WatchedVersions(ForwardedVersions):
    """Watches the tokens asked for, and the reads that are tied to versions."""

    def __init__(self, versions: Versions, watch: _Watch) -> None:
        super().__init__(versions)
        self._watch = watch

    def token(self, key: str) -> object | None:
        with self._watch("version of", (key,)):
            return super().token(key)

    def tokens(self, keys: Sequence[str]) -> list[object | None]:
        with self._watch("version of", keys):
            return super().tokens(keys)

    def get_pinned(self, requests: Sequence[Request], versions: Mapping[str, object]) -> list[Buffer | None]:
        with self._watch("get of one version", requests):
            return super().get_pinned(requests, versions)

    def get_versioned(self, requests: Sequence[Request]) -> list[Versioned | None]:
        with self._watch("get with version", requests):
            return super().get_versioned(requests)


class _WatchedConditional(ForwardedConditional):
    """Watches what is read to be changed, and what is changed."""

    def __init__(self, conditional: Conditional, watch: _Watch) -> None:
        super().__init__(conditional)
        self._watch = watch

    def get_tagged(self, keys: Sequence[str]) -> list[Versioned | None]:
        with self._watch("get with version", [Request(key) for key in keys]):
            return super().get_tagged(keys)

    def set_if(self, changes: Sequence[Change]) -> list[bool]:
        with ExitStack() as watching:
            for verb, deletes in (("set", False), ("delete", True)):
                keys = [change.key for change in changes if (change.value is None) is deletes]
                if keys:
                    watching.enter_context(self._watch(verb, keys))
            return super().set_if(changes)


class WatchedStore(WrapperStore):
    """Pass everything on to a store; a subclass says how calls are watched."""

    @abstractmethod
    def _watching(self, verb: str, what: Sequence[Any]) -> AbstractContextManager[None]:
        """Watch one call. what: the requests, keys or paths that it is about."""

    @property
    def files(self) -> Files | None:
        """Objects whose files are not exposed, so that every read is watched."""
        return None if self._store.files is None else Files()

    @property
    def versions(self) -> Versions | None:
        """The versions of the store below."""
        versions = self._store.versions
        return None if versions is None else _WatchedVersions(versions, self._watching)

    @property
    def conditional(self) -> Conditional | None:
        """The conditions of the store below."""
        conditional = self._store.conditional
        return None if conditional is None else _WatchedConditional(conditional, self._watching)

    def get_one(self, request: Request) -> Buffer | None:
        with self._watching("get", (request,)):
            return super().get_one(request)

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        with self._watching("get", requests):
            return super().get_many(requests)

    def set(self, key: str, value: Buffer) -> None:
        with self._watching("set", (key,)):
            super().set(key, value)

    def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
        items = list(items)
        with self._watching("set", [key for key, _ in items]):
            super().set_many(items)

    def delete_many(self, keys: Iterable[str]) -> None:
        keys = list(keys)
        with self._watching("delete", keys):
            super().delete_many(keys)

    def delete_prefix(self, path: str = "") -> None:
        with self._watching("delete all under", (path,)):
            super().delete_prefix(path)

    def list_prefix(self, prefix: str = "") -> Iterator[str]:
        with self._watching("list all under", (prefix,)):
            return super().list_prefix(prefix)

    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        with self._watching("list", (path,)):
            return super().list_dir(path)

    def getsize(self, key: str) -> int | None:
        with self._watching("size of", (key,)):
            return super().getsize(key)

    def __contains__(self, key: object) -> bool:
        with self._watching("size of", (str(key),)):
            return super().__contains__(key)
