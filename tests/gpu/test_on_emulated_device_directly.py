"""Every kind of selection on the emulated device, from files that are read straight to it, in many small batches."""

from collections.abc import Iterator

import numpy as np
import pytest

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.storage import LocalStore
from tests.gpu.direct_files import DirectFiles
from tests.properties.cases import Case, same
from tests.properties.fewer import examples_of
from tests.properties.test_selections import *  # noqa: F403

#: Small enough that arrays of a few chunks take several batches.
CAP_NBYTES = 1 << 18


@pytest.fixture(scope="module")
def device() -> EmulatedDevice:
    return EmulatedDevice()


@pytest.fixture(scope="module")
def files() -> DirectFiles:
    return DirectFiles()


@pytest.fixture(autouse=True, scope="module")
def device_everywhere(
    device: EmulatedDevice, files: DirectFiles, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("direct")
    number = iter(range(1 << 30))
    backend = GpuBackend(device, reader=files.reader(), max_device_nbytes=CAP_NBYTES)
    with pytest.MonkeyPatch.context() as patch, gzarr.config.set({"device": backend}), examples_of(globals()):
        patch.setattr("tests.properties.cases.MemoryStore", lambda: LocalStore(folder / str(next(number))))
        yield


@pytest.fixture(autouse=True)
def within_bounds(device: EmulatedDevice, files: DirectFiles) -> Iterator[None]:
    """No test leaves a read under way or exceeds the cap."""
    yield
    assert files.under_way == 0
    assert device.memory.peak <= CAP_NBYTES


def test_chunks_of_files_reach_the_device_directly_in_batches(device: EmulatedDevice, files: DirectFiles) -> None:
    chunks = (64, 64)
    array = Case("v3", (640, 256), chunks, (chunks, chunks)).make()
    model = np.arange(array.size, dtype="i4").reshape(array.shape)
    array[...] = model
    device.launches.clear()
    files.reads.clear()
    same(array[...], model)
    same(array.vindex[[1, 639], [255, 0]], model[[1, 639], [255, 0]])
    sizes = [nbytes for _, _, nbytes in files.reads]
    compared = [nbytes for nbytes in sizes if nbytes == 4096]  # by each batch under way, of an unknown file system
    assert len(compared) <= 3
    assert len(sizes) - len(compared) == sizes.count(4 * 64 * 64) == array.nchunks + 2  # and points
    assert device.launches.count("copy_plain") > 1
