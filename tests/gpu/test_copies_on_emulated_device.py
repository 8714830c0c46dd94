"""Copies of arrays on a device: they are read there and written on the host, with no code of their own."""

import h5py
import numpy as np
import pytest

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.emulated import EmulatedDevice
from gzarr.gpu.hostbuild import find_compiler
from gzarr.storage import MemoryStore

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")


@pytest.mark.parametrize("options", [{}, {"chunks": (7, 20)}, {"shards": (20, 20)}, {"zarr_format": 2, "chunks": 9}])
def test_transfers_of_arrays_on_a_device(options, tmp_path):
    host = gzarr.array(np.arange(1200, dtype="i4").reshape(40, 30), chunks=(10, 10))
    device = EmulatedDevice()
    source = gzarr.open_array(host.store, mode="r", device=GpuBackend(device))
    dest = MemoryStore()
    report = gzarr.transfer(source, dest, **options)
    assert np.array_equal(gzarr.open_array(dest)[:], host[:])
    assert ("place_box" in device.launches) == (report.arrays[0].how == "decode")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        gzarr.copy(source, file, name="x")
        assert np.array_equal(file["x"][:], host[:])
