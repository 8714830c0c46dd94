"""Converts NumPy's .npy and .npz files to Zarr and back through memory maps."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from gzarr.convert.writing import node_of, replacing, write, write_regions
from gzarr.copying.report import TransferReport
from gzarr.copying.settings import TransferKeywords
from gzarr.copying.sources import Source, SourceTree, check_name, from_array, from_memory, on_host, reading
from gzarr.errors import CopyError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.create import paths_above
from gzarr.hierarchy.lazy import allocate


def from_npy(source: str | os.PathLike[str], dest: Any, **options: Unpack[TransferKeywords]) -> TransferReport:
    """Convert a .npy file to an array, or a .npz file to a group of arrays.

    The arrays of a .npz file are unpacked to a temporary folder and mapped from there. Arrays of Python objects are
    refused, because reading them can run code.

    Parameters
    ----------
    source : str or path
        Path of the file.
    dest : path, URL, store or Group
        Where the Zarr node goes.
    **options
        Keywords of `gzarr.transfer`.

    Returns
    -------
    TransferReport
        What was done.

    Raises
    ------
    CopyError
        If the file is damaged or holds Python objects, or the copy stops.

    Examples
    --------
    >>> import numpy as np, tempfile, gzarr
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/a.npy", np.arange(12))
    >>> report = gzarr.convert.from_npy(f"{folder}/a.npy", f"{folder}/a.zarr", chunks=4)
    >>> gzarr.open(f"{folder}/a.zarr").chunks
    (4,)
    """
    path = Path(source)
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            if file.read(4) == b"PK\x03\x04":
                raise CopyError(f"cannot read {str(path)!r} as a .npz file: it is damaged or cut off")
        return write(SourceTree(str(path), {}, {"": _mapped(path, str(path))}, files=[str(path)]), dest, **options)
    with _unpacked(path) as files:
        arrays = {name: _mapped(file, f"{path}:{name}") for name, file in files.items()}
        groups: dict[str, dict[str, Any]] = {"": {}}
        groups |= {parent: {} for name in sorted(arrays) for parent in paths_above(name)}
        return write(SourceTree(str(path), groups, arrays, files=[str(path)]), dest, **options)


def _mapped(file: Path, name: str) -> Source:
    with reading(f"{name!r} as a NumPy file"):
        return from_memory(np.load(file, mmap_mode="r", allow_pickle=False), name)


@contextmanager
def _unpacked(path: Path) -> Iterator[dict[str, Path]]:
    """The members of a .npz file as files, by the names of their arrays."""
    with tempfile.TemporaryDirectory(prefix="gzarr-npz-") as folder:
        files: dict[str, Path] = {}
        with reading(f"{str(path)!r} as a .npz file"), zipfile.ZipFile(path) as archive:
            for number, entry in enumerate(archive.infolist()):
                name = entry.filename.removesuffix(".npy")
                for part in name.split("/"):
                    check_name(part, str(path))
                files[name] = Path(folder) / f"{number}.npy"
                with (
                    reading(f"'{path}:{name}'"),
                    archive.open(entry) as packed,
                    files[name].open("wb") as file,
                ):
                    shutil.copyfileobj(packed, file, 1 << 20)
        yield files


# -- to NumPy files ----------------------------------------------------------------------------------------------


def to_npy(source: Any, path: str | os.PathLike[str], *, overwrite: bool = False, compressed: bool = False) -> None:
    """Write an array to a .npy file, or the arrays of a group to a .npz file, by their paths in the group.

    Text becomes text of fixed length. Attributes and names of axes have no place in these files.

    Parameters
    ----------
    source : Array, Group, path or URL
        What is written.
    path : str or path
        Path of the file, which appears when it is complete.
    overwrite : bool, default False
        Whether to replace an existing file.
    compressed : bool, default False
        Whether to compress the members of a .npz file.

    Raises
    ------
    CopyError
        If the file exists or cannot be written, or NumPy cannot store the elements without pickling them.

    Examples
    --------
    >>> import numpy as np, tempfile, gzarr
    >>> folder = tempfile.mkdtemp()
    >>> gzarr.convert.to_npy(gzarr.array([1, 2, 3]), f"{folder}/a.npy")
    >>> np.load(f"{folder}/a.npy")
    array([1, 2, 3])
    """
    node = node_of(source)
    with replacing(path, overwrite=overwrite) as partial:
        if isinstance(node, Array):
            _save(node, partial)
            return
        file = Path(f"{partial}.npy")
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED) as archive:
            for name, member in node.members(None):
                if isinstance(member, Array):
                    _save(member, file)
                    archive.write(file, f"{name}.npy")


def _save(array: Array, file: Path) -> None:
    """Write a .npy file. Raises CopyError for elements that NumPy would pickle."""
    if array.metadata.data_type.variable == "string":
        with file.open("wb") as opened:
            np.save(opened, on_host(array[...]).astype("U"))
        return
    dtype = array.dtype.newbyteorder("=") if array.dtype.names is None else array.dtype
    if dtype.hasobject or np.dtype(np.lib.format.dtype_to_descr(dtype)) != dtype:
        raise CopyError(f"{array.store_path} has elements of type {dtype}, which .npy files cannot hold; leave it out")
    with file.open("wb") as opened:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": array.shape}
        np.lib.format.write_array_header_2_0(opened, header)
        begin = opened.tell()
        if array.nbytes:
            opened.flush()
            allocate(opened.fileno(), array.nbytes, begin)
    if not array.nbytes:
        return
    mapped = np.memmap(file, dtype, "r+", offset=begin, shape=array.shape)
    write_regions(from_array(array), mapped.__setitem__)
    mapped.flush()
