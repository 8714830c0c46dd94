"""The levels of a pyramid: shapes, factors, voxel sizes and places."""

import re
from typing import Any

import pytest

from gzarr.images.ome.axes import ImageAxis, with_lengths
from gzarr.images.pyramid.levels import AxisKind, PyramidLevel, next_path, plan_levels


def axes(names: str) -> list[AxisKind]:
    return [AxisKind(name, name in "zyx") for name in names]


def base(shape: tuple[int, ...], scale: tuple[float, ...] | None = None, path: str = "0") -> PyramidLevel:
    ones = (1,) * len(shape)
    return PyramidLevel(path, shape, ones, scale or (1.0,) * len(shape), (0.0,) * len(shape))


def test_spatial_axes_are_halved_until_they_fit() -> None:
    levels = plan_levels(base((3, 100, 2000, 1001)), axes("czyx"))
    assert [level.shape for level in levels] == [(3, 50, 1000, 501), (3, 25, 500, 251), (3, 13, 250, 126)]
    assert [level.path for level in levels] == ["1", "2", "3"]
    assert {level.factors for level in levels} == {(1, 2, 2, 2)}


def test_small_images_need_no_levels() -> None:
    assert plan_levels(base((256, 256)), axes("yx")) == ()


def test_axes_with_long_voxels_wait() -> None:
    levels = plan_levels(base((64, 2048, 2048), (2.0, 0.5, 0.5)), axes("zyx"))
    assert [level.factors for level in levels] == [(1, 2, 2), (1, 2, 2), (2, 2, 2)]
    assert levels[-1].scale == (4.0, 4.0, 4.0)
    assert plan_levels(base((64, 512, 512), (0.7, 0.5, 0.5)), axes("zyx"))[0].factors == (2, 2, 2)


def test_new_voxels_lie_in_the_middle_of_their_windows() -> None:
    first, second = plan_levels(base((90, 80), (0.5, 2.0)), axes("yx"), factors=[{"y": 3}, 2])
    assert (first.scale, first.translation) == ((1.5, 2.0), (0.5, 0.0))
    assert (second.scale, second.translation) == ((3.0, 4.0), (1.25, 1.0))
    assert (first.shape, second.shape) == ((30, 80), (15, 40))


def test_voxels_are_compared_in_one_unit() -> None:
    def factors(*units: str | None) -> tuple[int, ...]:
        kinds = with_lengths([ImageAxis(name, "space", unit) for name, unit in zip("yx", units, strict=True)])
        named = [AxisKind(axis.name, is_spatial=True, unit=length) for axis, length in kinds]
        return plan_levels(base((999, 999), (250.0, 0.25)), named)[0].factors

    assert factors("nanometer", "micrometer") == (2, 2)
    assert factors("micrometer", "micrometer") == factors("nanometer", None) == (1, 2)


def test_the_nearest_element_stays_where_it_is() -> None:
    (level,) = plan_levels(base((8, 8)), axes("yx"), 1, 2, centered=False)
    assert (level.scale, level.translation) == ((2.0, 2.0), (0.0, 0.0))


def test_factors_by_axis_may_name_any_axis() -> None:
    levels = plan_levels(base((4, 600, 600)), axes("tyx"), 2, {"t": 2, "y": 3})
    assert [level.shape for level in levels] == [(2, 200, 600), (1, 67, 600)]


def test_a_factor_for_all_leaves_axes_of_one_element() -> None:
    assert plan_levels(base((1, 9, 9)), axes("zyx"), 1, 2)[0].factors == (1, 2, 2)


def test_numbers_of_paths_count_on() -> None:
    assert [next_path(path) for path in ("0", "s0", "scale9", "full", "a/3")] == ["1", "s1", "scale10", "1", "a/4"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"levels": -1}, "levels=-1: expected how many levels to add"),
        ({"levels": True}, "levels=True: expected"),
        ({"factors": 0}, "factors=0: expected integers from 1 on"),
        ({"factors": 1.5}, "factors=1.5: expected integers from 1 on"),
        ({"factors": True}, "factors=True: expected"),
        ({"factors": {"q": 2}}, "factors={'q': 2} name 'q', which is none of the axes y, x"),
        ({"factors": {"y": 0}}, "factors={'y': 0}: expected integers from 1 on"),
        ({"factors": "2"}, "factors='2': expected integers from 1 on"),
        ({"factors": [2], "levels": 2}, "factors=[2] are of 1 levels: give one for every level"),
        ({"factors": 1, "levels": 1}, "level 1 of 1 would equal the one before, of shape (600, 600)"),
        ({"levels": 12}, "level 11 of 12 would equal the one before, of shape (1, 1)"),
    ],
)
def test_what_cannot_be_planned_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        plan_levels(base((600, 600)), axes("yx"), **given)
