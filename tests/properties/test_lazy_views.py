"""Chains of lazy selections are what NumPy's are, read, written and joined."""

import pickle
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import gzarr
from gzarr.hierarchy.lazy_views import LazyView
from tests.properties import cases

Filled = tuple[cases.Case, gzarr.Array, np.ndarray]


def part(model: np.ndarray, key: Any) -> np.ndarray:
    """A selection, of the model's data type: NumPy's scalars of text have their own length."""
    return cases.as_array(model[key]).astype(model.dtype, copy=False)


def step(data: st.DataObject, view: LazyView, model: np.ndarray) -> tuple[LazyView, np.ndarray]:
    """A view of a view, and the same of its model."""
    kinds = ["basic", "transpose", "flip"] + ["orthogonal", "points", "mask"] * bool(model.ndim)
    match data.draw(st.sampled_from(kinds)):
        case "basic":
            key = data.draw(cases.basic_keys(model.shape))
            return (view, model) if key is ... else (view[key], part(model, key))
        case "orthogonal":
            key = data.draw(cases.orthogonal_keys(model.shape))
            index, shape = cases.orthogonal_index(key, model.shape)
            return view.oindex[key], part(model, index).reshape(shape)
        case "points":
            key = data.draw(cases.coordinate_keys(model.shape))
            return view.vindex[key], part(model, tuple(np.asarray(i) for i in key))
        case "mask":
            mask = data.draw(cases.masks(model.shape))
            return view[mask], model[mask]
        case "transpose":
            order = data.draw(st.permutations(range(model.ndim)))
            return view.transpose(*order), model.transpose(order)
        case _:
            axes = data.draw(st.sets(st.integers(0, model.ndim - 1))) if model.ndim else ()
            return (view.flip(*axes), np.flip(model, tuple(axes))) if axes else (view, model)


def check(view: LazyView, model: np.ndarray) -> None:
    assert (view.shape, view.nbytes) == (model.shape, model.nbytes)
    assert view.dtype.newbyteorder("=") == model.dtype.newbyteorder("=")
    cases.same(cases.as_array(view[...]), model)
    cases.same(np.asarray(pickle.loads(pickle.dumps(view))), model)
    assert tuple(map(sum, view.chunk_sizes)) == view.shape


@given(cases.filled(), st.data())
def test_chains_of_selections_are_read(drawn: Filled, data: st.DataObject) -> None:
    _, array, model = drawn
    view, names = array.lazy, model.dtype.names
    if names and data.draw(st.booleans()):
        fields = data.draw(st.sampled_from(["a", "b", "d", ["a", "d"]]))
        view, model = view[fields], model[fields]
    for _ in range(data.draw(st.integers(1, 4))):
        view, model = step(data, view, model)
    if model.dtype.kind in "iu" and data.draw(st.booleans()):
        for dtype in ("i1", "f4"):
            view, model = view.astype(dtype), model.astype(dtype)
    cases.same(cases.as_array(view[...]), model) if model.dtype.hasobject else check(view, model)


@given(cases.filled(), st.data())
def test_chains_of_selections_are_written(drawn: Filled, data: st.DataObject) -> None:
    case, array, model = drawn
    numbers = np.arange(model.size).reshape(model.shape)
    view = array.lazy
    for _ in range(data.draw(st.integers(1, 3))):
        view, numbers = step(data, view, numbers)
    if len(np.unique(numbers)) < numbers.size:
        return  # which of several values wins is not told
    value, equal = data.draw(cases.values_for(case.dtype, numbers.shape))
    view.write(value)
    model.reshape(-1)[numbers.reshape(-1)] = np.broadcast_to(cases.as_array(equal), numbers.shape).reshape(-1)
    cases.same(np.asarray(array), model)


@given(cases.filled(min_ndim=1, dtypes=("<i4", ">u2")), st.data())
def test_joined_views_are_read_and_written(drawn: Filled, data: st.DataObject) -> None:
    _, array, model = drawn
    numbers = np.arange(model.size).reshape(model.shape)
    key = data.draw(cases.basic_keys(model.shape))
    view, part = (array.lazy, numbers) if key is ... else (array.lazy[key], cases.as_array(numbers[key]))
    others: list[Any] = [view, view.flip() if view.ndim else view]
    parts = [part, np.flip(part) if part.ndim else part]
    axis = data.draw(st.integers(0, view.ndim))
    joined, of_numbers = gzarr.stack(others, axis), np.stack(parts, axis)
    again = data.draw(st.integers(0, of_numbers.ndim - 1))
    joined, of_numbers = gzarr.concat([joined, joined], again), np.concatenate([of_numbers] * 2, again)
    for _ in range(data.draw(st.integers(0, 2))):
        joined, of_numbers = step(data, joined, of_numbers)
    check(joined, model.reshape(-1)[of_numbers])
    if len(np.unique(of_numbers)) == of_numbers.size:
        joined.write(-of_numbers.astype("i8"))
        model.reshape(-1)[of_numbers] = -of_numbers
        cases.same(np.asarray(array), model)
