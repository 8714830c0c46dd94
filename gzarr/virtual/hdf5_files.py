"""Opens HDF5 files, and finds the other files that their objects lead to.

External links, external data and virtual datasets lead to other files. HDF5 gives fill values where the source of a
virtual dataset is missing; here it is refused.

Source: HDF5 Reference Manual, ``H5Pset_virtual``, ``H5Pset_virtual_prefix``.
"""

# os.path: HDF5 takes paths as text.
# ruff: noqa: PTH100, PTH109, PTH117, PTH118, PTH119, PTH120

import os
import re
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from itertools import count
from typing import Any

from gzarr.copying import hdf5
from gzarr.copying.sources import reading
from gzarr.errors import CopyError
from gzarr.storage.base import Store
from gzarr.storage.local import LocalStore
from gzarr.virtual.places import ALLOWING


def open_hdf5(file: Any) -> Any:
    """Open a file by h5py. Raises: OSError, and CopyError if this process may be writing to it."""
    h5py = hdf5.h5py_module()
    for locking in (None, False, True, "best-effort"):  # HDF5 wants the way in which this process already has it open
        try:
            opened = h5py.File(file, "r", locking=locking)
            break
        except OSError as error:
            if "lock" not in str(error) or locking == "best-effort":
                raise
    if opened.id.get_intent() & h5py.h5f.ACC_RDWR:  # whose last writes are in no file yet
        opened.close()
        raise CopyError(f"{file} is open for writing in this process; close it there first")
    return opened


def file_number(node: Any) -> int:
    """A number of the file that an object is in: links may lead to others."""
    return hdf5.identity(node)[0]


class OtherFiles:
    """The other files that the objects of a file lead to.

    Parameters
    ----------
    number : int
        HDF5's number of the file.
    allows : callable
        Whether objects may lead to another file, by its path.
    """

    def __init__(self, number: int, allows: Callable[[str], bool]) -> None:
        self._number, self._allows = number, allows
        self._paths = set[str]()

    def find(self, file: Any, paths: Iterable[str]) -> dict[str, str]:
        """Find the files that objects of a file, or their data, are in: why some objects cannot be read, by path."""
        lost = {}
        for path in paths:
            try:
                with reading(f"/{path}"):
                    self._add(file[f"/{path}"], set())
            except CopyError as error:
                lost[path] = str(error)
        return lost

    def objects(self) -> list[tuple[Store, str]]:
        """The files that were found."""
        places = sorted(map(os.path.split, self._paths))
        stores = {folder: LocalStore(os.path.realpath(folder), read_only=True) for folder, _ in places}
        return [(stores[folder], name) for folder, name in places]

    def _add(self, node: Any, seen: set[Any]) -> None:
        identity = hdf5.identity(node)
        if identity in seen:
            return
        seen.add(identity)
        own = os.path.abspath(os.fspath(node.file.filename))
        if identity[0] != self._number:
            self._add_path(own)
        for name, *_ in getattr(node, "external", None) or ():
            self._find(os.fsdecode(name), own, may_lack=False)
        for name, path in _sources(node):
            is_series = _numbered(name + path, 0) != _numbered(name + path, 1)
            for number in count() if is_series else (0,):
                source = _numbered(name, number), _numbered(path, number)
                if not self._add_source(node, own, *source, seen, may_lack=is_series):
                    break

    def _check(self, path: str) -> None:
        if not self._allows(path):
            raise CopyError(f"it is in {path!r}; {ALLOWING}")

    def _add_path(self, path: str) -> None:
        self._check(path)
        self._paths.add(path)

    def _find(self, name: str, own: str, *, may_lack: bool) -> str | None:
        """Where HDF5 finds a file that another one names; None if it is missing and may be. Raises: CopyError."""
        places = _places(name, own)
        there = [place for place in places if os.path.lexists(place)]
        for place in there:
            self._add_path(place)
        if there or may_lack:
            return there[0] if there else None
        self._check(places[0])
        raise CopyError(f"its data are in {name!r}, which is missing; put it into {os.path.dirname(own)!r}")

    def _add_source(self, node: Any, own: str, name: str, path: str, seen: set[Any], *, may_lack: bool) -> bool:
        """Add a source of a virtual dataset, and what it leads to. Returns whether it is there. Raises: CopyError."""
        place = own if name == "." else self._find(name, own, may_lack=may_lack)
        if place is None:
            return False
        with nullcontext(node.file) if name == "." else open_hdf5(place) as file:
            source = file.get(path)
            if source is not None:
                self._add(source, seen)
            elif not may_lack:
                raise CopyError(f"its data are in {path!r} of {place!r}, which is missing; put it there")
        return source is not None


def _sources(node: Any) -> list[tuple[str, str]]:
    """Names of the file and the dataset of each source of a virtual dataset."""
    sources = node.virtual_sources() if getattr(node, "is_virtual", False) else ()
    return list(dict.fromkeys((source.file_name, source.dset_name) for source in sources))


def _numbered(name: str, number: int) -> str:
    """The name that a source has in a series, if there is one."""
    return re.sub("%([b%])", lambda match: "%" if match[1] == "%" else str(number), name)


def _places(name: str, own: str) -> list[str]:
    """Where HDF5 looks for a file that another one names: absolute paths that are missing count by their names."""
    if os.path.isabs(name) and os.path.lexists(name):
        return [name]
    beside = os.path.dirname(own)
    prefixes = os.environ.get("HDF5_VDS_PREFIX", "").replace("${ORIGIN}", beside).split(os.pathsep)
    folders = [*filter(None, prefixes), beside, os.getcwd(), os.path.dirname(os.path.realpath(own))]
    found = [os.path.join(folder, os.path.basename(name) if os.path.isabs(name) else name) for folder in folders]
    return [name, *found] if os.path.isabs(name) else found
