"""Groups that hold images but are none: collections, as bioformats2raw makes them, plates, wells, labels.

Source: OME-Zarr 0.4 and 0.5, "bioformats2raw.layout" metadata and high-content screening.
"""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from gzarr.api.groups import create_group
from gzarr.errors import MetadataError, NodeNotFoundError
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.keywords import GroupKeywords
from gzarr.images.ome.documents import as_attributes, field_of, ome_of, zarr_format_of
from gzarr.images.ome.faults import Notes, Taker, raise_fatal, short
from gzarr.indexing.keys import join_path

#: Paths that a message names.
_NAMED = 8


# -- creating ----------------------------------------------------------------------------------------------------------


def create_collection(store: Any, names: Sequence[str], given: Mapping[str, Any]) -> tuple[Group, dict[str, Any]]:
    """Create a collection, as yet without its images.

    Parameters
    ----------
    store : Store, path, URL or mapping
        Where.
    names : sequence of str
        Paths of the images in it.
    given : mapping
        Keywords of `create_image`, of which this takes those that say how the store and the device are used.

    Returns
    -------
    tuple
        The group, and the keywords that are left for the images.

    Raises
    ------
    MetadataError
        If the names are none, or not different.
    ContainsArrayError, ContainsGroupError
        If something is stored there and ``overwrite`` is false.
    """
    if isinstance(names, str) or not names or len(set(names)) < len(names) or "OME" in names:
        raise MetadataError(f"positions: expected different names of images, none of them 'OME', got {names!r}")
    left = dict(given)
    reach = {name: left.pop(name) for name in (*GroupKeywords.__annotations__, "device") if name in left}
    version = left.get("version", "0.5")
    zarr_format = zarr_format_of(version)
    path, overwrite = left.pop("path", None), left.pop("overwrite", False)
    root = create_group(store, overwrite=overwrite, path=path, zarr_format=zarr_format, **reach)
    fields = collection_attributes(names, zarr_format, version)
    root.attrs.put(fields[""])
    root.create_group("OME").attrs.put(fields["OME"])
    return root, left


def collection_attributes(
    names: Sequence[str], zarr_format: int, version: str | None = None
) -> dict[str, dict[str, Any]]:
    """The attributes of a collection's groups, by path. names: paths of the images."""
    fields: dict[str, dict[str, Any]] = {"": {"bioformats2raw.layout": 3}, "OME": {"series": list(names)}}
    return {path: as_attributes(found, zarr_format, version) for path, found in fields.items()}


# -- reading -----------------------------------------------------------------------------------------------------------


def group_of_image(group: Group, series: int | str | None) -> Group:
    """The group of an image: the one given, or a member of a collection.

    Parameters
    ----------
    group : Group
        An image's group, or that of a collection.
    series : int or str, optional
        Which image of a collection: a number or a path; of a plate, the path of a field. May be left out
        if there is only one.

    Raises
    ------
    MetadataError
        If the group is no image. The message names the images in it.
    NodeNotFoundError
        If the collection has no such image.
    """
    found = ome_of(group)
    if "plate" in found and isinstance(series, str):
        return _member(group, ["row/column/field"], series)
    if "plate" in found:
        raise MetadataError(
            f"{group.store_path} is a plate, not an image: use gzarr.images.open_plate, or pass series= with the path "
            "of a field, such as 'A/1/0'"
        )
    if "well" in found:
        paths = _paths(found["well"], "images")
        raise MetadataError(
            f"{group.store_path} is a well of a plate, not an image: use gzarr.images.open_plate on the plate, or open"
            f" one of its fields: {_listed(group, paths)}"
        )
    if "multiscales" in found and series is None:
        return group
    paths = series_paths(group)
    if paths:
        return _member(group, paths, series)
    if series is not None:
        raise MetadataError(f"{group.store_path} is no collection of images: leave series={series!r} out")
    labels = found.get("labels")
    if isinstance(labels, list):
        raise MetadataError(f"{group.store_path} holds images of labels; open one of: {_listed(group, labels)}")
    return group


def series_paths(group: Group, take: Taker = raise_fatal) -> list[str]:
    """Paths of the images in a collection of bioformats2raw; empty for other groups. take: takes faults of the list."""
    if "bioformats2raw.layout" not in ome_of(group):
        return []
    node = group.get("OME")
    listed = ome_of(node).get("series") if isinstance(node, Group) else None
    if isinstance(listed, list) and all(isinstance(path, str) for path in listed):
        return list(listed)
    if listed is not None and isinstance(node, Group):
        notes = Notes(str(node.store_path), take)
        notes.error(field_of(node, "series"), f"must be a list of paths, got {short(listed)}", "list the images")
    paths: list[str] = []
    for number in count():
        if str(number) not in group:
            return paths
        paths.append(str(number))
    raise AssertionError


def _member(group: Group, paths: Sequence[str], series: int | str | None) -> Group:
    if series is None and len(paths) > 1:
        raise MetadataError(
            f"{group.store_path} is a collection of {len(paths)} images: pass series= with a number, or open one of"
            f" {_listed(group, paths)}"
        )
    path = series
    if not isinstance(series, str):
        number = series or 0
        if not -len(paths) <= number < len(paths):
            raise MetadataError(f"{group.store_path} has no series {number}: it holds {_listed(group, paths)}")
        path = paths[number]
    member = group.get(str(path))
    if not isinstance(member, Group):
        raise NodeNotFoundError(
            f"no image at {join_path(str(group.store_path), str(path))!r}: {_listed(group, paths)} exist"
        )
    return member


def _paths(value: Any, name: str) -> list[str]:
    items = value.get(name) if isinstance(value, Mapping) else None
    return [str(i.get("path")) for i in items if isinstance(i, Mapping)] if isinstance(items, list) else []


def _listed(group: Group, paths: Sequence[Any]) -> str:
    named = [repr(join_path(str(group.store_path), str(path))) for path in paths[:_NAMED]]
    return ", ".join(named) + (f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else "")
