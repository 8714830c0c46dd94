"""The objects that references lead to: which URLs and paths they may name, and the stores that read them.

A reference leads somewhere else, so a file from a stranger could make a program read what it should not. References may
name what lies beside them; other places have to be allowed, by the call or by the setting ``virtual.containers``. Of
local files, symbolic links are followed first: what counts is where they end.
"""

# os.path: places are taken apart as text.
# ruff: noqa: PTH114

import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from gzarr.config import config
from gzarr.errors import StoreError
from gzarr.indexing.keys import join_path
from gzarr.storage import open_store
from gzarr.storage.base import Store
from gzarr.storage.rules import without_secrets

_TEMPLATE = re.compile(r"\{\{ *(\w+) *\}\}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_FILE = "file://"


def allowed_places(given: Any = None) -> tuple[str, ...]:
    """The places that references may lead to: those of a call (``virtual_containers=``), and those of the setting."""
    places = [given] if isinstance(given, (str, os.PathLike)) else given or ()
    return tuple(os.fspath(place) for place in (*places, *config.get("virtual.containers")))


#: What to do where data are in another place.
ALLOWING = (
    "if you trust it, allow the place: virtual_containers=['s3://bucket/', '/data/'], or the setting"
    " 'virtual.containers'"
)


class Containers:
    """The objects that references lead to, by number.

    Parameters
    ----------
    name : str
        What errors call the references.
    beside : tuple of (Store, str, str), optional
        The store that the references are in, their folder in it, and the path or URL of that folder; None if they are
        in memory.
    allowed : sequence of str
        The other places that they may lead to.
    templates : mapping, optional
        What stands for names in double braces.
    """

    def __init__(
        self,
        name: str,
        beside: tuple[Store, str, str] | None,
        allowed: Sequence[str],
        templates: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self._beside, self._templates = name, beside, templates or {}
        self._allowed = allowed if beside is None else (beside[2] or "/", *allowed)
        self._real = lru_cache(maxsize=1024)(os.path.realpath)
        local = [path for path in map(_local_path, self._allowed) if path is not None]
        self._folders = tuple(posixpath.join(os.path.realpath(path), "") for path in local)
        self._stores: dict[str, Store] = {}
        self.objects: list[tuple[Store, str]] = []
        self.numbers: dict[str, int] = {}

    def add(self, url: str) -> int:
        """The number of the object at a URL. Raises: StoreError if the place is not allowed."""
        number = self.numbers.get(url)
        if number is None:
            self.objects.append(self._find(_TEMPLATE.sub(self._template, url)))
            number = self.numbers[url] = len(self.objects) - 1
        return number

    def allows(self, url: str) -> bool:
        """Whether references may lead to a URL."""
        path = _local_path(url)
        if path is None:
            return any(_is_within(url, place) for place in self._allowed)
        return self._resolved(path).startswith(self._folders)

    def _template(self, match: re.Match[str]) -> str:
        try:
            return self._templates[match[1]]
        except KeyError as error:
            raise StoreError(f"{self.name}: a reference names the template {match[1]!r}, which is missing") from error

    def _find(self, url: str) -> tuple[Store, str]:
        path = _local_path(url)
        if path is not None and self._beside is not None and not path.startswith("/"):
            store, folder, where = self._beside
            key = posixpath.normpath(join_path(folder, path))
            is_below = not key.startswith("..")
            file = store.files.path(key) if is_below and store.files is not None else None
            if is_below and (file is None or self.allows(file)):
                return store, key
            url = posixpath.join(where, path)
        if not self.allows(url):
            raise StoreError(
                f"{self.name}: a reference leads to {without_secrets(url)!r}, which is not beside it; {ALLOWING}"
            )
        path = _local_path(url)  # one store for each server, for each bucket, and for this machine
        root = "/" if path is not None else "/".join(url.split("/")[:3])
        if root not in self._stores:
            self._stores[root] = open_store(root, mode="r")[0]
        return self._stores[root], (url[len(root) :] if path is None else self._resolved(path)).lstrip("/")

    def _resolved(self, path: str) -> str:
        """The path of a local file, once links are followed."""
        above, name = posixpath.split(path)
        is_whole = name in ("", ".", "..") or os.path.islink(path)
        return os.path.realpath(path) if is_whole else posixpath.join(self._real(above), name)


def _local_path(url: str) -> str | None:
    """The path that a URL or a path means on this machine; None if it is of a server."""
    if url.startswith(_FILE):
        return url.removeprefix(_FILE)
    return None if _SCHEME.match(url) else url


def _is_within(url: str, place: str) -> bool:
    """Whether a place contains a URL, which must not lead out of it again."""
    # Clients of HTTP decode dots, take a backslash for a slash, and drop tabs and ends of lines.
    parts = re.split(r"[/\\]", re.sub(r"[\t\r\n]", "", unquote(url)))
    return ".." not in parts and url.startswith(place.rstrip("/") + "/")
