"""Ways between the coordinate systems of images and scenes, whose transformations may be stored in arrays."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gzarr.errors import MetadataError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.images.image_data import ImageData
from gzarr.images.ome.coordinate_systems import parse_systems, parse_transformations_between, plain, reference
from gzarr.images.ome.documents import Multiscale, field_of, ome_of, read_multiscale
from gzarr.images.ome.faults import Notes, short
from gzarr.images.ome.point_transformations import Document, Edge, StoredValues, SystemKey, VectorField, way


def reader_of(group: Group) -> StoredValues:
    """Reads the matrices and fields that the transformations of a group keep in arrays."""

    def matrix(path: str) -> NDArray[Any]:
        node = group[path]
        if not isinstance(node, Array):
            raise MetadataError(f"{node.store_path} is no array, and so no matrix of a transformation")
        return np.asarray(node.to("cpu")[...])

    def field(path: str) -> VectorField:
        node = group[path]
        attributes = node.attrs.asdict()
        found = attributes.get("ome", attributes)
        if isinstance(node, Group):
            found = found["multiscales"][0]["datasets"][0]
            node = node[found["path"]]
        if not isinstance(node, Array):
            raise MetadataError(f"{node.store_path} is no array, and so no field of a transformation")
        scale, translation = np.ones(node.ndim), np.zeros(node.ndim)
        for step in (plain(one) for one in found.get("coordinateTransformations", ())):
            for one in step or ():
                factor = np.asarray(one.get("scale", 1.0))
                scale, translation = scale * factor, translation * factor + np.asarray(one.get("translation", 0.0))
        return VectorField(node.to("cpu"), tuple(scale[:-1]), tuple(translation[:-1]))

    return StoredValues(matrix, field)


def way_in(image: ImageData, target: str, source: str | None) -> tuple[list[Edge], int]:
    """The transformations between two coordinate systems of an image, and the number of axes of the first."""
    found = image.metadata.placed
    if found is None:
        raise MetadataError(
            f"{image.group.store_path} is OME-Zarr {image.version}, which has no coordinate systems: copy it as 0.6"
        )
    keys = {("", str(system.get("name"))): len(system["axes"]) for system in found.systems}
    start = ("", found.intrinsic if source is None else source)
    return way(found.edges("", reader_of(image.group)), start, ("", target), keys), keys[start]


# -- scenes ------------------------------------------------------------------------------------------------------------


def paths_of(transformations: Sequence[Document]) -> list[str]:
    """Paths of the images that the transformations of a scene name, in their order."""
    ends = (reference(one.get(side)) for one in transformations for side in ("input", "output"))
    return list(dict.fromkeys(path for path, _ in ends if path))


def known(systems: Sequence[Document], images: Mapping[str, Multiscale]) -> dict[SystemKey, int]:
    """The number of axes of each system of a scene and of its images, which are given by path."""
    found = {("", str(system.get("name"))): len(system.get("axes", ())) for system in systems}
    for path, image in images.items():
        placed = image.placed
        found |= {(path, str(one.get("name"))): len(one["axes"]) for one in placed.systems} if placed else {}
    return found


def parse_scene(group: Group, notes: Notes) -> tuple[tuple[Document, ...], tuple[Document, ...]]:
    """The coordinate systems and the transformations of a scene. What is wrong is noted."""
    found, place = ome_of(group).get("scene"), field_of(group, "scene")
    if not isinstance(found, Mapping):
        what = "is missing" if found is None else f"must be an object, got {short(found)}"
        notes.fatal(place, what, "open a group with the metadata of a scene")
        return (), ()
    listed = found.get("coordinateTransformations")
    systems, ndims = parse_systems(found.get("coordinateSystems"), notes, f"{place}.coordinateSystems", needed=False)
    documents = [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []
    images = {path: image for path in paths_of(documents) if (image := _image_at(group, path, notes, place))}
    keys = {("", name): ndim for name, ndim in ndims.items()} | known((), images)
    where = f"{place}.coordinateTransformations"
    if not listed:
        notes.error(where, "is missing", "list the transformations between the images")
    return systems, parse_transformations_between(listed, keys, notes, where)


def _image_at(group: Group, path: str, notes: Notes, place: str) -> Multiscale | None:
    try:
        member = group.get(path)
        if isinstance(member, Group):
            return read_multiscale(member)
        error: object = "nothing is there" if member is None else "an array is there"
    except MetadataError as caught:
        error = caught
    notes.error(place, f"no image can be opened at {path!r}: {error}", "restore it, or take it off the scene")
    return None
