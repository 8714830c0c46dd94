"""Choosing a device: names, options, one backend for equal ones, and what is said where no GPU can be used."""

import pickle
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import gzarr
from gzarr.devices import backend_for
from gzarr.errors import DeviceError
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.detection import driver
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.emulated_streams import EmulatedStream
from gzarr.gpu.device.hostbuild import find_compiler
from tests.support.processes import run_python

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")
OPENERS = {
    "create_array": lambda **o: gzarr.create_array(shape=4, chunks=2, **o),
    "create": lambda **o: gzarr.create(4, 2, **o),
    "zeros": lambda **o: gzarr.zeros(4, **o),
    "array": lambda **o: gzarr.array([1, 2], compressors=None, **o),
    "zeros_like": lambda **o: gzarr.zeros_like(gzarr.ones(3), **o),
    "open_array": lambda **o: gzarr.open_array(gzarr.ones(3).store, "r", **o),
    "open_array w": lambda **o: gzarr.open_array({}, "w", shape=3, **o),
    "open of an array": lambda **o: gzarr.open(gzarr.ones(3).store, **o),
    "open of a group": lambda **o: gzarr.open(gzarr.group().store, **o),
    "open w": lambda **o: gzarr.open({}, "w", shape=3, **o),
    "group": gzarr.group,
    "create_group": gzarr.create_group,
    "open_group": lambda **o: gzarr.open_group(gzarr.group().store, **o),
    "Array.to": lambda **o: gzarr.ones(3).to(o.pop("device", "cpu"), **o),
    "Group.to": lambda **o: gzarr.group().to(o.pop("device", "cpu"), **o),
}


@pytest.mark.parametrize("opener", OPENERS)
def test_every_way_to_open_takes_the_options(opener):
    options = {"max_device_nbytes": 1 << 20, "strict": True, "reader": "host"}
    node = OPENERS[opener](device="emulated", **options)
    assert node.device == "emulated"
    assert node.backend.options == options
    assert OPENERS[opener](device="emulated", **options).backend is node.backend
    assert OPENERS[opener](device="cpu", **options, stream=None).device == "cpu"


def test_groups_pass_their_backend_on():
    root = gzarr.group(device="emulated", strict=True)
    made = root.create_array("a/b", shape=3)
    assert made.backend is root["a"].backend is root["a/b"].backend is root.backend


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_device_nbytes": 0}, "max_device_nbytes must be a number of bytes >= 1 or None, got 0"),
        ({"max_device_nbytes": "1 GB"}, "max_device_nbytes must be a number of bytes"),
        ({"max_device_nbytes": True}, "max_device_nbytes must be a number of bytes"),
        ({"strict": "yes"}, "strict must be True or False, got 'yes'"),
        ({"strict": 2}, "strict must be True or False, got 2"),
        ({"reader": "gds"}, "reader must be one of 'auto', 'host', 'kvikio'; got 'gds'"),
        ({"stream": object()}, "stream: device 'cpu' has no streams"),
    ],
)
def test_malformed_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        gzarr.zeros(3, device="cpu", **options)


@pytest.mark.parametrize(("name", "value"), [("max_device_nbytes", "1GB"), ("strict", "yes"), ("reader", "gds")])
def test_malformed_settings_are_named(name, value):
    with gzarr.config.set({f"gpu.{name}": value}), pytest.raises(ValueError, match=f"GZARR_GPU__{name.upper()}.* must"):
        gzarr.zeros(3)


def test_strict_may_be_a_number_as_in_the_environment():
    with gzarr.config.set({"device": "emulated", "gpu.strict": 1}):
        assert gzarr.zeros(3).backend.options["strict"] is True


def test_a_backend_brings_its_own_options():
    backend = GpuBackend(EmulatedDevice())
    assert backend_for(backend) is backend
    with pytest.raises(ValueError, match="device is a backend"):
        backend_for(backend, strict=False)
    with pytest.raises(ValueError, match=r"device must be 'cpu', .*; got 3"):
        backend_for(3)


def test_settings_are_the_defaults():
    with gzarr.config.set({"device": "emulated", "gpu.strict": True, "gpu.max_device_nbytes": 4096}):
        assert gzarr.zeros(3).backend.options == {"max_device_nbytes": 4096, "strict": True, "reader": "auto"}
        assert gzarr.zeros(3, strict=False).backend.options["strict"] is False
        assert gzarr.zeros(3, device="cpu").device == "cpu"
    assert gzarr.zeros(3).device == "cpu"


@needs_compiler
def test_environment_chooses_the_device_and_its_options():
    code = (
        "import gzarr\nz = gzarr.array([1, 2])\n"
        "print(z.device, z.backend.options['max_device_nbytes'], z.backend.options['reader'], z[:].tolist())"
    )
    env = {"GZARR_DEVICE": "emulated", "GZARR_GPU__MAX_DEVICE_NBYTES": "65536", "GZARR_GPU__READER": "host"}
    assert run_python(code, env).split() == ["emulated", "65536", "host", "[1,", "2]"]


def test_backends_for_a_stream_are_not_shared():
    stream = EmulatedStream()
    one, two = (backend_for("emulated", stream=stream) for _ in range(2))
    assert one is not two
    assert backend_for("emulated") is backend_for("emulated")


@needs_compiler
def test_pickles_keep_device_and_options():
    z = gzarr.array(np.arange(6), chunks=2, device="emulated", max_device_nbytes=1 << 20)
    again = pickle.loads(pickle.dumps(z))
    assert again.backend is z.backend
    assert again[:].tolist() == list(range(6))
    root = gzarr.group(device="emulated", strict=True)
    assert pickle.loads(pickle.dumps(root)).backend is root.backend


def test_a_pickle_of_a_device_that_is_not_here_is_read_on_another(monkeypatch):
    z = gzarr.array(np.arange(6), device="emulated")
    data = pickle.dumps(z)
    monkeypatch.setattr(EmulatedDevice, "__init__", lambda self: (_ for _ in ()).throw(DeviceError("gone")))
    monkeypatch.setattr("gzarr.devices._shared", lambda *args: GpuBackend(EmulatedDevice()))
    assert pickle.loads(data).device == "cpu"


# -- what is missing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cuda:x", "cuda:", "gpu", "cuda:-1", "", "cuda:1.5"])
def test_names_that_are_none(name):
    with pytest.raises(DeviceError, match=f"no device '{name}'; use 'cpu', 'cuda', 'cuda:N', 'auto', or 'emulated'"):
        gzarr.zeros(3, device=name)


def test_import_loads_no_gpu_library():
    code = (
        "import sys, gzarr\ngzarr.zeros(3, device='auto')[:]\n"
        "print(sorted({n.split('.')[0] for n in sys.modules} & {'cupy', 'kvikio', 'nvidia', 'cuda'}))\n"
        "print(*[n for n in sys.modules if (n + '.').startswith('gzarr.gpu.')])"
    )
    expected = ["[]", "gzarr.gpu", "gzarr.gpu.detection", "gzarr.gpu.detection.driver"]
    assert run_python(code, {"GZARR_DEVICE": "auto"}).split() == expected or driver.ask_driver().devices


def test_threads_that_ask_at_once_get_one_backend(monkeypatch):
    made = []

    def slow(*options):
        time.sleep(0.05)
        made.append(options)
        return object()

    monkeypatch.setattr("gzarr.devices._gpu", slow)
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: backend_for("emulated", max_device_nbytes=54321), range(4)))
    assert len(found) == len(made) == 1


def test_a_device_that_cannot_be_opened_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    from gzarr import devices

    monkeypatch.setattr(devices, "_has_gpu", lambda kvikio: True)
    monkeypatch.setattr(devices, "_faults", list)
    monkeypatch.setattr(devices, "_warned", [])
    monkeypatch.setattr(devices, "_gpu", lambda *options: (_ for _ in ()).throw(RuntimeError("all memory is taken")))
    devices._opening_faults.cache_clear()
    with pytest.warns(RuntimeWarning, match="RuntimeError: all memory is taken"):
        assert gzarr.zeros(3, device="auto").device == "cpu"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gzarr.zeros(3, device="auto").device == "cpu"
    devices._opening_faults.cache_clear()


def test_a_chunk_cache_keeps_auto_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gzarr.devices._takes_gpu", lambda options: pytest.fail("the GPU was asked for"))
    with gzarr.config.set({"device": "auto"}):
        assert gzarr.zeros(3, chunk_cache=1000).device == "cpu"
