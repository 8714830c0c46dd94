"""Draws images as PNG: a plane, or three planes through a point.

The coarsest level that has enough voxels is read, one plane of one channel at a time, so that a picture of a large
image takes little memory. Channels are blended in their colours, labels have one colour each.
"""

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.errors import MetadataError, SelectionError
from gzarr.hierarchy.missing import Missing, missing_by_convention
from gzarr.images.image_data import ImageData
from gzarr.images.ome.axes import by_axis, with_lengths
from gzarr.images.ome.channels import Channel, new_channels
from gzarr.images.ome.image_label import color_of
from gzarr.storage.extras import require
from gzarr.tensors import to_host

#: Channels by number or label.
Channels: TypeAlias = int | str | Sequence[int | str] | None
#: (black, full colour) of all channels, or one such pair for each that is shown.
Contrast: TypeAlias = Sequence[float] | Sequence[Sequence[float]] | None

#: Shares of the voxels below and above what is shown, where nothing says what to show.
_PERCENTILES = (0.1, 99.8)
#: Voxels read for each pixel along an axis: more would look the same.
_VOXELS_A_PIXEL = 2
#: Pixels between the planes of an `ortho`.
_GAP = 2
#: Of pixels whose voxels are missing in all channels that are shown: grey.
_MISSING = 128


def thumbnail(
    image: ImageData, size: int, channels: Channels, contrast: Contrast, position: Mapping[str, float], skip: Any
) -> bytes:
    """Draw a plane of an image: see `gzarr.images.Image.thumbnail`. position: in the image's units."""
    rows, columns = image.spatial[-2:]
    extents = _extents(image)
    scene = _scene(image, channels, position, skip)
    pixels = _pixels(image, size, max(extents[rows], extents[columns]))
    planes = [_read(scene, rows, columns, pixels)]
    return _png(_colored(scene, planes, contrast)[0])


def ortho(
    image: ImageData, size: int, channels: Channels, contrast: Contrast, point: Mapping[str, float], skip: Any
) -> bytes:
    """Draw three planes of a volume: see `gzarr.images.Image.ortho`. point: in the image's units."""
    if len(image.spatial) < 3:
        raise MetadataError(f"{image.group.store_path} has no third axis of space: use thumbnail")
    z, y, x = image.spatial[-3:]
    extents = _extents(image)
    scene = _scene(image, channels, point, skip)
    pixels = _pixels(image, max(size - _GAP, 1), extents[z] + max(extents[y], extents[x]))
    front, side, below = _colored(scene, [_read(scene, *pair, pixels) for pair in ((y, x), (y, z), (z, x))], contrast)
    (height, width), (depth, _) = front.shape[:2], below.shape[:2]
    canvas = np.zeros((height + _GAP + depth, width + _GAP + side.shape[1], 3), np.uint8)
    canvas[:height, :width] = front
    canvas[:height, width + _GAP :] = side
    canvas[height + _GAP :, :width] = below
    return _png(canvas)


class _DrawnPlanes(NamedTuple):
    """What is drawn.

    Attributes
    ----------
    image : ImageData
        The image.
    at : dict
        Coordinates by number of the axis, but for channels.
    axis : int or None
        The axis of channels.
    shown : list of (int, Channel)
        The channels, by number.
    missing : Missing or None
        The voxels that are missing.
    """

    image: ImageData
    at: dict[int, float]
    axis: int | None
    shown: list[tuple[int, Channel]]
    missing: Missing | None


def _scene(image: ImageData, channels: Channels, position: Mapping[str, float], skip: Any = None) -> _DrawnPlanes:
    axes, shape = image.metadata.axes, image.shape
    where = str(image.group.store_path)
    if not all(shape):
        raise MetadataError(f"{where} has no voxels: its shape is {shape}")
    axis = next((number for number, axis in enumerate(axes) if axis.type == "channel"), None)
    given = by_axis(axes, position, "position")
    at = {}
    for number, (name, extent) in enumerate(zip(image.axes, shape, strict=True)):
        if number == axis:
            continue
        first, step = image.translation(0)[name], image.scale(0)[name]
        middle = (extent - 1) // 2 if number in image.spatial else 0
        at[number] = float(given.get(name, first + step * middle))
        if not -0.5 <= (at[number] - first) / step <= extent - 0.5:
            last = first + step * (extent - 1)
            raise SelectionError(f"{where}: {name}={at[number]} is outside the image, from {first} to {last}")
    n = 1 if axis is None else shape[axis]
    known = image.channels if len(image.channels) == n else new_channels([Channel()] * n, n, image.dtype)
    if not image.channels and n == 3 and image.dtype == np.uint8:
        known = tuple(Channel(color=color) for color in ("FF0000", "00FF00", "0000FF"))
    return _DrawnPlanes(image, at, axis, _chosen(known, channels, where), missing_by_convention(skip, image.levels[0]))


def _chosen(known: Sequence[Channel], wanted: Channels, where: str) -> list[tuple[int, Channel]]:
    """Return the channels to show, by number. Raises: SelectionError."""
    if wanted is None:
        active = [(number, channel) for number, channel in enumerate(known) if channel.active is not False]
        return active or list(enumerate(known))
    labels = [channel.label for channel in known]
    chosen = []
    for item in [wanted] if isinstance(wanted, (int, str)) else wanted:
        number = labels.index(item) if item in labels else item
        if isinstance(number, str) or not 0 <= number < len(known):
            names = labels if any(labels) else f"without names, 0 to {len(known) - 1}"
            raise SelectionError(f"{where} has no channel {item!r}; it has {len(known)}: {names}")
        chosen.append((int(number), known[int(number)]))
    return chosen


def _voxel(image: ImageData) -> list[float]:
    """Length of a voxel along each axis, in one unit."""
    lengths = [length for _, length in with_lengths(image.metadata.axes)]
    return [image.scale(0)[name] * length for name, length in zip(image.axes, lengths, strict=True)]


def _extents(image: ImageData) -> list[float]:
    """Length of each axis, in one unit."""
    return [extent * length for extent, length in zip(image.shape, _voxel(image), strict=True)]


def _pixels(image: ImageData, size: int, extent: float) -> float:
    """Return the pixels for a unit of length, such that ``extent`` has ``size`` of them and no voxel more than one."""
    if not isinstance(size, int) or size < 1:
        raise MetadataError(f"size={size!r}: a picture has a positive number of pixels")
    voxel = _voxel(image)
    return min(size / extent, 1 / min(voxel[number] for number in image.spatial))


def _sides(image: ImageData, rows: int, columns: int, pixels: float) -> list[int]:
    """Return the height and width of a plane in pixels."""
    extents = _extents(image)
    return [max(round(extents[axis] * pixels), 1) for axis in (rows, columns)]


def _level(image: ImageData, rows: int, columns: int, size: Sequence[int]) -> int:
    """Return the coarsest level that has a voxel for every pixel."""
    enough = [level.shape[rows] >= size[0] and level.shape[columns] >= size[1] for level in image.levels]
    return max((number for number, found in enumerate(enough) if found), default=0)


def thumbnail_nbytes(image: ImageData, size: int = 256) -> int:
    """How many decoded bytes `thumbnail` reads: those of the chunks that the plane lies in."""
    rows, columns = image.spatial[-2:]
    extents = _extents(image)
    sides = _sides(image, rows, columns, _pixels(image, size, max(extents[rows], extents[columns])))
    array = image.levels[_level(image, rows, columns, sides)]
    counts = [
        -(-n // c) if axis in (rows, columns) else 1
        for axis, (n, c) in enumerate(zip(array.shape, array.chunks, strict=True))
    ]
    return math.prod(counts) * math.prod(array.chunks) * array.itemsize * len(_scene(image, None, {}).shown)


def _read(scene: _DrawnPlanes, rows: int, columns: int, pixels: float) -> NDArray[Any]:
    """Read a plane of each channel that is shown, on the host, and bring it to its size in pixels.

    Returns: (channels, height, width), of floats; or labels as they are.
    """
    image = scene.image
    size = _sides(image, rows, columns, pixels)
    level = _level(image, rows, columns, size)
    array, scale, first = image.levels[level], image.scale(level), image.translation(level)
    selection: list[int | slice] = []
    for axis, (name, extent) in enumerate(zip(image.axes, array.shape, strict=True)):
        if axis in (rows, columns):
            wanted = size[axis == columns] * _VOXELS_A_PIXEL
            selection.append(slice(None, None, max(extent // wanted, 1)))
        else:
            index = round((scene.at.get(axis, 0.0) - first[name]) / scale[name])
            selection.append(min(max(index, 0), extent - 1))
    planes = []
    for number, _ in scene.shown:
        if scene.axis is not None:
            selection[scene.axis] = number
        plane = array[tuple(selection)]
        gaps = None if scene.missing is None else to_host(_gaps(scene, scene.missing, level, selection, plane))
        drawn = _resized(to_host(plane), gaps, size if rows < columns else size[::-1], labels=image.is_labels)
        planes.append(drawn if rows < columns else drawn.T)
    return np.stack(planes)


def _gaps(scene: _DrawnPlanes, missing: Missing, level: int, selection: Sequence[int | slice], plane: Any) -> Any:
    """Which voxels of a plane of a level are missing."""
    array = scene.image.levels[level]
    if missing.mask is None:
        return missing.find(array.backend, plane, ())
    here = [(0, n) if isinstance(at, slice) else (at, 1) for at, n in zip(selection, array.shape, strict=True)]
    window = tuple(map(_window, scene.image.shape, array.shape, _steps(scene.image, level)))
    block = missing.above(window).read(array.backend, *(tuple(some) for some in zip(*here, strict=True)))
    return block[tuple(at if isinstance(at, slice) else 0 for at in selection)]


def _steps(image: ImageData, level: int) -> list[float]:
    return [size / whole for size, whole in zip(image.scale(level).values(), image.scale(0).values(), strict=True)]


def _window(whole: int, n: int, step: float) -> int:
    """How many voxels of level 0 make one of n: what their sizes say, if it agrees with the extents."""
    said = max(round(step), 1)
    return said if -(-whole // said) == n else -(-whole // n)


def _resized(plane: NDArray[Any], gaps: NDArray[Any] | None, size: Sequence[int], *, labels: bool) -> NDArray[Any]:
    """Bring a plane to its size: means of the voxels that are there, NaN where none is; or labels as they are."""
    height, width = size
    if labels:
        at = [np.arange(n) * extent // n for n, extent in zip(size, plane.shape, strict=True)]
        return plane[np.ix_(*at)]
    with np.errstate(over="ignore"):  # what does not fit counts as infinite
        values = (np.abs(plane) if plane.dtype.kind == "c" else plane).astype(np.float32)
    there = np.isfinite(values) if gaps is None else np.isfinite(values) & ~gaps
    drawn = _boxes(np.where(there, values, 0), width, height)
    if there.all():
        return drawn
    with np.errstate(invalid="ignore"):  # 0 / 0
        means: NDArray[Any] = drawn / _boxes(there.astype(np.float32), width, height)
    return means


def _boxes(values: NDArray[Any], width: int, height: int) -> NDArray[Any]:
    pillow = _pillow()
    return np.asarray(pillow.fromarray(values).resize((width, height), pillow.Resampling.BOX))


def _colored(scene: _DrawnPlanes, planes: Sequence[NDArray[Any]], contrast: Contrast) -> list[NDArray[np.uint8]]:
    """Return the planes in colours: (height, width, 3)."""
    if scene.image.is_labels:
        return [_label_colors(scene.image, plane[0]) for plane in planes]
    drawn = [np.zeros((*plane.shape[1:], 3), np.float32) for plane in planes]
    ranges = _given(contrast, len(scene.shown))
    for number, (_, channel) in enumerate(scene.shown):
        values = [plane[number] for plane in planes]
        low, high = ranges[number] or _range(channel, scene.image.dtype, values)
        color = np.array([int((channel.color or "FFFFFF")[i : i + 2], 16) for i in (0, 2, 4)], np.float32)
        for canvas, plane in zip(drawn, values, strict=True):
            share = np.clip((plane - low) / (high - low), 0, 1) if high > low else (plane > low).astype(np.float32)
            np.add(canvas, np.nan_to_num(share)[..., None] * color, out=canvas)
    for canvas, plane in zip(drawn, planes, strict=True):
        canvas[np.isnan(plane).all(0)] = _MISSING
    return [np.clip(canvas + 0.5, 0, 255).astype(np.uint8) for canvas in drawn]


def _given(contrast: Contrast, n: int) -> list[tuple[float, float] | None]:
    """Return the ranges that the caller gave, by channel. Raises: ValueError."""
    if contrast is None:
        return [None] * n
    pairs = np.asarray(contrast, float)
    if pairs.shape not in ((2,), (n, 2)) or np.isnan(pairs).any() or (pairs[..., 0] > pairs[..., 1]).any():
        raise ValueError(f"contrast must be (low, high), or {n} of such pairs, one for each channel; got {contrast!r}")
    return [(float(low), float(high)) for low, high in np.broadcast_to(pairs, (n, 2))]


def _range(channel: Channel, dtype: np.dtype[Any], planes: Sequence[NDArray[Any]]) -> tuple[float, float]:
    """Return which values of a channel are black and in full colour."""
    full = (0.0, 1.0)
    if dtype.kind in "ui":
        full = (float(np.iinfo(dtype).min), float(np.iinfo(dtype).max))
    window = channel.window
    if window is not None and window.start < window.end and (window.start, window.end) != full:
        return float(window.start), float(window.end)
    if dtype == np.uint8 or dtype.kind == "b":
        return full
    values = np.concatenate([plane[~np.isnan(plane)] for plane in planes])
    low, high = np.percentile(values, _PERCENTILES) if values.size else full
    return float(low), float(high)


def _label_colors(image: ImageData, plane: NDArray[Any]) -> NDArray[np.uint8]:
    known = image.metadata.image_label.colors if image.metadata.image_label is not None else {}
    found, where = np.unique(plane, return_inverse=True)
    colors = [known.get(int(label)) or color_of(int(label)) for label in found]
    table = np.array([[part * rgba[3] // 255 for part in rgba[:3]] for rgba in colors], np.uint8)
    return table[where.reshape(plane.shape)]


def _png(pixels: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    _pillow().fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def _pillow() -> Any:
    return require("PIL.Image", "ome", "drawing an image")
