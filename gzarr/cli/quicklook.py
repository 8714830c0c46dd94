"""The command ``gzarr quicklook``: a picture of any array."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

import gzarr
from gzarr.cli.options import NodePath, channel_names, command, misuse, no_array
from gzarr.cli.stats import Raw, Scale, with_sign
from gzarr.errors import GzarrError, MetadataError
from gzarr.errors.escaping import escaped

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Percentiles at the ends of the colour scale, where the type of the elements does not say.
_CONTRAST = (0.1, 99.9)
#: Numbers of the last axis that are taken for colours.
_COLORS = (3, 4)
#: The colour scale: viridis at equal steps (Matplotlib's, which is free of rights), and what is missing.
_VIRIDIS = "440154 482878 3e4a89 31688e 26828e 1f9e89 35b779 6ece58 b5de2b fde725"
_MISSING = (128, 128, 128)
#: Pixels of the colour bar: of its gap, and its width.
_GAP, _BAR = 8, 16
#: The least height of the bar, for its numbers.
_LEAST = 72
#: Letters of a unit that are shown.
_UNITS = 16
#: Names and units of coordinates that grow to the north.
_NORTH = {"lat", "latitude", "degrees_north", "degree_north", "degrees_n", "grid_latitude", "projection_y_coordinate"}
#: A curve's pixels along its values.
_CURVE = 128


@command("Look at data")
def quicklook(
    path: NodePath,
    out: Annotated[
        Path | None, typer.Argument(metavar="PNG", help="The file to write. By default, NAME.png of the array.")
    ] = None,
    size: Annotated[int, typer.Option(metavar="N", min=1, help="Pixels of the longer side, at least.")] = 512,
    at: Annotated[
        str | None,
        typer.Option(metavar="AXIS=N,...", help="Where axes are cut; 3.5um is a place. By default, in the middle."),
    ] = None,
    channels: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Channels of an image, by label or number. By default, all.")
    ] = None,
    raw: Raw = False,
) -> None:
    """Draw an array as PNG: the last two axes, a curve of one axis, or an OME-Zarr image in its colours.

    A bar has the colours of numbers. Missing data are grey. North is up, where coordinates say where it is.

    Examples
    --------
    $ gzarr quicklook data.zarr/temperature
    $ gzarr quicklook data.zarr/temperature map.png --at time=3,level=0
    $ gzarr quicklook slide.zarr slide.png --size 1024
    $ gzarr quicklook cells.zarr cells.png --at z=3.5um
    """
    if out is not None and out.suffix.lower() not in ("", ".png"):
        raise typer.BadParameter(f"{str(out)!r} would be a PNG file: end its name in .png", param_hint="PNG")
    import numpy as np

    from gzarr.storage.extras import require  # with NumPy, which the help does without

    image = require("PIL.Image", "cli", "gzarr quicklook")
    node = gzarr.open(path, mode="r", device="cpu")
    place = Path(f"{node.basename or Path(path.rstrip('/')).stem or 'array'}.png") if out is None else out
    if isinstance(node, gzarr.Group) or channels is not None:
        opened = _opened_image(path, node)  # of an array, such as OME-TIFF of one level, too
        if raw:
            raise misuse("an OME-Zarr image has no --raw; name one of its levels", "--raw")
        if channels is not None and "c" not in opened.axes:
            raise misuse(f"{path!r} has no axis 'c'; cut axes by --at", "--channels")
        place.write_bytes(_image(opened, size, at, channels))
    else:
        drawn = _pixels(node, path.rstrip("/").rpartition("/")[0] or ".", size, at, raw=raw)
        image.fromarray(np.ascontiguousarray(drawn)).save(place, "PNG")
    print(f"wrote {escaped(place)}")


def _opened_image(path: str, node: gzarr.Group | gzarr.Array) -> Any:
    """The image that a node is, or the pyramid of a TIFF file. Raises ArrayNotFoundError, MetadataError."""
    from gzarr.images import open_image

    try:
        return open_image(path, "r", device="cpu")
    except MetadataError as error:
        if isinstance(node, gzarr.Array) or {"ome", "multiscales"} & set(node.attrs):
            raise
        raise no_array(path, node) from error


def _image(image: Any, size: int, at: str | None, channels: str | None) -> bytes:
    """A plane of an OME-Zarr image in the colours of its channels, as PNG. Raises BadParameter."""
    import io
    import re

    from PIL import Image

    position: dict[str, float] = {}
    for part in at.split(",") if at else ():
        name, _, index = part.partition("=")
        number = re.fullmatch(r"(-?\d+(?:\.\d+)?) ?([a-zA-Zµμ]*)", index)
        if name not in image.axes or number is None or not (number[2] or index.isdecimal()):
            raise typer.BadParameter(f"{part!r} cuts no axis: there are {', '.join(image.axes)}", param_hint="--at")
        if number[2]:
            position |= image.in_own_units({name: float(number[1])}, {name: number[2]})
        else:
            position[name] = image.translation(0)[name] + image.scale(0)[name] * int(index)
    drawn = image.thumbnail(size, channel_names(channels), position=position)
    with Image.open(io.BytesIO(drawn)) as picture:
        factor = -(-size // max(picture.size))
        if factor == 1:
            return drawn
        larger = picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)
    file = io.BytesIO()
    larger.save(file, "PNG")
    return file.getvalue()


def _pixels(array: gzarr.Array, folder: str, size: int, at: str | None, *, raw: bool) -> NDArray[np.uint8]:
    """What is drawn of an array in a group: (height, width) or (height, width, colours). Raises MetadataError."""
    import numpy as np

    from gzarr.hierarchy.missing import missing_by_convention

    if array.dtype.kind not in "biufc" or not array.ndim or not array.size:
        raise MetadataError(
            f"{array.store_path}: {array.shape} elements of {array.metadata.data_type.name} make no picture"
        )
    in_color = array.dtype == "u1" and array.ndim > 2 and array.shape[-1] in _COLORS
    first = max(array.ndim - 2 - in_color, 0)
    cut = _cut(array, at, first)
    step = max(math.ceil(max(array.shape[first : first + 2]) / size), 1)
    seen = tuple(
        slice(None) if in_color and axis == array.ndim - 1 else slice(None, None, step)
        for axis in range(first, array.ndim)
    )
    array = array if raw else with_sign(array)
    values: NDArray[Any] = array[(*cut, *seen)]
    missing = None if raw or in_color else missing_by_convention(None, array)
    if missing is not None:
        values = np.where(missing.find(array.backend, values, ()), np.nan, values)
    values = abs(values) if values.dtype.kind == "c" else values
    if array.ndim == 1:
        return _curve(values, size, Scale() if raw else Scale.of(array))
    y, x = (_coordinate(array, first + axis, folder) for axis in (0, 1))
    if (y is not None and y.to_north) or _grows_north(array, folder):
        values = values[::-1]
    ratio = None if y is None or x is None or y.units != x.units or not x.extent * y.extent else y.extent / x.extent
    values = _resized(values, size, ratio)
    if in_color or values.dtype == np.uint8:
        return values
    scale = Scale() if raw else Scale.of(array)
    shares, low, high = _scaled(values)
    picture = _colors(shares)
    if np.isnan(shares).all():
        return picture
    if len(picture) < _LEAST < picture.shape[1]:
        picture = np.pad(picture, ((0, _LEAST - len(picture)), (0, 0), (0, 0)))
    return np.hstack([picture, _bar(len(picture), low, high, scale)])


class _Coordinate(NamedTuple):
    """What the coordinates along an axis say.

    Attributes
    ----------
    extent : float
        Length of the axis.
    units : str
        Their unit, degrees without a direction.
    to_north : bool
        Whether they grow to the north, so that the first row is the southernmost.
    """

    extent: float
    units: str
    to_north: bool


def _beside(folder: str, name: str | None) -> gzarr.Array | None:
    """An array in a folder; None if there is none."""
    try:
        return None if name is None else gzarr.open_array(f"{folder}/{name}", mode="r", device="cpu")
    except (GzarrError, OSError):
        return None


def _coordinate(array: gzarr.Array, axis: int, folder: str) -> _Coordinate | None:
    """What the array of coordinates beside an array says, that has the name of an axis; None if there is none."""
    found = _beside(folder, array.dimension_names[axis] if array.dimension_names else None)
    if found is None or found.shape != (array.shape[axis],) or found.dtype.kind not in "iuf" or found.size < 2:
        return None
    first, last = float(found[0]), float(found[-1])
    units = str(found.attrs.get("units", ""))
    said = {str(found.basename).lower(), units.lower(), str(found.attrs.get("standard_name", "")).lower()}
    is_degree = "degree" in units.lower()
    extent = abs(last - first) * found.size / (found.size - 1)
    return _Coordinate(extent, "degrees" if is_degree else units, last > first and bool(said & _NORTH))


def _grows_north(array: gzarr.Array, folder: str) -> bool:
    """Whether latitudes of each element, which the attribute ``coordinates`` names, are greater in later rows."""
    for name in str(array.attrs.get("coordinates", "")).split():
        found = _beside(folder, name)
        if found is None:
            continue
        said = {str(found.attrs.get(key, "")).lower() for key in ("units", "standard_name")}
        if found.shape == array.shape[-2:] and found.dtype.kind == "f" and said & _NORTH:
            middle = found[:, found.shape[1] // 2]
            middle = middle[abs(middle) <= 90]  # without missing ones
            return bool(middle.size and middle[-1] > middle[0])
    return False


def _resized(values: NDArray[Any], size: int, ratio: float | None) -> NDArray[Any]:
    """A plane whose longer side has about so many pixels, each of the nearest element.

    ratio: of its height to its width; None for square elements, which become whole numbers of pixels.
    """
    import numpy as np

    height, width = values.shape[:2]
    if ratio is None:
        factor = -(-size // max(height, width))
        lengths = height * factor, width * factor
    else:
        lengths = max(round(size * min(ratio, 1)), 1), max(round(size * min(1 / ratio, 1)), 1)
    rows, columns = (((np.arange(n) + 0.5) * m / n).astype(int) for n, m in zip(lengths, (height, width), strict=True))
    return values[rows][:, columns]


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


def _scaled(values: NDArray[Any]) -> tuple[NDArray[np.float64], float, float]:
    """Values as shares of their range, NaN where they are not finite, and the ends of the range."""
    import numpy as np

    numbers = values.astype(np.float64)
    finite = np.isfinite(numbers)
    low, high = np.percentile(numbers[finite], _CONTRAST) if finite.any() else (0.0, 1.0)
    with np.errstate(all="ignore"):
        shares = np.clip((numbers - low) / (high - low), 0, 1) if high > low else np.zeros(numbers.shape)
    return np.where(finite, shares, np.nan), float(low), float(high)


def _colors(shares: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Shares as colours of the scale."""
    import numpy as np

    scale = np.array([list(bytes.fromhex(color)) for color in _VIRIDIS.split()])
    places = np.linspace(0, 1, len(scale))
    picture = np.stack([np.interp(shares, places, scale[:, channel]) for channel in range(3)], axis=-1)
    return np.where(np.isnan(shares)[..., None], _MISSING, np.nan_to_num(picture).round()).astype(np.uint8)


def _bar(height: int, low: float, high: float, scale: Scale) -> NDArray[np.uint8]:
    """The colour scale, with the values at its ends and in its middle, and their unit, as far as there is room."""
    import numpy as np
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default_imagefont()  # of pixels that are black or white, for Latin-1
    units = scale.units[:_UNITS].encode("latin-1", "replace").decode("latin-1")
    tall = int(font.getbbox("0")[3])
    ends = {0: high, (height - tall) // 2: (low + high) / 2, height - tall: low}
    labels = {top: f"{float(scale.value(value)):.4g}" for top, value in ends.items()} | {tall + 2: units}
    bar = np.zeros((height, 3 * _GAP + _BAR + int(max(font.getbbox(text)[2] for text in labels.values())), 3), np.uint8)
    bar[:, _GAP : _GAP + _BAR] = _colors(np.linspace(1, 0, height))[:, None]
    picture = Image.fromarray(bar)
    for top, label in labels.items():
        if not top or height >= 6 * tall:
            ImageDraw.Draw(picture).text((2 * _GAP + _BAR, top), label, "white", font)
    return np.asarray(picture)


def _curve(values: NDArray[Any], size: int, scale: Scale) -> NDArray[np.uint8]:
    """A curve beside the bar of its values; what is not finite is not drawn."""
    import numpy as np

    shares, low, high = _scaled(values)
    places = np.linspace(0, len(shares) - 1, max(len(shares), size))
    shares = np.interp(places, np.arange(len(shares)), shares)
    drawn = np.nan_to_num(shares) * (_CURVE - 1)
    ends = np.stack([drawn, np.append(drawn[1:], drawn[-1:])]).astype(int)  # of the line to the next pixel
    rows = np.arange(_CURVE - 1, -1, -1)[:, None]
    line = (rows >= ends.min(0)) & (rows <= ends.max(0)) & np.isfinite(shares) & np.isfinite(np.append(shares[1:], 0))
    canvas = np.where(line[..., None], _colors(shares), 0).astype(np.uint8)
    return np.hstack([canvas, _bar(_CURVE, low, high, scale)])
