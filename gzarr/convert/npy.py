"""Converts NumPy's .npy and .npz files to Zarr through memory maps."""

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

from gzarr.convert.writing import write
from gzarr.copying.report import TransferReport
from gzarr.copying.settings import TransferKeywords
from gzarr.copying.sources import Source, SourceTree, check_name, from_memory
from gzarr.errors import CopyError


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
        return write(SourceTree(str(path), {}, {"": _mapped(path, str(path))}), dest, **options)
    with _unpacked(path) as files:
        arrays = {name: _mapped(file, f"{path}:{name}") for name, file in files.items()}
        return write(SourceTree(str(path), {"": {}}, arrays), dest, **options)


def _mapped(file: Path, name: str) -> Source:
    try:
        return from_memory(np.load(file, mmap_mode="r", allow_pickle=False), name)
    except (ValueError, EOFError, OSError) as error:
        raise CopyError(f"cannot read {name!r} as a NumPy file: {error}") from error


@contextmanager
def _unpacked(path: Path) -> Iterator[dict[str, Path]]:
    """The members of a .npz file as files, by the names of their arrays."""
    with tempfile.TemporaryDirectory(prefix="gzarr-npz-") as folder:
        files: dict[str, Path] = {}
        try:
            with zipfile.ZipFile(path) as archive:
                for number, entry in enumerate(archive.infolist()):
                    name = check_name(entry.filename.removesuffix(".npy"), str(path))
                    files[name] = Path(folder) / f"{number}.npy"
                    with archive.open(entry) as packed, files[name].open("wb") as file:
                        shutil.copyfileobj(packed, file, 1 << 20)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            raise CopyError(f"cannot read {str(path)!r} as a .npz file: {error}") from error
        yield files
