"""Keys in brackets: their normal forms, and the errors for keys that do not fit."""

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import SelectionError
from gzarr.indexing.selection import (
    Box,
    Points,
    Range,
    normalize,
    normalize_basic,
    normalize_blocks,
    normalize_coordinates,
    normalize_mask,
    normalize_orthogonal,
    normalize_vindex,
    split_fields,
)

SHAPE = (6, 5, 4)


# -- fields ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "rest", "fields"),
    [
        ("a", (), "a"),
        (["a", "b"], (), ["a", "b"]),
        (("a", 0), (0,), "a"),
        ((0, slice(2), "a", "b"), (0, slice(2)), ["a", "b"]),
        (("a", "b"), (), ["a", "b"]),
        ([0, 1], [0, 1], None),
        ([], [], None),
        (..., ..., None),
    ],
)
def test_names_are_taken_out_of_keys(key: Any, rest: Any, fields: Any) -> None:
    assert split_fields(key) == (rest, fields)


# -- normal forms ----------------------------------------------------------------------------------------------------


def test_the_given_index_array_is_not_changed() -> None:
    given = np.array([-1, 2])
    normalize_orthogonal((given,), SHAPE)
    normalize_coordinates((given, given, given), SHAPE)
    assert given.tolist() == [-1, 2]


@pytest.mark.parametrize(
    ("key", "kind", "shape"),
    [
        (3, Box, (5, 4)),
        ((), Box, SHAPE),
        (None, Box, (1, *SHAPE)),
        ([0, 2], Box, (2, 5, 4)),
        (range(3), Box, (3, 5, 4)),
        (np.array([0, 2]), Box, (2, 5, 4)),
        ((slice(2), [0, 1]), Box, (2, 2, 4)),
        ((..., [0, 1]), Box, (6, 5, 2)),
        (([0, 1], 2), Box, (2, 4)),
        ([True, False] * 3, Box, (3, 5, 4)),
        ((0, [True, False, True, True, False]), Box, (3, 4)),
        (np.ones(SHAPE, bool), Points, (120,)),
        (np.ones(SHAPE, bool).tolist(), Points, (120,)),
        ((np.zeros(SHAPE, bool),), Points, (0,)),
        (([0, 1], [0, 1], [0, 1]), Points, (2,)),
        ((1, [0, 1], [2, 3]), Points, (2,)),
        ((1, 2, [2, 3]), Points, (2,)),
        ((np.array([[0], [1]]), [0, 1], 2), Points, (2, 2)),
    ],
)
def test_brackets_fall_back(key: Any, kind: type, shape: tuple[int, ...]) -> None:
    found = normalize(key, SHAPE)
    assert isinstance(found, kind)
    assert found.shape == shape


@pytest.mark.parametrize(
    ("key", "shape"),
    [([0, 2], (2,)), (np.array([[0, 1], [2, 3]]), (2, 2)), ([True, False, True, False], (2,)), ([], (0,))],
)
def test_one_list_for_one_axis_is_points(key: Any, shape: tuple[int, ...]) -> None:
    found = normalize(key, (4,))
    assert isinstance(found, Points)
    assert found.shape == shape


def test_masks_of_arrays_without_axes() -> None:
    assert normalize_mask(np.array(True), ()).shape == (1,)
    assert normalize_mask(np.array(False), ()).shape == (0,)


def test_masks_of_64_dimensions() -> None:
    shape = (1,) * 62 + (2, 3)
    mask = np.zeros(shape, bool)
    mask[..., 1, 2] = True
    assert [c.tolist() for c in normalize_mask(mask, shape).coords] == [[0]] * 62 + [[1], [2]]


@pytest.mark.parametrize("step", [2**31, 2**63 - 1, 2**63, 2**64, 10**30])
def test_steps_of_single_elements_are_small(step: int) -> None:
    assert normalize_basic(slice(2, None, step), (6,)).axes == (Range(2, 1, 1),)
    assert normalize_basic(slice(4, None, -step), (6,)).axes == (Range(4, 1, 1),)
    assert normalize_basic(slice(6, None, step), (6,)).axes == (Range(6, 1, 0),)


def test_axes_longer_than_any_index_array() -> None:
    assert normalize_basic((slice(-3, None, 2), -1), (2**64, 2**70)).shape == (2,)
    assert normalize_basic(slice(None, None, 2**62), (2**64,)).shape == (4,)
    assert np.asarray(normalize_orthogonal(([2**62],), (2**64,)).axes[0]).tolist() == [2**62]
    z = gzarr.create_array(shape=2**64, chunks=2, dtype="i1")
    z[-40:] = np.arange(40)
    assert z.lazy[-41:][::-1][...].tolist() == [*range(39, -1, -1), 0]
    with pytest.raises(MemoryError, match=rf"no memory holds an array of shape \({2**63},\) and int8: select a part"):
        gzarr.create_array(shape=2**63, chunks=2**40, dtype="i1")[...]
    for index, extent in (([-1], 2**64), ([-1], 2**63), (np.array([2**63], "u8"), 2**64)):
        with pytest.raises(SelectionError, match="numbers of 64 bits"):
            normalize_orthogonal((index,), (extent,))


def test_blocks_are_ranges_of_elements() -> None:
    box = normalize_blocks((-1, slice(0, 2)), (10, 9), [[0, 4, 8, 10], [0, 3, 6, 9]])
    assert box.axes == (Range(8, 1, 2), Range(0, 1, 6))
    assert normalize_blocks(slice(2, 1), (10,), [[0, 4, 8, 10]]).shape == (0,)
    assert normalize_blocks((), (10,), [[0, 4, 8, 10]]).shape == (10,)


# -- what is refused -------------------------------------------------------------------------------------------------

TOO_MANY = "too many indices: the array has 3 dimensions, got 4"


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (6, "index 6 is out of bounds for axis 0 with size 6"),
        ((0, -6), "index -6 is out of bounds for axis 1 with size 5"),
        ((0, 0, 0, 0), TOO_MANY),
        ((..., ...), "only have a single ellipsis"),
        (slice(None, None, 0), "axis 0: slice step cannot be zero"),
        (slice("a"), "bad slice"),
        (1.5, "cannot index axis 0 with float 1.5; use integers, slices"),
        ((0, object), "cannot index axis 1 with type"),
        (True, "a boolean is not an index"),
        (np.True_, "a boolean is not an index"),
        ([0, 6], "index 6 is out of bounds for axis 0 with size 6"),
        ([-7, 0], "index -7 is out of bounds for axis 0 with size 6"),
        ([0.5], "axis 0 must hold integers of 64 bits, got float64"),
        ((slice(None), [True, False]), "boolean list for axis 1 must have length 5, got 2"),
        (([0, 1], [0, 1]), "2 index lists beside slices are ambiguous.*oindex.*vindex"),
        (([0, 1], [0, 1], slice(None)), "2 index lists beside slices are ambiguous"),
        ((slice(None), [[0, 1]]), "one-dimensional lists, got 2 on axis 1"),
        (([0, 1], [0, 1, 2], 0), r"do not broadcast together: \(2,\), \(3,\), \(\)"),
        (([0], [0], [4]), "index 4 is out of bounds for axis 2 with size 4"),
        (np.ones((2, 2), bool), r"a mask must have the shape of the array.*got \(2, 2\)"),
        (np.array([0, 2**64 - 1], "u8"), "index 18446744073709551615 is out of bounds for axis 0 with size 6"),
        (([0], [0], np.array([2**64 - 1], "u8")), "index 18446744073709551615 is out of bounds for axis 2"),
        (np.array([0, 255], "u1"), "index 255 is out of bounds for axis 0 with size 6"),
        ([0, 2**64 - 1, 2**64], "axis 0 must hold integers"),
        ([[0], [1, 2]], "an index list is no array"),
    ],
)
def test_brackets_say_what_does_not_fit(key: Any, message: str) -> None:
    with pytest.raises(SelectionError, match=message):
        normalize(key, SHAPE)


@pytest.mark.parametrize(
    ("function", "key", "message"),
    [
        (normalize_basic, [0, 1], "cannot index axis 0 with list .*oindex and vindex take index lists"),
        (normalize_coordinates, ([0],), "one index array per axis: 3, got 1"),
        (normalize_coordinates, ([0], [0], ["a"]), "axis 2 must hold integers"),
        (normalize_vindex, ([0], slice(2), [0]), "use oindex for slices"),
        (normalize_vindex, ([0], ..., [0]), "use oindex for slices"),
        (normalize_mask, np.ones((6, 5), bool), r"boolean array of shape \(6, 5, 4\), got bool of shape \(6, 5\)"),
        (normalize_mask, np.ones(SHAPE), "got float64"),
        (normalize_mask, (np.ones(6, bool), np.ones(5, bool)), "got several items"),
    ],
)
def test_methods_say_what_does_not_fit(function: Any, key: Any, message: str) -> None:
    with pytest.raises(SelectionError, match=message):
        function(key, SHAPE)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (3, "block 3 is out of bounds for axis 0 with size 3"),
        (np.uint64(2**64 - 1), "block 18446744073709551615 is out of bounds"),
        (slice(None, None, 2), "step 1 only"),
        (slice(0, 2, 0), "axis 0: slice step cannot be zero"),
        (slice(0, 2.0), "bad slice"),
        ([0], "list"),
    ],
)
def test_blocks_say_what_does_not_fit(key: Any, message: str) -> None:
    with pytest.raises(SelectionError, match=message):
        normalize_blocks(key, (10,), [[0, 4, 8, 10]])


def test_a_selection_error_is_an_index_error_and_nothing_was_written() -> None:
    array = gzarr.array(np.arange(4), chunks=2)
    before = dict(array.store)
    for write in (
        lambda: array.__setitem__(4, 1),
        lambda: array.oindex.__setitem__([0, 9], 1),
        lambda: array.vindex.__setitem__([0, -9], 1),
        lambda: array.vindex.__setitem__(np.array([0, 2**64 - 1], "u8"), 1),
        lambda: array.oindex.__setitem__(np.array([0, 2**64 - 1], "u8"), 1),
        lambda: array.__setitem__(np.array([0, 2**64 - 1], "u8"), 1),
        lambda: array.__getitem__(np.array([0, 2**64 - 1], "u8")),
        lambda: array.blocks.__setitem__(np.uint64(2**64 - 1), 1),
        lambda: array.blocks.__setitem__(2, 1),
        lambda: array.set_mask_selection(np.ones(3, bool), 1),
    ):
        with pytest.raises(IndexError):
            write()
    assert dict(array.store) == before


# -- out= and scalars ------------------------------------------------------------------------------------------------


def test_out_must_fit() -> None:
    array = gzarr.array(np.arange(6).reshape(2, 3), chunks=2)
    with pytest.raises(ValueError, match=r"out has shape \(3, 2\), but the selection has shape \(2, 3\)"):
        array.get_basic_selection(out=np.empty((3, 2), "i8"))
    with pytest.raises(TypeError, match="out has dtype int64, which cannot hold values of float64"):
        gzarr.array([0.5]).get_basic_selection(out=np.empty(1, "i8"))
    read_only = np.empty((2, 3), "i8")
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        array.get_basic_selection(out=read_only)


def test_out_of_another_width_is_cast() -> None:
    out = np.empty(3, "f8")
    gzarr.array(np.arange(3, dtype="i2")).get_basic_selection(out=out)
    assert out.tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", ["?", "i1", ">u4", "f4", "c16", "M8[D]", "m8[s]", "S3", "U3", "i4,f4"])
def test_single_elements_are_numpy_scalars(dtype: str) -> None:
    array = gzarr.zeros((3, 4), dtype=dtype, chunks=2)
    kind = type(np.zeros((), array.dtype)[()])
    for element in (
        array[1, 2],
        array[-1, -1],
        array.oindex[1, 2],
        array.vindex[1, 2],
        array.get_basic_selection((0, 0)),
        array.get_coordinate_selection((0, 0)),
    ):
        assert type(element) is kind
    assert type(gzarr.zeros((), dtype=dtype)[()]) is kind


@pytest.mark.parametrize(
    "key",
    [
        ([True, False, True], [True, True, False, False]),
        (np.array([True, False, True]), [0, 1]),
        ([0, 2], [True] * 2 + [False] * 2),
    ],
)
def test_lists_of_which_one_is_boolean_are_orthogonal(key):
    """As in zarr-python."""
    box = normalize(key, (3, 4))
    assert [axis.tolist() for axis in box.axes] == [[0, 2], [0, 1]]
