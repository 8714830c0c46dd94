"""The suites of the CPU backend, unchanged, on the GPU backend with the emulated device."""

from collections.abc import Iterator

import numpy as np
import pytest

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from tests.api.test_many import test_reads_of_many_arrays  # noqa: F401
from tests.properties.fewer import examples_of
from tests.properties.test_array_machine import *  # noqa: F403
from tests.properties.test_copies import *  # noqa: F403
from tests.properties.test_fields import *  # noqa: F403
from tests.properties.test_resizing import *  # noqa: F403
from tests.properties.test_selections import *  # noqa: F403


@pytest.fixture(autouse=True, scope="module")
def device() -> Iterator[EmulatedDevice]:
    device = EmulatedDevice()
    with gzarr.config.set({"device": GpuBackend(device)}), examples_of(globals()):
        yield device


def test_these_suites_run_on_the_device(device: EmulatedDevice) -> None:
    """Arrays of the default device launch every kernel that places or gathers elements."""
    device.launches.clear()
    array = gzarr.array(np.arange(20).reshape(4, 5), chunks=(2, 2), compressor=None)
    array.vindex[[0, 3], [4, 1]] = [-1, -2]
    assert array[0].tolist() == [0, 1, 2, 3, -1]
    assert array.vindex[[3], [1]].tolist() == [-2]
    array.oindex[[3, 2, 0]] = [[7], [8], [9]]
    assert array.oindex[[0, 3, 2], [1, 0]].tolist() == [[9, 9], [7, 7], [8, 8]]
    assert "copy_plain" in device.launches
