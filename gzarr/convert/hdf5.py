"""Converts HDF5 files to Zarr and back, with h5py (the extra ``hdf5``)."""

from __future__ import annotations

import io
import os
from typing import Any, Unpack

from gzarr.api.open import open as open_node
from gzarr.convert.writing import replacing, write
from gzarr.copying import hdf5
from gzarr.copying.report import TransferReport
from gzarr.copying.settings import Hdf5Keywords, TransferKeywords
from gzarr.copying.sources import SourceTree
from gzarr.copying.zarr2 import copy, copy_all
from gzarr.errors import CopyError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group


def from_hdf5(source: Any, dest: Any, *, group: str = "/", **options: Unpack[TransferKeywords]) -> TransferReport:
    """Convert an HDF5 file, or a group or dataset in it, to Zarr.

    Chunks, fill values, attributes and dimension names stay; compressors are Zarr's defaults. Soft and external links
    are followed. References, empty datasets and groups that contain themselves are refused.

    Parameters
    ----------
    source : path, h5py.File, h5py.Group or h5py.Dataset
        The file, or an object in it.
    dest : path, URL, store or Group
        Where the Zarr node goes.
    group : str, default "/"
        Path in the file of the group or dataset to convert.
    **options
        Keywords of `gzarr.transfer`.

    Returns
    -------
    TransferReport
        What was done.

    Raises
    ------
    CopyError
        If the file cannot be read, has something that Zarr lacks, or the copy stops.
    MissingExtraError
        If h5py is missing.

    Examples
    --------
    >>> import h5py, tempfile, gzarr
    >>> folder = tempfile.mkdtemp()
    >>> with h5py.File(f"{folder}/a.h5", "w") as file:
    ...     file["x"] = [1, 2, 3]
    >>> report = gzarr.convert.from_hdf5(f"{folder}/a.h5", f"{folder}/a.zarr")
    >>> gzarr.open(f"{folder}/a.zarr")["x"][:].tolist()
    [1, 2, 3]
    """
    if hdf5.is_h5(source):
        return write(_tree(source[group] if group != "/" and hasattr(source, "keys") else source), dest, **options)
    h5py = hdf5.h5py_module()
    try:
        file = h5py.File(source, "r")
    except OSError as error:
        raise CopyError(f"cannot open {os.fspath(source)!r} as HDF5: {error}") from error
    with file:
        if group not in file:
            raise CopyError(f"{os.fspath(source)!r} has no group or dataset {group!r}")
        return write(_tree(file[group]), dest, **options)


def _tree(node: Any) -> SourceTree:
    if hasattr(node, "keys"):
        return hdf5.tree(node)
    one = hdf5.dataset_source(node)
    return SourceTree(one.name, {}, {"": one})


def to_hdf5(
    source: Any, path: str | os.PathLike[str], *, overwrite: bool = False, **create_kws: Unpack[Hdf5Keywords]
) -> None:
    """Write an array, or a group with everything in it, to an HDF5 file.

    An array becomes a dataset of its name, or "data" if it has none. Attributes without an HDF5 type become JSON text.

    Parameters
    ----------
    source : Array, Group, path or URL
        What is written.
    path : str or path
        Path of the file, which appears when it is complete.
    overwrite : bool, default False
        Whether to replace an existing file.
    **create_kws
        Keywords of ``h5py.Group.create_dataset``, such as ``chunks`` and ``compression``, which is gzip by default.

    Raises
    ------
    CopyError
        If the file exists, cannot be written, or HDF5 lacks an element type.
    MissingExtraError
        If h5py is missing.

    Examples
    --------
    >>> import h5py, tempfile, gzarr
    >>> folder = tempfile.mkdtemp()
    >>> gzarr.convert.to_hdf5(gzarr.ones(3), f"{folder}/a.h5", compression="lzf")
    >>> h5py.File(f"{folder}/a.h5")["data"][:].tolist()
    [1.0, 1.0, 1.0]
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
    """A file that keeps errors of writing until `check` raises them.

    If HDF5 cannot write (a full disk), it cannot close its file either, and crashes the process at exit. So HDF5 never
    sees an error; the file is deleted.
    """

    failure: OSError | None = None

    def write(self, data: Any) -> int:
        """Write everything, or keep the error."""
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view) and self.failure is None:
            try:
                done += super().write(view[done:]) or 0
            except OSError as error:
                self.failure = error
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Change the size, or keep the error."""
        try:
            return super().truncate(size)
        except OSError as error:
            self.failure = self.failure or error
            return size or 0

    def check(self, _line: str = "") -> None:
        """Raise CopyError if writing failed. Called for every line that a copy logs, and at the end."""
        if self.failure is not None:
            raise CopyError(
                f"cannot write {os.fspath(self.name)!r}: {self.failure}; no file was made"
            ) from self.failure
