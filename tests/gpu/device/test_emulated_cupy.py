"""The array module of the emulated device has CuPy's names, and its functions stay on the device."""

import numpy as np
import pytest

from gzarr.gpu.device import emulated_cupy as xp
from gzarr.gpu.device.emulated_arrays import EmulatedArray
from gzarr.gpu.device.emulated_streams import NULL, EmulatedStream

HOST = np.arange(12, dtype="f4").reshape(3, 4)


@pytest.mark.parametrize("name", ["block", "errstate", "datetime64", "nosuch", "ma"])
def test_names_that_cupy_lacks_are_missing(name):
    with pytest.raises(AttributeError, match="module 'cupy' has no attribute"):
        getattr(xp, name)


def test_functions_of_numpy_that_cupy_lacks_are_refused():
    with pytest.raises(TypeError, match=r"no implementation found for 'numpy\.block'"):
        np.block([xp.asarray(HOST)])
    with pytest.raises(AttributeError, match="multi_dot"):
        xp.linalg.multi_dot
    with pytest.raises(AttributeError, match="runs no CUDA kernels"):
        xp.RawKernel


def test_functions_calculate_on_the_device():
    array = xp.asarray(HOST)
    for made in (
        xp.arange(3),
        xp.stack([array, array]),
        xp.linalg.norm(array),
        xp.fft.rfft(array),
        xp.random.default_rng(1).normal(size=3),
        xp.random.rand(2),
        xp.pad(array, 1),
        xp.allclose(array, array),
        xp.array([array[0], array[1]]),
        xp.unique(array, return_counts=True)[1],
        xp.linalg.svd(array).S,
        xp.sin(1.0),
        xp.add.reduce(array),
        xp.apply_along_axis(lambda row: row.sum(), 0, array),
        xp.scipy.ndimage.uniform_filter(array, 3),
        xp.empty_like(array),
    ):
        assert type(made) is EmulatedArray
    assert xp.float32 is np.float32
    assert xp.result_type(array, array) == "f4"
    assert xp.shape(array) == (3, 4)
    assert isinstance(array, xp.ndarray)
    assert np.add(array, 1, out=array) is array
    assert array[0, 0].item() == 1


def test_arrays_are_made_with_and_without_a_copy():
    array = xp.asarray(HOST)
    assert xp.asarray(array) is array
    assert xp.array(array) is not array
    assert xp.array(array, copy=False) is array
    assert xp.asarray(HOST.astype(">f4")).dtype == np.dtype("f4")
    array[0, 0] = 9
    assert HOST[0, 0] == 0
    assert (xp.ascontiguousarray(array.T).get() == array.get().T).all()


def test_functions_that_call_a_method_leave_values_of_the_host_there():
    assert type(xp.mean(HOST)) is np.float32  # as CuPy's
    assert (xp.asnumpy([1, 2]) == [1, 2]).all()


def test_arrays_are_shown_and_saved(tmp_path):
    array = xp.asarray(HOST)
    xp.save(tmp_path / "array.npy", array)
    assert (np.load(tmp_path / "array.npy") == HOST).all()
    assert xp.array_repr(array) == repr(HOST)


def test_streams_and_devices_have_cupys_names():
    stream = xp.cuda.Stream(non_blocking=True)
    with stream, xp.cuda.Device(0) as device:
        assert xp.cuda.get_current_stream() is stream
        device.synchronize()
    stream.synchronize()
    assert xp.cuda.get_current_stream() is xp.cuda.Stream.null is NULL
    assert xp.cuda.is_available()
    xp.get_default_memory_pool().free_all_blocks()
    assert isinstance(stream.record(), EmulatedStream)
    assert xp.get_array_module(xp.zeros(1)) is xp
    assert xp.get_array_module(HOST) is np


def test_nothing_makes_arrays_of_the_host() -> None:
    state = xp.random.RandomState(0)
    made = [xp.mgrid[0:2, 0:3], xp.ogrid[0:3], xp.r_[xp.arange(2), 5], xp.c_[xp.arange(2), xp.arange(2)], state.rand(2)]
    assert [type(x) for x in made] == [xp.ndarray] * 5
    assert made[2].tolist() == [0, 1, 5]
    with pytest.raises(TypeError, match="Unsupported type"):
        xp.r_[np.arange(2), 5]
    for name in ("PCG64", "get_state"):
        assert not hasattr(xp.random, name)


def test_assertions_take_both_kinds_of_arrays() -> None:
    xp.testing.assert_array_equal(xp.arange(3), np.arange(3))
    with pytest.raises(AssertionError):
        xp.testing.assert_allclose(np.ones(3), xp.zeros(3))


def test_functions_take_indices_of_the_host_as_methods_do() -> None:
    a = xp.arange(6)
    assert xp.take(a, np.array([1, 3])).tolist() == [1, 3]
    assert xp.repeat(a[:2], np.array([1, 2])).tolist() == [0, 1, 1]


def test_events_and_pools_are_there() -> None:
    start, end = xp.cuda.Event(), xp.cuda.Event()
    stream = xp.cuda.Stream()
    with stream:
        start.record()
        end.record(stream)
    stream.wait_event(stream.record(end))
    end.synchronize()
    assert xp.cuda.get_elapsed_time(start, end) >= 0
    assert stream.done
    assert xp.is_available()
    assert xp.get_default_memory_pool().used_bytes() == xp.get_default_pinned_memory_pool().n_free_blocks() == 0
