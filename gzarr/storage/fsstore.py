"""The arguments of zarr 2 for stores on file systems of fsspec."""

from __future__ import annotations

import os
from typing import Any, Literal

from gzarr.errors import StoreError
from gzarr.storage.file_systems import open_filesystem
from gzarr.storage.fsspec import MISSING, FsspecStore
from gzarr.storage.rules import refuse_normalizing


class FSStore(FsspecStore):
    """`FsspecStore` with the arguments of zarr 2.

    Parameters
    ----------
    url : str or os.PathLike
        URL, or with `fs` a path on it.
    normalize_keys : bool
        Must be False: keys are taken as they are.
    key_separator : {".", "/"}, optional
        Another name for `dimension_separator`.
    mode : str
        ``"r"`` for reading, anything else for writing.
    exceptions : tuple of exception classes
        What a missing object is recognized by. zarr 2 takes every OSError for a missing object; here only those
        that say so, unless others are given.
    dimension_separator : {".", "/"}, optional
        For new Zarr v2 arrays that name none.
    fs : fsspec.spec.AbstractFileSystem, optional
        A file system; then there are no `storage_options`.
    check, create : bool
        Accepted for zarr 2; directories are made when they are needed.
    missing_exceptions : tuple of exception classes, optional
        Further `exceptions`.
    **storage_options
        Arguments of the file system.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        normalize_keys: bool = False,
        key_separator: Literal[".", "/"] | None = None,
        mode: str = "w",
        exceptions: tuple[type[Exception], ...] = MISSING,
        dimension_separator: Literal[".", "/"] | None = None,
        fs: Any = None,
        check: bool = False,
        create: bool = False,
        missing_exceptions: tuple[type[Exception], ...] | None = None,
        **storage_options: Any,
    ) -> None:
        refuse_normalizing("FSStore", normalize_keys)
        if fs is not None and storage_options:
            raise StoreError(f"FSStore: fs and storage_options {sorted(storage_options)} exclude each other")
        path = os.fspath(url)
        if fs is None:
            fs, path = open_filesystem(path, storage_options)
        super().__init__(fs, mode == "r", path, (*exceptions, *(missing_exceptions or ())))
        self.dimension_separator = dimension_separator or key_separator
