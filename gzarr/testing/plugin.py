"""The plug-in of pytest: the fixture `gzarr_device`, the option ``--gzarr-device``, the mark ``gzarr_devices``.

pytest loads it wherever gzarr is installed, so it imports nothing of gzarr before a test uses the fixture.
"""

from collections.abc import Iterable, Iterator

import pytest

_DEVICES = ("cpu", "emulated", "cuda")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("gzarr").addoption(
        "--gzarr-device",
        action="append",
        metavar="DEVICE",
        help=f"device of tests with the fixture gzarr_device: {', '.join(_DEVICES)}, or cuda:N; more than one by "
        "repeating it (default: cpu, emulated, and cuda where there is one)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and check the option. Raises UsageError."""
    _check(config.getoption("--gzarr-device") or (), "--gzarr-device")
    config.addinivalue_line(
        "markers", "gzarr_devices(*devices): the devices that gzarr_device takes in this test, of cpu, emulated, cuda"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with the fixture once for each device."""
    if "gzarr_device" in metafunc.fixturenames and not _is_parametrized(metafunc):
        mark = metafunc.definition.get_closest_marker("gzarr_devices")
        wanted = _DEVICES if mark is None else mark.args
        _check(wanted, f"mark gzarr_devices of {metafunc.definition.nodeid}")
        asked = metafunc.config.getoption("--gzarr-device") or _existing()
        devices = [device for device in asked if device.partition(":")[0] in wanted]
        metafunc.parametrize("gzarr_device", devices, indirect=True)


@pytest.fixture
def gzarr_device(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a device: "cpu", "emulated", and "cuda" where there is one. A test with it runs once for each.

    It is the setting ``device`` meanwhile, so that code which names no device runs on it too.
    """
    from gzarr.config import config
    from gzarr.devices import backend_for

    device: str | None = getattr(request, "param", None)
    if device is None:
        raise pytest.UsageError(
            f"{request.node.name}: name gzarr_device among the arguments of the test or its fixtures: pytest does not "
            "run methods of unittest.TestCase, or tests that call request.getfixturevalue, once for each device"
        )
    backend_for(device)  # an error here says what is missing, for a device that was asked for
    with config.set({"device": device}):
        yield device


def _is_parametrized(metafunc: pytest.Metafunc) -> bool:
    """Whether the test itself says which devices the fixture takes: ``parametrize(..., indirect=True)``."""
    marks = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize") if mark.args]
    names = [name.split(",") if isinstance(name, str) else name for name in marks]
    return any(name.strip() == "gzarr_device" for some in names for name in some)


def _existing() -> list[str]:
    """The devices that this machine has."""
    from gzarr.devices import backend_for
    from gzarr.errors import DeviceError

    try:
        backend_for("cuda")
    except DeviceError:
        return [device for device in _DEVICES if device != "cuda"]
    return list(_DEVICES)


def _check(devices: Iterable[str], where: str) -> None:
    """Raise UsageError for a device that there is not: its tests would all be skipped."""
    for device in devices:
        if device.partition(":")[0] not in _DEVICES:
            raise pytest.UsageError(f"{where}: {device!r} is not one of {', '.join(_DEVICES)}, cuda:N")
