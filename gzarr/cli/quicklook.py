"""The command ``gzarr quicklook``: a picture of any array, without a library for pictures."""

from __future__ import annotations

import math
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import gzarr
from gzarr.cli.commands import command
from gzarr.cli.options import NodePath, no_array
from gzarr.errors import MetadataError
from gzarr.errors.escaping import escaped

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Percentiles that are black and white, where the type of the elements does not say.
_CONTRAST = (0.1, 99.9)
#: Numbers of the last axis that are taken for colours.
_COLORS = (3, 4)


@command("Look at data")
def quicklook(
    path: NodePath,
    out: Annotated[Path, typer.Argument(metavar="PNG", help="The file to write.")],
    size: Annotated[int, typer.Option(metavar="N", min=1, help="Pixels of the longer side, at most.")] = 512,
    at: Annotated[
        str | None,
        typer.Option(metavar="AXIS=N,...", help="Where axes are cut, by name or number. By default, in the middle."),
    ] = None,
) -> None:
    """Draw an array as PNG: the last two axes, a curve of one axis, or an OME-Zarr image in its colours.

    Examples
    --------
    $ gzarr quicklook data.zarr/temperature map.png
    $ gzarr quicklook data.zarr/temperature map.png --at time=3,level=0
    $ gzarr quicklook slide.zarr slide.png --size 1024
    """
    if out.suffix.lower() not in ("", ".png"):
        raise typer.BadParameter(f"{str(out)!r} would be a PNG file: end its name in .png", param_hint="PNG")
    node = gzarr.open(path, mode="r", device="cpu")
    if isinstance(node, gzarr.Group):
        if not {"ome", "multiscales"} & set(node.attrs):
            raise no_array(path, node)
        from gzarr.images import open_image

        out.write_bytes(open_image(path, "r", device="cpu").thumbnail(size))
    else:
        out.write_bytes(_png(_pixels(node, size, at)))
    print(f"wrote {escaped(out)}")


def _pixels(array: gzarr.Array, size: int, at: str | None) -> NDArray[np.uint8]:
    """What is drawn of an array: (height, width) or (height, width, colours). Raises MetadataError."""
    import numpy as np

    from gzarr.hierarchy.missing import missing_by_convention

    if array.dtype.kind not in "biufc" or not array.ndim or not array.size:
        raise MetadataError(f"{array.store_path}: {array.shape} elements of {array.dtype} make no picture")
    in_color = array.dtype == "u1" and array.ndim > 2 and array.shape[-1] in _COLORS
    first = max(array.ndim - 2 - in_color, 0)
    cut = _cut(array, at, first)
    step = max(math.ceil(max(array.shape[first : first + 2]) / size), 1)
    seen = tuple(
        slice(None) if in_color and axis == array.ndim - 1 else slice(None, None, step)
        for axis in range(first, array.ndim)
    )
    values: NDArray[Any] = array[(*cut, *seen)]
    missing = missing_by_convention(None, array)
    if missing is not None and not in_color:
        values = np.where(missing.find(array.backend, values, ()), np.nan, values)
    if in_color:
        return values
    shades = _shades(abs(values) if values.dtype.kind == "c" else values)
    return _curve(shades) if array.ndim == 1 else shades


def _cut(array: gzarr.Array, at: str | None, count: int) -> tuple[int, ...]:
    """Where the first axes are cut. Raises BadParameter."""
    where = [extent // 2 for extent in array.shape[:count]]
    names = [str(name) for name in (array.dimension_names or range(array.ndim))]
    for part in at.split(",") if at else ():
        name, _, index = part.partition("=")
        axis = names.index(name) if name in names else int(name) if name.isdecimal() else count
        if axis >= count or not index.isdecimal() or int(index) >= array.shape[axis]:
            cuttable = ", ".join(f"{n} (0 to {e - 1})" for n, e in zip(names, array.shape[:count], strict=False))
            can = f"the axes that can be cut are {cuttable}" if cuttable else "all axes are drawn"
            raise typer.BadParameter(f"{part!r} cuts no axis: {can}", param_hint="--at")
        where[axis] = int(index)
    return tuple(where)


def _shades(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Values as greys, from 0 to 255; what is not finite is black."""
    import numpy as np

    if values.dtype == np.uint8:
        return values
    numbers = values.astype(np.float64)
    finite = np.isfinite(numbers)
    low, high = np.percentile(numbers[finite], _CONTRAST) if finite.any() else (0.0, 1.0)
    shares = np.clip((numbers - low) / (high - low), 0, 1) if high > low else np.zeros(numbers.shape)
    return np.where(finite, np.nan_to_num(shares) * 255, 0).round().astype(np.uint8)


def _curve(heights: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A curve in white on black, from shades as heights."""
    import numpy as np

    canvas = np.zeros((128, len(heights)), np.uint8)
    canvas[127 - heights // 2, np.arange(len(heights))] = 255
    return canvas


def _png(pixels: NDArray[np.uint8]) -> bytes:
    """Pixels as PNG. Source: PNG specification (ISO/IEC 15948), sections 5 and 11.2."""
    import numpy as np

    kind = {2: 0, 3: 2, 4: 6}[pixels.ndim if pixels.ndim == 2 else pixels.shape[2]]
    height, width = pixels.shape[:2]
    rows = np.ascontiguousarray(pixels).reshape(height, -1)
    lines = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1).tobytes()  # a line begins with its filter

    def part(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", zlib.compress(lines)) + part(b"IEND", b"")
