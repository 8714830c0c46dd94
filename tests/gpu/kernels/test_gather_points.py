"""gather_points gives what NumPy's assignment to points of chunks gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gzarr.gpu.kernels import point_threads
from tests.gpu.kernels.launching import DEVICE, HAS_COMPILER, NO_COMPILER, at_offset
from tests.gpu.kernels.test_place_box import DTYPES, swapped

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason=NO_COMPILER)


@given(st.data())
def test_gathered_points(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    size = dtype.itemsize
    unit = data.draw(st.sampled_from([0, *(u for u in (1, 2, 4, 8) if size % u == 0)]))
    n_parts, n_elements = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 30))
    step = data.draw(st.integers(-3, 3))
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    n = data.draw(st.integers(0, n_parts * n_elements))
    part, element = np.divmod(rng.permutation(n_parts * n_elements)[:n], n_elements)
    raw = rng.integers(0, 256, (n * max(abs(step), 1) + 1) * size, np.uint8)
    value = at_offset(raw, int(rng.choice([0, 0, 4, 1]))).view(f"V{size}")[:: step or 1]
    position = np.zeros(n, np.int64) if step == 0 else rng.permutation(n)
    rows = at_offset(rng.integers(0, 256, n_parts * n_elements * size, np.uint8), int(rng.choice([0, 8, 1])))
    wanted = rows.copy()
    wanted.view(f"V{size}").reshape(n_parts, n_elements)[part, element] = swapped(value[position], unit)
    threads = data.draw(st.sampled_from([point_threads(n, size), 1]))
    args = (n, part.astype(np.int32), element, position * value.strides[0], value, rows, n_elements * size, size, unit)
    DEVICE.launch("gather_points", threads, args)
    assert np.array_equal(rows, wanted)
