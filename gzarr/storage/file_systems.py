"""Opens the file systems of fsspec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gzarr.errors import MissingExtraError, StoreError
from gzarr.storage.credentials import shown_cause, without_users
from gzarr.storage.extras import require
from gzarr.storage.rules import without_secrets

#: The extras that bring what a scheme needs.
_EXTRAS = {"http": "http", "https": "http", "s3": "s3", "gs": "gcs", "gcs": "gcs", "az": "azure", "abfs": "azure"}


def open_filesystem(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """The file system of a URL, and the path on it. Raises: MissingExtraError, StoreError."""
    shown = without_secrets(url)
    fsspec = require("fsspec", "fsspec", f"{shown!r}")
    url, given = without_users(url, options)
    if "::" not in url:
        # Listings are always asked for anew; see FsspecStore.
        given = {"use_listings_cache": False, **given}
    try:
        fs, path = fsspec.url_to_fs(url, **given)
    except ImportError as error:
        extra = _EXTRAS.get(shown.partition(":")[0])
        remedy = f": pip install 'gzarr[{extra}]'" if extra else ""
        raise MissingExtraError(f"{shown!r}: {error}{remedy}") from shown_cause(error)
    except Exception as error:  # noqa: BLE001 - every file system raises its own errors
        said = without_secrets(str(error))[:600]
        raise StoreError(f"cannot open {shown!r}: {type(error).__name__}: {said}") from shown_cause(error)
    return fs, path


def synchronous(fs: Any) -> Any:
    """A file system that ordinary functions may call: zarr-python 3 requires asynchronous ones."""
    inner = getattr(fs, "sync_fs", None)
    if inner is not None:
        return inner
    if getattr(fs, "asynchronous", False):
        return type(fs)(*fs.storage_args, **{**fs.storage_options, "asynchronous": False})
    return fs
