"""Coordinate systems of images and scenes of OME-Zarr 0.6, as documents.

They are kept as they are stored: what is not understood is written back, and only using it is an error.

Source: https://ngff.openmicroscopy.org/0.6/, "coordinateSystems", "multiscales" and "scene" metadata.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gzarr.errors import MetadataError
from gzarr.images.ome.faults import Notes, short
from gzarr.images.ome.point_transformations import MALFORMED, Document, Edge, StoredValues, SystemKey, matrix_of, named

#: The name of the system of a new image, as the examples of the specification have it.
INTRINSIC: Final = "physical"


@dataclass(frozen=True, slots=True)
class CoordinateSystems:
    """The coordinate systems of an image.

    Attributes
    ----------
    intrinsic : str
        The one that the levels are placed in.
    systems : tuple of mapping
        All of them, as the metadata have them.
    transformations : tuple of mapping
        What leads from the intrinsic system to others, as the metadata have it.
    """

    intrinsic: str
    systems: tuple[Document, ...]
    transformations: tuple[Document, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, in the order of the metadata."""
        return names_of(self.systems)

    def edges(self, path: str, reader: StoredValues) -> list[Edge]:
        """The transformations of the image, which is at a path."""
        return [
            Edge((path, reference(one.get("input"))[1]), (path, reference(one.get("output"))[1]), one, reader)
            for one in self.transformations
        ]


def names_of(systems: Iterable[Document]) -> tuple[str, ...]:
    """Names of coordinate systems."""
    return tuple(str(system.get("name")) for system in systems)


def reference(value: Any) -> SystemKey:
    """The path and the name of an input or output; drafts of 0.6 have a text."""
    if isinstance(value, Mapping):
        return str(value.get("path") or ""), str(value.get("name") or "")
    return "", value if isinstance(value, str) else ""


def parse_systems(
    value: Any, notes: Notes, place: str, *, needed: bool = True
) -> tuple[tuple[Document, ...], dict[str, int]]:
    """The systems of a document, and the number of axes of each by name; what is malformed is noted and left out."""
    if value is None and not needed:
        return (), {}
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        what = "is missing" if value is None else f"must be a list of objects, got {short(value)}"
        notes.fatal(place, what, "list the coordinate systems, each with a name and axes")
        return (), {}
    ndims: dict[str, int] = {}
    for number, system in enumerate(value):
        name, axes = system.get("name"), system.get("axes")
        if not isinstance(name, str) or not name:
            notes.error(f"{place}[{number}].name", f"must be a text, got {short(name)}", "name the system")
        elif name in ndims:
            notes.error(f"{place}[{number}].name", f"{name!r} is there twice", "give every system its own name")
        elif not isinstance(axes, list):
            notes.error(f"{place}[{number}].axes", f"must be a list of axes, got {short(axes)}", "list the axes")
        else:
            ndims[name] = len(axes)
    return tuple(value), ndims


def parse_transformations_between(
    value: Any, ndims: Mapping[SystemKey, int], notes: Notes, place: str
) -> tuple[Document, ...]:
    """The transformations of a list. What is malformed, or leads to no system that is known, is noted and kept.

    ndims: the number of axes of each system that they may lead from and to.
    """
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        notes.error(place, f"must be a list of objects, got {short(value)}", "list the transformations")
        return ()
    for number, document in enumerate(value):
        ends = [reference(document.get(side)) for side in ("input", "output")]
        known = True
        for side, key in zip(("input", "output"), ends, strict=True):
            if key not in ndims:
                known = False
                what = f"{short(document.get(side))} is no coordinate system; there are {list(map(named, ndims))}"
                notes.error(f"{place}[{number}].{side}", what, "name one of them")
        if known:
            _check(document, ndims[ends[0]], ndims[ends[1]], notes, f"{place}[{number}]")
    return tuple(value)


def _check(document: Document, n_inputs: int, n_outputs: int, notes: Notes, place: str) -> None:
    """Note a transformation that is malformed, unknown, or of other numbers of axes than its systems."""
    try:
        matrix = matrix_of(document, n_inputs, _NO_ARRAYS)
    except LookupError as error:
        if not isinstance(error, _StoredError):
            notes.error(place, f"{short(document)} lacks {error}", "complete it")
        return
    except MALFORMED as error:
        notes.error(place, f"{short(document)} is malformed: {error}", "correct it")
        return
    unknown = next(iter(_kinds(document) - _KINDS), None)
    if unknown is not None:
        notes.warning(f"{place}.type", f"{unknown!r} is unknown: it is kept, and cannot be applied", "")
    elif matrix is not None and len(matrix) - 1 != n_outputs:
        what = f"leads to {len(matrix) - 1} coordinates, but its output has {n_outputs} axes"
        notes.error(place, what, "correct its numbers, or its output")


_KINDS = {"identity", "scale", "translation", "rotation", "affine", "mapAxis", "projectAxis", "sequence"}
_KINDS |= {"byDimension", "bijection", "displacements", "coordinates"}


def _kinds(document: Any) -> set[str]:
    """The types of a transformation and all within it."""
    if isinstance(document, list):
        return set().union(*map(_kinds, document))
    if not isinstance(document, Mapping):
        return set()
    inner = (document.get(name) for name in ("transformations", "transformation", "forward", "inverse"))
    return ({str(document["type"])} if "type" in document else set()).union(*map(_kinds, inner))


class _StoredError(LookupError):
    """A matrix is stored in an array, which is not read for a check of metadata."""


def _stored(path: str) -> Any:
    raise _StoredError(path)


_NO_ARRAYS = StoredValues(_stored, _stored)


def plain(document: Any) -> list[Any] | None:
    """A transformation that is a scale, an identity or a sequence of such as a list; None for all others."""
    if not isinstance(document, Mapping):
        return None
    listed = document.get("transformations") if document.get("type") == "sequence" else [document]
    simple = isinstance(listed, list) and all(
        isinstance(one, Mapping) and one.get("type") in ("scale", "translation", "identity") for one in listed
    )
    return listed if simple else None


# -- levels ------------------------------------------------------------------------------------------------------------


def spread_item(item: Mapping[str, Any], notes: Notes, place: str) -> tuple[CoordinateSystems, dict[str, Any]]:
    """The coordinate systems of an image of 0.6, and its metadata as 0.5 has them."""
    listed, ndims = parse_systems(item.get("coordinateSystems"), notes, f"{place}.coordinateSystems")
    datasets = item.get("datasets")
    datasets = datasets if isinstance(datasets, list) else []
    outputs = [_output(dataset) for dataset in datasets]
    intrinsic = next((name for name in outputs if name in ndims), None)
    if intrinsic is None:
        what = f"no level leads to one of the coordinate systems, {list(ndims)}"
        notes.fatal(f"{place}.datasets", what, "name the system as the output of each level's transformation")
        raise MetadataError(f"{notes.path}: {place}: {what}")
    for number, name in enumerate(outputs):
        if name != intrinsic:
            what = f"leads to {name!r}, others to {intrinsic!r}"
            notes.error(f"{place}.datasets[{number}].coordinateTransformations", what, "place all levels in one system")
    keys = {("", name): ndim for name, ndim in ndims.items()}
    value, where = item.get("coordinateTransformations"), f"{place}.coordinateTransformations"
    found = CoordinateSystems(intrinsic, listed, parse_transformations_between(value, keys, notes, where))
    spread = {key: one for key, one in item.items() if key not in ("coordinateSystems", "coordinateTransformations")}
    described = described_system(found)
    if described != intrinsic:  # levels are placed in elements, and the image in units
        ends = [plain(one) for one in found.transformations if reference(one.get("output"))[1] == described]
        spread["coordinateTransformations"] = _with_scale(ends[0] or [], ndims[intrinsic])
    spread["axes"] = next(system["axes"] for system in listed if system.get("name") == described)
    spread["datasets"] = [
        {**one, "coordinateTransformations": _of_level(one, ndims[intrinsic])} if isinstance(one, Mapping) else one
        for one in datasets
    ]
    return found, spread


def described_system(found: CoordinateSystems) -> str:
    """The system whose axes are those of the image: the intrinsic one, or what a scale makes of elements."""
    kinds = {
        str(system.get("name")): {axis.get("type") for axis in system["axes"] if isinstance(axis, Mapping)}
        for system in found.systems
        if isinstance(system.get("axes"), list)
    }
    if kinds.get(found.intrinsic) == {"array"}:
        for one in found.transformations:
            name = reference(one.get("output"))[1]
            if plain(one) is not None and kinds.get(name, {"array"}) != {"array"}:
                return name
    return found.intrinsic


def _output(dataset: Any) -> str | None:
    """The coordinate system that a level is placed in."""
    steps = dataset.get("coordinateTransformations") if isinstance(dataset, Mapping) else None
    first = steps[0] if isinstance(steps, list) and steps else None
    return reference(first.get("output"))[1] if isinstance(first, Mapping) else None


def _of_level(dataset: Mapping[str, Any], ndim: int) -> Any:
    """The transformations of a level as 0.5 lists them; those that it has not as they are."""
    steps = dataset.get("coordinateTransformations")
    if not isinstance(steps, list) or len(steps) != 1 or (found := plain(steps[0])) is None:
        return steps
    return _with_scale(found, ndim)


def _with_scale(steps: list[Document], ndim: int) -> list[Document]:
    """Transformations without an identity, and with a scale in front."""
    kept = [one for one in steps if one.get("type") != "identity"]
    has_scale = any(one.get("type") == "scale" for one in kept)
    return kept if has_scale else [{"type": "scale", "scale": [1.0] * ndim}, *kept]
