"""Rows that are taken out of arrays on the device are NumPy's, bit for bit."""

import numpy as np
import pytest

from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.pipeline.arrays import take_rows
from tests.gpu.kernels.test_calculate import numbers

SOURCES = ("b1", "u1", "i2", "i8", "f4", "f8", "c8")
CASTS = [
    (one, to) for one in SOURCES for to in ("f2", "f4", "f8", "c8", "i8", "u2") if np.can_cast(one, to, "same_kind")
]


@pytest.mark.parametrize("arrays", ["numpy", "device"])
@pytest.mark.parametrize(("source", "target"), [*zip(SOURCES, SOURCES, strict=True), *CASTS])
def test_rows_are_cast_as_by_numpy(source: str, target: str, arrays: str) -> None:
    device = EmulatedDevice(arrays=arrays)
    rows = numbers("f4" if source == "c8" else source, 240, 1).view(source).reshape(5, -1)
    slots = np.array([3, 3, 0, 4])
    there = device.result((6, rows.shape[1]), np.dtype(target))
    there[4:] = 0
    take_rows(device, device.upload(rows), slots, there[:4], device.upload)
    with np.errstate(all="ignore"):
        wanted = rows[slots].astype(target)
    found = device.download(there)
    assert found[:4].tobytes() == wanted.tobytes()
    assert not found[4:].any()


@pytest.mark.parametrize("source", ["b1", "i1", "u1"])
def test_bytes_become_half_floats_on_the_device(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures for half precision: the cast is exact, so nothing has to come to the host."""
    device, rows = EmulatedDevice(), numbers(source, 240, 1).reshape(5, 48)
    out, slots = np.zeros((4, 48), "f2"), np.array([3, 3, 0, 4])
    monkeypatch.setattr(device, "download", lambda *_: pytest.fail("a batch was downloaded"))
    take_rows(device, rows, slots, out, device.upload)
    assert out.tobytes() == rows[slots].astype("f2").tobytes()


def test_nothing_is_taken() -> None:
    device, rows = EmulatedDevice(), np.zeros((3, 4), "i4")
    take_rows(device, rows, np.array([], np.int64), np.zeros((0, 4), "f4"), device.upload)
    take_rows(device, rows[:, :0], np.array([1]), np.zeros((1, 0), "f4"), device.upload)
