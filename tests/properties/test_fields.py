"""Fields of structured arrays: reads give what NumPy's do, writes leave every other field alone."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gzarr
from gzarr.errors import SelectionError
from tests.properties import cases

PADDED = np.dtype([("a", "u1"), ("b", "<f8"), ("c", "<i2", (2, 2))], align=True)
BIG_ENDIAN = np.dtype([("a", ">i4"), ("b", ">U2"), ("c", "|b1")])
Filled = tuple[cases.Case, gzarr.Array, np.ndarray]


@st.composite
def structured(draw: Any) -> Filled:
    return draw(cases.filled(dtypes=(cases.STRUCT, PADDED, BIG_ENDIAN), layouts=LAYOUTS))


LAYOUTS = ("v2", "v2 F /", "v3", "v3 F", "shards", "nested", "transpose, shards", "rectilinear", "wrapped shards")


def some_fields(data: st.DataObject, dtype: np.dtype[Any]) -> Any:
    """One name, or a list of names in any order."""
    names = data.draw(st.permutations(dtype.names))
    return data.draw(st.sampled_from([names[0], names[:1], names[:2], names]))


@given(structured(), st.data())
def test_reads_of_fields(drawn: Filled, data: st.DataObject) -> None:
    case, array, model = drawn
    fields = some_fields(data, model.dtype)
    wanted = model[fields]
    key = data.draw(cases.basic_keys(case.shape))
    cases.same(array.get_basic_selection(key, fields=fields), model[key][fields])
    lists = data.draw(cases.orthogonal_keys(case.shape))
    index, shape = cases.orthogonal_index(lists, case.shape)
    inner = wanted.shape[len(case.shape) :]
    cases.same(array.get_orthogonal_selection(lists, fields=fields), wanted[index].reshape(shape + inner))
    blocks, means = data.draw(cases.block_keys(array))
    cases.same(array.get_block_selection(blocks, fields=fields), model[means][fields])
    mask = data.draw(cases.masks(case.shape))
    cases.same(array.get_mask_selection(mask, fields=fields), model[mask][fields])
    if case.shape:
        points = data.draw(cases.coordinate_keys(case.shape))
        index = tuple(np.asarray(i) for i in points)
        cases.same(array.get_coordinate_selection(points, fields=fields), model[index][fields])
    cases.same(array[fields], wanted if case.shape else model[()][fields])


@given(structured(), st.data())
def test_reads_of_fields_into_a_buffer(drawn: Filled, data: st.DataObject) -> None:
    case, array, model = drawn
    fields = some_fields(data, model.dtype)
    mask = data.draw(cases.masks(case.shape))
    for read, key, wanted in (
        (array.get_basic_selection, ..., model[fields]),
        (array.get_mask_selection, mask, model[mask][fields]),
    ):
        made = np.empty(wanted.shape, wanted.dtype)
        cases.same(read(key, fields=fields, out=made), wanted)
        backwards = np.empty(wanted.shape, wanted.dtype)[..., ::-1] if wanted.shape else made
        cases.same(read(key, fields=fields, out=backwards), wanted)


@given(structured(), st.data())
def test_writes_of_fields_leave_the_others_alone(drawn: Filled, data: st.DataObject) -> None:
    case, array, model = drawn
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    fields = some_fields(data, model.dtype)

    basic = data.draw(cases.basic_keys(case.shape))
    value = cases.sample(model.dtype, np.shape(model[basic]), rng)[fields]
    array.set_basic_selection(basic, value, fields=fields)
    put(model, basic, fields, value)
    cases.same(np.asarray(array), model)

    lists = data.draw(cases.orthogonal_keys(case.shape))
    index, _ = cases.orthogonal_index(lists, case.shape)
    value = np.atleast_1d(cases.sample(model.dtype, (1,), rng))[fields][0]
    array.set_orthogonal_selection(lists, value, fields=fields)
    put(model, index, fields, value)
    cases.same(np.asarray(array), model)

    mask = data.draw(cases.masks(case.shape))
    value = cases.sample(model.dtype, model[mask].shape, rng)[fields]
    array.set_mask_selection(mask, value, fields=fields)
    put(model, mask, fields, value)
    blocks, means = data.draw(cases.block_keys(array))
    value = cases.sample(model.dtype, np.shape(model[means]), rng)[fields]
    array.set_block_selection(blocks, value, fields=fields)
    put(model, means, fields, value)
    if case.shape:
        points = data.draw(cases.coordinate_keys(case.shape))
        index = tuple(np.asarray(i) for i in points)
        value = cases.sample(model.dtype, np.shape(model[index]), rng)[fields]
        array.set_coordinate_selection(points, value, fields=fields)
        put(model, index, fields, value)
    cases.same(np.asarray(array), model)


def put(model: np.ndarray, key: Any, fields: Any, value: Any) -> None:
    which = np.arange(model.size).reshape(model.shape)[key]
    for name in [fields] if isinstance(fields, str) else fields:
        model.reshape(-1)[name][which] = value if isinstance(fields, str) else value[name]


# -- by example ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[2, 3])
def foo(request: pytest.FixtureRequest) -> gzarr.Array:
    data = np.array([(b"aaa", 1, 4.2), (b"bbb", 2, 8.4), (b"ccc", 3, 12.6)], dtype="S3,i4,f8")
    data.dtype.names = ("foo", "bar", "baz")
    return gzarr.array(data, chunks=2, zarr_format=request.param)


def test_names_stand_between_brackets(foo: gzarr.Array) -> None:
    assert (foo["foo"].tolist(), foo["bar", 1:].tolist()) == ([b"aaa", b"bbb", b"ccc"], [2, 3])
    assert foo[0, "bar"] == 1
    assert foo[["baz", "foo"]].tolist() == [(4.2, b"aaa"), (8.4, b"bbb"), (12.6, b"ccc")]
    assert (foo["foo", "bar", 0].tolist(), foo.oindex[[2, 0], "bar"].tolist()) == ((b"aaa", 1), [3, 1])
    assert (foo.vindex[[2, 0], "bar"].tolist(), foo.blocks[1, "bar"].tolist()) == ([3, 1], [3])


def test_names_are_assigned_to(foo: gzarr.Array) -> None:
    foo["bar"] = [7, 8, 9]
    foo["baz", 1:] = 0
    foo.oindex[[0], "foo"] = "x"
    foo.vindex[[2], "foo"] = b"y"
    foo.blocks[0, "baz"] = 1.5
    assert foo[:].tolist() == [(b"x", 7, 1.5), (b"bbb", 8, 1.5), (b"y", 9, 0.0)]


def test_a_whole_element_is_a_tuple(foo: gzarr.Array) -> None:
    foo[1] = (b"zzz", 5, 6)
    foo[2:] = [(b"q", 8, 9)]
    assert foo[:].tolist() == [(b"aaa", 1, 4.2), (b"zzz", 5, 6.0), (b"q", 8, 9.0)]


def test_an_unknown_name_is_refused(foo: gzarr.Array) -> None:
    for key in ("qux", ["foo", "qux"], (0, "qux")):
        with pytest.raises(SelectionError, match=r"no field 'qux'.*'foo', 'bar', 'baz'"):
            foo[key]
        with pytest.raises(SelectionError, match="no field 'qux'"):
            foo[key] = 1
    with pytest.raises(SelectionError, match="int32, has no fields"):
        gzarr.zeros(3, dtype="i4")["foo"]
