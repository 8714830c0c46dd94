"""The levels of an image as they are stored: opened together, and checked against what its metadata say.

Opening raises what keeps an image from being read; validation tells that, and what opening tolerates.
"""

from collections.abc import Sequence
from dataclasses import replace

from gzarr.errors import MetadataError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.images.new_levels import is_no_number
from gzarr.images.ome.axes import ImageAxis, names_of
from gzarr.images.ome.documents import FORMAT_OF, Dataset, Multiscale, field_of
from gzarr.images.ome.faults import Notes
from gzarr.images.ome.transformations import Numbers
from gzarr.indexing.keys import join_path, normalize_path
from gzarr.metadata.documents import found_instead, read_members
from gzarr.metadata.model import ArrayMeta, NodeMeta


def open_levels(group: Group, multiscale: Multiscale, notes: Notes) -> list[Array | None]:
    """The arrays of the levels, their metadata fetched together; None for those that are not there.

    Levels that do not fit the image are noted.
    """
    places = [place_of(multiscale, group, number) for number in range(len(multiscale.datasets))]
    paths = [
        _path_of(dataset, f"{place}.path", notes) for dataset, place in zip(multiscale.datasets, places, strict=True)
    ]
    metas = _read_metas(group, paths, notes)
    levels: list[Array | None] = []
    for number, path in enumerate(paths):
        meta, place = metas.get(path), places[number]
        where = join_path(group.path, path)
        if isinstance(meta, ArrayMeta):
            levels.append(Array(group.store, where, meta, group.opened_with, read_only=group.read_only))
            _check_fit(levels, multiscale, notes, place)
            continue
        levels.append(None)
        if path and path not in metas:
            what = f"level {number}, the array {path!r}, is missing: {found_instead(group.store, where, None)}"
            notes.fatal(f"{place}.path", what, "restore the array, or take it off the list")
        elif meta is not None:
            what = f"level {number}, {path!r}, is a group"
            notes.fatal(f"{place}.path", what, "give the path of an array")
    return levels


def _path_of(dataset: Dataset, field: str, notes: Notes) -> str:
    """The path of a level, or "" if it is none."""
    try:
        path = normalize_path(dataset.path)
    except MetadataError as error:
        notes.fatal(field, str(error), "put levels below the group of the image")
        return ""
    if not path:
        notes.fatal(field, f"{dataset.path!r} is no path of an array", "put levels below the group of the image")
    return path


def _read_metas(group: Group, paths: list[str], notes: Notes) -> dict[str, NodeMeta | None]:
    """The metadata of what is at some paths below a group; None for what is malformed, which is noted."""
    store, zarr_format = group.store, group.metadata.zarr_format
    wanted = list(dict.fromkeys(path for path in paths if path))
    try:
        return dict(read_members(store, group.path, wanted, zarr_format))
    except MetadataError:  # of one of them
        found: dict[str, NodeMeta | None] = {}
        for path in wanted:
            try:
                found.update(read_members(store, group.path, [path], zarr_format))
            except MetadataError as error:
                Notes(join_path(notes.path, path), notes.take).fatal("", str(error), "restore the document")
                found[path] = None
        return found


def place_of(multiscale: Multiscale, group: Group, level: int | None = None) -> str:
    """The field of a group's attributes that holds the metadata of an image, or those of a level."""
    place = f"{field_of(group, 'multiscales')}[{multiscale.index}]"
    return place if level is None else f"{place}.datasets[{level}]"


def scaled_by_shape(datasets: tuple[Dataset, ...], levels: tuple[Array, ...]) -> tuple[Dataset, ...]:
    """Levels with the scales that their shapes tell, as documents before 0.4 have none."""
    first = levels[0].shape
    scales: list[Numbers] = [
        tuple(float(max(round(whole / max(n, 1)), 1)) for whole, n in zip(first, level.shape, strict=True))
        for level in levels
    ]
    return tuple(replace(dataset, scale=scale) for dataset, scale in zip(datasets, scales, strict=True))


# -- checks ------------------------------------------------------------------------------------------------------------


def _check_fit(levels: Sequence[Array | None], multiscale: Multiscale, notes: Notes, place: str) -> None:
    """Note how the last level does not fit the image's axes or level 0, which keeps it from being opened."""
    number, axes = len(levels) - 1, names_of(multiscale.axes)
    level, first = levels[number], levels[0]
    if level is None:
        return
    what = f"level {number}, {multiscale.datasets[number].path!r}, has"
    if level.ndim != len(axes):
        notes.fatal(
            place, f"{what} the shape {level.shape}, of {level.ndim} axes, instead of {axes}", "correct the axes"
        )
        return
    if multiscale.image_label is not None and level.dtype.kind not in "iu":
        notes.fatal(place, f"{what} labels of type {level.dtype}", "store labels as integers")
    if not number or first is None or first.ndim != level.ndim:
        return
    if level.dtype != first.dtype:
        notes.fatal(place, f"{what} the data type {level.dtype}, level 0 has {first.dtype}", "write the level anew")
    if any(extent > whole for extent, whole in zip(level.shape, first.shape, strict=True)):
        more = f"{what} the shape {level.shape}, which is larger than {first.shape} of level 0"
        notes.fatal(place, more, "list the largest level first")


def check_levels(levels: Sequence[Array | None], multiscale: Multiscale, group: Group, notes: Notes) -> None:
    """Note what opening tolerates: levels that are not as the specification wants them, or contradict each other."""
    known = [(n, one) for n, one in enumerate(levels) if one is not None and one.ndim == len(multiscale.axes)]
    fitting = dict(known)
    for number, level in known:
        place = place_of(multiscale, group, number)
        _check_array(level, multiscale, Notes(join_path(notes.path, multiscale.datasets[number].path), notes.take))
        if number - 1 in fitting:
            _check_order(fitting[number - 1], level, number, notes, place)
        if number and 0 in fitting and multiscale.version in FORMAT_OF:
            _check_scale(multiscale, fitting[0], level, number, notes, f"{place}.coordinateTransformations")


def _check_array(level: Array, multiscale: Multiscale, notes: Notes) -> None:
    """Note how an array is not as the specification wants it."""
    names, meta = names_of(multiscale.axes), level.metadata
    if FORMAT_OF.get(multiscale.version) == 3 and meta.dimension_names != names:
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
