"""Which reads and writes the device does in pieces, and the reasons that placements give."""

from __future__ import annotations

import numpy as np
import pytest

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.hostbuild import find_compiler

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")


def reasons(array: gzarr.Array) -> tuple[str, str]:
    """Where an array's reads and writes of many chunks are done, and why."""
    why = {row.step: row.why for row in array.placement}
    return why["bulk reads"], why["bulk writes"]


def test_placement_says_how_many_chunks_are_read_and_written() -> None:
    array = gzarr.array(np.arange(9), chunks=2, device=GpuBackend(EmulatedDevice()))
    assert reasons(array) == ("by the reference path: chunks are handled one by one",) * 2
