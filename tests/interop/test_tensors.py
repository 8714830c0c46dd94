"""Arrays leave gzarr by the protocols: `__array__`, DLPack; torch and JAX take results and arrays."""

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest

import gzarr
from tests.interop.duck_device import DuckBackend

DATA = np.arange(24, dtype="f4").reshape(4, 6)


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def array(request):
    return gzarr.create_array(data=DATA, chunks=(3, 4), zarr_format=request.param)


def test_numpy_takes_the_whole_array(array):
    assert type(np.asarray(array)) is np.ndarray
    np.testing.assert_array_equal(np.asarray(array), DATA)
    np.testing.assert_array_equal(np.array(array, copy=True), DATA)
    assert np.asarray(array, "i8").dtype == np.int64
    assert np.array(array, dtype="f8", copy=None).dtype == np.float64
    assert np.asarray(gzarr.array(3.5)).shape == ()
    np.testing.assert_array_equal(np.concatenate([array, DATA]), np.concatenate([DATA, DATA]))
    np.testing.assert_array_equal(np.add(array, 1), DATA + 1)
    with pytest.raises(ValueError, match="without a copy"):
        np.array(array, copy=False)


def test_what_numpy_gets_is_its_own(array):
    found = np.asarray(array)
    found[0, 0] = 99
    assert array[0, 0] == 0


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
    np.testing.assert_array_equal(np.asarray(array.to(DuckBackend())), DATA)


def test_torch(array):
    torch = pytest.importorskip("torch")
    for tensor in (torch.from_dlpack(array), torch.from_numpy(array[...]), torch.as_tensor(array[...])):
        assert (tuple(tensor.shape), tensor.dtype, tensor.device.type) == (DATA.shape, torch.float32, "cpu")
        np.testing.assert_array_equal(tensor.numpy(), DATA)
    array[...] = torch.from_dlpack(array) * 2
    np.testing.assert_array_equal(array[...], DATA * 2)
    array[1, 2:4] = torch.tensor([7.0, 8.0])
    assert array[1, 1:5].tolist() == [14.0, 7.0, 8.0, 20.0]


def test_jax(tmp_path):
    """JAX runs in a process of its own, as it warns of every later fork."""
    if importlib.util.find_spec("jax") is None:
        pytest.skip("could not import 'jax'")
    gzarr.save_array(tmp_path / "x.zarr", DATA, chunks=(3, 4))
    code = """
import gzarr, jax.numpy as jnp, numpy as np
array = gzarr.open_array("x.zarr", "r+")
expected = array[...]
for tensor in (jnp.from_dlpack(array), jnp.asarray(expected), jnp.asarray(np.asarray(array))):
    np.testing.assert_array_equal(np.asarray(tensor), expected)
array[...] = jnp.asarray(expected) * 2
np.testing.assert_array_equal(array[...], expected * 2)
mask, rows, two = jnp.asarray(expected) > 5, jnp.asarray([1, 3]), jnp.asarray(2)
for found, part in ((array[mask], expected > 5), (array.oindex[rows], [1, 3]), (array[two], 2)):
    np.testing.assert_array_equal(found, 2 * expected[part])
data = jnp.asarray(expected, jnp.bfloat16)
made = gzarr.create_array("y.zarr", data=data, fill_value=jnp.asarray(3.0), chunks=(3, 4))
assert jnp.from_dlpack(made).dtype == made.dtype == jnp.bfloat16
array[...] = jnp.from_dlpack(made)
np.testing.assert_array_equal(array[...], expected)
try:
    array.get_basic_selection(out=jnp.zeros(array.shape))
except TypeError as error:
    print("immutable" in str(error), end=" ")
print("done")
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("True done\n", 0), done.stderr
