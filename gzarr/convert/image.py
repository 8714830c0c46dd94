"""Converts images (PNG, JPEG, GIF, WebP, ...) to Zarr, with Pillow (the extra ``pillow``)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from gzarr.convert.writing import write
from gzarr.copying.report import TransferReport
from gzarr.copying.settings import TransferKeywords
from gzarr.copying.sources import Source, SourceTree, regular_grid
from gzarr.errors import CopyError
from gzarr.indexing.regions import Region
from gzarr.storage.extras import require

#: Modes of Pillow whose pixels are stored as they are; others become RGB, or RGBA where they are transparent.
_MODES = {"1": "?", "L": "u1", "LA": "u1", "RGB": "u1", "RGBA": "u1", "CMYK": "u1", "YCbCr": "u1", "LAB": "u1"}
_MODES |= {"HSV": "u1", "I": "i4", "F": "f4", "I;16": "<u2", "I;16L": "<u2", "I;16B": ">u2", "I;16N": "=u2"}


def from_image(source: Any, dest: Any, **options: Unpack[TransferKeywords]) -> TransferReport:
    """Convert an image to an array (y, x) or (y, x, c); the frames of a file, or several files, to (t, y, x[, c]).

    One frame is decoded at a time. Palettes become colours. By default, a chunk is a frame.

    Parameters
    ----------
    source : path or sequence of paths
        An image, or several images of one size and mode.
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
        If an image cannot be decoded, images differ in size or mode, or the copy stops.
    MissingExtraError
        If Pillow is missing.

    Examples
    --------
    >>> import tempfile, gzarr
    >>> from PIL import Image
    >>> folder = tempfile.mkdtemp()
    >>> Image.new("RGB", (64, 48)).save(f"{folder}/a.png")
    >>> report = gzarr.convert.from_image(f"{folder}/a.png", f"{folder}/a.zarr")
    >>> gzarr.open(f"{folder}/a.zarr").shape
    (48, 64, 3)
    """
    several = isinstance(source, Sequence) and not isinstance(source, str)
    paths = [Path(p) for p in source] if several else [Path(source)]
    if not paths:
        raise CopyError("source is an empty sequence; give at least one image")
    frames = [(path, frame) for path in paths for frame in range(_nframes(path))]
    first, mode, info = _load(*frames[0])
    stacked = several or len(frames) > 1
    shape = (len(frames), *first.shape) if stacked else first.shape
    names = ("y", "x", "c")[: first.ndim]
    chunks = (1, *first.shape) if stacked else first.shape
    image = Source(
        name=str(paths[0]),
        shape=shape,
        dtype=first.dtype,
        itemsize=first.dtype.itemsize,
        read=partial(_read_frames, frames, first) if stacked else first.__getitem__,
        grid=regular_grid(shape, chunks),
        attributes={"mode": mode, **info},
        dimension_names=("t", *names) if stacked else names,
        options={"chunks": chunks} if stacked else {},
    )
    return write(SourceTree(image.name, {}, {"": image}), dest, **options)


def _read_frames(frames: Sequence[tuple[Path, int]], first: NDArray[Any], region: Region) -> NDArray[Any]:
    """Decode a region of some frames. Raises CopyError for a frame unlike the first."""
    frames = frames[region[0]]
    out = np.empty((len(frames), *(part.stop - part.start for part in region[1:])), first.dtype)
    for number, (path, frame) in enumerate(frames):
        pixels = _load(path, frame)[0]
        if pixels.shape != first.shape or pixels.dtype != first.dtype:
            raise CopyError(
                f"{path}, frame {frame}, is {pixels.shape} {pixels.dtype}, the first image is {first.shape} "
                f"{first.dtype}; only images of one size and mode become one array"
            )
        out[number] = pixels[region[1:]]
    return out


def _pillow() -> Any:
    return require("PIL.Image", "pillow", "the conversion of images")


def _opened(path: Path) -> Any:
    image_module = _pillow()
    try:
        return image_module.open(path)
    except (OSError, SyntaxError, ValueError, image_module.DecompressionBombError) as error:
        raise CopyError(f"cannot read {str(path)!r} as an image: {error}") from error


def _nframes(path: Path) -> int:
    with _opened(path) as image:
        return int(getattr(image, "n_frames", 1))


def _load(path: Path, frame: int) -> tuple[Any, str, dict[str, Any]]:
    """(pixels, mode, attributes) of one frame."""
    with _opened(path) as image:
        try:
            if frame:
                image.seek(frame)
            mode = image.mode
            if mode not in _MODES:
                mode = "RGBA" if "transparency" in image.info or mode in ("PA", "La", "RGBa") else "RGB"
                pixels = np.asarray(image.convert(mode))
            else:
                pixels = np.asarray(image).astype(_MODES[mode], copy=False)
            dpi = image.info.get("dpi")
        except (OSError, SyntaxError, ValueError, EOFError, _pillow().DecompressionBombError) as error:
            raise CopyError(f"cannot decode {os.fspath(path)!r}, frame {frame}: {error}") from error
        return pixels, mode, {"dpi": [float(n) for n in dpi]} if dpi else {}
