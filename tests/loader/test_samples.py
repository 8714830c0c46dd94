"""Windows cross no episode, crops are within the array, tiles cover it, and parts of a split are disjoint."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gzarr
from gzarr.indexing.grid import Axis, RegularAxis, VaryingAxis
from gzarr.loader.samples import Samples, make_samples
from gzarr.loader.windows import Crops, Window


def boxes(samples: Samples, ndim: int = 1) -> np.ndarray:
    return samples.boxes(np.arange(samples.n), ndim)


def touched(samples: Samples, rows: int) -> np.ndarray:
    """How many boxes touch each row of axis 0."""
    counts = np.zeros(rows, int)
    for first in boxes(samples)[:, 0] if len(samples.starts) == 1 else boxes(samples, 2)[:, 0]:
        counts[first : first + samples.size[0]] += 1
    return counts


# -- rows and windows ------------------------------------------------------------------------------------------------


def test_rows_have_no_axis_of_their_own() -> None:
    samples = make_samples({"image": (10, 4, 3), "label": (10,)})
    assert (samples.n, samples.box((10, 4, 3))) == (10, (1, 4, 3))
    assert (samples.shape((10, 4, 3)), samples.shape((10,))) == ((4, 3), ())
    assert samples.boxes(np.array([7, 2]), 3).tolist() == [[7, 0, 0], [2, 0, 0]]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=8), st.integers(1, 6), st.integers(1, 4), st.integers(0, 5))
def test_windows_are_all_that_fit_into_episodes(lengths: list[int], n: int, stride: int, more: int) -> None:
    ends = np.cumsum(lengths)
    expected = [
        first for end, length in zip(ends, lengths, strict=True) for first in range(end - length, end - n + 1, stride)
    ]
    shape = (int(ends[-1]) + more, 2)
    if not expected:
        return
    samples = make_samples({"x": shape}, window=Window(n, ends=ends, stride=stride))
    assert boxes(samples, 2)[:, 0].tolist() == expected
    assert samples.shape(shape) == (n, 2)


# -- crops -----------------------------------------------------------------------------------------------------------


@given(st.data(), st.integers(1, 3))
def test_tiles_cover_the_array(data: st.DataObject, naxes: int) -> None:
    extents = data.draw(st.tuples(*[st.integers(1, 9)] * naxes))
    size = tuple(data.draw(st.integers(1, extent)) for extent in extents)
    stride = tuple(data.draw(st.integers(1, s)) for s in size)
    samples = make_samples({"x": (*extents, 3)}, crops=Crops(size, stride=stride))
    counts = np.zeros(extents, int)
    for place in boxes(samples, naxes + 1):
        assert place[-1] == 0
        counts[tuple(slice(a, a + s) for a, s in zip(place, size, strict=False))] += 1
    assert counts.min() >= 1
    assert counts.sum() == samples.n * np.prod(size)  # all of them are inside


def test_tiles_are_in_c_order_and_the_last_is_shifted_inward() -> None:
    samples = make_samples({"x": (5, 6)}, crops=Crops((2, 3)))
    assert boxes(samples, 2).tolist() == [[0, 0], [0, 3], [2, 0], [2, 3], [3, 0], [3, 3]]


def test_axes_that_are_not_cut_are_whole() -> None:
    samples = make_samples({"x": (8, 6, 3), "y": (8, 6)}, crops=Crops((None, 2)))
    assert samples.box((8, 6, 3)) == samples.shape((8, 6, 3)) == (8, 2, 3)
    assert boxes(samples, 3).tolist() == [[0, 0, 0], [0, 2, 0], [0, 4, 0]]


def test_random_crops_are_anywhere_inside_and_others_in_every_epoch() -> None:
    samples = make_samples({"x": (20, 9, 5)}, crops=Crops((4, 9, 2), n=5000))
    one, other = boxes(samples.at(1, 0), 3), boxes(samples.at(1, 1), 3)
    assert samples.n == len(one) == 5000
    for axis, places in enumerate([17, 1, 4]):
        counts = np.bincount(one[:, axis], minlength=places)
        assert len(counts) == places
        assert abs(counts - 5000 / places).max() < 5 * np.sqrt(5000 / places)
    assert (one != other).any(1).mean() > 0.9
    assert (one != boxes(samples.at(2, 0), 3)).any(1).mean() > 0.9
    np.testing.assert_array_equal(samples.at(1, 0).boxes(np.array([17, 3]), 3), one[[17, 3]])


def test_random_crops_are_the_same_on_every_platform() -> None:
    samples = make_samples({"x": (1000, 900)}, crops=Crops((10, 20), n=3)).at(5, 2)
    assert boxes(samples, 2).tolist() == [[577, 590], [363, 271], [203, 696]]


# -- what lies together ----------------------------------------------------------------------------------------------


@given(st.data())
def test_runs_are_the_samples_that_begin_in_one_chunk(data: st.DataObject) -> None:
    axis: Axis
    if data.draw(st.booleans()):
        axis = RegularAxis(data.draw(st.integers(1, 40)), data.draw(st.integers(1, 12)))
    else:
        lengths = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=6)))
        axis = VaryingAxis(sum(lengths), lengths)
    n = data.draw(st.integers(1, min(axis.extent, 4)))
    samples = make_samples({"x": (axis.extent,)}, window=Window(n, stride=data.draw(st.integers(1, 4))))
    found = samples.runs(axis)
    chunks = axis.locate_all(boxes(samples)[:, 0])
    if isinstance(found, int):
        np.testing.assert_array_equal(chunks, np.arange(samples.n) // found)
    else:
        assert found[0] == 0
        assert found[-1] == samples.n
        np.testing.assert_array_equal(
            np.unique(chunks, return_inverse=True)[1], np.searchsorted(found, np.arange(samples.n), "right") - 1
        )


def test_rows_of_equal_chunks_need_no_table() -> None:
    axis = RegularAxis(10**9, 16)
    samples = make_samples({"x": (10**9,)})
    assert samples.runs(axis) == 16
    assert [part.runs(axis) for part in samples.split([0.9, 0.1], axis)] == [16, 16]
    assert make_samples({"x": (10**9,)}, window=Window(8, stride=4)).runs(axis) == 4


# -- parts -----------------------------------------------------------------------------------------------------------

KINDS: list[dict[str, Any]] = [
    {},
    {"window": Window(3)},
    {"window": Window(3, stride=2)},
    {"window": Window(2, ends=[7, 30, 31, 90, 120, 187, 200])},
    {"crops": Crops((3, 4))},
    {"crops": Crops((3, 4), n=300)},
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("axis", [RegularAxis(200, 7), VaryingAxis(200, (3, 9) * 16 + (8,))], ids=["equal", "varying"])
def test_parts_of_a_split_are_disjoint_and_aligned(kind: dict[str, Any], shuffle: bool, axis: Axis) -> None:
    samples = make_samples({"x": (200, 9)}, **kind)
    parts = samples.split([0.7, 0.2, 0.1], axis, seed=3, shuffle=shuffle)
    owners = np.stack([touched(part, 200) > 0 for part in parts])
    assert owners.sum(0).max() == 1
    assert owners.sum() > 150
    if not samples.episodes:  # no chunk is shared
        chunks = axis.locate_all(np.arange(200))
        assert all(owners[:, chunks == chunk].any(1).sum() <= 1 for chunk in range(axis.nchunks))
    assert [part.n / samples.n for part in parts] == pytest.approx(
        [0.7, 0.2, 0.1], abs=0.2 if samples.episodes else 0.09
    )
    again = samples.split([0.7, 0.2, 0.1], axis, seed=3, shuffle=shuffle)
    assert [part.describe() for part in again] == [part.describe() for part in parts]
    assert len({json.dumps(part.describe()) for part in [samples, *parts]}) == 4


@pytest.mark.parametrize("axis", [RegularAxis(200, 7), VaryingAxis(200, (3, 9) * 16 + (8,))], ids=["equal", "varying"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_parts_of_rows_are_all_rows(axis: Axis, shuffle: bool) -> None:
    parts = make_samples({"x": (200,)}).split([0.5, 0.25, 0.25], axis, shuffle=shuffle)
    rows = np.concatenate([boxes(part)[:, 0] for part in parts])
    np.testing.assert_array_equal(np.sort(rows), np.arange(200))
    assert shuffle == (boxes(parts[0])[-1, 0] > 120)
    if not shuffle:
        np.testing.assert_array_equal(rows, np.arange(200))


def test_parts_depend_on_the_seed_and_may_be_split_again() -> None:
    axis = RegularAxis(1000, 10)
    samples = make_samples({"x": (1000,)})
    train, _ = samples.split([0.8, 0.2], axis, seed=0)
    other, _ = samples.split([0.8, 0.2], axis, seed=1)
    assert train.describe() != other.describe()
    one, two = train.split([0.5, 0.5], axis)
    assert one.n + two.n == train.n == 800
    assert not set(boxes(one)[:, 0]) & set(boxes(two)[:, 0])
    assert set(boxes(one)[:, 0]) < set(boxes(train)[:, 0])


@pytest.mark.parametrize("fractions", [(), (0.5, 0.6), (0.0, 1.0), (-0.1, 0.5), (2,)])
def test_fractions_that_are_none_are_refused(fractions: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="expected fractions above 0 that add up to 1 at most"):
        make_samples({"x": (100,)}).split(fractions, RegularAxis(100, 10))


def test_a_part_without_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="a part would have no sample, as there are 2 groups of chunks"):
        make_samples({"x": (100,)}).split((0.9, 0.05, 0.05), RegularAxis(100, 50))
    whole = make_samples({"x": (100, 8)}, crops=Crops((None, 4)))
    with pytest.raises(ValueError, match="a part would have no sample"):
        whole.split((0.5, 0.5), RegularAxis(100, 50))


# -- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: make_samples({}), ValueError, "no arrays"),
        (lambda: make_samples({"x": (3,), "y": (4,)}), ValueError, r"differ in extent .*: 'x' \(3,\), 'y' \(4,\)"),
        (
            lambda: make_samples({"x": (3, 4), "y": (3,)}, crops=Crops((1, 1))),
            ValueError,
            r"along 2 axes, array 'y' of shape \(3,\) has 1",
        ),
        (lambda: make_samples({"x": ()}), ValueError, r"along 1 axes, array 'x' of shape \(\) has 0"),
        (lambda: make_samples({"x": (0, 3)}), ValueError, r"'x' of shape \(0, 3\) has no samples"),
        (lambda: make_samples({"x": (9,)}, window=Window(2), crops=Crops(2)), ValueError, "exclude each other"),
        (lambda: make_samples({"x": (9,)}, window=8), TypeError, "window must be a gzarr.Window.* got 8"),
        (lambda: make_samples({"x": (9,)}, crops=(8,)), TypeError, r"crops must be gzarr.Crops.* got \(8,\)"),
        (lambda: make_samples({"x": (9,)}, window=Window(10)), ValueError, "10 rows fit nowhere.* has 9 rows"),
        (lambda: make_samples({"x": (9,)}, window=Window(3, ends=[2, 4])), ValueError, "longest episode has 2 rows"),
        (lambda: make_samples({"x": (9,)}, window=Window(3, ends=[10])), ValueError, "reach to row 10, .* have 9 rows"),
        (lambda: make_samples({"x": (9, 5)}, crops=Crops((9, 6))), ValueError, r"\(9, 6\) are larger .* \(9, 5\)"),
        (lambda: Window(0), ValueError, "n of Window must be an integer above 0, got 0"),
        (lambda: Window(2.5), TypeError, "n of Window must be an integer above 0, got 2.5"),
        (lambda: Window(2, stride=-1), ValueError, "stride of Window"),
        (lambda: Window(2, ends=[5, 4]), ValueError, "must ascend from 0; end 1 is 4: sort them"),
        (lambda: Window(2, ends=[-5, 4]), ValueError, "end 0 is -5"),
        (lambda: Window(2, ends=[0.5]), TypeError, "ends of Window must be integers"),
        (lambda: Window(2, ends=[]), TypeError, "ends of Window must be integers"),
        (lambda: Crops((2, 0)), ValueError, "size of Crops must be an integer above 0, got 0"),
        (lambda: Crops("2"), TypeError, "size of Crops must be an integer above 0, got '2'"),
        (lambda: Crops((2,), n=0), ValueError, "n of Crops"),
        (lambda: Crops((2,), n=3, stride=(1,)), ValueError, "random with n=, or tiles with stride="),
        (lambda: Crops((2, 2), stride=(1,)), ValueError, "has 1 axes, size .* has 2"),
        (lambda: Crops((2, 2), stride=(1, 3)), ValueError, "tiles would not cover"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_windows_show_what_they_are() -> None:
    assert repr(gzarr.Window(8)) == "Window(8, stride=1)"
    assert repr(gzarr.Window(8, ends=[10, 20])) == "Window(8, ends=[... 2 of them, up to 20], stride=1)"
    assert gzarr.Crops(5) == gzarr.Crops((5,))
