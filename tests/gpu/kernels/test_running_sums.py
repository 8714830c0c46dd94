"""running_sums adds floats in the order in which NumPy's cumsum does."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gzarr.gpu.codecs.floats import keeps_later_nan, own_nan
from tests.gpu.kernels.floats import MANTISSA, floats
from tests.gpu.kernels.launching import DEVICE


@given(st.integers(1, 5), st.integers(1, 70), st.sampled_from(["f4", "f8", "c8", "c16"]), st.sampled_from([1, 7, 300]))
def test_rows_of_any_length(n_rows: int, length: int, dtype: str, n_threads: int) -> None:
    rng = np.random.default_rng(length)
    parts = 2 if dtype[0] == "c" else 1
    values = rng.normal(0, 1, (n_rows, length * parts)) * 10.0 ** rng.integers(-20, 20, (n_rows, length * parts))
    values[:, 0] = -0.0
    source = values.astype(f"f{int(dtype[1:]) // parts}")
    target = np.full_like(source, 99)
    DEVICE.launch("running_sums", n_threads, (n_rows, length * parts, source.itemsize, parts, 0, 0, source, target))
    assert target.tobytes() == np.cumsum(source.view(dtype), axis=1).tobytes()


@given(st.integers(1, 40), st.sampled_from(["f4", "f8", "c8", "c16"]), st.integers(0, 2**32))
def test_subnormal_numbers_infinities_and_nans(length: int, dtype: str, seed: int) -> None:
    parts = 2 if dtype[0] == "c" else 1
    source = floats(f"f{int(dtype[1:]) // parts}", 6 * length * parts, seed).reshape(6, -1)
    number = f"u{source.itemsize}"
    keep = (4 << MANTISSA[source.itemsize]) - 1 | 1 << (8 * source.itemsize - 1)
    source[:3] = (source[:3].view(number) & np.dtype(number).type(keep)).view(source.dtype)  # rows without NaNs
    target, size = np.full_like(source, 99), source.itemsize
    nans = own_nan(size), keeps_later_nan(np.dtype(dtype), min(length, 3))
    DEVICE.launch("running_sums", 6, (6, length * parts, size, parts, *nans, source, target))
    with np.errstate(all="ignore"):
        assert target.tobytes() == np.cumsum(source.view(dtype), axis=1).tobytes()
