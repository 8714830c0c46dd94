"""Scenes of OME-Zarr 0.6: images that lie in common coordinate systems, such as the tiles of a mosaic.

A scene is a group whose metadata say by which transformations the coordinate systems of images below it become others.
Those of the images themselves join them, so that there is a way from each image to each system.

Source: https://ngff.openmicroscopy.org/0.6/, "scene" metadata.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, Unpack

import numpy as np
from numpy.typing import NDArray

from gzarr.api.groups import open_group
from gzarr.errors import MetadataError
from gzarr.errors.escaping import escaped
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.keywords import GroupKeywords
from gzarr.images.image import Image, open_image
from gzarr.images.ome.axes import new_axes
from gzarr.images.ome.coordinate_systems import CoordinateSystems, names_of, parse_transformations_between, reference
from gzarr.images.ome.documents import change_ome, write_multiscale
from gzarr.images.ome.faults import Notes, raise_any
from gzarr.images.ome.point_transformations import Document, Edge, SystemKey, along, matrix_along, way
from gzarr.images.ways import known, parse_scene, paths_of, reader_of

#: A coordinate system: its name in the scene, the path of an image for the one of its levels, or a path and a name.
SystemLike: TypeAlias = str | tuple[str, str]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Scene(Mapping[str, Image]):
    """Images in common coordinate systems: a mapping from paths to images.

    Attributes
    ----------
    group : Group
        The group.
    systems, transformations : tuple of mapping
        The coordinate systems of the scene itself, and the transformations between them and those of images, as the
        metadata have them.

    Examples
    --------
    >>> import gzarr, gzarr.images
    >>> group = gzarr.open_group("mosaic.zarr", "w")
    >>> for n in range(2):
    ...     tile = gzarr.images.create_image(group, shape=(64, 64), dtype="u1", version="0.6", path=f"tile{n}")
    >>> scene = gzarr.images.create_scene(group, {"tile0": [0.0, 0.0], "tile1": [0.0, 60.0]})
    >>> scene.transform([[1.0, 2.0]], "tile1", "world")
    array([[ 1., 62.]])
    """

    group: Group
    systems: tuple[Document, ...]
    transformations: tuple[Document, ...]

    @property
    def coordinate_systems(self) -> tuple[str, ...]:
        """Names of the coordinate systems of the scene itself."""
        return names_of(self.systems)

    def __getitem__(self, path: str) -> Image:
        if path not in self._paths():
            raise KeyError(f"{path!r} is no image of the scene {self.group.store_path}: {self._paths()}")
        return open_image(self.group, path=path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths())

    def __len__(self) -> int:
        return len(self._paths())

    def __repr__(self) -> str:
        systems = ", ".join(self.coordinate_systems)
        return escaped(f"<Scene {self.group.store_path} {len(self)} images, coordinate systems {systems}>")

    def _paths(self) -> list[str]:
        return paths_of(self.transformations)

    def _way(self, source: SystemLike, target: SystemLike) -> tuple[list[Edge], int]:
        """The transformations from one system to another, and the number of axes of the first."""
        images = {path: self[path] for path in self}
        keys = known(self.systems, {path: image.metadata for path, image in images.items()})
        edges = [
            Edge(reference(one.get("input")), reference(one.get("output")), one, reader_of(self.group))
            for one in self.transformations
        ]
        for path, image in images.items():
            found = image.metadata.placed
            edges += found.edges(path, reader_of(image.group)) if found is not None else []
        start, end = (_key(one, images) for one in (source, target))
        return way(edges, start, end, keys), keys[start]

    def transform(self, points: Any, source: SystemLike, target: SystemLike) -> NDArray[np.float64]:
        """Return points of one coordinate system in another.

        Parameters
        ----------
        points : array-like
            Coordinates of shape (..., n), in the order of the axes of the system.
        source, target : str or tuple
            The systems: the name of one of the scene, the path of an image for the one that its levels are placed in,
            or the path of an image and the name of one of its systems.

        Returns
        -------
        numpy.ndarray
            The coordinates in the other system, on the host.

        Raises
        ------
        MetadataError
            If there is no such system, or no way that can be followed.
        """
        return along(self._way(source, target)[0], points)

    def matrix(self, source: SystemLike, target: SystemLike) -> NDArray[np.float64]:
        """Return what `transform` does as a matrix in homogeneous coordinates, of shape (m + 1, n + 1).

        Raises MetadataError also if a transformation is not affine, such as a field of displacements.
        """
        return matrix_along(*self._way(source, target))


def _key(system: SystemLike, images: Mapping[str, Image]) -> SystemKey:
    if isinstance(system, tuple):
        return system
    if system in images and (placed := images[system].metadata.placed) is not None:
        return system, placed.intrinsic
    return "", system


# -- reading and writing -----------------------------------------------------------------------------------------------


def open_scene(store: Any, *, path: str | None = None, **kwargs: Unpack[GroupKeywords]) -> Scene:
    """Open a scene of OME-Zarr 0.6.

    Parameters
    ----------
    store : Store, Group, path, URL or mapping
        Where the scene is stored.
    path : str, optional
        Path of the scene in the store.
    **kwargs
        See `gzarr.open_group`.

    Returns
    -------
    Scene
        The scene.

    Raises
    ------
    GroupNotFoundError
        If no group is stored there.
    MetadataError
        If the group is no scene, or its metadata are malformed.
    """
    group = open_group(store, "r", path=path, **kwargs)
    return Scene(group, *parse_scene(group, Notes(str(group.store_path))))


def create_scene(
    group: Group, images: Mapping[str, Any], system: str = "world", *, axes: Any = None, units: Any = None
) -> Scene:
    """Write the metadata of a scene: how images below a group lie in one coordinate system.

    Parameters
    ----------
    group : Group
        The group, open for writing. Its other attributes stay.
    images : mapping
        For each path of an image of OME-Zarr 0.6, the transformation from its coordinates: n numbers for a
        translation, a matrix of shape (m, n + 1) or (m + 1, n + 1), or a mapping of OME-Zarr's own.
    system : str
        Name of the coordinate system of the scene.
    axes, units : optional
        Its axes, as in `create_image`. By default those of the first image.

    Returns
    -------
    Scene
        The scene.

    Raises
    ------
    MetadataError
        If there are no images of 0.6 at the paths, or a transformation does not fit. Nothing is written then.
    """
    group.check_metadata_writable()
    found = {path: open_image(group, path=path) for path in images}
    documents = []
    for path, given in images.items():
        placed = found[path].metadata.placed
        if placed is None:
            raise MetadataError(f"{found[path].group.store_path} is OME-Zarr {found[path].version}; scenes are of 0.6")
        ends = {"input": {"path": path, "name": placed.intrinsic}, "output": {"name": system}}
        documents.append({**_transformation(given), **ends})
    if not found:
        raise MetadataError("images: a scene needs at least one image")
    first = next(iter(found.values())).metadata.axes
    made = first if axes is None else new_axes(axes, len(axes), units)
    systems = [{"name": system, "axes": [axis.to_json() for axis in made]}]
    keys = {("", system): len(made)} | known((), {path: image.metadata for path, image in found.items()})
    parse_transformations_between(documents, keys, Notes(str(group.store_path), raise_any), "images")
    scene = {"coordinateSystems": systems, "coordinateTransformations": documents}
    change_ome(group, lambda stored: {**stored, "scene": scene}, "0.6")
    return Scene(group, tuple(systems), tuple(documents))


def add_coordinate_system(
    image: Image, name: str, transformation: Any, *, axes: Any = None, units: Any = None
) -> Image:
    """Add a coordinate system to an image of OME-Zarr 0.6, such as that of a scanner or a stage.

    Parameters
    ----------
    image : Image
        The image, open for writing.
    name : str
        Name of the system; one of this name is replaced.
    transformation : array_like or mapping
        What takes the coordinates of the image to it: see `create_scene`.
    axes, units : optional
        Its axes, as in `create_image`. By default those of the image.

    Returns
    -------
    Image
        The image.

    Raises
    ------
    MetadataError
        If the image is of another version, or the transformation does not fit. Nothing is written then.

    Examples
    --------
    >>> import gzarr.images
    >>> image = gzarr.images.create_image(shape=(4, 6), dtype="u1", scale=0.5, version="0.6")
    >>> image = gzarr.images.add_coordinate_system(image, "stage", [[0, 1, 10], [1, 0, 20]])
    >>> image.transform([[1.0, 2.0]], "stage")
    array([[12., 21.]])
    """
    found = image.metadata.placed
    if found is None:
        raise MetadataError(f"{image.group.store_path} is OME-Zarr {image.version}; coordinate systems are of 0.6")
    made = image.metadata.axes if axes is None else new_axes(axes, len(axes), units)
    ends = {"input": {"name": found.intrinsic}, "output": {"name": name}}
    document = {**_transformation(transformation), **ends}
    keys = {("", name): len(made), ("", found.intrinsic): image.ndim}
    parse_transformations_between([document], keys, Notes(str(image.group.store_path), raise_any), name)
    others = tuple(one for one in found.systems if one.get("name") != name)
    ways = tuple(one for one in found.transformations if reference(one.get("output"))[1] != name)
    system = {"name": name, "axes": [axis.to_json() for axis in made]}
    placed = CoordinateSystems(found.intrinsic, (*others, system), (*ways, document))
    write_multiscale(image.group, replace(image.metadata, coordinate_systems=placed))
    return open_image(image.group)


def _transformation(given: Any) -> dict[str, Any]:
    """The document of a transformation, from what a call gives. Raises MetadataError."""
    if isinstance(given, Mapping):
        return dict(given)
    numbers = np.asarray(given, "f8")
    if numbers.ndim == 1:
        return {"type": "translation", "translation": numbers.tolist()}
    if numbers.ndim != 2:
        raise MetadataError(f"images: a transformation is a vector, a matrix or a mapping, got shape {numbers.shape}")
    is_square = len(numbers) == numbers.shape[1] and np.array_equal(numbers[-1], np.eye(len(numbers))[-1])
    return {"type": "affine", "affine": (numbers[:-1] if is_square else numbers).tolist()}
