"""differences subtracts as NumPy does, bit for bit."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gzarr.gpu.codecs.floats import own_nan
from tests.gpu.kernels.floats import floats
from tests.gpu.kernels.launching import DEVICE


@given(
    st.integers(1, 5),
    st.integers(1, 70),
    st.sampled_from(["f4", "f8", "c8", "c16"]),
    st.sampled_from([1, 7, 300]),
    st.integers(0, 2**32),
)
def test_rows_of_any_length(n_rows: int, length: int, dtype: str, n_threads: int, seed: int) -> None:
    parts = 2 if dtype[0] == "c" else 1
    part = f"f{int(dtype[1:]) // parts}"
    source = floats(part, n_rows * length * parts, seed).reshape(n_rows, -1)
    target = np.full_like(source, 99)
    size = source.itemsize
    args = (n_rows, length * parts, size, parts, own_nan(size), source, target)
    DEVICE.launch("differences", n_threads, args)
    values = source.view(dtype)
    with np.errstate(all="ignore"):
        expected = np.concatenate([values[:, :1], values[:, 1:] - values[:, :-1]], axis=1)
    assert target.tobytes() == expected.tobytes()
