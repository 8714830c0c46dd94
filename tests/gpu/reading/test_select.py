"""Which reader is taken, and why."""

import pytest

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.reading.select import find_missing_kvikio


def test_the_reader_is_chosen_and_says_why() -> None:
    device = EmulatedDevice()
    assert GpuBackend(device, reader="host").reader.name == "host"
    with pytest.raises(gzarr.DeviceError, match="no reader 'fast'"):
        GpuBackend(device, reader="fast")
    if find_missing_kvikio() is None:
        pytest.skip("this machine has a usable GPU and KvikIO")
    assert GpuBackend(device).reader.name == "host"
    assert "driver" in GpuBackend(device).reader.why or "KvikIO" in GpuBackend(device).reader.why
    with pytest.raises(gzarr.DeviceError, match="reader 'kvikio' cannot be used"):
        GpuBackend(device, reader="kvikio")
