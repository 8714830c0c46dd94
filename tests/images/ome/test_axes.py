"""Axes and units: what calls and documents may say, and what is refused."""

from typing import Any

import pytest

from gzarr.errors import MetadataError
from gzarr.images.ome.axes import SPACE_UNITS, TIME_UNITS, ImageAxis, new_axes, parse_axes, unit_factor, unit_name
from gzarr.images.ome.faults import Fault, Notes


@pytest.mark.parametrize(
    ("unit", "other", "factor"),
    [
        ("micrometer", "nanometer", 1000.0),
        ("nanometer", "micrometer", 0.001),
        ("um", "\N{MICRO SIGN}m", 1.0),
        ("\N{GREEK SMALL LETTER MU}m", "mm", 0.001),
        ("\N{ANGSTROM SIGN}", "nanometer", 0.1),
        ("inch", "millimeters", 25.4),
        ("mile", "kilometre", 1.609344),
        ("hour", "s", 3600.0),
        ("parrot", "parrot", 1.0),
    ],
)
def test_units_convert_exactly(unit: str, other: str, factor: float) -> None:
    assert unit_factor(unit, other) == factor


@pytest.mark.parametrize(("unit", "other"), [("meter", "second"), ("parrot", "meter"), ("meter", "")])
def test_units_of_different_kinds_do_not_convert(unit: str, other: str) -> None:
    with pytest.raises(MetadataError, match=f"{unit!r} and {other!r}"):
        unit_factor(unit, other)


def test_the_units_are_those_of_the_specification() -> None:
    assert (len(SPACE_UNITS), len(TIME_UNITS)) == (26, 23)
    assert all(unit_name(unit) == unit for unit in (*SPACE_UNITS, *TIME_UNITS))


@pytest.mark.parametrize(
    ("axes", "ndim", "expected"),
    [
        (None, 2, "yx"),
        (None, 3, "zyx"),
        (None, 4, "czyx"),
        (None, 5, "tczyx"),
        ("tyx", 3, "tyx"),
        (["time", {"name": "y", "type": "space"}, ImageAxis("x", "space")], 3, ["time", "y", "x"]),
    ],
)
def test_axes_of_a_call(axes: Any, ndim: int, expected: Any) -> None:
    made = new_axes(axes, ndim, "um")
    assert [axis.name for axis in made] == list(expected)
    assert {axis.unit for axis in made if axis.type == "space"} == {"micrometer"}
    assert {axis.unit for axis in made if axis.type != "space"} <= {None}


def test_units_by_axis() -> None:
    made = new_axes("tyx", 3, {"t": "ms", "y": "nanometer"})
    assert [axis.unit for axis in made] == ["millisecond", "nanometer", None]


@pytest.mark.parametrize(
    ("axes", "ndim", "units", "message"),
    [
        ("yy", 2, None, "'y' is there more than once"),
        ("xyct", 4, None, "time must come first"),
        ("tc", 2, None, "2 or 3 axes of type 'space'"),
        ("abcxy", 5, None, "one axis may have the type 'channel'"),
        ("yx", 3, None, "3 are needed"),
        (None, 1, None, "2 to 5 axes"),
        ([1, 2], 2, None, "expected names"),
        ("yx", 2, "parrot", "units: 'parrot' is not known"),
        ("yx", 2, {"z": "um"}, "there is no axis 'z'; the axes are y, x"),
        ("tyx", 3, {"t": "um"}, "'micrometer' is no unit of axis 't'"),
        ("zyx", 3, "s", "'s' is a unit of time, none of the axes z, y, x is"),
        ("yx", 2, 5, "units: expected a name, or names by axis, got 5"),
        ("yx", 2, {"x": 5}, "units: expected a name, or names by axis"),
        (5, 2, None, "axes: expected names"),
    ],
)
def test_what_is_malformed_in_a_call(axes: Any, ndim: int, units: Any, message: str) -> None:
    with pytest.raises(MetadataError, match=message):
        new_axes(axes, ndim, units)


def test_axes_of_documents_say_what_they_lack() -> None:
    faults: list[Fault] = []
    axes = parse_axes(
        [{"name": "y", "more": 1}, {"name": "x", "type": "space", "unit": "um"}], Notes("g", faults.append), "a"
    )
    assert axes == (ImageAxis("y", "space", None, {"more": 1}), ImageAxis("x", "space", "um"))
    assert [(fault.severity, fault.field) for fault in faults] == [
        ("warning", "a[0].type"),
        ("warning", "a[0].unit"),
        ("warning", "a[1].unit"),
    ]
    assert axes[0].to_json() == {"name": "y", "type": "space", "more": 1}
