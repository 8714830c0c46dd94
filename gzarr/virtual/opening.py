"""Recognizes files of other formats, and opens them in place as read-only stores."""

import io
import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import IO, Any

from gzarr.errors import StoreError
from gzarr.storage import open_store
from gzarr.storage.base import Request, Store, host_view
from gzarr.virtual.hdf5 import find_in_hdf5
from gzarr.virtual.hdf5_files import open_hdf5
from gzarr.virtual.kerchunk import METADATA, PARQUET, RECORD_SIZE, find_in_kerchunk, find_in_parquet, find_references
from gzarr.virtual.places import Containers, allowed_places
from gzarr.virtual.raw import MAGIC, find_in_fits, find_in_netcdf3, find_in_npy
from gzarr.virtual.store import Contents, VirtualStore
from gzarr.virtual.tiff import find_in_tiff


class StoreFile(io.RawIOBase):
    """An object of a store as a file for libraries, which read it in blocks. The last blocks are kept.

    Parameters
    ----------
    store, key
        The object.
    """

    _BLOCK, _KEPT = 1 << 20, 16

    def __init__(self, store: Store, key: str) -> None:
        nbytes = store.getsize(key)
        if nbytes is None:
            raise StoreError(f"{store}: {key!r} is missing")
        self._store, self._key, self._nbytes, self._at = store, key, nbytes, 0
        self._block = lru_cache(self._KEPT)(self._fetched)

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to another place."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._nbytes}[whence]
        return self._at

    def tell(self) -> int:
        """The place that is read next."""
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read bytes, fewer than asked for where a block ends."""
        number, start = divmod(self._at, self._BLOCK)
        part = self._block(number)[start : start + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)

    def _fetched(self, number: int) -> memoryview:
        begin = number * self._BLOCK
        length = min(self._BLOCK, self._nbytes - begin)
        answer = self._store.get_one(Request(self._key, begin, length)) if length > 0 else None
        return memoryview(b"") if answer is None else host_view(answer)


#: How files begin, by format. HDF5 may have a block of the user's before it.
_BEGIN = {
    "hdf5": (b"\x89HDF\r\n\x1a\n",),
    "netcdf3": MAGIC,
    "tiff": (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
    "npy": (b"\x93NUMPY",),
    "fits": (b"SIMPLE  =",),
}
_HDF5_BLOCKS = [512 << doubled for doubled in range(12)]
_READ_NBYTES = 16


def recognize(store: Store, key: str) -> str | None:
    """The format of an object by its first bytes; None if it is none that is read in place."""
    if key.lower().endswith(PARQUET):
        metadata = store.get_one(Request(f"{key}/{METADATA}"))
        return "parquet" if metadata is not None and f'"{RECORD_SIZE}"'.encode() in bytes(metadata) else None
    begin = _bytes(store, key, 0)
    for name, magics in _BEGIN.items():
        if begin.startswith(magics):
            return name
    behind = store.get_many([Request(key, at, _READ_NBYTES) for at in _HDF5_BLOCKS])
    if any(answer is not None and bytes(host_view(answer)).startswith(_BEGIN["hdf5"]) for answer in behind):
        return "hdf5"
    return "kerchunk" if key.endswith(".json") and begin.lstrip()[:1] == b"{" else None


def _bytes(store: Store, key: str, at: int) -> bytes:
    answer = store.get_one(Request(key, at, _READ_NBYTES))
    return b"" if answer is None else bytes(host_view(answer))


def open_virtual(path: str, storage_options: Mapping[str, Any] | None = None, places: Any = None) -> Store | None:
    """Open a file of another format as a read-only store.

    Parameters
    ----------
    path : str
        Path or URL of the file.
    storage_options : mapping, optional
        What the server of a URL needs to be told.
    places : str or sequence of str, optional
        Containers that references may lead to, besides what lies beside them and those of the setting.

    Returns
    -------
    Store or None
        The store; None if the format is none that is read in place.

    Raises
    ------
    CopyError, StoreError
        If the file cannot be read, is damaged, or holds something that Zarr lacks.
    MissingExtraError
        If the library that reads its header is not installed.
    """
    above, _, name = path.rpartition("/")
    store = open_store(above or ("/" if path.startswith("/") else "."), storage_options=storage_options, mode="r")[0]
    kind = recognize(store, name)
    if kind is None:
        return None
    if kind in _REFERENCES:
        where = above if "://" in above else os.path.abspath(above or "/" * path.startswith("/"))  # noqa: PTH100
        return VirtualStore(partial(_REFERENCES[kind], store, name, where, allowed_places(places)), path)
    if kind == "hdf5":
        return VirtualStore(partial(_find_in_hdf5, store, name, allowed_places(places)), path)
    return VirtualStore(partial(_FINDERS[kind], store, name), path)


def open_dataset(dataset: Any, virtual_containers: Any = None) -> VirtualStore:
    """Open a dataset of VirtualiZarr, an Xarray dataset whose arrays are manifests.

    virtual_containers: places that its references may lead to, besides those of the setting.
    Raises: StoreError, MetadataError.
    """
    if not hasattr(dataset, "virtualize"):
        raise StoreError("only datasets of VirtualiZarr are opened; write others with gzarr.interop.xarray.to_zarr")
    refs = dataset.virtualize.to_kerchunk(format="dict", zarr_format=3)["refs"]
    return VirtualStore(partial(_find_in_memory, refs, allowed_places(virtual_containers)), "dataset")


def _find_in_memory(refs: Mapping[str, Any], allowed: Sequence[str]) -> Contents:
    return find_references(refs, Containers("dataset", None, allowed))


def _file(store: Store, key: str) -> Any:
    """What libraries read an object from: its path if it is a local file, or a file made of ranges."""
    path = store.files.path(key) if store.files is not None else None
    return io.BufferedReader(StoreFile(store, key), 1 << 16) if path is None else path


def _find_in_hdf5(store: Store, key: str, allowed: Sequence[str]) -> Contents:
    file = store.files.path(key) if store.files is not None else None
    containers = Containers(key, None if file is None else (store, "", os.path.dirname(file)), allowed)  # noqa: PTH120
    return find_in_hdf5(lambda: open_hdf5(_file(store, key)), store, key, containers.allows)


def _find_in_tiff(store: Store, key: str) -> Contents:
    return find_in_tiff(_file(store, key), store, key)


def _find(find: Callable[[IO[bytes], Store, str], Contents], store: Store, key: str) -> Contents:
    """What a file holds whose header is read through the store."""
    with io.BufferedReader(StoreFile(store, key), 1 << 16) as file:
        return find(file, store, key)


_FINDERS: dict[str, Callable[[Store, str], Contents]] = {"tiff": _find_in_tiff}
_FINDERS |= {"netcdf3": partial(_find, find_in_netcdf3), "npy": partial(_find, find_in_npy)}
_FINDERS["fits"] = partial(_find, find_in_fits)
_REFERENCES = {"kerchunk": find_in_kerchunk, "parquet": find_in_parquet}
