"""Data types and fill values survive the trip through JSON text, for every type and bit pattern."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gzarr.dtypes import (
    cast_fill,
    default_fill,
    fill_from_json,
    fill_to_json,
    from_v2,
    from_v3,
    parse_dtype,
    to_v2,
    to_v3,
)
from gzarr.dtypes.datatype import packed_little
from gzarr.errors import MetadataError

ml_dtypes = pytest.importorskip("ml_dtypes")

settings.register_profile("dtypes", deadline=None, suppress_health_check=[HealthCheck.too_slow])
relaxed = settings.get_profile("dtypes")

CODES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
UNITS = ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"]
ML_BITS = {
    "bfloat16": 16,
    "float4_e2m1fn": 4,
    "float6_e2m3fn": 6,
    "float6_e3m2fn": 6,
    "float8_e3m4": 8,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 8,
    "float8_e4m3fn": 8,
    "float8_e4m3fnuz": 8,
    "float8_e5m2": 8,
    "float8_e5m2fnuz": 8,
    "float8_e8m0fnu": 8,
    "complex32": 32,
    "bcomplex32": 32,
}
ML_INTS = {"int2": (-2, 1), "int4": (-8, 7), "uint2": (0, 3), "uint4": (0, 15)}

plain = st.builds(lambda order, code: np.dtype(order + code), st.sampled_from("<>"), st.sampled_from(CODES))
times = st.builds(
    lambda order, code, count, unit: np.dtype(f"{order}{code}[{count}{unit}]"),
    st.sampled_from("<>"),
    st.sampled_from(["M8", "m8"]),
    st.integers(1, 2**31 - 1),
    st.sampled_from(UNITS),
)
sized = st.builds(
    lambda order, code, size: np.dtype(f"{order}{code}{size}"),
    st.sampled_from("<>"),
    st.sampled_from("SUV"),
    st.integers(1, 9),
)
ml = st.sampled_from([*ML_BITS, *ML_INTS]).map(lambda name: np.dtype(getattr(ml_dtypes, name)))
scalars = st.one_of(plain, times, sized, ml)
shapes = st.lists(st.integers(1, 3), max_size=2).map(tuple)
names = st.lists(st.text("abcé_ 0", min_size=1, max_size=3), min_size=1, max_size=4, unique=True)


@st.composite
def structs(draw, items):
    fields = [(name, draw(items), draw(shapes)) for name in draw(names)]
    return np.dtype(fields, align=draw(st.booleans()))


dtypes = st.recursive(scalars, structs, max_leaves=4)


@st.composite
def values(draw, dtype):
    """A scalar of the dtype with any bits that are legal for it."""
    name = dtype.type.__name__
    if dtype.names is not None:
        struct = np.zeros((), dtype)
        for field in dtype.names:
            item = dtype.fields[field][0]
            for index in np.ndindex(item.shape):
                struct[field][index] = draw(values(item.base))
        return np.frombuffer(struct.tobytes(), dtype)[0]
    if dtype.kind == "U":
        return np.array(draw(st.text("ab é\0\U0001f600", max_size=dtype.itemsize // 4)), dtype)[()]
    if dtype.kind == "b":
        return np.bool_(draw(st.booleans()))
    if name in ML_INTS:
        return dtype.type(draw(st.integers(*ML_INTS[name])))
    if name in ML_BITS:
        bits = draw(st.integers(0, 2 ** ML_BITS[name] - 1))
        return np.frombuffer(bits.to_bytes(dtype.itemsize, "little"), dtype)[0]
    special = [np.nan, np.inf, -np.inf, -0.0] if dtype.kind in "fc" else []
    raw = st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize)
    drawn = draw(st.one_of(raw, st.sampled_from(special)) if special else raw)
    return np.frombuffer(drawn, dtype)[0] if isinstance(drawn, bytes) else dtype.type(drawn)


pairs = dtypes.flatmap(lambda dtype: st.tuples(st.just(dtype), values(dtype)))


def through_text(value):
    return json.loads(json.dumps(value, allow_nan=False))


def native(dtype):
    return dtype.newbyteorder("=") if dtype.names is None else packed_little(dtype)


def usual_nans(value):
    """The bits, with every NaN replaced by the usual one, which is the only one that Zarr v2 has."""
    if value.dtype.type.__name__ in {"complex32", "bcomplex32"} or value.dtype.kind == "c":
        part = {"complex64": "f4", "complex128": "f8", "complex32": "f2"}.get(value.dtype.type.__name__)
        return b"".join(
            usual_nans(item) for item in np.frombuffer(value.tobytes(), part or np.dtype(ml_dtypes.bfloat16))
        )
    if (value.dtype.type.__name__ in ML_BITS or value.dtype.kind == "f") and np.isnan(value):
        return value.dtype.type(np.nan).tobytes()
    return value.tobytes()


@relaxed
@given(dtypes)
def test_dtypes_through_v2(dtype):
    data_type = parse_dtype(dtype)
    assert data_type.dtype == dtype
    again = from_v2(through_text(to_v2(data_type)))
    assert again == data_type
    assert again.dtype.itemsize == dtype.itemsize


@relaxed
@given(dtypes)
def test_dtypes_through_v3_are_native_and_packed(dtype):
    data_type = parse_dtype(dtype)
    again = from_v3(through_text(to_v3(data_type)))
    assert again.dtype == native(dtype)
    assert from_v3(to_v3(again)) == again


@relaxed
@given(pairs)
def test_fill_values_through_v3_bit_for_bit(pair):
    dtype, value = pair
    again = fill_from_json(through_text(fill_to_json(value, parse_dtype(dtype), 3)), parse_dtype(native(dtype)), 3)
    assert type(again) is type(value)
    if dtype.names is None:
        assert again.tobytes() == value.tobytes()
    else:
        assert again.tobytes() == fill_from_json(through_text(as_json(value)), parse_dtype(native(dtype)), 3).tobytes()
        assert again.dtype == native(dtype)


def as_json(value):
    """A struct as the object of its fields, as ``struct`` has it: the other way to write the same value."""
    if isinstance(value, np.ndarray):
        return [as_json(item) for item in value]
    if value.dtype.names is not None:
        return {name: as_json(value[name]) for name in value.dtype.names}
    return fill_to_json(value, parse_dtype(value.dtype), 3)


@relaxed
@given(pairs)
def test_fill_values_through_v2(pair):
    dtype, value = pair
    data_type = parse_dtype(dtype)
    again = fill_from_json(through_text(fill_to_json(value, data_type, 2)), data_type, 2)
    assert type(again) is type(value)
    assert usual_nans(again) == usual_nans(value)


@relaxed
@given(pairs)
def test_casting_a_value_of_the_type_keeps_it_bit_for_bit(pair):
    dtype, value = pair
    again = cast_fill(value, parse_dtype(dtype))
    assert type(again) is type(value)
    assert again.tobytes() == value.tobytes()


@relaxed
@given(dtypes)
def test_defaults_are_zeros_or_not_a_time(dtype):
    value = default_fill(parse_dtype(dtype))
    assert type(value) is dtype.type
    if dtype.kind in "mM":
        assert np.isnat(value)
    else:
        assert value.tobytes().strip(b"\0") == b""


@relaxed
@given(st.text(), st.binary())
def test_variable_lengths(text, raw):
    for zarr_format in (2, 3):
        for like, value in ((str, text), (bytes, raw)):
            data_type = parse_dtype(like)
            again = fill_from_json(through_text(fill_to_json(value, data_type, zarr_format)), data_type, zarr_format)
            assert type(again) is type(value)
            assert again == value


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("AAAA") | st.just("0x00"),
    lambda items: st.lists(items, max_size=3) | st.dictionaries(st.sampled_from(["name", "configuration", "a"]), items),
    max_leaves=6,
)


@relaxed
@given(dtypes, json_values, st.sampled_from([2, 3]))
def test_any_json_gives_a_scalar_of_the_type_or_a_metadata_error(dtype, value, zarr_format):
    try:
        scalar = fill_from_json(value, parse_dtype(dtype), zarr_format)
    except MetadataError:
        return
    assert (scalar is None and zarr_format == 2) or type(scalar) is dtype.type


@relaxed
@given(json_values)
def test_any_json_gives_a_data_type_or_a_metadata_error(value):
    for parse in (from_v2, from_v3):
        try:
            data_type = parse(value)
        except MetadataError:
            continue
        assert data_type.variable or data_type.dtype.itemsize > 0
