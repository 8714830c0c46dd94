"""Filters on the device equal those of the CPU bit for bit, for every data type; what cannot be equal stays there."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numcodecs import AsType, BitRound, Delta, FixedScaleOffset, PackBits, Quantize, Shuffle

import gzarr
from gzarr import codecs
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.hostbuild import find_compiler

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")

INTEGERS = ("i1", "u1", "<i2", ">i2", "<u2", "<i4", ">i4", "<u4", "<i8", ">u8")
FLOATS = ("<f2", "<f4", ">f4", "<f8", ">f8")
COMPLEX = ("<c8", ">c16")
SHAPE, CHUNKS = (23, 17), (6, 5)


def numbers(dtype):
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(6)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, SHAPE, dtype.newbyteorder("="), endpoint=True).astype(dtype)
    values = rng.normal(0, 100, SHAPE)
    if dtype.kind == "c":
        values = values + 1j * rng.normal(0, 100, SHAPE)
    return values.astype(dtype)


def check(data, where="emulated", zarr_format=2, special=(), **keywords):
    """The array gives on the device what it gives on the CPU; every codec runs where it should."""
    stored = gzarr.array(data, chunks=CHUNKS, store={}, device="cpu", zarr_format=zarr_format, **keywords)
    device = EmulatedDevice()
    z = stored.to(GpuBackend(device, strict=where == "emulated"))
    placed = {row.step: row.where for row in z.placement}
    if where == "emulated":
        assert set(placed.values()) == {"emulated"}, z.placement
    else:
        assert "host" in placed.values()
    for selection in (np.s_[:], np.s_[::-3, 2:9], np.s_[4, 5]):
        found, expected = np.asarray(z[selection]), np.asarray(stored[selection])
        assert found.dtype == expected.dtype.newbyteorder("=")
        native = np.ascontiguousarray(expected, found.dtype)
        assert np.ascontiguousarray(found).tobytes() == native.tobytes()


@pytest.mark.parametrize("dtype", INTEGERS)
def test_delta_of_integers(dtype):
    check(numbers(dtype), filters=[Delta(dtype)], compressor=None)
    check(numbers(dtype), filters=[Delta(dtype), Shuffle(np.dtype(dtype).itemsize)])


def test_delta_stored_in_narrower_integers():
    check((np.arange(23 * 17) * 3).reshape(SHAPE).astype("<i4"), filters=[Delta("<i4", "<i2")])


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", "<c8", ">c16"])
def test_delta_of_floats_adds_in_the_order_of_the_host(dtype):
    check(numbers(dtype), filters=[Delta(dtype)])
    check(numbers(dtype), filters=[Delta(dtype)], compressor=None)


def test_delta_of_half_floats_and_of_floats_stored_in_others_stays_on_the_host():
    check(numbers("<f2"), where="host", filters=[Delta("<f2")])
    check(numbers("<f8"), where="host", filters=[Delta("<f8", "<f4")])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("astype", ["<i2", "<i4", "<f4", "<u8"])
def test_fixed_scale_offset(dtype, astype):
    check(
        (abs(numbers(dtype)) % 100).astype(dtype),
        where="host" if dtype == "<f2" else "emulated",
        filters=[FixedScaleOffset(offset=-1.5, scale=37, dtype=dtype, astype=astype)],
    )


def test_casts_from_floats_to_integers_differ_between_machines_and_stay_on_the_host():
    data = numbers("<i4") % 1000
    filters = [FixedScaleOffset(offset=1, scale=0.5, dtype="<i4", astype="<f4")]
    check(data, where="host", filters=filters)
    check(data, where="host", filters=[AsType("<f8", "<i4")])


@pytest.mark.parametrize("dtype", FLOATS)
def test_quantize(dtype):
    check(numbers(dtype), filters=[Quantize(2, dtype)])
    if dtype == "<f8":
        check(numbers(dtype), filters=[Quantize(2, dtype, "<f4")])


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8"])
def test_bitround(dtype):
    check(numbers(dtype), filters=[BitRound(5)])


@pytest.mark.parametrize(
    ("encoded", "decoded"),
    [("<i4", "<i2"), ("<i2", "<i4"), ("<i4", "<f8"), ("<f4", "<f8"), ("<f8", "<f4"), ("u1", "?")],
)
def test_astype(encoded, decoded):
    data = numbers("u1" if decoded == "?" else decoded).astype(decoded)
    check(np.clip(data, 0, 100) if decoded != "?" else data, filters=[AsType(encoded, decoded)])


@pytest.mark.parametrize("threshold", [0, 128, 256])
def test_packbits(threshold):
    check(numbers("u1") >= threshold, filters=[PackBits()])
    check(numbers("u1") >= threshold, filters=[PackBits()], compressor=None)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, *COMPLEX, "?"])
def test_shuffle(dtype):
    data = numbers(dtype) if dtype != "?" else numbers("i1") > 0
    for elementsize in {data.itemsize, 3, 8} - ({8} if data.itemsize % 4 else set()):
        check(data, filters=[Shuffle(elementsize)], compressor=None)


@pytest.mark.parametrize("dtype", [*INTEGERS[:4], *FLOATS, *COMPLEX, "?"])
@pytest.mark.parametrize("endian", ["big", "little"])
def test_transposes_anywhere_and_either_byte_order(dtype, endian):
    data = numbers(dtype) if dtype != "?" else numbers("i1") > 0
    serializer = codecs.BytesCodec(endian)
    for filters in ([codecs.TransposeCodec((1, 0))], [codecs.TransposeCodec((1, 0))] * 3):
        check(data, zarr_format=3, filters=filters, serializer=serializer)


def test_a_transpose_behind_other_filters():
    data = np.arange(4 * 5 * 6, dtype="i4").reshape(4, 5, 6)
    delta = codecs.NumcodecsCodec("delta", {"dtype": "<i4"})
    filters = [codecs.TransposeCodec((2, 0, 1)), delta, codecs.TransposeCodec((1, 2, 0)), delta]
    stored = gzarr.array(data, chunks=(3, 4, 5), store={}, filters=filters)
    z = stored.to("emulated", strict=True)
    assert {row.where for row in z.placement} == {"emulated"}
    np.testing.assert_array_equal(z[:], data)


@pytest.mark.parametrize(("dtype", "where"), [("<f2", "host"), ("<f4", "emulated"), ("<f8", "emulated")])
def test_scale_offset_of_floats(dtype, where):
    check(numbers(dtype), where=where, zarr_format=3, filters=[codecs.ScaleOffsetCodec(offset=3.25, scale=7)])


def test_scale_offset_of_integers_is_checked_on_the_host():
    check(numbers("i2").astype("i8"), where="host", zarr_format=3, filters=[codecs.ScaleOffsetCodec(5, 3)])


@pytest.mark.parametrize(
    ("dtype", "stored", "where"),
    [
        ("<f8", "float32", "emulated"),
        ("<f8", "int16", "emulated"),
        ("<i8", "int8", "emulated"),
        ("<f4", "float16", "emulated"),
        ("<f8", "int64", "host"),
        ("<i4", "float64", "host"),
    ],
)
def test_cast_value(dtype, stored, where):
    data = (numbers("i1") % 50).astype(dtype)
    check(data, where=where, zarr_format=3, filters=[codecs.CastValueCodec(stored)])


def test_cast_value_with_a_map():
    data = (numbers("i1") % 50).astype("<f8")
    data[::3, ::2] = np.nan
    data[1, 1] = np.inf
    pairs = [["NaN", -32768], ["Infinity", 32767]]
    scalar_map = {"encode": pairs, "decode": [[b, a] for a, b in pairs]}
    check(data, zarr_format=3, filters=[codecs.CastValueCodec("int16", scalar_map=scalar_map)], fill_value=0)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, *COMPLEX])
def test_fill_and_casts_on_reading(dtype):
    z = gzarr.full(SHAPE, 7, chunks=CHUNKS, dtype=dtype, store={}, device="cpu")
    z[4:9, 3:11] = numbers(dtype)[4:9, 3:11]
    kind = np.dtype(dtype).kind
    for wanted in ("<c16", "<f8") if kind == "f" else ("<c16",) if kind == "c" else ("<f8", "<i2", "?", "<c8"):
        expected = z.astype(wanted)[:]
        found = z.astype(wanted).to("emulated", strict=True)[:]
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("dtype", "filters", "why"),
    [
        ("<f2", [Delta("<f2")], "the host calculates with floats of 2 bytes, and makes them"),
        ("<f2", [AsType("<f4", "<f2")], "the host calculates with floats of 2 bytes, and makes them"),
        ("<f8", [Delta("<f8", "<f4")], "the device takes differences of integers, and of floats stored in their own"),
        ("<i4", [AsType("<f8", "<i4")], "floats become integers on the host: what is out of range differs"),
        ("<c8", [FixedScaleOffset(1, 2, "<c8")], "complex numbers are calculated with on the host"),
        ("<f4", [FixedScaleOffset(1, 1e300, "<f4")], "the device calculates with plain finite scales and offsets"),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_what_stays_on_the_host_says_why(dtype, filters, why):
    data = np.ones(SHAPE, dtype)
    stored = gzarr.array(data, chunks=CHUNKS, store={}, device="cpu", zarr_format=2, filters=filters)
    (row,) = [row for row in stored.to(GpuBackend(EmulatedDevice())).placement if why in row.why]
    assert row.where == "host"
    with pytest.raises(gzarr.DeviceError, match=re.escape(why)):
        stored.to(GpuBackend(EmulatedDevice(), strict=True))


def test_floats_are_cast_to_integers_on_the_host():
    data = numbers("<f8")
    data[0, 0], data[0, 1] = np.nan, 1e300
    device = EmulatedDevice()
    z = gzarr.array(data, chunks=CHUNKS, device=GpuBackend(device)).astype("i4")
    device.launches.clear()
    with np.errstate(invalid="ignore"):
        assert z[:].tobytes() == z.to("cpu")[:].tobytes()
    assert "place_box" not in device.launches
