"""Values and results on a device: arrays of other libraries, ``out``, results without dimensions."""

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.errors import DeviceError
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice

DATA = np.random.default_rng(2).integers(0, 100, (13, 11)).astype("i4")


class Foreign:
    """An array of another library in the memory of the emulated device, which is the host's."""

    def __init__(self, array):
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype
        self.__cuda_array_interface__ = array.__array_interface__ | {"stream": None}


@pytest.fixture
def stored():
    return gzarr.array(DATA, chunks=(4, 5), store={})


def test_arrays_of_other_libraries_are_written(stored):
    z = stored.to("emulated")
    z[2:9, 1:6] = Foreign(np.arange(35, dtype="f4").reshape(7, 5)[::-1])
    expected = DATA.copy()
    expected[2:9, 1:6] = np.arange(35).reshape(7, 5)[::-1]
    np.testing.assert_array_equal(z[:], expected)
    made = gzarr.array(Foreign(DATA[:, ::2]), device="emulated")
    np.testing.assert_array_equal(made[:], DATA[:, ::2])
    z.append(Foreign(DATA))
    np.testing.assert_array_equal(z[13:], DATA)
    z[0] = Foreign(np.array(7))
    assert z[0].tolist() == [7] * 11


def test_values_on_a_gpu_are_downloaded_by_their_own_library_on_the_cpu(stored):
    value = Foreign(DATA[::-1])
    with pytest.raises(TypeError, match="Foreign is in GPU memory: copy it into a NumPy array first"):
        stored[:] = value
    value.cpu = lambda: value.array
    stored[:] = value
    np.testing.assert_array_equal(stored[:], DATA[::-1])


@pytest.mark.parametrize("device", ["emulated", GpuBackend(EmulatedDevice(arrays="device"))])
def test_out_of_another_library_is_filled_in_place(stored, device):
    memory = np.zeros((26, 33), "f8")
    out = Foreign(memory[::-2, 1:12])
    z = stored.to(device)
    assert z.get_basic_selection(..., out=out) is out
    np.testing.assert_array_equal(memory[::-2, 1:12], DATA)
    assert (memory[::2] == 0).all()
    assert (memory[:, 12:] == 0).all()


LAYOUTS = {
    "plain": np.zeros,
    "fortran": lambda shape, dtype: np.zeros(shape, dtype, order="F"),
    "backwards": lambda shape, dtype: np.zeros(shape, dtype)[::-1, ::-1],
    "steps": lambda shape, dtype: np.zeros((2 * shape[0], 3 * shape[1]), dtype)[::-2, 1::3],
    "transposed": lambda shape, dtype: np.zeros(shape[::-1], dtype).T,
    "odd address": lambda shape, dtype: np.ndarray(shape, dtype, np.zeros(9999, "u1")[1:].data),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["i4", "f8", "c16", ">i4", "i8"])
def test_out_of_any_layout(stored, layout, dtype):
    z = stored.to("emulated")
    rows, columns = np.array([[12, 0, 3], [3, 3, 4]]), np.array([[1, 10, 2], [2, 0, 5]])
    for read, expected in (
        (lambda out: z.get_basic_selection(np.s_[1:12:2, ::-1], out=out), DATA[1:12:2, ::-1]),
        (lambda out: z.get_orthogonal_selection(([3, 1, 3], [0, 10]), out=out), DATA[np.ix_([3, 1, 3], [0, 10])]),
        (lambda out: z.get_coordinate_selection((rows, columns), out=out), DATA[rows, columns]),
        (lambda out: z.get_block_selection((1, 2), out=out), DATA[4:8, 10:]),
    ):
        out = LAYOUTS[layout](expected.shape, np.dtype(dtype))
        assert read(out) is out
        np.testing.assert_array_equal(out, expected)
    mask = DATA > 50
    out = np.zeros(2 * int(mask.sum()), dtype)[::-2]
    z.get_mask_selection(mask, out=out)
    np.testing.assert_array_equal(out, DATA[mask])


def test_out_that_does_not_fit(stored):
    z = stored.to("emulated")
    with pytest.raises(ValueError, match=r"out has shape \(13, 10\), but the selection has shape \(13, 11\)"):
        z.get_basic_selection(..., out=np.zeros((13, 10)))
    with pytest.raises(TypeError, match="out has dtype bool"):
        z.get_basic_selection(..., out=np.zeros((13, 11), bool))
    with pytest.raises(ValueError, match="out is read-only"):
        z.get_basic_selection(..., out=np.broadcast_to(0, (13, 11)))
    for array in (z, stored):
        with pytest.raises(TypeError, match="out must be an array, got list"):
            array.get_basic_selection(..., out=[0])
    with pytest.raises(ValueError, match="out is in GPU memory, but the array is read on the CPU"):
        stored.get_basic_selection(..., out=Foreign(np.zeros((13, 11))))


def test_out_on_another_device_is_refused(stored, monkeypatch):
    device = EmulatedDevice(arrays="device")
    monkeypatch.setattr(device, "adopt", lambda value, stream: value.array)
    with pytest.raises(ValueError, match="out is not on emulated, where the array is read: copy it there"):
        stored.to(GpuBackend(device)).get_basic_selection(..., out=Foreign(np.zeros((13, 11))))


def test_out_on_the_host_is_decoded_there_but_not_in_strict_mode(stored):
    device = EmulatedDevice(arrays="device")
    out = np.zeros((13, 11), "i4")
    stored.to(GpuBackend(device)).get_basic_selection(..., out=out)
    np.testing.assert_array_equal(out, DATA)
    assert device.launches == []
    with pytest.raises(DeviceError, match=r"out is on the host.*strict=True.*emulated"):
        stored.to(GpuBackend(device, strict=True)).get_basic_selection(..., out=out)


def test_results_without_dimensions(stored):
    z = stored.to("emulated")
    assert z[3, 4] == DATA[3, 4]
    assert np.shape(z[3, 4]) == ()
    out = np.zeros((), "i8")
    z.get_basic_selection((3, 4), out=out)
    assert out == DATA[3, 4]
    scalar = gzarr.array(np.float32(2.5), device="emulated")
    assert scalar[()] == 2.5
    scalar[()] = Foreign(np.array(4, "i2"))
    assert scalar[...] == 4


@pytest.mark.parametrize("dtype", ["M8[s]", "m8[D]", "S3", "U2", "V5"])
def test_what_a_gpu_has_no_dtype_for_comes_back_from_the_host_with_the_reason(dtype):
    data = DATA[0].astype("i8").astype(dtype) if dtype[0] in "Mm" else DATA[0].astype("S").astype(dtype)
    z = gzarr.array(data, chunks=4, device=GpuBackend(EmulatedDevice(arrays="device")))
    assert type(z[:]) is np.ndarray
    np.testing.assert_array_equal(z[:], data)
    assert {(row.where, row.why) for row in z.placement} == {
        ("host", f"arrays on emulated cannot have dtype {z.dtype}"),
        ("host", "by the compiled loop"),
    }


@pytest.mark.parametrize("endian", ["little", "big"])
@pytest.mark.parametrize("compressor", [gzarr.codecs.ZstdCodec(), numcodecs.BZ2()], ids=["zstd", "bz2"])
def test_fields_are_read_in_the_byte_order_of_the_bytes_codec(endian, compressor):
    dtype = np.dtype([("a", "i2"), ("b", "c16"), ("c", "u1")])
    data = np.zeros(50, dtype)
    data["a"], data["b"], data["c"] = np.arange(50), np.arange(50) * 1.5j, 3
    stored = gzarr.create_array(
        data=data, chunks=7, serializer=gzarr.codecs.BytesCodec(endian=endian), compressors=compressor
    )
    z = gzarr.open_array(stored.store, mode="r", device="emulated")
    for name in dtype.names:
        np.testing.assert_array_equal(z.get_basic_selection(slice(3, 40, 3), fields=name), data[name][3:40:3])
        np.testing.assert_array_equal(z.get_coordinate_selection([3, 9, 2], fields=name), data[name][[3, 9, 2]])


@pytest.mark.parametrize("out", [">f8", ">f4", "<f4", ">c16"])
@pytest.mark.parametrize("stored", [">f8", "<f8"])
def test_results_in_the_other_byte_order(stored: str, out: str) -> None:
    values = np.array([1.5, -2.0, 3e-320, 1e30, 7.0])
    array = gzarr.create_array({}, data=values.astype(stored), chunks=2, zarr_format=2, device="emulated")
    found = np.zeros(5, out)
    array.get_basic_selection(..., out=found)
    assert found.tobytes() == values.astype(out).tobytes()
