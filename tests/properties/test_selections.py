"""Every kind of selection reads and writes what NumPy does, in every layout, for every dtype."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import gzarr
from tests.properties import cases
from tests.properties.memory import module_for

Filled = tuple[cases.Case, gzarr.Array, np.ndarray]


def check_scalar(found: Any, dtype: np.dtype[Any]) -> None:
    """A result without dimensions is a NumPy scalar, or its Python object; on a device it stays an array."""
    if hasattr(found, "__cuda_array_interface__"):
        assert found.shape == ()
        return
    assert isinstance(found, (str, bytes) if dtype.kind == "O" else np.generic)


def check_stored(case: cases.Case, array: gzarr.Array, model: np.ndarray) -> None:
    """The array, and the array opened anew, hold what the model holds."""
    cases.same(np.asarray(array), model)
    cases.same(np.asarray(gzarr.open_array(array.store, mode="r")), model)


# -- reading ---------------------------------------------------------------------------------------------------------


@given(cases.filled(), st.data())
def test_basic_reads(drawn: Filled, data: st.DataObject) -> None:
    case, array, model = drawn
    for _ in range(3):
        key = data.draw(cases.basic_keys(case.shape))
        found, wanted = array[key], model[key]
        cases.same(found, wanted)
        cases.same(array.get_basic_selection(key), wanted)
        if key is ...:
            assert hasattr(found, "shape")
            assert not isinstance(found, np.generic)
        elif np.asarray(wanted).shape == ():
            check_scalar(found, model.dtype)


@given(cases.filled(), st.data())
def test_orthogonal_reads(drawn: Filled, data: st.DataObject) -> None:
    case, array, model = drawn
    for _ in range(3):
        key = data.draw(cases.orthogonal_keys(case.shape))
        index, shape = cases.orthogonal_index(key, case.shape)
        found = array.oindex[key]
        cases.same(found, cases.as_array(model[index]).reshape(shape))
        cases.same(array.get_orthogonal_selection(key), found)
        if shape == ():
            check_scalar(found, model.dtype)


@given(cases.filled(min_ndim=1), st.data())
def test_coordinate_reads(drawn: Filled, data: st.DataObject) -> None:
    case, array, model = drawn
    for _ in range(3):
        key = data.draw(cases.coordinate_keys(case.shape))
        found, wanted = array.vindex[key], model[tuple(np.asarray(i) for i in key)]
        cases.same(found, wanted)
        cases.same(array.get_coordinate_selection(key), wanted)
        if np.ndim(wanted) == 0:
            check_scalar(found, model.dtype)


@given(cases.filled(), st.data())
def test_mask_reads(drawn: Filled, data: st.DataObject) -> None:
    case, array, model = drawn
    mask = data.draw(cases.masks(case.shape))
    cases.same(array.get_mask_selection(mask), model[mask])
    cases.same(array.vindex[mask], model[mask])
    if case.shape:
        cases.same(array[mask], model[mask])


@given(cases.filled(), st.data())
def test_block_reads(drawn: Filled, data: st.DataObject) -> None:
    _, array, model = drawn
    key, means = data.draw(cases.block_keys(array))
    cases.same(array.blocks[key], model[means])
    cases.same(array.get_block_selection(key), model[means])


@given(cases.filled(min_ndim=1), st.data())
def test_bracket_reads_fall_back(drawn: Filled, data: st.DataObject) -> None:
    """Index lists for every axis are points; a single list beside slices and integers is orthogonal."""
    case, array, model = drawn
    points = data.draw(cases.coordinate_keys(case.shape))
    if any(np.ndim(i) for i in points):
        cases.same(array[points], model[tuple(np.asarray(i) for i in points)])
    key = data.draw(cases.orthogonal_keys(case.shape))
    if sum(not isinstance(i, (int, slice)) for i in key) == 1:
        index, shape = cases.orthogonal_index(key, case.shape)
        found = array[key]
        # A list and integers for all other axes are points; a list of integers gives the same either way.
        cases.same(found, model[index].reshape(shape))


@given(cases.filled(), st.data())
def test_reads_into_a_buffer(drawn: Filled, data: st.DataObject) -> None:
    case, array, model = drawn
    key = data.draw(cases.basic_keys(case.shape))
    index, shape = cases.orthogonal_index(lists := data.draw(cases.orthogonal_keys(case.shape)), case.shape)
    blocks, means = data.draw(cases.block_keys(array))
    mask = data.draw(cases.masks(case.shape))
    reads = [
        (array.get_basic_selection, key, model[key]),
        (array.get_orthogonal_selection, lists, cases.as_array(model[index]).reshape(shape)),
        (array.get_block_selection, blocks, model[means]),
        (array.get_mask_selection, mask, model[mask]),
    ]
    if case.shape:
        points = data.draw(cases.coordinate_keys(case.shape))
        reads.append((array.get_coordinate_selection, points, model[tuple(np.asarray(i) for i in points)]))
    for read, selection, wanted in reads:
        for out in buffers(cases.as_array(wanted)):
            assert read(selection, out=out) is out
            cases.same(out, wanted)


def buffers(like: np.ndarray) -> list[np.ndarray]:
    """Buffers to read into: contiguous, of every other element, backwards, transposed, and one field of a struct."""
    shape, dtype = like.shape, like.dtype
    xp = module_for(dtype)
    made = [xp.empty(shape, dtype), xp.empty(shape, dtype, order="F")]
    if shape:
        made.append(xp.empty((*shape[:-1], 2 * shape[-1]), dtype)[..., ::2])
        made.append(xp.empty(shape, dtype)[::-1])
        made.append(xp.empty((shape[-1], *shape[:-1]), dtype).transpose([*range(1, len(shape)), 0]))
    if dtype.kind != "O":
        made.append(np.empty(shape, [("pad", "u1"), ("it", dtype)])["it"])
    return made


@given(st.integers(1, 300), st.sampled_from("iu"), st.sampled_from([1, 2, 4, 8]), st.data())
def test_indices_out_of_bounds_are_refused(extent: int, kind: str, size: int, data: st.DataObject) -> None:
    """Whatever the width of an index, it is one of the array's or an error, and never another one."""
    info = np.iinfo(f"{kind}{size}")
    near = st.sampled_from([info.min, info.max, extent, extent - 1, -extent, -extent - 1, 0])
    index = data.draw(st.integers(int(info.min), int(info.max)) | near.map(lambda i: min(max(i, info.min), info.max)))
    indices = np.array([0, index], info.dtype)
    array = gzarr.array(np.arange(extent), chunks=7)
    for read in (array.__getitem__, array.oindex.__getitem__, array.vindex.__getitem__):
        if -extent <= index < extent:
            assert read(indices).tolist() == [0, index % extent]
        else:
            with pytest.raises(IndexError, match=f"{index} is out of bounds"):
                read(indices)


# -- writing ---------------------------------------------------------------------------------------------------------


@given(cases.filled(), st.data())
def test_basic_writes(drawn: Filled, data: st.DataObject) -> None:
    case, array, model = drawn
    for method in (array.__setitem__, array.set_basic_selection):
        key = data.draw(cases.basic_keys(case.shape))
        value, equal = data.draw(cases.values_for(case.dtype, np.shape(model[key])))
        method(key, value)
        model[key] = equal
    check_stored(case, array, model)


@given(cases.filled(), st.data())
def test_orthogonal_writes(drawn: Filled, data: st.DataObject) -> None:
    case, array, model = drawn
    for method in (array.oindex.__setitem__, array.set_orthogonal_selection):
        key = data.draw(cases.orthogonal_keys(case.shape))
        index, shape = cases.orthogonal_index(key, case.shape)
        value, equal = data.draw(cases.values_for(case.dtype, shape))
        method(key, value)
        # NumPy, given an ellipsis, takes the one object out of an array without axes.
        model[(*index, ...)] = np.broadcast_to(cases.as_array(equal), shape).reshape(np.shape(model[index]))
    check_stored(case, array, model)


@given(cases.filled(min_ndim=1), st.data())
def test_coordinate_writes(drawn: Filled, data: st.DataObject) -> None:
    """The last of two values for one point wins, as in NumPy."""
    case, array, model = drawn
    for method in (array.vindex.__setitem__, array.set_coordinate_selection):
        key = data.draw(cases.coordinate_keys(case.shape))
        index = tuple(np.asarray(i) for i in key)
        value, equal = data.draw(cases.values_for(case.dtype, np.shape(model[index])))
        method(key, value)
        model[index] = equal
    check_stored(case, array, model)


@given(cases.filled(), st.data())
def test_mask_writes(drawn: Filled, data: st.DataObject) -> None:
    case, array, model = drawn
    for method in (array.vindex.__setitem__, array.set_mask_selection):
        mask = data.draw(cases.masks(case.shape))
        value, equal = data.draw(cases.values_for(case.dtype, model[mask].shape))
        method(mask, value)
        model[mask] = equal
    check_stored(case, array, model)


@given(cases.filled(), st.data())
def test_block_writes(drawn: Filled, data: st.DataObject) -> None:
    case, array, model = drawn
    for method in (array.blocks.__setitem__, array.set_block_selection):
        key, means = data.draw(cases.block_keys(array))
        value, equal = data.draw(cases.values_for(case.dtype, np.shape(model[means])))
        method(key, value)
        model[means] = equal
    check_stored(case, array, model)


@given(cases.filled(min_ndim=1), st.data())
def test_bracket_writes_fall_back(drawn: Filled, data: st.DataObject) -> None:
    case, array, model = drawn
    points = data.draw(cases.coordinate_keys(case.shape))
    if any(np.ndim(i) for i in points):
        index = tuple(np.asarray(i) for i in points)
        value, equal = data.draw(cases.values_for(case.dtype, np.shape(model[index])))
        array[points] = value
        model[index] = equal
    mask = data.draw(cases.masks(case.shape))
    array[mask] = value = cases.sample(case.dtype, (1,), np.random.default_rng(0))
    model[mask] = value
    check_stored(case, array, model)


@given(cases.filled(), st.data())
def test_shapes_of_values_are_taken_and_refused_as_numpy_does(drawn: Filled, data: st.DataObject) -> None:
    case, array, model = drawn
    if not case.shape or data.draw(st.booleans()):
        index: Any = data.draw(cases.masks(case.shape))
        write = data.draw(st.sampled_from([array.set_mask_selection, array.vindex.__setitem__]))
    else:
        index, write = data.draw(cases.coordinate_keys(case.shape)), array.set_coordinate_selection
        assume(np.shape(model[index]))  # NumPy casts what goes to a single element by other rules
    wanted = np.shape(model[index])
    lengths = [data.draw(st.sampled_from([n, 0, 1, 2])) for n in wanted]
    shape = data.draw(st.sampled_from([tuple(lengths), (1, *lengths), (1, 0), (0,), (1,), (1, 1), (2,), (), (0, 1)]))
    value = cases.sample(case.dtype, shape, np.random.default_rng(3))
    try:
        model[index] = value
    except (ValueError, TypeError):
        with pytest.raises(ValueError, match="cannot write a value of shape"):
            write(index, value)
    else:
        write(index, value)
    check_stored(case, array, model)


@given(cases.filled(), st.data())
def test_values_of_another_shape_are_refused_and_nothing_is_written(drawn: Filled, data: st.DataObject) -> None:
    case, array, model = drawn
    key = data.draw(cases.basic_keys(case.shape))
    shape = np.shape(model[key])
    # One more than fits along the last axis (3 where there is none), so that it never broadcasts.
    wrong = (*shape[:-1], max(shape[-1], 1) + 1) if shape else (3,)
    before = dict(array.store)
    with pytest.raises(ValueError) as caught:
        array[key] = cases.sample(case.dtype, wrong, np.random.default_rng(0))
    # A single object may be anything; it is the codec that refuses an array.
    message = str(caught.value)
    assert (not shape and model.dtype == object) or (str(wrong) in message and str(shape) in message)
    assert dict(array.store) == before
