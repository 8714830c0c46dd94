"""Code is written once: the module of an array's functions is found from the array."""

import sys
import types

import numpy as np
import pytest

import gzarr
from gzarr.gpu.device import emulated_cupy


@pytest.fixture
def emulated():
    with gzarr.config.set({"emulated.arrays": "device"}):
        yield gzarr.array(np.arange(6.0), chunks=2, device="emulated")


def test_the_module_of_an_array(emulated):
    host = gzarr.array([1, 2], device="cpu")
    assert gzarr.array_namespace(np.zeros(2), 3.0, host) is host.xp is np
    assert gzarr.array_namespace(emulated, emulated[:]) is emulated.xp is emulated_cupy
    assert gzarr.array(["a"], device="emulated").xp is np  # what a GPU lacks is read on the host


def test_numpy_results_are_one_setting_away():
    with gzarr.config.set({"emulated.arrays": "numpy"}):
        array = gzarr.array([1, 2], device="emulated")
    assert array.xp is np
    assert type(array[:]) is np.ndarray
    with pytest.raises(ValueError, match=r"emulated\.arrays must be 'device' or 'numpy'"):
        gzarr.config.set({"emulated.arrays": "cupy"})


def test_arrays_of_several_libraries_are_refused(emulated):
    with pytest.raises(TypeError, match=r"numpy, the emulated device; copy them to one device"):
        gzarr.array_namespace(np.zeros(2), emulated[:])
    for nothing, text in (((), "needs an array"), ((1.0,), "needs an array"), (([1],), "expected an array, got list")):
        with pytest.raises(TypeError, match=text):
            gzarr.array_namespace(*nothing)


def test_scipy_follows_the_array(emulated):
    values = emulated[:]
    smooth = gzarr.scipy_namespace(values).ndimage.uniform_filter(values, 3)
    expected = gzarr.scipy_namespace(values.get()).ndimage.uniform_filter(values.get(), 3)
    assert (smooth.get() == expected).all()
    with pytest.raises(AttributeError, match=r"cupyx\.scipy"):
        gzarr.scipy_namespace(values).nosuch


def test_another_library_is_found_by_its_name(monkeypatch):
    library = types.ModuleType("cupy")
    monkeypatch.setitem(sys.modules, "cupy", library)
    array = type("ndarray", (), {"__module__": "cupy", "dtype": np.dtype("f8")})()
    assert gzarr.array_namespace(array) is library
