"""cast_value and scale_offset against exact arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest

from gzarr.codecs import ArrayRepr, CastValueCodec, ScaleOffsetCodec
from gzarr.codecs.rounding import ROUNDINGS, cast_values
from gzarr.errors import CodecError, MetadataError
from tests.codecs.chains import codec_for

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")
OUTSIDE = object()


def round_exactly(value: Fraction, rounding: str) -> int:
    low = math.floor(value)
    rest = value - low
    if rest == 0:
        return low
    if rounding == "nearest-even":
        return low + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and low % 2 == 1))
    if rounding == "nearest-away":
        return low + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and value > 0))
    up = {"towards-positive": True, "towards-negative": False, "towards-zero": value < 0}[rounding]
    return low + up


def cast_exactly(value: Fraction, name: str, rounding: str, out_of_range: str):
    """The cast of one finite value, from the definition."""
    dtype = np.dtype(name)
    if dtype.kind != "f":
        info = np.iinfo(dtype)
        whole = round_exactly(value, rounding)
        if info.min <= whole <= info.max:
            return whole
        if out_of_range == "clamp":
            return min(max(whole, int(info.min)), int(info.max))
        if out_of_range == "wrap":
            return (whole - int(info.min)) % 2**info.bits + int(info.min)
        return OUTSIDE
    info = np.finfo(dtype)
    if value == 0:
        return 0.0
    exponent = math.frexp(float(value))[1] - 1
    while Fraction(2) ** exponent > abs(value):
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= abs(value):
        exponent += 1
    unit = Fraction(2) ** (max(exponent, int(info.minexp)) - int(info.nmant))
    result = round_exactly(value / unit, rounding) * unit
    if abs(result) >= Fraction(2) ** int(info.maxexp):
        return math.copysign(math.inf, value) if out_of_range == "clamp" else OUTSIDE
    return float(result)


def values_of(name: str) -> np.ndarray:
    dtype = np.dtype(name)
    rng = np.random.default_rng(len(name))
    if dtype.kind == "f":
        edges = [0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 127.5, 255.5, -128.5, 65504, 65519.9, 65520, 65535.9, 65536]
        edges += [3.4028235e38, 3.4028236e38, 2.0**128, 2.0**31, 2.0**63, 2.0**64, -(2.0**63), 1e-46, 6e-8, 2.9e-8]
        edges += [1 + 2**-24, 1 + 2**-11, 1 + 3 * 2**-11, -(1 + 2**-24), 1e300, -1e300, 0.49999999999999994]
        with np.errstate(all="ignore"):
            spread = rng.normal(size=20) * 10.0 ** rng.integers(-8, 22, 20)
            values = np.concatenate([edges, spread]).astype(dtype)
        return values[np.isfinite(values)]
    info = np.iinfo(dtype)
    edges = [info.min, info.max, info.min + 1, info.max - 1, 0, 1, info.max // 2, info.max // 2 + 1]
    edges += [v for v in (2**24 + 1, 2**24 + 3, 2**53 + 1, 2**53 + 3, 2**62 + 1, 65519, 65520, 70000) if v <= info.max]
    drawn = rng.integers(info.min, info.max, 20, dtype=dtype, endpoint=True)
    return np.concatenate([np.array(edges, dtype), drawn, drawn >> np.array(info.bits // 2, dtype)])


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("source", INTEGERS + FLOATS)
def test_casts_are_exact(source: str, rounding: str) -> None:
    values = values_of(source)
    exact = [Fraction(int(v)) if values.dtype.kind != "f" else Fraction(float(v)) for v in values]
    for target in INTEGERS + FLOATS:
        for out_of_range in ("error", "clamp", "wrap"):
            if out_of_range == "wrap" and target in FLOATS:
                continue
            want = [cast_exactly(value, target, rounding, out_of_range) for value in exact]
            fits = np.array([value is not OUTSIDE for value in want])
            got = cast_values(values[fits], np.dtype(target), rounding=rounding, out_of_range=out_of_range)
            assert got.dtype == target
            assert got.tolist() == [value for value in want if value is not OUTSIDE], (target, out_of_range)
            for value in values[~fits]:
                with pytest.raises(ValueError, match="out of range"):
                    cast_values(np.array([value]), np.dtype(target), rounding=rounding, out_of_range=out_of_range)


@pytest.mark.parametrize("out_of_range", ["error", "clamp", "wrap"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_no_integer_can_be_needs_the_scalar_map(value: float, out_of_range: str) -> None:
    with pytest.raises(ValueError, match="scalar_map"):
        cast_values(np.array([1.0, value]), np.dtype("i4"), out_of_range=out_of_range)
    assert cast_values(np.array([1.0, value]), np.dtype("i4"), mapping=[(value, 7)]).tolist() == [1, 7]


def test_infinities_and_nan_stay_between_floats() -> None:
    got = cast_values(np.array([math.inf, -math.inf, math.nan]), np.dtype("f2"))
    assert np.array_equal(got, np.array([math.inf, -math.inf, math.nan], "f2"), equal_nan=True)


def test_casts_keep_any_shape_and_take_any_layout() -> None:
    values = np.arange(6, dtype=">f8").reshape(2, 3).T
    assert np.array_equal(cast_values(values, np.dtype("u1")), values)
    assert cast_values(np.array(2.0), np.dtype("u1")).shape == ()
    assert cast_values(np.empty((0, 3)), np.dtype("u1"), mapping=[(1.0, 2)]).shape == (0, 3)


def test_the_scalar_map_goes_before_the_other_rules() -> None:
    spec = CastValueCodec(
        "uint8",
        "towards-zero",
        "clamp",
        {"encode": [["NaN", 255], ["-Infinity", 254], [5.5, 100]], "decode": [[255, "NaN"], [254, "-Infinity"]]},
    )
    codec = codec_for(spec, ArrayRepr(np.dtype("<f4"), (6,)))
    values = np.array([np.nan, -np.inf, 5.5, 5.4, 300, -1], "<f4")
    (stored,) = codec.encode([values])
    assert stored.tolist() == [255, 254, 100, 5, 255, 0]
    (again,) = codec.decode([stored])
    assert np.array_equal(again, np.array([np.nan, -np.inf, 100, 5, np.nan, 0], "<f4"), equal_nan=True)


def test_a_value_that_cannot_be_cast_fails_its_chunk() -> None:
    codec = codec_for(CastValueCodec("uint8"), ArrayRepr(np.dtype("<i4"), (2,)))
    with pytest.raises(CodecError, match="value 256 is out of range of data type uint8") as caught:
        codec.encode([np.array([0, 255]), np.array([1, 256])])
    assert (caught.value.index, caught.value.codec) == (1, "cast_value")


# -- scale_offset --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", INTEGERS)
def test_scaled_integers_are_exact_or_refused(name: str) -> None:
    dtype = np.dtype(name)
    info = np.iinfo(dtype)
    rng = np.random.default_rng(3)
    limits = (0, 1, 3, int(info.max)) if info.min == 0 else (0, 1, -1, 3, int(info.min), int(info.max))
    for offset in limits:
        for factor in {1, 2, *((-1,) if info.min else ())}:
            codec = codec_for(ScaleOffsetCodec(offset, factor), ArrayRepr(dtype, ()))
            drawn = rng.integers(info.min, info.max, 12, dtype=dtype, endpoint=True).tolist()
            for value in [int(info.min), int(info.max), 0, 1, *drawn]:
                want = (value - offset) * factor
                array = np.array(value, dtype)
                if info.min <= want <= info.max:
                    (stored,) = codec.encode([array])
                    assert int(stored) == want
                    assert int(codec.decode([stored])[0]) == value
                else:
                    with pytest.raises(CodecError, match=f"{want}.*out of range"):
                        codec.encode([array])


def test_stored_integers_that_are_no_multiple_of_the_scale_are_refused() -> None:
    codec = codec_for(ScaleOffsetCodec(0, 3), ArrayRepr(np.dtype("<i4"), (3,)))
    with pytest.raises(CodecError, match="stored value 7 is not a multiple of scale 3"):
        codec.decode([np.array([3, 7, 9], "<i4")])


def test_stored_integers_that_decode_out_of_range_are_refused() -> None:
    codec = codec_for(ScaleOffsetCodec(100, 1), ArrayRepr(np.dtype("u1"), (1,)))
    with pytest.raises(CodecError, match=r"300.*out of range"):
        codec.decode([np.array([200], "u1")])


@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", ">f8"])
def test_floats_are_scaled_in_their_own_precision(dtype: str) -> None:
    codec = codec_for(ScaleOffsetCodec(0.1, 3), ArrayRepr(np.dtype(dtype), (3,)))
    values = np.array([1.7, np.nan, -5.25], dtype)
    native = values.astype(values.dtype.newbyteorder("="))
    scalar = native.dtype.type
    (stored,) = codec.encode([values])
    assert stored.dtype == native.dtype
    assert np.array_equal(stored, (native - scalar(0.1)) * scalar(3), equal_nan=True)
    (again,) = codec.decode([stored])
    assert np.array_equal(again, stored / scalar(3) + scalar(0.1), equal_nan=True)


@pytest.mark.parametrize(
    "data_type", ["uint8", np.uint8, np.dtype("u1"), {"name": "uint8"}, {"name": "uint8", "configuration": {}}]
)
def test_cast_value_takes_every_spelling_of_a_data_type(data_type) -> None:
    assert CastValueCodec(data_type).configuration() == {"data_type": "uint8"}


@pytest.mark.parametrize(
    "data_type", [3.5, {"name": "uint8", "configuration": {"a": 1}}, {"id": "uint8"}, "S3", np.bool_]
)
def test_cast_value_refuses_what_is_no_number_type(data_type) -> None:
    with pytest.raises(MetadataError, match="cast_value"):
        CastValueCodec(data_type)


def test_hexadecimal_scalars_are_bit_patterns() -> None:
    spec = ScaleOffsetCodec("0x3fc00000", "2")
    assert spec.scalars(np.dtype("<f4")) == (np.float32(1.5), np.float32(2))
