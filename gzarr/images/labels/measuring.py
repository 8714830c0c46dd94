"""Measures the objects of a large array of labels, exactly: sums of blocks are merged by label."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from gzarr.api.namespaces import array_namespace
from gzarr.backend import Array as AnyArray
from gzarr.display.progress import ProgressLike
from gzarr.hierarchy.array import Array
from gzarr.images.filters.tables import Table, groups_of, rows_of
from gzarr.images.filters.where import Where
from gzarr.images.image import Image

_SHAPE = ("area", "centroid", "bbox")
_INTENSITY = ("sum_intensity", "mean_intensity", "min_intensity", "max_intensity", "std_intensity")
#: Names that scikit-image has now.
_ALIASES = {"num_pixels": "area"} | {f"intensity_{name.removesuffix('_intensity')}": name for name in _INTENSITY[1:]}


def measure(
    labels: Array | Image,
    image: Array | Image | None = None,
    properties: Sequence[str] = ("area", "centroid", "bbox"),
    *,
    max_nbytes: int | None = None,
    progress: ProgressLike = None,
    device: str | None = None,
) -> Table:
    """Measure objects of any size, wherever they lie in blocks.

    Parameters
    ----------
    labels : Array or Image
        Integers, 0 for the background; of an image, level 0.
    image : Array or Image, optional
        Intensities, of the shape of the labels.
    properties : sequence of str
        "area" (elements), "centroid", "bbox", and of intensities "mean_intensity", "sum_intensity", "min_intensity",
        "max_intensity", "std_intensity"; of an image with voxel sizes also "volume" and "position", in its units. Names
        of scikit-image such as "num_pixels" and "intensity_mean" are welcome, too.
    max_nbytes, progress, device
        See `tabulate`.

    Returns
    -------
    Table
        A row for each label, with the names and values of `skimage.measure.regionprops_table`: "label", "area",
        "centroid-0", "bbox-0" (the first ``ndim`` are the begins, the others the ends), ...; "position-x" has the
        name of its axis.

    Raises
    ------
    ValueError
        If a property is unknown, or needs an image.

    Examples
    --------
    >>> import gzarr, gzarr.images
    >>> labels = gzarr.array([[0, 1, 1], [2, 0, 1]], chunks=(1, 2))
    >>> table = gzarr.images.measure(labels, gzarr.array([[9, 1, 2], [5, 9, 3]]), ["area", "mean_intensity", "bbox"])
    >>> table["area"].tolist(), table["mean_intensity"].tolist(), table["bbox-1"].tolist()
    ([3, 1], [2.0, 5.0], [1, 0])
    """
    placed = labels if isinstance(labels, Image) else image if isinstance(image, Image) else None
    known = dict.fromkeys(_SHAPE, "") | dict.fromkeys(_INTENSITY, "give image=" if image is None else "")
    known |= dict.fromkeys(("volume", "position"), "give an Image, which has voxel sizes" if placed is None else "")
    for name in properties:
        if remedy := known.get(_ALIASES.get(name, name), f"expected {', '.join(known)}"):
            raise ValueError(f"measure: property {name!r} is not known of what is given; {remedy}")
    source = labels.levels[0] if isinstance(labels, Image) else labels
    if source.dtype.kind not in "iu":
        raise ValueError(f"measure: {source.store_path} holds {source.dtype}; labels are integers")
    inputs = [labels] if image is None else [labels, image]
    rows = rows_of("measure", partial(_rows, ndim=source.ndim), inputs, max_nbytes, progress, device)
    return _table(rows, properties, source.ndim, placed)


def _rows(labels: AnyArray, image: AnyArray = None, *, where: Where, ndim: int) -> dict[str, AnyArray]:
    """What is measured of the objects of a block. Sums of integers are exact."""
    xp = array_namespace(labels)
    places = xp.nonzero(labels)
    found, local = xp.unique(labels[places], return_inverse=True)
    n = len(found)
    area = xp.bincount(local, minlength=n)
    made = {"label": found, "area": area}
    for axis, (at, part) in enumerate(zip(places, where.box, strict=True)):
        made[f"sum-{axis}"] = xp.bincount(local, at, n).astype(np.int64) + area * part.start
        for name, ufunc, start in (("low", xp.minimum, np.iinfo(np.int32).max), ("high", xp.maximum, -1)):
            ends = xp.full(n, start, np.int32)
            ufunc.at(ends, local, at.astype(np.int32))
            made[f"{name}-{axis}"] = ends.astype(np.int64) + part.start
    if image is not None:
        values = image[places]
        wide = values.astype({"u": np.uint64, "i": np.int64, "b": np.int64}.get(values.dtype.kind, np.float64))
        total, least, most = (xp.zeros(n, wide.dtype) for _ in range(3))
        xp.add.at(total, local, wide)
        least[local] = most[local] = wide  # any of them
        xp.minimum.at(least, local, wide)
        xp.maximum.at(most, local, wide)
        is_long = values.dtype.kind in "iu" and values.dtype.itemsize == 8  # their sums wrap, as NumPy's do
        share = xp.bincount(local, values.astype(np.float64), n) if is_long else total
        mean = share / area
        made |= {"sum": total, "share": share, "min": least.astype(values.dtype), "max": most.astype(values.dtype)}
        made["square"] = xp.bincount(local, (values - mean[local]) ** 2, n)
    return made


def _table(rows: dict[str, Any], properties: Sequence[str], ndim: int, placed: Image | None) -> Table:
    """The properties of all objects."""
    keys, grouped = groups_of(rows["label"])
    area = grouped(rows["area"], "sum")
    table, centers = Table(label=keys), [grouped(rows[f"sum-{axis}"], "sum") / area for axis in range(ndim)]
    for key in properties:
        name = _ALIASES.get(key, key)
        if name == "area":
            table[key] = area
        elif name == "centroid":
            table |= {f"centroid-{axis}": center for axis, center in enumerate(centers)}
        elif name == "bbox":
            table |= {f"bbox-{axis}": grouped(rows[f"low-{axis}"], "min") for axis in range(ndim)}
            table |= {f"bbox-{ndim + axis}": grouped(rows[f"high-{axis}"], "max") + 1 for axis in range(ndim)}
        elif name == "volume" and placed is not None:
            table[name] = area * np.prod([placed.scale()[placed.axes[axis]] for axis in placed.spatial])
        elif name == "position" and placed is not None:
            for axis, (along, scale) in enumerate(placed.scale().items()):
                table[f"position-{along}"] = centers[axis] * scale + placed.translation()[along]
        elif name in ("sum_intensity", "min_intensity", "max_intensity"):
            table[key] = grouped(rows[name[:3]], name[:3])
        else:
            table[key] = grouped(rows["share"], "sum") / area
            if name == "std_intensity":  # source: Chan, Golub and LeVeque, 1979
                apart = rows["share"] / rows["area"] - table[key][np.searchsorted(keys, rows["label"])]
                table[key] = np.sqrt(grouped(rows["square"] + rows["area"] * apart**2, "sum") / area)
    return table
