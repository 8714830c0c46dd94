"""HDF5 files into Zarr and back, by h5py (the extra ``hdf5``)."""

from __future__ import annotations

import io
import os
from typing import Any

from gzarr.api.open import open as open_node
from gzarr.convert.writing import replacing, write
from gzarr.copying import hdf5
from gzarr.copying.report import TransferReport
from gzarr.copying.sources import SourceTree
from gzarr.copying.zarr2 import copy, copy_all
from gzarr.errors import CopyError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group


def from_hdf5(source: Any, dest: Any, *, group: str = "/", **options: Any) -> TransferReport:
    """Convert an HDF5 file, or a group or dataset in it, into Zarr.

    Chunks, fill values, attributes and the names of dimensions are kept; compressors are Zarr's default ones. Soft and
    external links are followed; references, empty datasets and groups within themselves are refused.

    source: path of the file, or an object of h5py. dest: a path, URL, store or group.
    group: path in the file of the group or dataset to convert.
    options: of `gzarr.transfer`.
    Returns: what was done. Raises: CopyError, MissingExtraError.
    """
    if hdf5.is_h5(source):
        return write(_tree(source[group] if group != "/" and hasattr(source, "keys") else source), dest, options)
    h5py = hdf5.h5py_module()
    try:
        file = h5py.File(source, "r")
    except OSError as error:
        raise CopyError(f"cannot open {os.fspath(source)!r} as HDF5: {error}") from error
    with file:
        if group not in file:
            raise CopyError(f"{os.fspath(source)!r} has no group or dataset {group!r}")
        return write(_tree(file[group]), dest, options)


def _tree(node: Any) -> SourceTree:
    if hasattr(node, "keys"):
        return hdf5.tree(node)
    one = hdf5.dataset_source(node)
    return SourceTree(one.name, {}, {"": one})


def to_hdf5(source: Any, path: str | os.PathLike[str], *, overwrite: bool = False, **create_kws: Any) -> None:
    """Write an array, or a group with everything in it, to an HDF5 file.

    An array becomes the dataset "data", or what its own name is. Attributes that HDF5 has no type for become JSON text.

    source: a gzarr array or group, or a path or URL of one. path: of the file, which appears when it is complete.
    overwrite: whether to replace a file that is there.
    create_kws: of ``h5py.Group.create_dataset``: compression, chunks, ...; gzip by default.
    Raises: CopyError, MissingExtraError.
    """
    node = source if isinstance(source, (Array, Group)) else open_node(source, mode="r")
    h5py = hdf5.h5py_module()
    with replacing(path, overwrite=overwrite) as partial, _FileForHDF5(partial, "w+b") as raw:
        with h5py.File(raw, "w") as file:
            if isinstance(node, Group):
                copy_all(node, file, log=raw.check, **create_kws)
            else:
                copy(node, file, name=node.basename or "data", log=raw.check, **create_kws)
        raw.check()


class _FileForHDF5(io.FileIO):
    """A file that keeps an error of writing to itself until it is asked.

    HDF5 that cannot write (a full disk) cannot close its file either, and crashes the process at its end. So it is told
    that all went well; the file is thrown away.
    """

    failure: OSError | None = None

    def write(self, data: Any) -> int:
        """Write everything, or remember why not."""
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view) and self.failure is None:
            try:
                done += super().write(view[done:]) or 0
            except OSError as error:
                self.failure = error
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Change the size, or remember why not."""
        try:
            return super().truncate(size)
        except OSError as error:
            self.failure = self.failure or error
            return size or 0

    def check(self, _line: str = "") -> None:
        """Raise the error that writing had: CopyError. Called for every line that a copy prints, and at the end."""
        if self.failure is not None:
            raise CopyError(
                f"cannot write {os.fspath(self.name)!r}: {self.failure}; no file was made"
            ) from self.failure
