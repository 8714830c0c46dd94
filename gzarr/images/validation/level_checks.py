"""How the metadata of an image fit its arrays: what opening tolerates, and validation tells."""

from __future__ import annotations

from collections.abc import Sequence

from gzarr.hierarchy.array import Array
from gzarr.images.new_levels import is_no_number
from gzarr.images.ome.axes import ImageAxis, names_of
from gzarr.images.ome.documents import Multiscale
from gzarr.images.ome.faults import Notes
from gzarr.indexing.keys import join_path


def check_levels(multiscale: Multiscale, levels: Sequence[Array | None], notes: Notes, place: str) -> None:
    """Note what is wrong with levels that could be opened.

    Parameters
    ----------
    multiscale, levels
        The image's metadata, and its arrays; None for those that cannot be opened.
    notes, place
        Where faults go, and the field that the metadata are in.
    """
    first = levels[0]
    for number, level in enumerate(levels):
        if level is None or level.ndim != len(multiscale.axes):
            continue
        _check_array(level, multiscale, Notes(join_path(notes.path, multiscale.datasets[number].path), notes.take))
        before = levels[number - 1] if number else None
        if before is not None and before.ndim == level.ndim:
            _check_order(before, level, number, notes, f"{place}.datasets[{number}]")
        if number and first is not None and first.ndim == level.ndim and multiscale.version in ("0.4", "0.5"):
            _check_scale(
                multiscale, first, level, number, notes, f"{place}.datasets[{number}].coordinateTransformations"
            )


def _check_array(level: Array, multiscale: Multiscale, notes: Notes) -> None:
    """Note how an array is not as the specification wants it."""
    names, meta = names_of(multiscale.axes), level.metadata
    if multiscale.version == "0.5" and meta.dimension_names != names:
        notes.error(
            "dimension_names", f"must be the names of the axes, {list(names)}, got {meta.dimension_names}", "write them"
        )
    if multiscale.version in ("0.2", "0.3", "0.4") and meta.keys.separator != "/" and level.ndim > 1:
        notes.error(
            "dimension_separator", "chunks must be nested, with '/' in their keys", "copy the array with gzarr.transfer"
        )
    if is_no_number(level.dtype):
        notes.error("data_type", f"images hold numbers, got {level.dtype}", "store the data as numbers")
    if 0 in level.shape:
        notes.warning("shape", f"{level.shape} has no elements", "")


def _check_order(before: Array, level: Array, number: int, notes: Notes, place: str) -> None:
    """Note a level that is not smaller than the one before. One larger than level 0 is noted where it is opened."""
    if any(n > m for n, m in zip(level.shape, before.shape, strict=True)):
        what = f"level {number} has the shape {level.shape}, which is larger than {before.shape} of the level before"
        notes.error(place, what, "list the levels from the largest to the smallest")
    elif level.shape == before.shape:
        notes.warning(
            place, f"level {number} has the shape of the level before, {level.shape}", "leave one of them out"
        )


def _check_scale(multiscale: Multiscale, first: Array, level: Array, number: int, notes: Notes, place: str) -> None:
    """Note a scale or translation that contradicts the shapes."""
    own, base = multiscale.datasets[number], multiscale.datasets[0]
    for axis, (whole, n) in enumerate(zip(first.shape, level.shape, strict=True)):
        name = multiscale.axes[axis].name
        factor = own.scale[axis] / base.scale[axis]
        if factor == 1 and n < whole and multiscale.axes[axis].type != "space":
            what = f"has {n} of the {whole} elements of axis {name!r}: frames are being written, or a writer was killed"
            notes.warning(place, what, "build the levels anew with gzarr.images.build_pyramid")
        elif whole and abs(whole / factor - n) > 1 + 1e-6:  # rounding up or down, level after level, stays below 1
            what = (
                f"scale {own.scale[axis]:g} of axis {name!r} is {factor:.4g} times that of level 0, but the extent goes"
                f" from {whole} to {n}, as for {whole / max(n, 1):.4g}"
            )
            notes.error(
                place, what, f"write the scale {base.scale[axis] * whole / max(n, 1):.6g}, or build the level anew"
            )
        moved = own.translation[axis] - base.translation[axis]
        if abs(moved) > max(own.scale[axis], base.scale[axis]) * (1 + 1e-6):
            what = f"translation of axis {name!r} moves the level by {moved:g}, more than one of its voxels"
            notes.warning(place, what, "downsampling moves it by less than half a voxel")


def check_channels(multiscale: Multiscale, first: Array | None, notes: Notes, place: str) -> None:
    """Note channels that the image does not have, or lacks."""
    if first is None or first.ndim != len(multiscale.axes) or not multiscale.channels:
        return
    count = count_channels(multiscale.axes, first.shape)
    if len(multiscale.channels) != count:
        what = f"lists {len(multiscale.channels)} channels, the image has {count}"
        notes.error(f"{place}.channels", what, "list every channel once")
    for number, channel in enumerate(multiscale.channels):
        for field, value in (("color", channel.color), ("window", channel.window)):
            if value is None and field not in channel.extra:
                notes.warning(f"{place}.channels[{number}].{field}", "is missing", "viewers choose their own")


def count_channels(axes: Sequence[ImageAxis], shape: Sequence[int]) -> int:
    """How many channels an image has: one, if it has no axis for them."""
    return next((n for axis, n in zip(axes, shape, strict=True) if axis.type == "channel"), 1)


def check_label_shape(
    labels: Array, label_axes: Sequence[ImageAxis], image: Array, axes: Sequence[ImageAxis], notes: Notes
) -> None:
    """Note an image of labels that does not lie over its image."""
    extents = dict(zip(names_of(axes), image.shape, strict=True))
    for axis, n in zip(label_axes, labels.shape, strict=True):
        whole = extents.get(axis.name)
        if whole is None:
            notes.warning(
                "", f"has an axis {axis.name!r}, which its image lacks", "write the labels on the axes of the image"
            )
        elif n not in (1, whole):
            what = f"axis {axis.name!r} has {n} elements, that of the image has {whole}"
            notes.warning("", what, "labels have the extent of the image, or 1")
