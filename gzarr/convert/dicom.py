"""Recognizes DICOM files, which gzarr does not read, and says what does.

Some begin like TIFF files: whole slides may be both, and some writers leave these bytes in the 128 that DICOM ignores.
Source: DICOM PS3.10, section 7.1.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gzarr.errors import CopyError

_PREAMBLE_NBYTES, _PREFIX = 128, b"DICM"


def check_not_dicom(path: str | os.PathLike[str]) -> None:
    """Refuse a DICOM file with an error that says how to read it. Raises CopyError, OSError."""
    with Path(path).open("rb") as file:
        file.seek(_PREAMBLE_NBYTES)
        if file.read(len(_PREFIX)) != _PREFIX:
            return
    raise CopyError(
        f"{os.fspath(path)!r} is a DICOM file, which gzarr does not read; read it with pydicom, and write what "
        "pydicom.dcmread(path).pixel_array gives with gzarr.save or gzarr.images.create_image; wsidicom reads slides"
    )


@contextmanager
def unless_dicom(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say that a file is DICOM if it could not be read as another format. Raises CopyError."""
    try:
        yield
    except CopyError:
        if Path(path).is_file():
            check_not_dicom(path)
        raise
