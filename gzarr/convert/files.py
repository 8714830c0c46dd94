"""Recognizes the format of a file by its first bytes and its name, and converts it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gzarr.convert.hdf5 import from_hdf5
from gzarr.convert.image import from_image
from gzarr.convert.netcdf import from_netcdf
from gzarr.convert.npy import from_npy
from gzarr.convert.tiff import from_tiff
from gzarr.copying.report import TransferReport
from gzarr.errors import CopyError

_HDF5 = b"\x89HDF\r\n\x1a\n"
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_NETCDF3 = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
_IMAGES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"RIFF", b"\0\0\0\x0cjP", b"P5", b"P6")
_BY_FORMAT: dict[str, Callable[..., TransferReport]] = {
    "hdf5": from_hdf5,
    "netcdf": from_netcdf,
    "tiff": from_tiff,
    "npy": from_npy,
    "image": from_image,
}


def recognize(path: str | os.PathLike[str]) -> str:
    """The format of a file: "hdf5", "netcdf", "tiff", "npy" or "image".

    Raises: CopyError for a file of another format, FileNotFoundError.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    with file.open("rb") as opened:
        begin = opened.read(12)
        is_hdf5 = begin.startswith(_HDF5) or _has_user_block(opened)
    if is_hdf5:
        return "netcdf" if suffix in (".nc", ".nc4", ".cdf", ".netcdf") else "hdf5"
    if begin.startswith(_NETCDF3):
        return "netcdf"
    if begin.startswith(_TIFF):
        return "tiff"
    if begin.startswith(b"\x93NUMPY") or (begin.startswith(b"PK") and suffix == ".npz"):
        return "npy"
    if begin.startswith(_IMAGES):
        return "image"
    raise CopyError(
        f"the format of {str(file)!r} is not known (it begins with {begin[:8]!r}); "
        f"there are {', '.join(_BY_FORMAT)}: name one with format="
    )


def _has_user_block(file: Any) -> bool:
    """Whether HDF5 begins after a block of the user's: at 512 bytes, or that doubled any number of times."""
    offset, size = 512, file.seek(0, os.SEEK_END)
    while offset < size:
        file.seek(offset)
        if file.read(8) == _HDF5:
            return True
        offset *= 2
    return False


def from_file(
    source: str | os.PathLike[str], dest: Any, *, format: str | None = None, **options: Any
) -> TransferReport:
    """Convert a file into Zarr, in bounded memory.

    source: path of the file. dest: a path, URL, store or group.
    format: "hdf5", "netcdf", "tiff", "npy" or "image"; by default what `recognize` says.
    options: of `gzarr.transfer`: path, if_exists, dry_run, resume, progress, budget_nbytes, chunks, compressors, ...
    Returns: what was done. Raises: CopyError, MissingExtraError naming the extra that reads the format.
    """
    name = recognize(source) if format is None else format
    if name not in _BY_FORMAT:
        raise CopyError(f"no format {name!r}; there are {', '.join(_BY_FORMAT)}")
    return _BY_FORMAT[name](source, dest, **options)
