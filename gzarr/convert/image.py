"""Converts images (PNG, JPEG, GIF, WebP, ...) to Zarr and back, with Pillow (the extra ``pillow``)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from gzarr.convert.writing import node_of, replacing, write
from gzarr.copying.named_chunks import axis_names
from gzarr.copying.report import TransferReport
from gzarr.copying.settings import TransferKeywords
from gzarr.copying.sources import Source, SourceTree, from_array, on_host, reading, regular_grid
from gzarr.errors import CopyError
from gzarr.hierarchy.array import Array
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
    return write(SourceTree(image.name, {}, {"": image}, files=[str(p) for p in paths]), dest, **options)


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
    with reading(f"{str(path)!r} as an image"):
        return _pillow().open(path)


def _nframes(path: Path) -> int:
    with reading(f"{str(path)!r} as an image"), _opened(path) as image:
        return int(getattr(image, "n_frames", 1))


def _load(path: Path, frame: int) -> tuple[Any, str, dict[str, Any]]:
    """(pixels, mode, attributes) of one frame."""
    with reading(f"'{path}', frame {frame}"), _opened(path) as image:
        if frame:
            image.seek(frame)
        mode = image.mode
        if mode not in _MODES:
            mode = "RGBA" if "transparency" in image.info or mode in ("PA", "La", "RGBa") else "RGB"
            pixels = np.asarray(image.convert(mode))
        else:
            pixels = np.asarray(image).astype(_MODES[mode], copy=False)
        dpi = image.info.get("dpi")
        return pixels, mode, {"dpi": [float(n) for n in dpi]} if dpi else {}


# -- to images ---------------------------------------------------------------------------------------------------

#: Modes of pixels without and with samples, by type and number of samples.
_MODE_OF = {("b", 0): "1", ("u1", 0): "L", ("u2", 0): "I;16", ("u1", 2): "LA", ("u1", 3): "RGB", ("u1", 4): "RGBA"}


def to_image(source: Any, path: str | os.PathLike[str], *, overwrite: bool = False, **options: Any) -> None:
    """Write an array as an image in the format that the name of the file says: .png, .jpg, .webp, .bmp, ...

    Parameters
    ----------
    source : Array, path, URL or array in memory
        Pixels (y, x) of booleans, bytes or unsigned integers of 16 bits, or (y, x, c) of bytes with 2 to 4 samples:
        gray or colours, with or without opacity. An axis named "c" may also come first; other axes have one element.
    path : str or path
        Path of the file, which appears when it is complete.
    overwrite : bool, default False
        Whether to replace an existing file.
    **options
        Options of ``PIL.Image.Image.save`` for the format, such as ``quality``.

    Raises
    ------
    CopyError
        If the file exists or cannot be written, or the array is no image.
    MissingExtraError
        If Pillow is missing.

    Examples
    --------
    >>> import numpy as np, tempfile, gzarr
    >>> from PIL import Image
    >>> folder = tempfile.mkdtemp()
    >>> gzarr.convert.to_image(gzarr.ones((48, 64, 3), dtype="u1"), f"{folder}/a.png")
    >>> with Image.open(f"{folder}/a.png") as image:
    ...     image.size
    (64, 48)
    """
    array = source if hasattr(source, "shape") else node_of(source)
    if not hasattr(array, "shape"):
        raise CopyError(f"{array.store_path} is a group: an image is one array; name it, such as its level '0'")
    image_module = _pillow()
    pixels, mode = _pixels(array)
    dpi = array.attrs.get("dpi") if isinstance(array, Array) else None
    if dpi is not None:
        options = {"dpi": tuple(dpi), **options}
    final = Path(path)
    format = image_module.registered_extensions().get(final.suffix.lower())
    if format is None:
        raise CopyError(f"{os.fspath(path)!r}: {final.suffix!r} is no format of images; use for instance .png")
    image = image_module.fromarray(pixels) if mode == "1" else None
    if image is None:
        image = image_module.frombytes(mode, (pixels.shape[1], pixels.shape[0]), pixels.tobytes())
    with replacing(path, overwrite=overwrite) as partial:
        image.save(partial, format=format, **options)


def _pixels(array: Any) -> tuple[NDArray[Any], str]:
    """The pixels of an array as rows, with samples last, and Pillow's mode for them. Raises CopyError."""
    name = array.store_path if isinstance(array, Array) else "the array"
    names = axis_names(from_array(array)) if isinstance(array, Array) else (None,) * len(array.shape)
    wanted = [axis for axis, extent in enumerate(array.shape) if extent > 1 or names[axis] in ("y", "x")]
    while len(wanted) < 2 and len(wanted) < len(array.shape):
        wanted = sorted({*wanted, max(set(range(len(array.shape))) - set(wanted))})
    channels = [axis for axis in wanted if (names[axis] or "").lower() in ("c", "channel", "s", "band")]
    if len(wanted) == 3 and not channels:
        channels = [wanted[-1]]
    if len(wanted) - len(channels) != 2 or len(channels) > 1:
        raise CopyError(f"{name} has the shape {tuple(array.shape)}, which is no image; give one plane: array[0]")
    nsamples = array.shape[channels[0]] if channels else 0
    dtype = np.dtype(array.dtype)
    mode = _MODE_OF.get(("b" if dtype.kind == "b" else dtype.str[1:], nsamples))
    said = array.attrs.get("mode") if isinstance(array, Array) else None
    if said in _MODES and mode == "RGBA" and said == "CMYK":
        mode = said
    if mode is None:
        what = f"{nsamples or 'no'} samples of {dtype}"
        raise CopyError(f"{name} has {what}: images hold bytes, in gray also 16 bits; scale it, or use to_tiff")
    index = tuple(slice(None) if axis in wanted else 0 for axis in range(len(array.shape)))
    pixels = on_host(array[index])
    if channels:
        pixels = np.moveaxis(pixels, wanted.index(channels[0]), -1)
    return np.ascontiguousarray(pixels, dtype.newbyteorder("<")), mode
