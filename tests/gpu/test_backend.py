"""The GPU backend: which steps run where, how many calls a batch takes, memory, errors."""

import numpy as np
import pytest
from numcodecs import LZ4, Blosc, Delta, FixedScaleOffset, GZip, PackBits, Quantize, Shuffle, Zlib, Zstd

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice

DATA = np.random.default_rng(0).integers(0, 1000, (53, 41)).astype("i4")
CODECS = {
    "default": {},
    "blosc lz4 shuffle": {"compressor": Blosc("lz4", 5, Blosc.SHUFFLE)},
    "blosc lz4hc bitshuffle": {"compressor": Blosc("lz4hc", 5, Blosc.BITSHUFFLE)},
    "blosc zstd bitshuffle": {"compressor": Blosc("zstd", 5, Blosc.BITSHUFFLE)},
    "blosc zlib shuffle": {"compressor": Blosc("zlib", 5, Blosc.SHUFFLE)},
    "blosc blosclz": {"compressor": Blosc("blosclz", 5, Blosc.SHUFFLE)},
    "none": {"compressor": None},
    "lz4": {"compressor": LZ4()},
    "zlib": {"compressor": Zlib()},
    "gzip": {"compressor": GZip()},
    "zstd with checksum": {"compressor": Zstd(1, checksum=True)},
    "delta": {"filters": [Delta("i4")]},
    "delta, shuffle, zlib": {"filters": [Delta("i4"), Shuffle(4)], "compressor": Zlib()},
    "order F": {"order": "F", "compressor": Blosc("lz4", 5, Blosc.SHUFFLE)},
    "big endian": {"dtype": ">i4"},
    "big endian, order F": {"dtype": ">i4", "order": "F"},
}
SELECTIONS = (np.s_[:], np.s_[3:40:3, ::-2], np.s_[5, 7], np.s_[..., None, 3], np.s_[::60])


@pytest.fixture
def device() -> EmulatedDevice:
    return EmulatedDevice()


def opened(array: gzarr.Array, device: EmulatedDevice, **options) -> gzarr.Array:
    return gzarr.open_array(array.store, mode="r+", device=GpuBackend(device, **options))


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("codecs", CODECS)
def test_reads_equal_numpy(device, codecs, zarr_format):
    stored = gzarr.create_array(data=DATA, chunks=(10, 7), zarr_format=zarr_format, **CODECS[codecs])
    array = opened(stored, device)
    for selection in SELECTIONS:
        found = array[selection]
        np.testing.assert_array_equal(found, DATA[selection])
        assert np.asarray(found).dtype.isnative
    rows, columns = [3, 1, 30, 3], [2, 2, 40]
    np.testing.assert_array_equal(array.oindex[rows, columns], DATA[np.ix_(rows, columns)])
    np.testing.assert_array_equal(array.vindex[rows, [2, 2, 40, 1]], DATA[rows, [2, 2, 40, 1]])
    assert {"copy_plain", "copy_bytes"} & set(device.launches)


def test_filters_of_floats_and_bools(device):
    floats = np.linspace(-5, 5, 999).reshape(27, 37)
    for filters in ([FixedScaleOffset(offset=0, scale=100, dtype="f8", astype="i4")], [Quantize(3, "f8", "f4")]):
        stored = gzarr.create_array(data=floats, chunks=(10, 10), filters=filters, zarr_format=2)
        np.testing.assert_array_equal(opened(stored, device)[:], stored[:])
    stored = gzarr.create_array(data=floats > 0, chunks=(10, 10), filters=[PackBits()], zarr_format=2)
    np.testing.assert_array_equal(opened(stored, device)[:], floats > 0)


def test_a_batch_is_one_call_for_each_step(device):
    stored = gzarr.create_array(data=DATA, chunks=(10, 7), compressor=Blosc("lz4", 5, Blosc.NOSHUFFLE))
    array = opened(stored, device)
    device.launches.clear()
    array[:]
    assert device.launches.count("copy_plain") == 1
    assert device.launches.count("lz4") <= 1


def test_shards_are_read_in_batches(device):
    stored = gzarr.create_array(data=DATA, chunks=(10, 7), shards=(30, 21))
    array = opened(stored, device)
    device.launches.clear()
    np.testing.assert_array_equal(array[:], DATA)
    assert device.launches == ["zstd", "copy_plain"]


def test_missing_chunks_become_fill_in_the_same_launch(device):
    stored = gzarr.create_array(shape=(20, 20), chunks=(5, 5), dtype="f4", fill_value=np.nan)
    stored[7:12, 3] = 5
    array = opened(stored, device)
    np.testing.assert_array_equal(array[:], stored[:])
    device.launches.clear()
    assert np.isnan(array[15:, 15:]).all()
    assert device.launches == ["copy_plain"]


def test_placement_says_what_runs_where(device):
    array = opened(gzarr.create_array(shape=9, chunks=3, dtype="f2", filters=[Delta("f2")], zarr_format=2), device)
    assert [row.where for row in array.placement] == ["host", "host", "host", *["emulated"] * 3]
    assert "floats of 2 bytes" in array.placement[0].why
    array = opened(gzarr.create_array(shape=9, chunks=3, dtype="i4", compressor=Blosc()), device)
    assert {row.where for row in array.placement} == {"emulated"}
    text = opened(gzarr.create_array(shape=9, chunks=3, dtype=str), device)
    assert {row.where for row in text.placement} == {"host"}
    assert text[:].tolist() == [""] * 9


def test_strict_refuses_what_would_run_on_the_host(device):
    stored = gzarr.create_array(shape=9, chunks=3, dtype="f2", filters=[Delta("f2")], zarr_format=2)
    with pytest.raises(gzarr.DeviceError, match=r"numcodecs\.delta.*strict"):
        opened(stored, device, strict=True)


@pytest.mark.parametrize("dtype", ["U5", "M8[s]", str])
def test_types_that_the_device_lacks_are_read_by_the_host_in_strict_mode_too(device, dtype):
    stored = gzarr.create_array(shape=9, chunks=3, dtype=dtype, fill_value="" if dtype != "M8[s]" else None)
    stored[4] = stored[4]
    array = opened(stored, device, strict=True)
    np.testing.assert_array_equal(array[:], stored[:])


def test_strict_refuses_casts_that_the_host_does(device):
    stored = gzarr.create_array(data=DATA.astype("f8"), chunks=(10, 7))
    array = opened(stored, device, strict=True)
    with pytest.raises(gzarr.DeviceError, match=r"float64 become int32.*strict=True"):
        array.astype("i4")[:]
    np.testing.assert_array_equal(array.astype("f4")[:], DATA)
    assert "zstd" in device.launches


def test_what_the_host_decodes_respects_the_cap_too(device):
    data = np.arange(5000, dtype="f8")
    stored = gzarr.create_array(data=data, chunks=1000, compressor=None)
    for nbytes in (4000, 7999):
        array = opened(stored, device, max_device_nbytes=nbytes)
        with pytest.raises(gzarr.DeviceError, match=r"chunk \(\d,\): 8000 bytes.*1/3 of the cap.*max_device_nbytes"):
            array.astype("i4")[:]
    device.memory.peak = device.memory.live
    array = opened(stored, device, max_device_nbytes=20_000)
    np.testing.assert_array_equal(array.astype("i4")[5:300:2], data[5:300:2])
    np.testing.assert_array_equal(array.astype("i4")[:], data)
    assert device.memory.peak <= device.memory.live + 20_000


def test_a_cap_splits_batches_and_says_which_chunk_does_not_fit(device):
    stored = gzarr.create_array(data=DATA, chunks=(10, 7), compressor=None)
    array = opened(stored, device, max_device_nbytes=4000)
    device.launches.clear()
    np.testing.assert_array_equal(array[:], DATA)
    assert device.launches.count("copy_plain") > 5
    with pytest.raises(gzarr.DeviceError, match=r"\(10, 7\).*max_device_nbytes"):
        opened(stored, device, max_device_nbytes=500)[:]


@pytest.mark.parametrize("codecs", ["default", "blosc lz4 shuffle", "lz4", "zlib", "none"])
def test_a_damaged_chunk_is_named_and_the_next_read_works(device, codecs):
    stored = gzarr.create_array(data=DATA, chunks=(10, 7), **CODECS[codecs])
    good = stored.store["c/2/3"]
    stored.store["c/2/3"] = good[: len(good) // 2]
    array = opened(stored, device)
    with pytest.raises(gzarr.ChunkError, match=r"c/2/3.*\(2, 3\)") as caught:
        array[:]
    assert caught.value.chunk_coords == (2, 3)
    stored.store["c/2/3"] = good
    np.testing.assert_array_equal(array[:], DATA)


def test_crc32c_is_verified_before_anything_is_decoded(device):
    codecs = [gzarr.codecs.BytesCodec(), gzarr.codecs.ZstdCodec(), gzarr.codecs.Crc32cCodec()]
    stored = gzarr.create_array(data=DATA, chunks=(10, 7), codecs=codecs)
    array = opened(stored, device)
    np.testing.assert_array_equal(array[:], DATA)
    bad = bytearray(stored.store["c/0/0"])
    bad[9] ^= 1
    stored.store["c/0/0"] = bytes(bad)
    device.launches.clear()
    with pytest.raises(gzarr.ChunkError, match="crc32c: expected checksum"):
        array[:]
    assert "zstd" not in device.launches


def test_writes_are_read_back(device):
    array = opened(gzarr.create_array(shape=(20, 20), chunks=(6, 6), dtype="i4"), device)
    array[3:15, ::3] = np.arange(12)[:, None]
    expected = np.zeros((20, 20), "i4")
    expected[3:15, ::3] = np.arange(12)[:, None]
    np.testing.assert_array_equal(array[:], expected)


def test_reads_into_a_buffer_and_casts(device):
    array = opened(gzarr.create_array(data=DATA, chunks=(10, 7), compressor=Blosc("lz4", 5, Blosc.SHUFFLE)), device)
    out = np.zeros((53, 82), "f8")[:, ::2]
    array.get_basic_selection(..., out=out)
    np.testing.assert_array_equal(out, DATA)
    np.testing.assert_array_equal(array.astype("f4")[4:9], DATA[4:9].astype("f4"))


def test_cuda_names_what_is_missing():
    from gzarr.gpu.detection.detect import find_missing

    if find_missing() is None:
        pytest.skip("this machine has a usable GPU")
    with pytest.raises(gzarr.DeviceError, match=r"cuda.*cannot be used: .*driver|nvCOMP|CuPy"):
        gzarr.zeros(3, device="cuda")
    assert gzarr.zeros(3, device="auto").device == "cpu"
