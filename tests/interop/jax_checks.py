"""JAX takes arrays, gzarr takes those of JAX, and batches share memory: what ``test_jax.py`` runs in a process."""

import doctest
import gc
import weakref

import jax.numpy as jnp
import numpy as np
import pytest

import gzarr
from gzarr.cpu.backend import owned_by
from gzarr.interop.jax import arrays

DATA = np.arange(24, dtype="f4").reshape(4, 6)


def jax_takes_arrays_and_gzarr_takes_those_of_jax():
    array = gzarr.create_array("x.zarr", data=DATA, chunks=(3, 4))
    for tensor in (jnp.from_dlpack(array), jnp.asarray(array[...]), jnp.asarray(np.asarray(array))):
        np.testing.assert_array_equal(np.asarray(tensor), DATA)
    array[...] = jnp.asarray(DATA) * 2
    np.testing.assert_array_equal(array[...], DATA * 2)
    mask, rows, two = jnp.asarray(DATA) > 5, jnp.asarray([1, 3]), jnp.asarray(2)
    for found, part in ((array[mask], DATA > 5), (array.oindex[rows], [1, 3]), (array[two], 2)):
        np.testing.assert_array_equal(found, 2 * DATA[part])
    data = jnp.asarray(DATA, jnp.bfloat16)
    made = gzarr.create_array("y.zarr", data=data, fill_value=jnp.asarray(3.0), chunks=(3, 4))
    assert jnp.from_dlpack(made).dtype == made.dtype == jnp.bfloat16
    array[...] = jnp.from_dlpack(made)
    np.testing.assert_array_equal(array[...], DATA)
    with pytest.raises(TypeError, match="immutable"):
        array.get_basic_selection(out=jnp.zeros(array.shape))


def aligned(shape, dtype):
    memory = np.empty(64 + np.prod(shape) * np.dtype(dtype).itemsize, "u1")
    start = -memory.ctypes.data % 64
    return memory[start:][: memory.size - 64].view(dtype).reshape(shape)


def arrays_share_memory_and_keep_its_owner():
    owner = set()
    owned = weakref.ref(owner)
    for dtype in ("u1", "f4", jnp.bfloat16):
        batch = owned_by(aligned((4, 16), dtype), owner)
        batch[...] = 1
        shared = arrays({"image": batch[:2], "name": "cat", "pair": (np.int32(3), [batch])})
        assert shared["image"].unsafe_buffer_pointer() == batch.ctypes.data
        assert shared["image"].dtype == batch.dtype
        assert (shared["name"], int(shared["pair"][0]), shared["pair"][1][0].shape) == ("cat", 3, (4, 16))
    del owner, batch
    gc.collect()
    assert owned() is not None
    total = shared["image"].sum()
    del shared
    assert int(total) == 32
    gc.collect()
    assert owned() is None


def batches_stay_what_they_are_while_the_loader_goes_on():
    data = np.arange(64 * 16, dtype="f4").reshape(64, 16)
    loader = gzarr.Loader({"image": gzarr.array(data, chunks=(4, 16)), "label": np.arange(64)}, 8, shuffle=True)
    held, shared = [], 0
    for batch in loader:
        held.append(arrays(batch))
        shared += held[-1]["image"].unsafe_buffer_pointer() == batch["image"].ctypes.data
    del batch
    for _ in loader:
        pass
    for batch in held:
        np.testing.assert_array_equal(batch["image"], data[np.asarray(batch["label"])])
    assert shared == len(held) == 8


def arrays_of_the_emulated_device_are_taken():
    data = np.arange(12, dtype="f4").reshape(3, 4)
    with gzarr.config.set({"emulated.arrays": "device"}):
        array = gzarr.array(data, chunks=(1, 4), device="emulated")
        np.testing.assert_array_equal(np.asarray(arrays(array[:2])), data[:2])


if __name__ == "__main__":
    assert doctest.testmod(gzarr.interop.jax) == (0, 4)
    jax_takes_arrays_and_gzarr_takes_those_of_jax()
    arrays_share_memory_and_keep_its_owner()
    batches_stay_what_they_are_while_the_loader_goes_on()
    arrays_of_the_emulated_device_are_taken()
    print("done")
