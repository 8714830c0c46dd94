"""Channels: what calls and documents say of names, colours and ranges."""

import math
from typing import Any

import numpy as np
import pytest

from gzarr.errors import MetadataError
from gzarr.images.ome.channels import Channel, IntensityWindow, new_channels, parse_channels
from gzarr.images.ome.faults import Fault, Notes


def test_channels_of_a_call_are_completed() -> None:
    given = [
        "a",
        {"label": "b", "color": "red", "window": (1, 5), "lut": "fire"},
        Channel("c", "#abcdef", active=False),
    ]
    made = new_channels(given, 3, np.dtype("u1"))
    assert made == (
        Channel("a", "00FF00", IntensityWindow(0, 255, 0, 255), active=True),
        Channel("b", "FF0000", IntensityWindow(1, 5, 0, 255), active=True, extra={"lut": "fire"}),
        Channel("c", "ABCDEF", IntensityWindow(0, 255, 0, 255), active=False),
    )
    assert new_channels(["a"], 1, np.dtype("f4"))[0] == Channel("a", "FFFFFF", IntensityWindow(0, 1, 0, 1), active=True)
    colors = [channel.color for channel in new_channels(["Red", "green", "nir"], 3, np.dtype("u1"))]
    assert colors == ["FF0000", "00FF00", "00FFFF"]
    assert new_channels(None, 3, np.dtype("u1")) == ()


@pytest.mark.parametrize(
    ("channels", "message"),
    [
        (["a"], "a list of 2 is needed"),
        ("ab", "a list of 2 is needed"),
        (["a", 1], "expected names or mappings"),
        (["a", {"color": "puce"}], "got 'puce'"),
        (["a", {"color": 5}], "color must be of type str, got 5"),
        ([{"label": 5}, "b"], "label must be of type str, got 5"),
        (["a", {"window": {"start": 5, "end": 1}}], "start and end in order"),
        (["a", {"window": {"start": 0, "stop": 1}}], "start and end in order"),
        (["a", {"window": {"start": math.nan}}], "start and end in order"),
        (["a", {"window": (5, 1)}], "two numbers in order"),
        (["a", {"window": 5}], "a window is \\(start, end\\)"),
    ],
)
def test_what_is_malformed_in_a_call(channels: Any, message: str) -> None:
    with pytest.raises(MetadataError, match=message):
        new_channels(channels, 2, np.dtype("u1"))


def test_malformed_channels_of_a_document_are_kept_and_noted() -> None:
    items = [
        {"label": 5, "color": "red", "window": {"start": 1}},
        {"window": {"start": 1, "end": 0, "min": 0, "max": 1}, "active": 1},
    ]
    faults: list[Fault] = []
    channels, rest = parse_channels({"channels": items, "rdefs": {}}, Notes("g", faults.append), "omero")
    assert [channel.to_json() for channel in channels] == items
    assert rest == {"rdefs": {}}
    assert {fault.field.removeprefix("omero.channels") for fault in faults} == {
        "[0].label",
        "[0].color",
        "[0].window",
        "[1].window",
        "[1].active",
    }


@pytest.mark.parametrize("value", [3, {"channels": 3}, {}])
def test_what_is_no_list_of_channels(value: Any) -> None:
    faults: list[Fault] = []
    channels, rest = parse_channels(value, Notes("g", faults.append), "omero")
    assert (channels, rest) == ((), value if isinstance(value, dict) else {})
    assert [fault.severity for fault in faults] == ["error"]
