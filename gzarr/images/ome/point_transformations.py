"""What transformations of OME-Zarr 0.6 do to points, and ways from one coordinate system to another.

Points are arrays of shape (..., n), in the order of the axes of their system.

Source: https://ngff.openmicroscopy.org/0.6/, "coordinateTransformations" metadata.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.errors import MetadataError
from gzarr.images.ome.faults import short
from gzarr.storage.extras import require

Document: TypeAlias = Mapping[str, Any]
Points: TypeAlias = NDArray[np.float64]
#: A coordinate system: the path of its group, from the group of a scene, and its name.
SystemKey: TypeAlias = tuple[str, str]
_ORDERS = {"nearest": 0, "linear": 1, "cubic": 3}
#: Elements around a part of a field that a cubic spline through the part depends on, to a part in 10**9.
_SPLINE = 16
#: What a malformed document raises where it is used.
MALFORMED = (KeyError, IndexError, TypeError, ValueError, np.linalg.LinAlgError)


class VectorField(NamedTuple):
    """A field of vectors: an array whose last axis is that of components, with its place in the input's coordinates."""

    array: Any
    scale: Sequence[float]
    translation: Sequence[float]


class StoredValues(NamedTuple):
    """Reads what transformations keep in arrays, by the path that their documents give."""

    matrix: Callable[[str], NDArray[Any]]
    field: Callable[[str], VectorField]


class Edge(NamedTuple):
    """A transformation, with the systems that it leads from and to."""

    source: SystemKey
    target: SystemKey
    document: Document
    reader: StoredValues


def matrix_of(document: Document, ndim: int, reader: StoredValues) -> NDArray[np.float64] | None:
    """The transformation of points of so many axes, as a matrix in homogeneous coordinates; None if it is not affine.

    Raises KeyError, ValueError and their like for malformed documents.
    """
    kind = document["type"]
    made = np.eye(ndim + 1)
    if kind == "scale":
        made[range(ndim), range(ndim)] = _vector(document, kind, ndim)
    elif kind == "translation":
        made[:-1, -1] = _vector(document, kind, ndim)
    elif kind in ("rotation", "affine"):
        rows = np.asarray(document[kind] if kind in document else reader.matrix(document["path"]), "f8")
        made = made if kind == "rotation" else np.zeros((len(rows) + 1, ndim + 1))
        made[-1, -1] = 1
        made[:-1, : rows.shape[1]] = rows
    elif kind == "mapAxis":
        if sorted(document["mapAxis"]) != list(range(ndim)):
            raise ValueError(f"mapAxis {document['mapAxis']} is no permutation of {ndim} axes")
        made = made[[*document["mapAxis"], ndim]]
    elif kind == "projectAxis":
        made = _projection(document, ndim)
    elif kind == "bijection":
        return matrix_of(document["forward"], ndim, reader)
    elif kind == "sequence":
        for one in document["transformations"]:
            step = matrix_of(one, len(made) - 1, reader)
            if step is None:
                return None
            made = step @ made
    elif kind == "byDimension":
        return _by_dimension(document, ndim, reader)
    elif kind != "identity":
        return None
    return made


def _vector(document: Document, kind: str, ndim: int) -> Points:
    vector = np.asarray(document[kind], "f8")
    if vector.shape != (ndim,):
        raise ValueError(f"{kind} must be {ndim} numbers, got {short(document[kind])}")
    return vector


def _projection(document: Document, ndim: int) -> NDArray[np.float64]:
    dropped, created = document.get("droppedInputs", ()), document.get("createdOutputs", ())
    kept = [axis for axis in range(ndim) if axis not in dropped]
    n_outputs = len(kept) + len(created)
    if not all(0 <= axis < ndim for axis in dropped) or not all(0 <= axis < n_outputs for axis in created):
        raise ValueError(f"drops axes {list(dropped)} of {ndim} and creates axes {list(created)} of {n_outputs}")
    others = [axis for axis in range(n_outputs) if axis not in created]
    made = np.zeros((n_outputs + 1, ndim + 1))
    made[others, kept] = 1
    made[-1, -1] = 1
    return made


def _by_dimension(document: Document, ndim: int, reader: StoredValues) -> NDArray[np.float64] | None:
    items = document["transformations"]
    outputs = sorted(axis for item in items for axis in _axes(item, "output"))
    if outputs != list(range(len(outputs))):
        raise ValueError(f"byDimension gives the output axes {outputs}, each of which must come once")
    made = np.zeros((len(outputs) + 1, ndim + 1))
    made[-1, -1] = 1
    for item in items:
        own = matrix_of(item["transformation"], len(_axes(item, "input")), reader)
        if own is None:
            return None
        made[np.ix_(_axes(item, "output"), _axes(item, "input"))] = own[:-1, :-1]
        made[_axes(item, "output"), -1] = own[:-1, -1]
    return made


def _axes(item: Document, side: str) -> list[int]:
    """Axes of an item of "byDimension"; drafts of 0.6 spell the field otherwise."""
    return [int(axis) for axis in item.get(f"{side}Axes", item.get(f"{side}_axes", ()))]


def transformed(document: Document, points: Points, reader: StoredValues) -> Points:
    """Points in the system that a transformation leads to. Raises MetadataError for one of an unknown type."""
    matrix = matrix_of(document, points.shape[-1], reader)
    if matrix is not None:
        return apply_matrix(matrix, points)
    kind = document["type"]
    if kind == "sequence":
        for one in document["transformations"]:
            points = transformed(one, points, reader)
        return points
    if kind == "bijection":
        return transformed(document["forward"], points, reader)
    if kind == "byDimension":
        parts = {
            axis: transformed(item["transformation"], points[..., _axes(item, "input")], reader)[..., number]
            for item in document["transformations"]
            for number, axis in enumerate(_axes(item, "output"))
        }
        return np.stack([parts[axis] for axis in range(len(parts))], axis=-1)
    if kind in ("displacements", "coordinates"):
        found = _interpolated(reader.field(document["path"]), points, _ORDERS[document.get("interpolation", "linear")])
        return points + found if kind == "displacements" else found
    raise MetadataError(f"transformations of type {kind!r} are kept, and cannot be applied")


def apply_matrix(matrix: NDArray[np.float64], points: Points) -> Points:
    """Points after a matrix in homogeneous coordinates."""
    return points @ matrix[:-1, :-1].T + matrix[:-1, -1]


def _interpolated(field: VectorField, points: Points, order: int) -> Points:
    """The vectors of a field at points: those at its edge beyond. Only the part around the points is read."""
    ndimage = require("scipy.ndimage", "ome", "a field of displacements or coordinates")
    places = (points - np.asarray(field.translation)) / np.asarray(field.scale)
    flat = places.reshape(-1, places.shape[-1])
    if not len(flat):
        return np.zeros((*points.shape[:-1], field.array.shape[-1]))
    ends = np.asarray(field.array.shape[:-1]) - 1
    margin = _SPLINE if order > 1 else 1
    low = np.clip(np.floor(flat.min(axis=0)).astype(int) - margin, 0, ends)
    high = np.clip(np.ceil(flat.max(axis=0)).astype(int) + margin, 0, ends) + 1
    box = tuple(slice(a, b) for a, b in zip(low.tolist(), high.tolist(), strict=True))
    part = np.asarray(field.array[box], "f8")
    where = (np.clip(flat, 0, ends) - low).T
    found = [ndimage.map_coordinates(part[..., n], where, order=order, mode="nearest") for n in range(part.shape[-1])]
    return np.stack(found, axis=-1).reshape(*points.shape[:-1], -1)


# -- ways between systems ----------------------------------------------------------------------------------------------


def inverted(edge: Edge, ndim: int) -> Edge | None:
    """The way back; None if nothing is known of it. ndim: of the system that the transformation starts from."""
    document = edge.document
    if document.get("type") == "bijection":
        return Edge(edge.target, edge.source, document["inverse"], edge.reader)
    matrix = matrix_of(document, ndim, edge.reader)
    if matrix is None or matrix.shape[0] != matrix.shape[1] or not np.linalg.det(matrix):
        return None
    back = {"type": "affine", "affine": np.linalg.inv(matrix)[:-1].tolist()}
    return Edge(edge.target, edge.source, back, edge.reader)


def way(edges: Sequence[Edge], source: SystemKey, target: SystemKey, ndims: Mapping[SystemKey, int]) -> list[Edge]:
    """The shortest way between two systems, back along transformations where these can be inverted.

    ndims: the number of axes of each system. Raises MetadataError if there is none, or a document is malformed.
    """
    for key in (source, target):
        if key not in ndims:
            known = ", ".join(named(one) for one in ndims)
            raise MetadataError(f"there is no coordinate system {named(key)}; there are {known}")
    reached: dict[SystemKey, Edge | None] = {source: None}
    left = deque([source])
    while left and target not in reached:
        at = left.popleft()
        for edge in edges:
            found: Edge | None = edge if edge.source == at else None
            if edge.target == at and edge.source not in reached and edge.source in ndims:
                with _following(edge):
                    found = inverted(edge, ndims[edge.source])
            if found is not None and found.target not in reached:
                reached[found.target] = found
                left.append(found.target)
    if target not in reached:
        raise MetadataError(f"no transformations that can be followed lead from {named(source)} to {named(target)}")
    steps: list[Edge] = []
    while (last := reached[target]) is not None:
        steps.insert(0, last)
        target = last.source
    return steps


def along(steps: Sequence[Edge], points: Any) -> Points:
    """Points after all transformations of a way. Raises MetadataError."""
    found = np.asarray(points, "f8")
    for edge in steps:
        with _following(edge):
            found = transformed(edge.document, found, edge.reader)
    return found


def matrix_along(steps: Sequence[Edge], ndim: int) -> NDArray[np.float64]:
    """A way as a matrix in homogeneous coordinates. Raises MetadataError if a transformation is not affine."""
    made = np.eye(ndim + 1)
    for edge in steps:
        with _following(edge):
            matrix = matrix_of(edge.document, len(made) - 1, edge.reader)
        if matrix is None:
            kind = edge.document.get("type")
            raise MetadataError(
                f"the transformation from {named(edge.source)} to {named(edge.target)}, of type {kind!r}, is no "
                "matrix; transform points instead"
            )
        made = matrix @ made
    return made


@contextmanager
def _following(edge: Edge) -> Iterator[None]:
    """Raise MetadataError, naming the transformation, if its document turns out to be malformed."""
    try:
        yield
    except MALFORMED as error:
        where = f"the transformation from {named(edge.source)} to {named(edge.target)}"
        raise MetadataError(f"{where} is malformed: {short(edge.document)}: {error}") from error


def named(key: SystemKey) -> str:
    """A coordinate system, as messages name it."""
    path, name = key
    return f"{name!r} of {path!r}" if path else repr(name)
