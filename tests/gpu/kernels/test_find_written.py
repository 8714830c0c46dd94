"""find_written finds the rows that differ from a repeated fill value in any bit."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gzarr.gpu.kernels import row_threads
from tests.gpu.kernels.launching import DEVICE, at_offset


@given(st.data())
def test_rows_that_differ(data: st.DataObject) -> None:
    size = data.draw(st.sampled_from([1, 2, 4, 8, 16, 14, 40]))
    n, nbytes = data.draw(st.integers(1, 6)), size * data.draw(st.integers(1, 70))
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    fill = np.tile(rng.integers(0, 256, size, np.uint8), math.lcm(16, size) // size)
    rows = at_offset(np.tile(fill[:size], n * nbytes // size), data.draw(st.sampled_from([0, 0, 8, 3])))
    changed = data.draw(st.sets(st.integers(0, n - 1)))
    for row in changed:
        where = data.draw(st.sampled_from([0, nbytes - 1, int(rng.integers(nbytes))]))
        rows.reshape(n, nbytes)[row, where] ^= np.uint8(1 << rng.integers(8))
    written = np.zeros(n, np.uint8)
    threads = data.draw(st.sampled_from([row_threads(n, nbytes), 1]))
    DEVICE.launch("find_written", threads, (n, nbytes, rows, fill.size // 16, fill, written))
    assert set(np.flatnonzero(written).tolist()) == changed
