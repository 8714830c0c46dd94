"""Regions in coordinates: which elements they are, against a plain search, and where these lie."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gzarr.errors import MetadataError, SelectionError
from gzarr.images.ome.axes import ImageAxis
from gzarr.images.ome.transformations import Transformation
from gzarr.images.region import AxisSelection, level_for, spans

AXES = (ImageAxis("c", "channel"), ImageAxis("y", "space", "micrometer"))


def one(value: Any, extent: int = 10, scale: float = 1.0, start: float = 0.0, unit: str | None = None) -> AxisSelection:
    placed = Transformation((1.0, scale), (0.0, start))
    units = {} if unit is None else {"y": unit}
    return spans(AXES, (3, extent), placed, {"y": value}, units, ("a", "b", None), "here")[1]


@given(
    st.integers(1, 40),
    st.sampled_from([0.1, 0.5, 0.7, 1.1, 3.0]),
    st.sampled_from([0.0, -7.3, 2.05]),
    st.floats(-50, 50),
    st.floats(0.01, 50),
)
def test_a_slice_takes_the_centres_in_it(extent: int, scale: float, start: float, low: float, length: float) -> None:
    centres = start + scale * np.arange(extent)
    inside = np.flatnonzero((centres >= low) & (centres < low + length))
    near = np.abs(np.subtract.outer((low, low + length), centres)).min() < 1e-4 * scale
    if near or not inside.size:
        return  # rounded, or the nearest one
    found = one(slice(low, low + length), extent, scale, start)
    assert isinstance(found.selection, slice)
    assert list(range(extent)[found.selection]) == inside.tolist()
    np.testing.assert_allclose(found.coords, centres[inside])


@pytest.mark.parametrize("scale", [0.1, 0.3, 1.1, 1 / 3])
def test_slices_that_meet_share_no_element(scale: float) -> None:
    cuts = [0, 3, 4, 9, 20]
    parts = [one(slice(a * scale, b * scale), 20, scale).selection for a, b in itertools.pairwise(cuts)]
    assert parts == [slice(a, b) for a, b in itertools.pairwise(cuts)]


@pytest.mark.parametrize(
    ("value", "selection"),
    [
        (slice(None), slice(0, 10)),
        (slice(7, None), slice(7, 10)),
        (slice(-100, 2), slice(0, 2)),
        (slice(2.1, 2.4), slice(2, 3)),
        (slice(9.1, 9.4), slice(9, 10)),
        (slice(9.3, 100), slice(9, 10)),
        (slice(-0.4, -0.1), slice(0, 1)),
        (3.4, 3),
        (9.4, 9),
        (-0.4, 0),
    ],
)
def test_what_is_chosen(value: Any, selection: Any) -> None:
    assert one(value).selection == selection


def test_units_are_converted_both_ways() -> None:
    found = one(slice(2000, 4000), unit="nanometer")
    assert found.selection == slice(2, 4)
    assert found.coords.tolist() == [2000.0, 3000.0]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (10, "10 holds nothing of axis 'y', which spans -0.5 to 9.5"),
        (slice(10, 20), "holds nothing of axis 'y'"),
        (slice(-5, -1), "holds nothing"),
        (slice(4, 4), "holds nothing"),
        (slice(0, 5, 2), "a region has no steps"),
        ("far", "takes a number or a slice"),
        (float("nan"), "takes a number or a slice"),
    ],
)
def test_what_is_not_in_the_image(value: Any, message: str) -> None:
    with pytest.raises(SelectionError, match=message):
        one(value)


def test_units_that_are_not_known() -> None:
    with pytest.raises(MetadataError, match="no conversion"):
        one(3, unit="second")
    placed = Transformation((1.0,), (0.0,))
    with pytest.raises(SelectionError, match="axis 'x' has no unit"):
        spans((ImageAxis("x", "space"),), (5,), placed, {"x": 2}, {"x": "meter"}, (), "here")
    (found,) = spans(
        (ImageAxis("x", "space"),), (2,), placed, {}, {"x": "meter"}, (), "here"
    )  # nothing was asked of it
    assert found.coords.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("value", "selection"), [("b", 1), (-1, 2), (slice(1, 3), slice(1, 3)), (slice(None), slice(0, 3))]
)
def test_channels_are_numbers_or_names(value: Any, selection: Any) -> None:
    found = spans(AXES, (3, 4), Transformation((1.0, 1.0), (0.0, 0.0)), {"c": value}, {}, ("a", "b", None), "here")
    assert found[0].selection == selection


@pytest.mark.parametrize("value", ["z", 3, -4, 1.5, True, slice(3, 9), slice(0, 3, 2)])
def test_channels_that_are_not_there(value: Any) -> None:
    with pytest.raises(SelectionError, match="channel"):
        spans(AXES, (3, 4), Transformation((1.0, 1.0), (0.0, 0.0)), {"c": value}, {}, ("a", "b", None), "here")


@pytest.mark.parametrize(("wanted", "level"), [(0.1, 0), (0.5, 0), (1.0, 1), (1.9, 1), (2.0, 2), (100, 2)])
def test_the_coarsest_level_that_suffices(wanted: float, level: int) -> None:
    scales = [{"z": 2.0, "y": 0.5 * 2**k} for k in range(3)]
    assert level_for(scales, {"z": wanted, "y": wanted}) == level
