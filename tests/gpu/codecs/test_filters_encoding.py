"""Filters that the device runs when encoding give the host's bytes; what might not stays on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gzarr import codecs
from gzarr.codecs.numcodecs import NumcodecsCodec
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.hostbuild import find_compiler
from tests.gpu.codecs.encoding import encode, encoders_of, read_back, steps_of
from tests.gpu.codecs.test_encoders import encode_on_host

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")

INTEGERS = ("i1", "u1", "<i2", ">i2", "<u2", "<i4", ">i4", "<u4", "<i8", ">u8")
SHAPE = (3, 5, 8)


def spec_of(name: str, **config: Any) -> Any:
    return NumcodecsCodec(name, config)


def numbers(dtype: str, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    """Of integers the whole range; of floats also zeros, infinities, subnormal and large numbers."""
    kind, rng = np.dtype(dtype), np.random.default_rng(6)
    if kind.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return rng.integers(info.min, info.max, shape, kind.newbyteorder("="), endpoint=True).astype(kind)
    values = rng.normal(0, 100, shape)
    if kind.kind == "c":
        values = values + 1j * rng.normal(0, 100, shape)
    values = values.astype(kind)
    with np.errstate(over="ignore"):
        values.reshape(-1)[:9] = np.array([0, -0.0, np.inf, -np.inf, 5e-324, 1e-310, 1e300, 2.5, 3.5])
    return values


def check(specs: list[Any], values: np.ndarray) -> None:
    """The device's bytes are the host's; the device reads them as the host does."""
    expected = encode_on_host(specs, values)
    found = encode(EmulatedDevice(), specs, values)
    assert found == expected
    on_host, on_device = (read_back(specs, values, found, where) for where in ("cpu", EmulatedBackend()))
    assert on_host.astype(on_device.dtype).tobytes() == on_device.tobytes()


def EmulatedBackend() -> Any:  # noqa: N802 - a fresh one each time, which may leave steps to the host
    from gzarr.gpu.backend import GpuBackend

    return GpuBackend(EmulatedDevice())


def stays_on_host(spec: Any, dtype: str) -> bool:
    steps = steps_of([spec], np.zeros(SHAPE[1:], dtype))
    return encoders_of(steps, EmulatedDevice())[0] is None


@pytest.mark.parametrize("dtype", INTEGERS)
def test_delta_of_integers(dtype: str) -> None:
    check([spec_of("delta", dtype=dtype)], numbers(dtype))
    wider = {"i": "<i8", "u": ">u8"}[np.dtype(dtype).kind]
    check([spec_of("delta", dtype=dtype, astype=wider)], numbers(dtype))
    check([spec_of("delta", dtype=dtype), spec_of("delta", dtype=dtype)], numbers(dtype))


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<c8", "<f8", ">f8", "<c16"])
def test_delta_of_floats(dtype: str) -> None:
    with np.errstate(all="ignore"):
        check([spec_of("delta", dtype=dtype)], np.where(np.isfinite(numbers(dtype)), numbers(dtype), 1).astype(dtype))


@pytest.mark.parametrize(("dtype", "stored"), [("<i4", "<i2"), ("<u1", "<f4"), ("<i8", "<f8"), (">i2", ">u8")])
def test_astype(dtype: str, stored: str) -> None:
    check([spec_of("astype", encode_dtype=stored, decode_dtype=dtype)], numbers(dtype))


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8"])
def test_rounding_filters(dtype: str) -> None:
    with np.errstate(all="ignore"):
        check([spec_of("fixedscaleoffset", offset=-1.5, scale=37, dtype=dtype, astype=dtype)], numbers(dtype))
        for digits in (0, 3, 10):
            check([spec_of("quantize", digits=digits, dtype=dtype, astype=dtype)], numbers(dtype))


@pytest.mark.parametrize("keepbits", [0, 1, 7, 10])
@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8"])
def test_bitround(dtype: str, keepbits: int) -> None:
    values = numbers(dtype)
    values.reshape(-1)[9:11] = np.nan
    check([spec_of("bitround", keepbits=keepbits)], values)
    check([spec_of("bitround", keepbits=np.finfo(dtype).nmant)], values)


@pytest.mark.parametrize("shape", [(1, 1), (2, 7), (3, 8), (4, 9), (2, 5, 13)])
def test_packbits(shape: tuple[int, ...]) -> None:
    check([spec_of("packbits")], numbers("?", shape))


@pytest.mark.parametrize("dtype", ["u1", "<i2", "<f4", ">c16"])
def test_shuffle_and_transposes(dtype: str) -> None:
    itemsize = np.dtype(dtype).itemsize
    for elementsize in {1, itemsize, 5, 8}:
        check([spec_of("shuffle", elementsize=elementsize)], numbers(dtype))
    delta = spec_of("delta", dtype="<i4")
    check([delta, codecs.TransposeCodec((1, 0)), delta], numbers("<i4"))


@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
def test_scale_offset(dtype: str) -> None:
    check([codecs.ScaleOffsetCodec(offset=3.25, scale=7)], numbers(dtype))


@pytest.mark.parametrize(("dtype", "stored"), [("<i2", "int64"), ("<u4", "float64"), ("u1", "int16"), (">i4", "int32")])
def test_cast_value(dtype: str, stored: str) -> None:
    check([codecs.CastValueCodec(stored)], numbers(dtype))


def test_cast_value_with_a_map() -> None:
    values = numbers("<f8")
    values.reshape(-1)[:3] = np.nan
    scalar_map = {"encode": [["NaN", -1], [2.5, 7]], "decode": [[-1, "NaN"]]}
    check([codecs.CastValueCodec("float64", scalar_map=scalar_map)], values)


@pytest.mark.parametrize(
    ("spec", "dtype"),
    [
        (spec_of("delta", dtype="<f2"), "<f2"),
        (spec_of("delta", dtype="<i4", astype="<i2"), "<i4"),
        (spec_of("delta", dtype="<f8", astype="<f4"), "<f8"),
        (spec_of("fixedscaleoffset", offset=0, scale=10, dtype="<f8", astype="<i4"), "<f8"),
        (spec_of("fixedscaleoffset", offset=0, scale=10, dtype="<f2", astype="<f4"), "<f2"),
        (spec_of("fixedscaleoffset", offset=0, scale=1e39, dtype="<f4"), "<f4"),
        (spec_of("fixedscaleoffset", offset=0, scale=10, dtype="<i4", astype="<i4"), "<i4"),
        (spec_of("quantize", digits=3, dtype="<f4", astype="<f2"), "<f4"),
        (spec_of("astype", encode_dtype="<i4", decode_dtype="<f8"), "<f8"),
        (spec_of("astype", encode_dtype="<f2", decode_dtype="<i4"), "<i4"),
        (spec_of("bitround", keepbits=24), "<f4"),
        (codecs.ScaleOffsetCodec(offset=3, scale=7), "<i4"),
        (codecs.ScaleOffsetCodec(offset=3, scale=7), "<f2"),
        (codecs.CastValueCodec("int16"), "<f8"),
        (codecs.CastValueCodec("int16"), "<i4"),
        (codecs.CastValueCodec("float64"), "<i8"),
    ],
    ids=str,
)
def test_what_might_differ_stays_on_the_host(spec: Any, dtype: str) -> None:
    assert stays_on_host(spec, dtype)
