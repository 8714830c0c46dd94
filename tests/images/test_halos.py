"""How an axis goes on past its ends, and how depths and modes are given."""

from typing import Any

import numpy as np
import pytest

from gzarr.images.halos import Depth, check_cval, parse_depths, parse_modes


@pytest.mark.parametrize(
    ("given", "depths"),
    [
        (1, [(1, 1), (1, 1)]),
        ((1, 2), [(1, 1), (2, 2)]),
        ([(0, 3), 1], [(0, 3), (1, 1)]),
        ({"x": 2}, [(0, 0), (2, 2)]),
        ({-2: (1, 0)}, [(1, 0), (0, 0)]),
    ],
)
def test_depths_are_given_by_axis(given: Any, depths: list[tuple[int, int]]) -> None:
    assert parse_depths(given, 2, ("y", "x")) == tuple(Depth(*depth) for depth in depths)


@pytest.mark.parametrize("given", [1.5, "1", (1, (2, 3, 4)), {"z": 1}, {2: 1}, (1, None)])
def test_other_depths_are_refused(given: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="depth"):
        parse_depths(given, 2, ("y", "x"))


def test_modes_are_given_by_axis() -> None:
    assert parse_modes({"x": "wrap"}, 2, ("y", "x")) == ("reflect", "wrap")
    with pytest.raises(ValueError, match="boundary 'even' of axis 'y' is unknown; expected one of reflect"):
        parse_modes(("even", "wrap"), 2, ("y", "x"))


def test_a_constant_has_to_fit() -> None:
    check_cval(-1, [np.dtype("u1")], ["reflect"])
    check_cval(np.nan, [np.dtype("f4")], ["constant"])
    for cval in (-1, 256, 0.5, np.nan):
        with pytest.raises(ValueError, match="is no uint8"):
            check_cval(cval, [np.dtype("u1")], ["reflect", "constant"])
