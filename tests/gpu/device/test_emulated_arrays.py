"""Arrays of the emulated device do, and refuse, what CuPy's do. What is expected here was asked of CuPy 14.2."""

import copy
import math
import pickle

import numpy as np
import pytest

from gzarr.gpu.device import emulated_cupy as xp
from gzarr.gpu.device.emulated_arrays import EmulatedArray
from gzarr.profiling import transfers

HOST = np.arange(12, dtype="f4").reshape(3, 4)


@pytest.fixture
def array():
    return xp.asarray(HOST)


class Seen:
    def __init__(self):
        self.counts = {}

    def crossed(self, what, nbytes, *, inside):
        n, total = self.counts.get(what, (0, 0))
        self.counts[what] = (n + 1, total + nbytes)


MIXING = {
    "operator": lambda a: a + HOST,
    "operator of the host": lambda a: HOST * a,
    "comparison": lambda a: a == HOST,
    "in place": lambda a: a.__iadd__(HOST),
    "in place on the host": lambda a: HOST.copy().__iadd__(a),
    "product": lambda a: HOST.T @ a,
    "ufunc": lambda a: np.maximum(HOST, a),
    "scalar array": lambda a: a + np.array(2.0),
    "function": lambda a: np.concatenate([a, HOST]),
    "own function": lambda a: xp.where(a > 1, HOST, a),
    "own ufunc": lambda _: xp.sin(HOST),
    "out of a ufunc": lambda a: np.add(a, a, out=HOST.copy()),
    "out of a method": lambda a: a.sum(axis=0, out=np.empty(4, "f4")),
    "argument of a method": lambda a: a.clip(HOST, None),
}


@pytest.mark.parametrize("mix", MIXING.values(), ids=MIXING)
def test_numpy_arrays_are_not_mixed_in(array, mix):
    with pytest.raises(TypeError, match=r"Unsupported type <class 'numpy\.ndarray'>"):
        mix(array)


CONVERSIONS = {
    "asarray": np.asarray,
    "list": lambda a: np.array([a, a]),
    "assignment": lambda a: np.empty((3, 4)).__setitem__(0, a[0]),
    "comparison of tests": lambda a: np.testing.assert_array_equal(a, HOST),
}


@pytest.mark.parametrize("convert", CONVERSIONS.values(), ids=CONVERSIONS)
def test_it_never_becomes_a_numpy_array_by_itself(array, convert):
    with pytest.raises(TypeError, match="Implicit conversion to a NumPy array is not allowed"):
        convert(array)


@pytest.mark.parametrize("key", [..., slice(None), 0, (slice(1, 2), 3)])
def test_values_of_the_host_are_not_assigned(array, key):
    with pytest.raises(ValueError, match=r"non-scalar numpy\.ndarray cannot be used for fill"):
        array[key] = np.atleast_1d(HOST[key])
    array[key] = np.array(7.0)  # a scalar
    assert (array[key].get() == 7).all()


def test_advanced_indices_and_their_values_may_be_of_the_host(array):
    array[HOST > 8] = np.array([1, 2, 3])
    array[[0, 1], np.array([0, 0])] = xp.asarray([5, 6])
    assert array[2].tolist() == [8, 1, 2, 3]
    assert array[np.array([0, 1]), 0].tolist() == [5, 6]
    assert array.take(np.array([0, 4])).tolist() == [5, 6]


def test_results_stay_on_the_device(array):
    for made in (array.sum(), array[1, 2], array.argmax(), np.float32(2) * array, np.sqrt(array), np.median(array)):
        assert type(made) is EmulatedArray
    assert array.sum().shape == ()
    assert float(array.sum()) == HOST.sum()
    assert [row.tolist() for row in array] == HOST.tolist()
    assert math.sqrt(array[2, 1]) == 3
    assert f"{array[0, 1]:.2f}" == "1.00"
    assert repr(array) == repr(HOST)
    with pytest.raises(TypeError, match="list indices"):
        [1, 2][array[0, 0]]
    with pytest.raises(ValueError, match="truth value"):
        bool(array)


def test_views_share_memory_and_copies_do_not(array):
    flat, turned, same = array.reshape(-1), array.T, array[1:]
    flat[5] = 50
    assert turned[1, 1].item() == same[0, 1].item() == 50
    for copied in (array.copy(), copy.deepcopy(array), pickle.loads(pickle.dumps(array)), array.astype("f8")):
        copied[1, 1] = 0
        assert array[1, 1].item() == 50
    assert array.astype("f4", copy=False) is array
    assert array.data.ptr == flat.data.ptr != array.copy().data.ptr
    assert array[1:].data.ptr == array.data.ptr + 16


def test_getting_and_setting(array):
    out = np.empty((3, 4), "f4")
    assert array.get(out=out) is out
    assert (out == HOST).all()
    assert array.get(order="F").flags.f_contiguous
    array.set(HOST + 1)
    assert (xp.asnumpy(array) == HOST + 1).all()
    for wrong, error in ((np.empty((3, 4)), TypeError), (np.empty((4, 3), "f4"), ValueError), (array, TypeError)):
        with pytest.raises(error):
            array.get(out=wrong)
        if wrong is not array:
            with pytest.raises(error):
                array.set(wrong)


def test_protocols(array):
    assert not hasattr(array, "__array_interface__")
    assert not hasattr(array, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match=r"what \.get\(\) returns"):
        array.__cuda_array_interface__
    with pytest.raises(BufferError, match=r"use \.get\(\)"):
        np.from_dlpack(array)
    assert array.__dlpack__(max_version=(1, 0))  # as PyTorch and JAX ask
    with pytest.raises(TypeError, match=r"cupy\.array\(numpy\.from_dlpack"):
        xp.from_dlpack(HOST)
    assert array.device.id == 0
    assert array.flags.c_contiguous
    with pytest.raises(TypeError, match="unhashable"):
        hash(array)
    for missing in ("ctypes", "to_device", "__array_namespace__"):
        assert not hasattr(array, missing)


@pytest.mark.parametrize("values", ["text", [object()], np.array(["2020"], "M8[D]"), np.zeros(2, "g")])
def test_data_types_that_a_gpu_lacks_are_refused(values):
    with pytest.raises(ValueError, match="Unsupported dtype"):
        xp.array(values)


def test_transfers_are_told(array):
    seen = Seen()
    with transfers.observed_by(seen):
        made = xp.asarray(HOST)
        made.get()
        float(made[0, 0])
        made + 1
        made[[0, 1]] = np.ones((2, 4))
        made.fill(3)
    assert seen.counts["to_device"] == (3, 48 + 16 + 32)
    assert seen.counts["to_host"] == (2, 48 + 4)
    assert seen.counts["synchronize"] == (2, 0)
    assert seen.counts["allocate"] == (2, 96)
    assert seen.counts["free"][0] >= 1
