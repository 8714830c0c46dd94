"""Batches as rows and chunks."""

from __future__ import annotations

import numpy as np
import pytest

from gzarr.gpu.codecs.batch import BatchContext, Chunks
from gzarr.gpu.codecs.transfers import as_rows
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.hostbuild import find_compiler
from tests.gpu.codecs.encoding import bytes_of, chunks_of, chunks_on

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")


def test_chunks_that_lie_apart_become_rows() -> None:
    device = EmulatedDevice()
    chunks = chunks_on(device, chunks_of(99))
    apart = Chunks(chunks.owner, chunks.addresses[::2], 99)
    rows = as_rows(BatchContext(device), apart)
    assert np.array_equal(rows, chunks_of(99)[::2])
    assert bytes_of(BatchContext(device), chunks) == [row.tobytes() for row in chunks_of(99)]
