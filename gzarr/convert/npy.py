"""NumPy's .npy and .npz files into Zarr, memory-mapped."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gzarr.convert.writing import write
from gzarr.copying.report import TransferReport
from gzarr.copying.sources import Source, SourceTree, check_name, from_memory
from gzarr.errors import CopyError


def from_npy(source: str | os.PathLike[str], dest: Any, **options: Any) -> TransferReport:
    """Convert a .npy file into an array, or a .npz file into a group of arrays.

    The arrays of a .npz file are unpacked to a temporary folder one after the other, to be mapped from there. Arrays of
    Python objects are refused: reading them runs code.

    source: path of the file. dest: a path, URL, store or group. options: of `gzarr.transfer`.
    Returns: what was done. Raises: CopyError.
    """
    path = Path(source)
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            if file.read(4) == b"PK\x03\x04":
                raise CopyError(f"cannot read {str(path)!r} as a .npz file: it is damaged or cut off")
        return write(SourceTree(str(path), {}, {"": _mapped(path, str(path))}), dest, options)
    with _unpacked(path) as files:
        arrays = {name: _mapped(file, f"{path}:{name}") for name, file in files.items()}
        return write(SourceTree(str(path), {"": {}}, arrays), dest, options)


def _mapped(file: Path, name: str) -> Source:
    try:
        return from_memory(np.load(file, mmap_mode="r", allow_pickle=False), name)
    except (ValueError, EOFError, OSError) as error:
        raise CopyError(f"cannot read {name!r} as a NumPy file: {error}") from error


@contextmanager
def _unpacked(path: Path) -> Iterator[dict[str, Path]]:
    """The members of a .npz file as files, by the names of their arrays."""
    with tempfile.TemporaryDirectory(prefix="gzarr-npz-") as folder:
        found: dict[str, Path] = {}
        try:
            with zipfile.ZipFile(path) as archive:
                for number, entry in enumerate(archive.infolist()):
                    name = check_name(entry.filename.removesuffix(".npy"), str(path))
                    found[name] = Path(folder) / f"{number}.npy"
                    with archive.open(entry) as packed, found[name].open("wb") as file:
                        shutil.copyfileobj(packed, file, 1 << 20)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            raise CopyError(f"cannot read {str(path)!r} as a .npz file: {error}") from error
        yield found
