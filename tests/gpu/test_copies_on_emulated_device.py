"""Copies of arrays on a device: they are read there and encoded there, with no code of their own."""

import h5py
import numpy as np
import pytest

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.storage import MemoryStore


@pytest.mark.parametrize("options", [{}, {"chunks": (7, 20)}, {"shards": (20, 20)}, {"zarr_format": 2, "chunks": 9}])
def test_transfers_of_arrays_on_a_device(options, tmp_path):
    host = gzarr.array(np.arange(1200, dtype="i4").reshape(40, 30), chunks=(10, 10))
    device = EmulatedDevice()
    source = gzarr.open_array(host.store, mode="r", device=GpuBackend(device))
    dest = MemoryStore()
    report = gzarr.transfer(source, dest, **options)
    assert np.array_equal(gzarr.open_array(dest)[:], host[:])
    for kernel in ("copy_plain", "find_written"):
        assert (kernel in device.launches) == (report.arrays[0].how == "decode")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        gzarr.copy(source, file, name="x")
        assert np.array_equal(file["x"][:], host[:])


def test_copies_into_a_group_on_a_device_are_encoded_there(tmp_path):
    device = EmulatedDevice()
    group = gzarr.create_group(tmp_path / "z", device=GpuBackend(device))
    data = np.arange(600, dtype="f4").reshape(20, 30)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = data
        gzarr.copy(file["x"], group)
    gzarr.transfer(data, group, path="y", chunks=(10, 10))
    assert device.launches.count("find_written") >= 2
    for name in "xy":
        assert np.array_equal(gzarr.open_array(tmp_path / "z" / name)[:], data)
