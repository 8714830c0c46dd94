"""How an axis goes on past its ends, and how depths and modes are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gzarr.images.halo.boundary import MODES, Depth, check_cval, pads_of, parse_depths, parse_modes, span_of

PADDED = {"reflect": "symmetric", "mirror": "reflect", "nearest": "edge", "wrap": "wrap", "constant": "constant"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("depth", [Depth(0, 0), Depth(2, 0), Depth(1, 3), Depth(4, 4), Depth(5, 23), Depth(14, 0)])
def test_pads_are_those_of_numpy(mode: str, depth: Depth, size: int) -> None:
    axis = np.arange(1, size + 1)
    whole = np.pad(axis, tuple(depth), PADDED[mode])
    for start in range(size):
        for stop in range(start + 1, size + 1):
            low, high = span_of(start, stop, depth, size)
            pads = pads_of(start, stop, depth, size, mode)
            parts = {low: axis[low:high]}
            for pad in pads:
                values = [0] if pad.source is None else axis[pad.source]
                parts[pad.start] = np.broadcast_to(values[::-1] if pad.reverse else values, pad.stop - pad.start)
            made = np.concatenate([parts[at] for at in sorted(parts)])
            np.testing.assert_array_equal(made, whole[start : stop + sum(depth)])


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
