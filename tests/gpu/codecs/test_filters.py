"""Filters on the device, both directions, and the reasons why some stay on the host; batches as rows and chunks."""

import re

import numpy as np
import pytest
from numcodecs import AsType, BitRound, Delta, FixedScaleOffset, PackBits, Quantize, Shuffle

import gzarr
from gzarr import codecs
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.codecs.batch import BatchContext, Chunks
from gzarr.gpu.codecs.transfers import as_rows
from gzarr.gpu.device.emulated import EmulatedDevice
from tests.gpu.codecs.encoding import bytes_of, chunks_of, chunks_on, encode, encode_on_host, spec_of, stays_on_host
from tests.gpu.codecs.filtering import CHUNKS, COMPLEX, FLOATS, INTEGERS, SHAPE, check, numbers


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
    rows = [row for row in stored.to(GpuBackend(EmulatedDevice())).placement if why in row.why]
    (row,) = [row for row in rows if not row.step.startswith("bulk")]
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
    assert device.launches == ["copy_plain"]  # which places what the host has decoded and cast


@pytest.mark.parametrize("keepbits", [0, 1, 7, 10])
@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8"])
def test_bitround(dtype: str, keepbits: int) -> None:
    values = numbers(dtype, special=True)
    values[1, 9:11] = np.nan
    check(values, [BitRound(keepbits)])
    check(values, [BitRound(int(np.finfo(dtype).nmant))])


def test_more_bits_than_there_are_stay_on_the_host() -> None:
    assert stays_on_host(spec_of("bitround", keepbits=24), np.zeros(8, "<f4"))


@pytest.mark.parametrize("chunks", [(1, 1), (2, 7), (3, 8), (4, 9), (23, 17)])
@pytest.mark.parametrize("threshold", [0, 128, 256])
def test_packbits(threshold: int, chunks: tuple[int, ...]) -> None:
    check(numbers("u1") >= threshold, [PackBits()], chunks=chunks)


@pytest.mark.parametrize(
    ("stored", "dtype", "encoded"),
    [
        ("<i2", "<i4", "emulated"),
        ("<i4", "<i2", "emulated"),
        ("<u1", "<f4", "host"),
        ("<f4", "<u1", "emulated"),
        ("<f8", "<i8", "emulated"),
        (">u8", ">i2", "emulated"),
        ("<i4", "<f8", "host"),
        ("<f4", "<f8", "emulated"),
        ("<f8", "<f4", "emulated"),
        ("<f2", "<i4", "host"),
        ("u1", "?", "emulated"),
    ],
)
def test_astype(stored: str, dtype: str, encoded: str) -> None:
    data = numbers(dtype)
    if "i" not in dtype or "f" in stored:
        data = data if dtype == "?" else np.clip(data, 0, 100).astype(dtype)
    decoded = "host" if "f" in stored and "f" not in dtype else "emulated"
    check(data, [AsType(stored, dtype)], decoded=decoded, encoded=encoded)


@pytest.mark.parametrize(
    ("dtype", "stored", "decoded", "encoded"),
    [
        ("<f8", "float32", "emulated", "host"),
        ("<f8", "int16", "emulated", "host"),
        ("<i8", "int8", "emulated", "host"),
        ("<f4", "float16", "emulated", "host"),
        ("<f8", "int64", "host", "host"),
        ("<i4", "float64", "host", "emulated"),
        ("<i2", "int64", "host", "emulated"),
        ("<u4", "float64", "host", "emulated"),
        ("u1", "int16", "host", "emulated"),
        (">i4", "int32", "emulated", "emulated"),
        ("<i8", "float64", "host", "host"),
    ],
)
def test_cast_value(dtype: str, stored: str, decoded: str, encoded: str) -> None:
    data = (numbers("i1") % 50).astype(dtype)
    check(data, [codecs.CastValueCodec(stored)], decoded=decoded, encoded=encoded, zarr_format=3)


def test_cast_value_with_a_map() -> None:
    data = (numbers("i1") % 50).astype("<f8")
    data[::3, ::2] = np.nan
    data[1, 1] = np.inf
    pairs = [["NaN", -32768], ["Infinity", 32767]]
    scalar_map = {"encode": pairs, "decode": [[b, a] for a, b in pairs]}
    spec = codecs.CastValueCodec("int16", scalar_map=scalar_map)
    check(data, [spec], encoded="host", zarr_format=3, fill_value=0)


def test_cast_value_to_the_same_data_type_with_a_map() -> None:
    values = numbers("<f8", special=True)
    values[0, :3] = np.nan
    scalar_map = {"encode": [["NaN", -1], [2.5, 7]], "decode": [[-1, "NaN"]]}
    check(values, [codecs.CastValueCodec("float64", scalar_map=scalar_map)], zarr_format=3)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_delta_of_integers(dtype: str) -> None:
    check(numbers(dtype), [Delta(dtype)])
    check(numbers(dtype), [Delta(dtype), Delta(dtype)])
    check(numbers(dtype), [Delta(dtype), Shuffle(np.dtype(dtype).itemsize)])
    wider = {"i": "<i8", "u": ">u8"}[np.dtype(dtype).kind]
    check(numbers(dtype), [Delta(dtype, wider)])


def test_delta_of_integers_stored_in_narrower_ones_are_encoded_on_the_host() -> None:
    check((np.arange(23 * 17) * 3).reshape(SHAPE).astype("<i4"), [Delta("<i4", "<i2")], encoded="host")


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8", "<c8", "<c16", ">c16"])
def test_delta_of_floats_is_added_in_the_order_of_the_host(dtype: str) -> None:
    values = numbers(dtype, special=True)
    with np.errstate(all="ignore"):
        check(np.where(np.isfinite(values), values, 1).astype(dtype), [Delta(dtype)])


def test_delta_of_half_floats_and_floats_stored_in_others_stay_on_the_host() -> None:
    check(numbers("<f2"), [Delta("<f2")], decoded="host", encoded="host")
    check(numbers("<f8"), [Delta("<f8", "<f4")], decoded="host", encoded="host")


#: Data types that the device calculates with.
CALCULATED = ("<f4", ">f4", "<f8", ">f8")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("astype", ["<i2", "<i4", "<f4", "<u8"])
def test_fixed_scale_offset(dtype: str, astype: str) -> None:
    half = dtype == "<f2"
    filters = [FixedScaleOffset(offset=-1.5, scale=37, dtype=dtype, astype=astype)]
    check(
        (abs(numbers(dtype)) % 100).astype(dtype),
        filters,
        decoded="host" if half else "emulated",
        encoded="host" if half or astype != "<f4" else "emulated",
    )


@pytest.mark.parametrize("dtype", CALCULATED)
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_scaled_special_floats(dtype: str) -> None:
    check(numbers(dtype, special=True), [FixedScaleOffset(offset=-1.5, scale=37, dtype=dtype)])
    for digits in (0, 3, 10):
        check(numbers(dtype, special=True), [Quantize(digits, dtype)])


def test_integers_and_scales_that_are_not_plain_stay_on_the_host() -> None:
    filters = [FixedScaleOffset(offset=1, scale=0.5, dtype="<i4", astype="<f4")]
    check(numbers("<i4") % 1000, filters, decoded="host", encoded="host")
    filters = [FixedScaleOffset(offset=0, scale=10, dtype="<i4", astype="<i4")]
    check(numbers("<i4") % 1000, filters, decoded="host", encoded="host")


@pytest.mark.parametrize("dtype", FLOATS)
def test_quantize(dtype: str) -> None:
    check(numbers(dtype), [Quantize(2, dtype)], encoded="host" if dtype == "<f2" else "emulated")
    if dtype == "<f8":
        check(numbers(dtype), [Quantize(2, dtype, "<f4")])
    if dtype == "<f4":
        check(numbers(dtype), [Quantize(3, dtype, "<f2")], encoded="host")


@pytest.mark.parametrize("dtype", FLOATS)
def test_scale_offset_of_floats(dtype: str) -> None:
    where = "host" if dtype == "<f2" else "emulated"
    spec = codecs.ScaleOffsetCodec(offset=3.25, scale=7)
    with np.errstate(all="ignore"):
        check(numbers(dtype, special=True), [spec], decoded=where, encoded=where, zarr_format=3)


def test_scale_offset_of_integers_is_checked_on_the_host() -> None:
    spec = codecs.ScaleOffsetCodec(5, 3)
    check(numbers("i2").astype("i8"), [spec], decoded="host", encoded="host", zarr_format=3)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, *COMPLEX, "?"])
def test_shuffle_of_elements_of_any_size(dtype: str) -> None:
    data = numbers(dtype)
    for elementsize in {1, data.itemsize, 3, 5, 8} - ({8} if data.itemsize % 4 else set()):
        check(data, [Shuffle(elementsize)])


@pytest.mark.parametrize("dtype", [*INTEGERS[:4], *FLOATS, *COMPLEX, "?"])
@pytest.mark.parametrize("endian", ["big", "little"])
def test_transposes_at_the_beginning_with_either_byte_order(dtype: str, endian: str) -> None:
    serializer = codecs.BytesCodec(endian)
    for filters in ([codecs.TransposeCodec((1, 0))], [codecs.TransposeCodec((1, 0))] * 3):
        check(numbers(dtype), filters, zarr_format=3, serializer=serializer)


def test_transposes_behind_other_filters() -> None:
    delta = spec_of("delta", dtype="<i4")
    check(numbers("<i4"), [delta, codecs.TransposeCodec((1, 0)), delta], zarr_format=3)
    data = np.arange(40 * 17 * 6, dtype="i4").reshape(40, 17, 6)
    filters = [codecs.TransposeCodec((2, 0, 1)), delta, codecs.TransposeCodec((1, 2, 0)), delta]
    check(data, filters, zarr_format=3, chunks=(13, 4, 5))


@pytest.mark.parametrize("dtype", ["<i4", ">i4", "u1"])
@pytest.mark.parametrize("endian", ["little", "big", None])
def test_bytes_behind_filters_swaps(endian: str | None, dtype: str) -> None:
    values = (np.arange(60).reshape(3, 20) * 77).astype(dtype)
    specs = [spec_of("delta", dtype=dtype), codecs.BytesCodec(endian)]
    assert encode(EmulatedDevice(), specs, values) == encode_on_host(specs, values)


def test_chunks_that_lie_apart_become_rows() -> None:
    device = EmulatedDevice()
    chunks = chunks_on(device, chunks_of(99))
    apart = Chunks(chunks.owner, chunks.addresses[::2], 99)
    rows = as_rows(BatchContext(device), apart)
    assert np.array_equal(rows, chunks_of(99)[::2])
    assert bytes_of(BatchContext(device), chunks) == [row.tobytes() for row in chunks_of(99)]
