"""copy_bits copies boxes of bit-shuffled chunks as NumPy does."""

import numpy as np
import pytest
from hypothesis import given
from numcodecs import Blosc

import gzarr
from gzarr.gpu.kernels import BIT_SHUFFLED
from tests.gpu.kernels.boxes import Case, cases, check

ON_DEVICE = ("test_boxes",)


@given(cases(BIT_SHUFFLED))
def test_boxes(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "f8"])
@pytest.mark.parametrize("width", [41, 42, 44, 48, 80])
def test_rows_of_the_result_that_are_no_whole_units(dtype: str, width: int) -> None:
    values = np.arange(3 * 16 * width).reshape(48, width).astype(dtype)
    compressor = Blosc("lz4", 5, Blosc.BITSHUFFLE)
    stored = gzarr.create_array({}, data=values, chunks=(16, 40), compressor=compressor, zarr_format=2, device="cpu")
    np.testing.assert_array_equal(stored.to("emulated")[...], values)
