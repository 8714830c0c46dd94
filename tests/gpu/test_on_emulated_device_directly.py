"""Every kind of selection on the emulated device, from files that are read straight to it, in many small waves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.hostbuild import find_compiler
from gzarr.storage import LocalStore
from tests.gpu.direct_files import DirectFiles
from tests.properties.fewer import examples_of
from tests.properties.test_selections import *  # noqa: F403

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")

#: Small enough that arrays of a few chunks take several waves.
CAP_NBYTES = 1 << 18


@pytest.fixture(autouse=True, scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedDevice]:
    device = EmulatedDevice()
    files = DirectFiles()
    folder = tmp_path_factory.mktemp("direct")
    number = iter(range(1 << 30))
    backend = GpuBackend(device, reader=files.reader(), max_device_nbytes=CAP_NBYTES)
    with pytest.MonkeyPatch.context() as patch, gzarr.config.set({"device": backend}), examples_of(globals()):
        patch.setattr("tests.properties.cases.MemoryStore", lambda: LocalStore(folder / str(next(number))))
        yield device
    assert {"place_box", "place_points"} <= set(device.launches)
    assert len(files.reads) > 100
    assert files.under_way == 0
    assert device.memory.peak <= CAP_NBYTES
