"""Settings: defaults, the environment over them, `config.set` over both."""

import re

import numpy as np
import pytest

import gzarr
from gzarr.config import DEFAULTS, Config
from tests.support.processes import run_python


@pytest.fixture(autouse=True)
def _back_to_defaults():
    yield
    gzarr.config.reset()


def test_defaults():
    assert (gzarr.config["default_zarr_format"], gzarr.config.get("array.order")) == (3, "C")
    assert gzarr.config.get("array.write_empty_chunks") is False
    assert gzarr.config.get("nope", 5) == 5
    assert set(gzarr.config) == set(DEFAULTS)
    assert len(gzarr.config) == len(DEFAULTS)
    assert repr(gzarr.config).startswith("Config({'default_zarr_format': 3")
    with pytest.raises(KeyError):
        gzarr.config["nope"]


def test_set_for_good():
    gzarr.config.set({"default_zarr_format": 2})
    assert gzarr.zeros(3).zarr_format == 2
    gzarr.config["default_zarr_format"] = 3
    assert (gzarr.zeros(3).zarr_format, gzarr.group().zarr_format) == (3, 3)


def test_set_for_a_block():
    with gzarr.config.set({"array.order": "F"}) as config:
        assert config is gzarr.config
        assert gzarr.zeros((2, 2)).order == "F"
        with gzarr.config.set(array__order="C"):
            assert gzarr.zeros((2, 2)).order == "C"
        assert gzarr.config["array.order"] == "F"
    assert gzarr.config["array.order"] == "C"
    with pytest.raises(RuntimeError, match="stop"), gzarr.config.set({"array.order": "F"}):
        raise RuntimeError("stop")
    assert gzarr.config["array.order"] == "C"


def test_forms_of_names():
    for values, keywords in (
        ({"array": {"order": "F"}}, {}),
        ({"array.order": "F"}, {}),
        (None, {"array__order": "F"}),
    ):
        with gzarr.config.set(values, **keywords):
            assert gzarr.config["array.order"] == "F"


def test_unknown_settings_are_named_and_change_nothing():
    with pytest.raises(KeyError, match=r"no setting 'array\.ordre'; the settings are .*array\.order"):
        gzarr.config.set({"array.order": "F", "array.ordre": "F"})
    assert gzarr.config["array.order"] == "C"


@pytest.mark.parametrize(
    ("name", "text", "key", "value"),
    [
        ("GZARR_DEFAULT_ZARR_FORMAT", "2", "default_zarr_format", 2),
        ("GZARR_ARRAY__ORDER", "F", "array.order", "F"),
        ("GZARR_ARRAY__WRITE_EMPTY_CHUNKS", "true", "array.write_empty_chunks", True),
        ("GZARR_ARRAY__WRITE_EMPTY_CHUNKS", "False", "array.write_empty_chunks", False),
        ("GZARR_CPU__NATIVE", "False", "cpu.native", False),
        ("GZARR_GPU__MAX_DEVICE_NBYTES", "None", "gpu.max_device_nbytes", None),
        ("GZARR_DEVICE", "cpu", "device", "cpu"),
        ("GZARR_THREADING__MAX_WORKERS", "3", "threading.max_workers", 3),
    ],
)
def test_environment(monkeypatch, name, text, key, value):
    monkeypatch.setenv(name, text)
    assert Config()[key] == value


def test_environment_in_a_new_process(monkeypatch):
    monkeypatch.setenv("GZARR_DEFAULT_ZARR_FORMAT", "2")
    assert run_python("import gzarr; print(gzarr.zeros(3).zarr_format)") == "2\n"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("default_zarr_format", 4, "must be 2 or 3, got 4"),
        ("array.order", "K", "must be 'C' or 'F', got 'K'"),
        ("array.write_empty_chunks", None, "must be True or False, got None"),
        ("cpu.native", "maybe", "must be True or False, got 'maybe'"),
        ("threading.max_workers", 0, "must be a number >= 1 or None, got 0"),
        ("remote.concurrency", None, "must be a number >= 1, got None"),
        ("async.concurrency", 2.5, "must be a number >= 1, got 2.5"),
    ],
)
def test_bad_settings_are_refused_when_they_are_set(monkeypatch, key, value, message):
    with pytest.raises(ValueError, match=rf"the setting {key} {message}"):
        gzarr.config.set({"array.order": "F", key: value})
    assert gzarr.config["array.order"] == "C"
    name = f"GZARR_{key.upper().replace('.', '__')}"
    monkeypatch.setenv(name, str(value))
    with pytest.raises(ValueError, match=rf"the setting {key} \(environment {name}\) {message}"):
        Config()["device"]


def test_a_device_that_does_not_exist_is_refused_where_it_matters():
    with gzarr.config.set(device="toaster"), pytest.raises(gzarr.DeviceError, match="toaster"):
        gzarr.zeros(3)


def test_device_default():
    with gzarr.config.set(device="cpu"):
        assert gzarr.zeros(3).device == "cpu"


@pytest.mark.parametrize("workers", [1, np.int64(3), None])
def test_max_workers(workers):
    data = np.random.default_rng(1).integers(0, 9, (512, 1024))
    with gzarr.config.set({"threading.max_workers": workers}):
        z = gzarr.array(data, chunks=(64, 64))
        assert np.array_equal(z[:], data)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", False), ("off", False), ("No", False), ("FALSE", False), ("1", True), ("on", True), ("yes", True)],
)
def test_switches_in_the_environment(text, value, monkeypatch) -> None:
    monkeypatch.setenv("GZARR_CPU__NATIVE", text)
    assert Config()["cpu.native"] is value


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("GZARR_GPU__STRIKT", "did you mean GZARR_GPU__STRICT?"),
        ("GZARR_GPU_STRICT", "did you mean GZARR_GPU__STRICT?"),
        ("GZARR_DEVISE", "did you mean GZARR_DEVICE?"),
        ("GZARR_CLOUD__REGION", "the settings are"),
    ],
)
def test_misspelled_settings_in_the_environment_are_named(name, hint, monkeypatch) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.warns(RuntimeWarning, match=rf"no setting for the environment variable {name}.*{re.escape(hint)}"):
        assert dict(Config())["gpu.strict"] is False


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["GZARR_TEST_SEED", "GZARR_KERNEL_SANITIZE", "GZARR_HOME"])
def test_other_variables_of_the_environment_are_left_alone(name, monkeypatch) -> None:
    monkeypatch.setenv(name, "1")
    assert dict(Config()) == dict(gzarr.config)


def test_settings_of_zarr_python_are_accepted():
    with gzarr.config.set({"codec_pipeline.path": "x", "array": {"rectilinear_chunks": True}}):
        assert gzarr.config.get("codec_pipeline.path") == "x"
    assert gzarr.config.get("codec_pipeline.path") is None
    with pytest.raises(KeyError, match=r"no setting .array\.x."):
        gzarr.config.set({"array.x": 1})
    with gzarr.config.enable_gpu():
        assert gzarr.config["device"] == "cuda"


def test_settings_are_printed(capsys):
    gzarr.config.pprint(width=60)
    assert "'array.order': 'C'" in capsys.readouterr().out
