"""A store in one ZIP archive.

`gzarr.storage.archive` describes how an archive stays free of duplicate entries and becomes valid at the end.
"""
# os.path: the store takes what users call a path and gives it back unchanged.
# ruff: noqa: PTH100

import os
import weakref
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

from gzarr.errors import StoreError
from gzarr.storage.archive import Archive
from gzarr.storage.capabilities import Buffer, Request, TokensBy, Versions
from gzarr.storage.flat import FlatStore
from gzarr.storage.rules import DOCUMENTS, as_bytes, byte_view, check_key, check_path, cut, pickled, under
from gzarr.storage.zip_format import DAMAGE, ZipMode, open_file


class ZipStore(FlatStore):
    """A store in a ZIP archive; close it (or use ``with``) when writing is done.

    Reads archives that zarr-python or ``zip -r`` made: directories in them are passed over, and of several entries with
    one name the last counts. Only one store at a time may have an archive open for writing.

    An archive always holds what it held when its writer last closed or flushed it, even if the writer is killed or the
    disk is full: what was stored later is then lost. Such a file is read with a warning, and can be appended to.

    Parameters
    ----------
    path : str, os.PathLike or binary file
        Path of the archive, or a binary file object that can seek (and read, even for writing), such as
        ``io.BytesIO``. The caller closes a file object, after the store.
    mode : {"r", "r+", "a", "w", "x"}
        ``"r"`` reads an existing archive, ``"r+"`` also changes it, ``"a"`` makes it if it is missing, ``"w"``
        begins an empty one, ``"x"`` does so where none exists.
    compression : int
        How new entries are compressed (``zipfile.ZIP_STORED`` and so on). Stored entries, the default, can be read
        in parts; chunks are compressed by their codecs.
    allowZip64 : bool
        Whether to allow archives of more than 4 GiB.
    read_only : bool, optional
        Whether to refuse changes; None means exactly for mode ``"r"``.

    Raises
    ------
    NodeNotFoundError
        If there is no such file.
    ContainsNodeError
        If there is one and the mode is ``"x"``.
    StoreError
        If it is not an archive, cannot be opened, or `mode` and `read_only` contradict each other.

    Examples
    --------
    >>> import gzarr
    >>> with gzarr.ZipStore("archive.zip", "w") as store:
    ...     z = gzarr.create_array(store, data=[1, 2, 3])
    >>> gzarr.open_array("archive.zip", "r")[...]
    array([1, 2, 3])
    """

    _errors = (*DAMAGE, zipfile.LargeZipFile)
    _process_bound = frozenset({"_archive", "_finalizer"})

    def __init__(
        self,
        path: str | os.PathLike[str] | IO[bytes],
        mode: ZipMode = "r",
        compression: int = zipfile.ZIP_STORED,
        allowZip64: bool = True,  # noqa: N803  # the name that zipfile and zarr use
        read_only: bool | None = None,
    ) -> None:
        if mode not in ("r", "r+", "a", "w", "x"):
            raise StoreError(f"ZipStore: mode must be one of 'r', 'r+', 'a', 'w', 'x'; got {mode!r}")
        if read_only is not None and read_only != (mode == "r"):
            raise StoreError(f"ZipStore: read_only={read_only} contradicts mode={mode!r}; leave read_only out")
        self.read_only = mode == "r"
        self._mode, self._compression, self._allow_zip64 = mode, compression, allowZip64
        self._path: str | None = None
        self._place = id(path)
        if isinstance(path, (str, os.PathLike)):
            self._name = f"zip://{os.fsdecode(path)}"
            self._path = os.path.abspath(os.fsdecode(path))
            self._place = os.path.normcase(os.path.realpath(self._path))
            file = open_file(self._path, mode, self._name)
        else:
            self._name = f"zip://<{type(path).__name__} at {id(path):#x}>"
            file = path
        try:
            self._archive = Archive(self._path, file, self._name, mode, compression, allowZip64)
        except BaseException:
            if self._path is not None:
                file.close()
            raise
        self._finalizer = weakref.finalize(self, self._archive.close)

    @property
    def versions(self) -> Versions | None:
        """The entries, which are new objects with every write through this store."""
        return TokensBy(self._open().find)

    # -- reading -------------------------------------------------------------------------------------------------

    def get_one(self, request: Request) -> Buffer | None:
        """Fetch one request. Raises: StoreError if the store is closed or the entry is damaged."""
        archive = self._open()
        key, start, length = request
        found = archive.find(key)
        if found is None or isinstance(found, bytes):
            return None if found is None else cut(found, start, length)
        return archive.read(key, found, start, length)

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order."""
        return [ZipStore.get_one(self, request) for request in requests]  # not what a subclass may make of this

    def getsize(self, key: str) -> int | None:
        """Size of an object in bytes (before compression), or None if it is missing."""
        found = self._open().find(key)
        if found is None or isinstance(found, bytes):
            return None if found is None else len(found)
        return found.info.file_size

    def list_prefix(self, prefix: str = "") -> Iterator[str]:
        """All keys under a path, as they were when listing began."""
        check_path(prefix)
        archive = self._open()
        return under(dict.fromkeys([*archive.entries, *archive.documents]), prefix)

    # -- writing -------------------------------------------------------------------------------------------------

    def set(self, key: str, value: Buffer) -> None:
        """Store one object. Raises: StoreError; the old object is then still there."""
        archive = self._open()
        self.check_writable()
        check_key(key)
        waits = key.rpartition("/")[2] in DOCUMENTS
        data = as_bytes(key, value) if waits else byte_view(key, value)
        with self._failures(f"write {key!r}"), archive.turn:
            archive.check_owner()
            if waits:
                self._open().documents[key] = bytes(data)
            else:
                self._open().append(key, data)

    def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
        """Store every (key, bytes) pair; each replaces its object atomically."""
        for key, value in items:
            ZipStore.set(self, key, value)

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete the keys; missing ones are ignored. Their bytes stay in the file until it is copied."""
        archive = self._open()
        self.check_writable()
        for key in keys:
            with archive.turn:
                archive.check_owner()
                self._open().documents.pop(key, None)
                archive.drop(key)

    def flush(self) -> None:
        """Complete the archive as it is now, and stay open: should the process die, this is what it holds.

        Each flush writes the directory of the whole archive, about 100 bytes an entry.

        Raises
        ------
        StoreError
            If that fails. The archive then holds what it held before.
        """
        archive = self._open()
        if self.read_only:
            return
        with self._failures("flush"), archive.turn:
            archive.commit()

    def close(self) -> None:
        """Finish the archive: write the waiting documents and the directory. May be called again.

        Raises
        ------
        StoreError
            If that fails, for example because the disk is full. The store is then still open, and what it holds can be
            read; the archive is what it was when the store was opened or last flushed.
        """
        self._archive.close()
        self._finalizer.detach()

    def _failed(self, what: str, error: Exception) -> StoreError:
        remedy = "; make room and try again" if isinstance(error, OSError) else ""
        return StoreError(f"{super()._failed(what, error)}{remedy}")

    def _open(self) -> Archive:
        archive = self._archive
        if archive.closed:
            raise StoreError(f"store {self} is closed; open it again to use it")
        return archive

    def __reduce__(self) -> tuple[Any, ...]:
        if self._path is None or self._mode != "r":
            raise StoreError(f"store {self} cannot be pickled: only a ZipStore of a path with mode 'r' can be")
        return pickled(self, ZipStore, self._path, "r", self._compression, self._allow_zip64)
