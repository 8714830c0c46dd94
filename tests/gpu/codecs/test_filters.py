"""What holds for all filters on the device: the reasons why some stay on the host, fill values, casts on reading."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numcodecs import AsType, Delta, FixedScaleOffset

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.hostbuild import find_compiler
from tests.gpu.codecs.filtering import CHUNKS, COMPLEX, FLOATS, INTEGERS, SHAPE, numbers

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, *COMPLEX])
def test_fill_and_casts_on_reading(dtype):
    z = gzarr.full(SHAPE, 7, chunks=CHUNKS, dtype=dtype, store={}, device="cpu")
    z[4:9, 3:11] = numbers(dtype)[4:9, 3:11]
    kind = np.dtype(dtype).kind
    for wanted in ("<c16", "<f8") if kind == "f" else ("<c16",) if kind == "c" else ("<f8", "<i2", "?", "<c8"):
        expected = z.astype(wanted)[:]
        found = z.astype(wanted).to("emulated", strict=True)[:]
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("dtype", "filters", "why"),
    [
        ("<f2", [Delta("<f2")], "the host calculates with floats of 2 bytes, and makes them"),
        ("<f2", [AsType("<f4", "<f2")], "the host calculates with floats of 2 bytes, and makes them"),
        ("<f8", [Delta("<f8", "<f4")], "the device takes differences of integers, and of floats stored in their own"),
        ("<i4", [AsType("<f8", "<i4")], "floats become integers on the host: what is out of range differs"),
        ("<c8", [FixedScaleOffset(1, 2, "<c8")], "complex numbers are calculated with on the host"),
        ("<f4", [FixedScaleOffset(1, 1e300, "<f4")], "the device calculates with plain finite scales and offsets"),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_what_stays_on_the_host_says_why(dtype, filters, why):
    data = np.ones(SHAPE, dtype)
    stored = gzarr.array(data, chunks=CHUNKS, store={}, device="cpu", zarr_format=2, filters=filters)
    rows = [row for row in stored.to(GpuBackend(EmulatedDevice())).placement if why in row.why]
    (row,) = [row for row in rows if not row.step.startswith("bulk")]
    assert row.where == "host"
    with pytest.raises(gzarr.DeviceError, match=re.escape(why)):
        stored.to(GpuBackend(EmulatedDevice(), strict=True))


def test_floats_are_cast_to_integers_on_the_host():
    data = numbers("<f8")
    data[0, 0], data[0, 1] = np.nan, 1e300
    device = EmulatedDevice()
    z = gzarr.array(data, chunks=CHUNKS, device=GpuBackend(device)).astype("i4")
    device.launches.clear()
    with np.errstate(invalid="ignore"):
        assert z[:].tobytes() == z.to("cpu")[:].tobytes()
    assert "copy_plain" not in device.launches
