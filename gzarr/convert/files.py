"""Recognizes the format of a file by its first bytes and its name, and converts it to Zarr."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Unpack

from gzarr.convert.hdf5 import from_hdf5
from gzarr.convert.netcdf import from_netcdf
from gzarr.convert.tiff import from_tiff
from gzarr.convert.writing import in_place, write
from gzarr.copying.planning import TransferKeywords
from gzarr.copying.report import TransferReport
from gzarr.errors import CopyError
from gzarr.storage.local import LocalStore
from gzarr.virtual.opening import recognize as recognize_in_place


def _from_in_place(source: str | os.PathLike[str], dest: Any, **options: Unpack[TransferKeywords]) -> TransferReport:
    with in_place(source, "a file that is read in place") as tree:
        return write(tree, dest, **options)


_BY_FORMAT: dict[str, Callable[..., TransferReport]] = {
    "hdf5": from_hdf5,
    "netcdf": from_netcdf,
    "tiff": from_tiff,
    "fits": _from_in_place,
    "npy": _from_in_place,
}


def recognize(path: str | os.PathLike[str]) -> str:
    """Recognize the format of a file.

    Parameters
    ----------
    path : str or path
        Path of the file.

    Returns
    -------
    {"hdf5", "netcdf", "tiff", "fits", "npy"}
        The format.

    Raises
    ------
    CopyError
        If the format is unknown.
    FileNotFoundError
        If there is no such file.

    Examples
    --------
    >>> import numpy as np, tempfile, gzarr
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/a.npy", np.arange(12))
    >>> gzarr.convert.recognize(f"{folder}/a.npy")
    'npy'
    """
    file = Path(path)
    suffix = file.suffix.lower()
    try:
        with file.open("rb") as opened:
            begin = opened.read(12)
    except NotADirectoryError as error:
        raise CopyError(
            f"{str(file)!r} is no file: name the file, or copy a part of it by gzarr.transfer or `gzarr copy`"
        ) from error
    found = recognize_in_place(LocalStore(file.parent, read_only=True), file.name)
    if found == "netcdf3" or (found == "hdf5" and suffix in (".nc", ".nc4", ".cdf", ".netcdf")):
        return "netcdf"
    if found in _BY_FORMAT:
        return found
    raise CopyError(
        f"the format of {str(file)!r} is unknown (it begins with {begin[:8]!r}); "
        f"give its format, one of {', '.join(_BY_FORMAT)}"
    )


class FileKeywords(TransferKeywords, total=False):
    """Keywords of the functions that read a format."""

    group: str
    links: Literal["once", "copy"]
    series: int | None
    ome: bool


def from_file(
    source: str | os.PathLike[str], dest: Any, *, format: str | None = None, **options: Unpack[FileKeywords]
) -> TransferReport:
    """Convert a file to Zarr, in bounded memory.

    Parameters
    ----------
    source : str or path
        Path of the file.
    dest : path, URL, store or Group
        Where the Zarr node goes.
    format : {"hdf5", "netcdf", "tiff", "fits", "npy"}, optional
        Format of the file; by default what `recognize` returns.
    **options
        Keywords of `gzarr.transfer`, and those of the function that reads the format.

    Returns
    -------
    TransferReport
        What was done.

    Raises
    ------
    CopyError
        If the format is unknown, the file is damaged, or the copy stops.
    MissingExtraError
        If the package that reads the format is missing. The message names the extra that installs it.

    Examples
    --------
    >>> import numpy as np, tempfile, gzarr
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/a.npy", np.arange(3))
    >>> report = gzarr.convert.from_file(f"{folder}/a.npy", f"{folder}/a.zarr")
    >>> gzarr.open(f"{folder}/a.zarr")[...]
    array([0, 1, 2])
    """
    name = recognize(source) if format is None else format
    if name not in _BY_FORMAT:
        raise CopyError(f"unknown format {name!r}; expected one of {', '.join(_BY_FORMAT)}")
    return _BY_FORMAT[name](source, dest, **options)
