"""The axes of an image: names, types, units of lengths and times.

Source: OME-Zarr 0.4 and 0.5, "axes" metadata; the names of units are those of UDUNITS-2 that it lists.
"""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from gzarr.errors import MetadataError
from gzarr.images.ome.faults import Notes, raise_any, short

_PREFIXES = ("yocto zepto atto femto pico nano micro milli", "kilo mega giga tera peta exa zetta yotta")
_POWERS = {
    **{name: 3 * (number - 8) for number, name in enumerate(_PREFIXES[0].split())},
    **{name: 3 * (number + 1) for number, name in enumerate(_PREFIXES[1].split())},
    "centi": -2,
    "deci": -1,
    "": 0,
    "hecto": 2,
}
#: Lengths in meters. Source: UDUNITS-2; the parsec of IAU 2015 resolution B2.
SPACE_UNITS: Mapping[str, Fraction] = {
    **{f"{prefix}meter": Fraction(10) ** power for prefix, power in _POWERS.items()},
    "angstrom": Fraction(1, 10**10),
    "inch": Fraction(254, 10**4),
    "foot": Fraction(3048, 10**4),
    "yard": Fraction(9144, 10**4),
    "mile": Fraction(1609344, 10**3),
    "parsec": Fraction(30856775814913673),
}
#: Times in seconds.
TIME_UNITS: Mapping[str, Fraction] = {
    **{f"{prefix}second": Fraction(10) ** power for prefix, power in _POWERS.items()},
    "minute": Fraction(60),
    "hour": Fraction(3600),
    "day": Fraction(86400),
}
#: Angles, which the specification lacks: the coordinates of maps in longitude and latitude.
ANGLES = ("degree", "radian")
_LETTERS = {"p": "pico", "n": "nano", "u": "micro", "m": "milli", "c": "centi", "": "", "k": "kilo"}
#: What people write, and files have, for the names of the specification.
_SYMBOLS = {
    **{f"{letter}m": f"{prefix}meter" for letter, prefix in _LETTERS.items()},
    **{f"{letter}s": f"{prefix}second" for letter, prefix in _LETTERS.items()},
    **dict.fromkeys(("micron", "microns"), "micrometer"),
    "\N{LATIN SMALL LETTER A WITH RING ABOVE}": "angstrom",
    "sec": "second",
    "min": "minute",
    "h": "hour",
    "hr": "hour",
    "d": "day",
}
#: Types of axes by their usual names.
_TYPES = {"t": "time", "time": "time", "c": "channel", "channel": "channel", "z": "space", "y": "space", "x": "space"}
#: The order of types; all others stand beside channels.
_RANKS = {"time": 0, "channel": 1, "space": 2}
#: Axes of new images, by their number.
_USUAL = {2: "yx", 3: "zyx", 4: "czyx", 5: "tczyx"}
MIN_AXES, MAX_AXES = 2, 5
#: Axes of images by other names that files have for them.
_LETTERS_OF = {"time": "t", "channel": "c", "band": "c", "s": "c", "depth": "z", "level": "z", "lev": "z"}
_LETTERS_OF |= {"height": "y", "lat": "y", "latitude": "y", "width": "x", "lon": "x", "longitude": "x"}


@dataclass(frozen=True, slots=True)
class ImageAxis:
    """An axis of an image.

    Attributes
    ----------
    name : str
        Its name, unlike that of any other axis.
    type : str or None
        "space", "time", "channel", or something else.
    unit : str or None
        Unit of its coordinates, such as "micrometer".
    extra : mapping
        Other fields of the metadata.
    """

    name: str
    type: str | None = None
    unit: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The axis as OME-Zarr 0.4 and 0.5 have it."""
        known = {"name": self.name, "type": self.type, "unit": self.unit}
        return {name: value for name, value in known.items() if value is not None} | dict(self.extra)


def unit_name(unit: str) -> str:
    """The specification's name of a unit: of "um" and "micrometers", "micrometer". Unknown ones as they are."""
    plain = unicodedata.normalize("NFKC", unit).replace("\N{GREEK SMALL LETTER MU}", "u")  # of both signs for micro
    for name in (plain, plain.lower(), plain.lower().removesuffix("s").replace("metre", "meter")):
        if name in SPACE_UNITS or name in TIME_UNITS or name in ANGLES:
            return name
        if name in _SYMBOLS:
            return _SYMBOLS[name]
    return unit


def unit_type(unit: str) -> str | None:
    """Whether a unit is one of "space" or of "time"; None for others."""
    name = unit_name(unit)
    return "space" if name in SPACE_UNITS or name in ANGLES else "time" if name in TIME_UNITS else None


def unit_factor(unit: str, other: str) -> float:
    """How many of another unit one unit is: 1000 for "micrometer" in "nanometer". Raises MetadataError."""
    if unit == other:
        return 1.0
    for table in (SPACE_UNITS, TIME_UNITS):
        one, two = table.get(unit_name(unit)), table.get(unit_name(other))
        if one is not None and two is not None:
            return float(one / two)
    raise MetadataError(f"no conversion between the units {unit!r} and {other!r}: {known_units()}")


def known_units() -> str:
    """What to say of units that are known."""
    return "lengths are nanometer, micrometer, millimeter, ..., times are millisecond, second, ..."


def spatial(axes: Sequence[ImageAxis]) -> tuple[int, ...]:
    """Numbers of the axes of space."""
    return tuple(number for number, axis in enumerate(axes) if axis.type == "space")


def with_lengths(axes: Sequence[ImageAxis]) -> list[tuple[ImageAxis, float]]:
    """Axes with the meters of their units: ones, if that of an axis of space is not known."""
    lengths = [SPACE_UNITS.get(unit_name(axis.unit or "")) for axis in axes]
    known = all(lengths[number] is not None for number in spatial(axes))
    return [(axis, float(length) if known and length else 1.0) for axis, length in zip(axes, lengths, strict=True)]


def new_axes(axes: Any, ndim: int, units: str | Mapping[str, str] | None) -> tuple[ImageAxis, ...]:
    """The axes that a call means: "zyx", names, mappings or `ImageAxis` objects; by default the usual ones of a rank.

    Parameters
    ----------
    axes : str or sequence, optional
        A letter, or an item, for each axis.
    ndim : int
        How many there must be.
    units : str or mapping, optional
        A unit of length for all axes of space, or units by axis.

    Raises
    ------
    MetadataError
        If OME-Zarr has no such axes.
    """
    if axes is None:
        if ndim not in _USUAL:
            raise MetadataError(f"axes: an image has 2 to 5 axes, got data of {ndim}")
        axes = _USUAL[ndim]
    if not isinstance(axes, Iterable):
        raise MetadataError(f"axes: expected names, such as 'zyx' or ['t', 'y', 'x'], got {axes!r}")
    made = tuple(new_axis(axis) for axis in axes)
    if len(made) != ndim:
        raise MetadataError(f"axes: {ndim} are needed, one for each of the data's, got {axes!r}")
    made = with_units(made, units)
    check_axes(made, Notes("new image", raise_any), "axes")
    return made


def letters(names: Sequence[str | None]) -> str:
    """The axes of an image that those of an array are, as letters.

    Unknown names are those of the axes that are left; the only one beside "y" and "x" is that of channels.
    """
    given = [_LETTERS_OF.get((name or "").lower(), (name or "").lower()) for name in names]
    known = [axis for axis in given if len(axis) == 1]
    left = [axis for axis in "tczyx" if axis not in known]
    if {"y", "x"} <= set(known) and len(known) == len(given) - 1 and "c" in left and all(given):
        left.append("c")
    axes = "".join(reversed([axis if len(axis) == 1 else left.pop() for axis in reversed(given)]))
    return axes if {"y", "x"} <= set(axes) and len(set(axes)) == len(given) else "tczyx"[5 - len(given) :]


def new_axis(axis: Any) -> ImageAxis:
    """An axis as a call gives it: its name, or a mapping. Raises MetadataError."""
    if isinstance(axis, ImageAxis):
        return axis
    if isinstance(axis, str):
        return ImageAxis(axis, _TYPES.get(axis.lower()))
    if isinstance(axis, Mapping) and isinstance(axis.get("name"), str):
        return parse_axis(axis, Notes("new image"), "axes")
    raise MetadataError(f"axes: expected names, such as 'zyx' or ['t', 'y', 'x'], got {axis!r}")


def with_units(axes: tuple[ImageAxis, ...], units: str | Mapping[str, str] | None) -> tuple[ImageAxis, ...]:
    """Axes with other units. Raises MetadataError for units that are unknown, or of another kind than the axis."""
    if units is None:
        return axes
    named = units_by_axis(axes, units)
    given = {name: unit_name(unit) for name, unit in named.items()}
    for axis in axes:
        unit = given.get(axis.name)
        if unit is not None and axis.type in ("space", "time") and unit_type(unit) != axis.type:
            raise MetadataError(
                f"units: {unit!r} is no unit of axis {axis.name!r}, of type {axis.type}: {known_units()}"
            )
    return tuple(ImageAxis(axis.name, axis.type, given.get(axis.name, axis.unit), axis.extra) for axis in axes)


def units_by_axis(axes: Sequence[ImageAxis], units: str | Mapping[str, str]) -> dict[str, str]:
    """The units that a call gives, by axis: one alone is that of all axes of its type. Raises MetadataError."""
    if isinstance(units, str):
        kind = unit_type(units)
        if kind is None:
            raise MetadataError(f"units: {units!r} is not known: {known_units()}")
        found = {axis.name: units for axis in axes if axis.type == kind}
        if not found:
            raise MetadataError(
                f"units: {units!r} is a unit of {kind}, none of the axes {', '.join(names_of(axes))} is"
            )
        return found
    if not isinstance(units, Mapping) or not all(isinstance(unit, str) for unit in units.values()):
        raise MetadataError(f"units: expected a name, or names by axis, got {units!r}")
    return by_axis(axes, units, "units")


def by_axis(axes: Sequence[ImageAxis], values: Mapping[str, Any], keyword: str) -> dict[str, Any]:
    """Values that a call gives by axis. Raises MetadataError for names of no axis."""
    names = [axis.name for axis in axes]
    for name in values:
        if name not in names:
            raise MetadataError(f"{keyword}: there is no axis {name!r}; the axes are {', '.join(names)}")
    return dict(values)


def parse_axes(value: Any, notes: Notes, place: str) -> tuple[ImageAxis, ...] | None:
    """The axes of a document, in the form of 0.3 or later; None where they cannot be told."""
    if not isinstance(value, list):
        notes.fatal(place, f"must be a list of axes, got {short(value)}", "list the axes of the levels")
        return None
    axes = []
    for number, item in enumerate(value):
        if isinstance(item, str):  # OME-Zarr 0.3
            axes.append(ImageAxis(item, _TYPES.get(item.lower())))
        elif isinstance(item, Mapping) and isinstance(item.get("name"), str):
            axes.append(parse_axis(item, notes, f"{place}[{number}]"))
        else:
            notes.fatal(f"{place}[{number}].name", f"must be a text, got {short(item)}", "name the axis")
            return None
    check_axes(axes, notes, place)
    return tuple(axes)


def parse_axis(item: Mapping[str, Any], notes: Notes, place: str) -> ImageAxis:
    """An axis of a document, with the type of its name where it has none."""
    name, kind, unit = item["name"], item.get("type"), item.get("unit")
    extra = {key: value for key, value in item.items() if key not in ("name", "type", "unit")}
    if kind is not None and not isinstance(kind, str):
        notes.fatal(f"{place}.type", f"must be a text, got {short(kind)}", "write 'space', 'time' or 'channel'")
        kind = None
    if kind is None:
        kind = _TYPES.get(name.lower())
        notes.warning(f"{place}.type", "is missing", f"write {kind!r}" if kind else "name the type of the axis")
    if unit is not None and not isinstance(unit, str):
        notes.fatal(f"{place}.unit", f"must be a text, got {short(unit)}", f"write a unit: {known_units()}")
        unit = None
    elif kind in ("space", "time"):
        _check_unit(kind, unit, notes, f"{place}.unit")
    return ImageAxis(name, kind, unit, extra)


def _check_unit(kind: str, unit: str | None, notes: Notes, place: str) -> None:
    table = SPACE_UNITS if kind == "space" else TIME_UNITS
    if unit is None:
        notes.warning(place, "is missing", f"write the unit of the scale: {known_units()}")
    elif unit not in table:
        name = unit_name(unit)
        notes.warning(place, f"{unit!r} is no unit of {kind} of the specification", f"write {name!r}" * (name in table))


def check_axes(axes: Sequence[ImageAxis], notes: Notes, place: str) -> None:
    """Note what the specification says of axes and these break."""
    names = [axis.name for axis in axes]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        notes.fatal(place, f"axis {repeated!r} is there more than once in {names}", "give every axis its own name")
    if not MIN_AXES <= len(axes) <= MAX_AXES:
        notes.fatal(place, f"an image has 2 to 5 axes, got {names}", "store the data as several images")
    space = len(spatial(axes))
    if space not in (2, 3):
        types = [axis.type for axis in axes]
        what = f"2 or 3 axes of type 'space' are needed, got {space} among {dict(zip(names, types, strict=True))}"
        notes.fatal(place, what, "correct the types")
    others = [axis.name for axis in axes if axis.type not in ("space", "time")]
    times = [axis.name for axis in axes if axis.type == "time"]
    for kind, found in (("time", times), ("channel", others)):
        if len(found) > 1:
            notes.fatal(
                place, f"one axis may have the type {kind!r}, or one of its own, got {found}", "correct the types"
            )
    order = ordered(axes)
    if order != tuple(range(len(axes))):
        what = f"time must come first, then the channel or another axis, then space; got {names}"
        listed = [names[number] for number in order]
        notes.error(place, what, f"transpose the data, by data.transpose{order}, and list the axes as {listed}")


def ordered(axes: Sequence[ImageAxis]) -> tuple[int, ...]:
    """Numbers of the axes in the order of OME-Zarr: time, the channel or another one, space."""
    return tuple(sorted(range(len(axes)), key=lambda at: _RANKS.get(axes[at].type or "", 1)))


def names_of(axes: Iterable[ImageAxis]) -> tuple[str, ...]:
    """Names of axes."""
    return tuple(axis.name for axis in axes)
