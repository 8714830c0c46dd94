"""Objects below a URL of a plain HTTP server, through `obstore`; only for reading."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from gzarr.errors import ReadOnlyError, StoreError
from gzarr.storage.credentials import guard_logs, shown_cause
from gzarr.storage.extras import require
from gzarr.storage.objects import ObjectStore
from gzarr.storage.rules import listing, pickled, without_secrets


class HTTPStore(ObjectStore):
    """What a plain HTTP server has below a URL; only for reading.

    Servers without entity tags are read without them: then whole shards are read. Listing needs `fsspec`, which reads
    the links of directory pages; most servers of data have none, but what is asked for by name is always found.

    Parameters
    ----------
    store : obstore.store.HTTPStore
        The store.
    read_only : bool
        Ignored: the store is read-only.
    url : str, optional
        What to call the store, and where directory pages are.
    path : str
        Where this store is in `store`, which may be one of the whole server, so that its connections are shared.
    """

    versions = ObjectStore.versions

    def __init__(self, store: Any, *, read_only: bool = True, url: str | None = None, path: str = "") -> None:
        if path and url is None:
            url = f"{str(store.url).rstrip('/')}/{path}"
        super().__init__(store, read_only=True, url=url, path=path)
        sent = (getattr(store, "client_options", None) or {}).get("default_headers", {})
        self._headers = {name: bytes(value).decode() for name, value in sent.items()}
        # Others may be shown other objects.
        self._place = (self._place, hashlib.sha256(repr(sorted(self._headers.items())).encode()).digest())

    def check_writable(self) -> None:
        """Raise `ReadOnlyError`."""
        raise ReadOnlyError(f"store {self} is read-only: gzarr does not write to HTTP servers; write a copy elsewhere")

    def _listed(self, path: str) -> Sequence[tuple[str, int | None]]:
        objects, paths = self.list_dir(path)
        start = f"{path}/" if path else ""
        return [(start + name, None) for name in objects] + [o for name in paths for o in self._listed(start + name)]

    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        """Names directly under a path, sorted: (objects, sub-paths). Raises: StoreError if there is no such page."""
        fsspec = require("fsspec", "http", "listing what an HTTP server has")
        require("aiohttp", "http", "listing what an HTTP server has")
        root = (self._url or self._name).rstrip("/")
        url = f"{root}/{path}/" if path else f"{root}/"
        try:
            guard_logs()
            fs = fsspec.filesystem("http", use_listings_cache=False, skip_instance_cache=True, headers=self._headers)
            entries = fs.ls(url, detail=True)
            url = unquote(url)
        except FileNotFoundError:
            return [], []
        except Exception as error:  # noqa: BLE001 - fsspec raises many
            said = without_secrets(str(error))
            raise StoreError(
                f"store {self}: cannot list {path!r}: the server gives no directory page ({said}); open arrays and"
                " groups by their path, or open consolidated metadata"
            ) from shown_cause(error)
        objects: set[str] = set()
        paths: set[str] = set()
        for entry in entries:
            link = unquote(entry["name"])
            name = link[len(url) :] if link.startswith(url) else ""
            (paths if name.endswith("/") else objects).add(name.partition("/")[0])
        return listing(objects - {""}, paths - {""})

    def __reduce__(self) -> tuple[Any, ...]:
        return pickled(self, HTTPStore, self.store, url=self._url, path=self._path)
