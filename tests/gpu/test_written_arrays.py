"""Arrays that the device writes hold NumPy's values for the CPU backend and for zarr-python."""

import math
import warnings
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr import codecs
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.pipeline.batches import NEVER
from gzarr.storage import LocalStore
from tests.gpu.counted import CountingDevice, assert_equal, on_device
from tests.properties.cases import basic_keys, coordinate_keys, masks, orthogonal_index, orthogonal_keys

DTYPES = ("|b1", "|u1", ">i2", "<i4", ">u8", "<f2", "<f4", ">f8", "<c8", ">c16")
V2 = (
    {},
    {"compressor": None},
    {"order": "F"},
    {"order": "F", "compressor": numcodecs.Zstd(1)},
    {"compressor": numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE)},
    {"compressor": numcodecs.LZ4()},
    {"compressor": numcodecs.BZ2()},
    {"filters": "delta", "compressor": numcodecs.Zlib(1)},
    {"filters": "delta", "compressor": numcodecs.Zstd(1)},
    {"filters": "shuffle", "compressor": numcodecs.GZip(1)},
)
V3 = (
    {},
    {"compressors": None},
    {"compressors": codecs.BloscCodec("zstd", 5, "bitshuffle", 4)},
    {"compressors": [codecs.GzipCodec(1), codecs.Crc32cCodec()]},
    {"compressors": [codecs.ZstdCodec(1), codecs.Crc32cCodec()]},
    {"filters": "transpose", "compressors": codecs.ZstdCodec(1)},
    {"filters": "transpose", "serializer": codecs.BytesCodec("big"), "compressors": None},
    {"serializer": codecs.BytesCodec("big"), "compressors": codecs.ZstdCodec(3)},
    {"shards": 2},
    {"shards": 3, "filters": "transpose", "compressors": codecs.ZstdCodec(1)},
)


@st.composite
def arrays(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Any]]:
    """(shape, keywords) of an array."""
    ndim = draw(st.integers(1, 3))
    longest = {1: 40, 2: 12, 3: 7}[ndim]
    shape = tuple(draw(st.integers(1, longest)) for _ in range(ndim))
    chunks = tuple(draw(st.integers(1, longest // 2 + 1)) for _ in range(ndim))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    zarr_format = draw(st.sampled_from([2, 3]))
    keywords = dict(draw(st.sampled_from(V2 if zarr_format == 2 else V3)))
    if keywords.get("filters") == "delta":
        dtype = np.dtype(draw(st.sampled_from(["<i4", ">i4", "<u2"])))
        keywords["filters"] = [numcodecs.Delta(dtype)]
    if keywords.get("filters") == "shuffle":
        keywords["filters"] = [numcodecs.Shuffle(dtype.itemsize)]
    if keywords.get("filters") == "transpose":
        keywords["filters"] = [codecs.TransposeCodec(tuple(draw(st.permutations(range(ndim)))))]
    if "shards" in keywords:
        keywords["shards"] = tuple(n * keywords["shards"] for n in chunks)
    if zarr_format == 3:
        dtype = dtype.newbyteorder("=")
    fill = draw(st.sampled_from([0, 1, np.nan if dtype.kind in "fc" else 2])) if dtype.kind != "b" else False
    keywords |= {"chunks": chunks, "dtype": dtype, "fill_value": fill, "zarr_format": zarr_format}
    return shape, keywords | {"write_empty_chunks": draw(st.booleans())}


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Few distinct ones, so that whole chunks hold the fill value."""
    return np.asarray(rng.integers(0, 3 if rng.random() < 0.5 else 2, shape)).astype(dtype)


@st.composite
def writes(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[str, Any, Any]:
    """(method, key, NumPy's index) of a selection."""
    kind = draw(st.sampled_from(["basic", "all", "oindex", "vindex", "mask"]))
    if kind == "all":
        return "basic", (...,), (...,)
    if kind == "basic":
        key = draw(basic_keys(shape))
        return kind, key, key
    if kind == "oindex":
        key = draw(orthogonal_keys(shape))
        return kind, key, orthogonal_index(key, shape)[0]
    if kind == "mask":
        key = draw(masks(shape))
        return "vindex", key, key
    key = draw(coordinate_keys(shape))
    return kind, key, tuple(np.asarray(i) for i in key)


def a_value(data: st.DataObject, rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """A value on the device or the host, of the dtype or another, in some layout, that may have to be broadcast."""
    given_dtype = data.draw(st.sampled_from([dtype, dtype, np.dtype("i8"), np.dtype("f4")]))
    drop = data.draw(st.integers(0, len(shape)))
    some = tuple(1 if data.draw(st.integers(0, 5)) == 0 else n for n in shape[drop if drop < 2 else 0 :])
    value = numbers(rng, some, given_dtype)
    layout = data.draw(st.sampled_from(["plain", "fortran", "backwards"]))
    if layout == "fortran" and value.ndim:
        value = np.asfortranarray(value)
    elif layout == "backwards" and value.ndim:
        value = np.ascontiguousarray(value[::-1])[::-1]
    return value


def by_zarr(path: str) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(zarr.open_array(path, mode="r")[...])


def test_written_arrays(tmp_path_factory: pytest.TempPathFactory) -> None:
    device = CountingDevice()

    @settings(max_examples=40)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        check_writes(device, tmp_path_factory.mktemp("written"), data)

    check()
    assert {"copy_plain", "find_written", "copy_streams"} <= set(device.launches)


def check_writes(device: CountingDevice, path: Path, data: st.DataObject) -> None:
    """An array that is written on the device in a few steps holds the same for every reader."""
    shape, keywords = data.draw(arrays())
    dtype = keywords["dtype"]
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    gzarr.create_array(LocalStore(path), shape=shape, **keywords)
    small = 20 * math.prod(keywords["chunks"]) * dtype.itemsize + 40_000
    cap = data.draw(st.sampled_from([None, 1 << 20, small if None in keywords.values() else 1 << 19]))
    backend = GpuBackend(device, small_reads=NEVER, small_writes=NEVER, max_device_nbytes=cap)
    z = gzarr.open_array(LocalStore(path), device=backend, write_empty_chunks=keywords["write_empty_chunks"])
    model = np.full(shape, keywords["fill_value"], dtype)
    for _ in range(data.draw(st.integers(1, 4))):
        method, key, index = data.draw(writes(shape))
        taken = np.asarray(model[index])
        target = {"oindex": z.oindex, "vindex": z.vindex}.get(method, z)
        wanted = target[key].shape
        value = a_value(data, rng, wanted, dtype)
        model[index] = np.broadcast_to(value, wanted).reshape(taken.shape)
        here = data.draw(st.booleans())
        target[key] = on_device(value) if here and value.dtype.isnative else value
    cpu = gzarr.open_array(LocalStore(path), mode="r", device="cpu")
    assert_equal(cpu[...], model)
    assert_equal(z[...], model)
    assert_equal(by_zarr(str(path)), model)
    if not keywords["write_empty_chunks"]:
        again = gzarr.create_array({}, shape=shape, **keywords)
        again[...] = model
        assert again.nchunks_initialized == cpu.nchunks_initialized
