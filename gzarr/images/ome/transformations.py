"""What takes the indices of a level to coordinates: a scale and a translation.

Source: OME-Zarr 0.4 and 0.5, "coordinateTransformations" metadata.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from gzarr.images.ome.axes import ImageAxis, names_of
from gzarr.images.ome.faults import Notes, short

Numbers: TypeAlias = tuple[float, ...]
#: Integers of JSON may be larger than any float.
_LARGEST = sys.float_info.max


class Transformation(NamedTuple):
    """What takes indices to coordinates: ``scale * index + translation``, axis by axis."""

    scale: Numbers
    translation: Numbers

    def then(self, other: "Transformation") -> "Transformation":
        """Return this one, followed by another."""
        scale = tuple(a * b for a, b in zip(self.scale, other.scale, strict=True))
        moved = zip(self.translation, other.scale, other.translation, strict=True)
        return Transformation(scale, tuple(t * s + u for t, s, u in moved))

    def moved(self, order: Sequence[int]) -> "Transformation":
        """Return it for axes in another order, given their numbers."""
        return Transformation(tuple([self.scale[at] for at in order]), tuple([self.translation[at] for at in order]))

    def to_json(self) -> list[dict[str, Any]]:
        """As OME-Zarr has it, without a translation by nothing."""
        document: list[dict[str, Any]] = [{"type": "scale", "scale": list(self.scale)}]
        if any(self.translation):
            document.append({"type": "translation", "translation": list(self.translation)})
        return document


def parse_transformations(value: Any, axes: tuple[ImageAxis, ...], notes: Notes, place: str) -> Transformation:
    """The transformations of a level or of the whole image as one; what is malformed counts as nothing."""
    ndim = len(axes)
    total = Transformation((1.0,) * ndim, (0.0,) * ndim)
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        what = "is missing" if value is None else f"must be a list of objects, got {short(value)}"
        notes.fatal(place, what, f"write a scale of {ndim} numbers")
        return total
    kinds = [item.get("type") for item in value]
    for number, (kind, item) in enumerate(zip(kinds, value, strict=True)):
        if kind == "scale":
            scale = _vector(item, "scale", axes, notes, f"{place}[{number}]")
            total = total.then(Transformation(scale, (0.0,) * ndim))
        elif kind == "translation":
            moved = _vector(item, "translation", axes, notes, f"{place}[{number}]")
            total = total.then(Transformation((1.0,) * ndim, moved))
        elif kind != "identity":
            what = f"must be 'scale' or 'translation', got {short(kind)}"
            notes.fatal(f"{place}[{number}].type", what, "write the transformation as a scale and a translation")
    if "scale" not in kinds:
        notes.fatal(place, f"has no scale among {kinds}", f"write a scale of {ndim} numbers")
    elif kinds not in (["scale"], ["scale", "translation"]):
        notes.error(place, f"must be a scale, then at most one translation, got {kinds}", "join them in this order")
    return total


def _vector(item: Mapping[str, Any], kind: str, axes: tuple[ImageAxis, ...], notes: Notes, place: str) -> Numbers:
    value, default = item.get(kind), 1.0 if kind == "scale" else 0.0
    numbers = isinstance(value, list) and all(type(n) in (int, float) for n in value)
    if not isinstance(value, list) or not numbers or len(value) != len(axes):
        what = f"must be {len(axes)} numbers, one for each of {list(names_of(axes))}, got {short(value)}"
        if "path" in item and value is None:
            what = "stored as an array, which is not supported"
        notes.fatal(f"{place}.{kind}", what, f"list a {kind} for every axis")
        return (default,) * len(axes)
    bad = [n for n in value if not -_LARGEST <= n <= _LARGEST or (kind == "scale" and n <= 0)]
    if bad:
        what = f"must be {'numbers > 0' if kind == 'scale' else 'finite numbers'}, got {short(value)}"
        notes.fatal(f"{place}.{kind}", what, f"write {default:g} where it is not known")
        return tuple(default if n in bad or n != n else float(n) for n in value)  # noqa: PLR0124 - NaN
    return tuple(map(float, value))
