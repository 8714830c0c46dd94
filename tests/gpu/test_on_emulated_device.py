"""The suites of the CPU backend, unchanged, on the GPU backend with the emulated device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.hostbuild import find_compiler
from tests.properties.test_array_machine import *  # noqa: F403
from tests.properties.test_fields import *  # noqa: F403
from tests.properties.test_resizing import *  # noqa: F403
from tests.properties.test_selections import *  # noqa: F403

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")


@pytest.fixture(autouse=True, scope="module")
def device() -> Iterator[EmulatedDevice]:
    device = EmulatedDevice()
    with gzarr.config.set({"device": GpuBackend(device)}):
        yield device
    assert {"place_box", "place_points", "gather_box", "gather_points", "find_written"} <= set(device.launches)
