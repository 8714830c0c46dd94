"""Arrays leave gzarr by the protocols: `__array__`, DLPack; PyTorch takes results and arrays (JAX: test_jax.py)."""

import numpy as np
import pytest

import gzarr

DATA = np.arange(24, dtype="f4").reshape(4, 6)


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def array(request):
    return gzarr.create_array(data=DATA, chunks=(3, 4), zarr_format=request.param)


def test_numpy_takes_dlpack(array):
    assert array.__dlpack_device__() == (1, 0)
    np.testing.assert_array_equal(np.from_dlpack(array), DATA)
    assert np.from_dlpack(gzarr.array(3.5)).tolist() == 3.5
    np.testing.assert_array_equal(np.from_dlpack(gzarr.array(DATA.astype("c8"))), DATA)
    assert np.from_dlpack(gzarr.zeros((0, 3))).shape == (0, 3)
    with pytest.raises(BufferError, match="without a copy"):
        array.__dlpack__(copy=False)
    with pytest.raises(BufferError):
        np.from_dlpack(gzarr.array(np.array(["2001-01-01"], "M8[D]")))


def test_asking_for_protocols_reads_nothing(array):
    """Libraries probe for attributes; `__cuda_array_interface__` is the results' alone, as having it means reading."""
    store = gzarr.storage.CountingStore(array.store)
    watched = gzarr.open_array(store, "r")
    store.reset()
    assert hasattr(watched, "__dlpack__")
    assert watched.__dlpack_device__() == (1, 0)
    assert not hasattr(watched, "__cuda_array_interface__")
    assert not hasattr(watched, "__array_interface__")
    assert not store.requests


def test_numpy_takes_arrays_of_other_devices(array):
    """Values on a device come to the host when NumPy asks the gzarr array for them."""
    with gzarr.config.set({"emulated.arrays": "device"}):
        np.testing.assert_array_equal(np.asarray(array.to("emulated")), DATA)


def test_torch(array):
    torch = pytest.importorskip("torch")
    for tensor in (torch.from_dlpack(array), torch.from_numpy(array[...]), torch.as_tensor(array[...])):
        assert (tuple(tensor.shape), tensor.dtype, tensor.device.type) == (DATA.shape, torch.float32, "cpu")
        np.testing.assert_array_equal(tensor.numpy(), DATA)
    array[...] = torch.from_dlpack(array) * 2
    np.testing.assert_array_equal(array[...], DATA * 2)
    array[1, 2:4] = torch.tensor([7.0, 8.0])
    assert array[1, 1:5].tolist() == [14.0, 7.0, 8.0, 20.0]
