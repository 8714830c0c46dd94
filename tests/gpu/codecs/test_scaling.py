"""Filters that scale and round, both directions: fixedscaleoffset, quantize, scale_offset."""

from __future__ import annotations

import numpy as np
import pytest
from numcodecs import FixedScaleOffset, Quantize

from gzarr import codecs
from gzarr.gpu.device.hostbuild import find_compiler
from tests.gpu.codecs.filtering import FLOATS, check, numbers

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")

#: Data types that the device calculates with.
CALCULATED = ("<f4", ">f4", "<f8", ">f8")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("astype", ["<i2", "<i4", "<f4", "<u8"])
def test_fixed_scale_offset(dtype: str, astype: str) -> None:
    half = dtype == "<f2"
    filters = [FixedScaleOffset(offset=-1.5, scale=37, dtype=dtype, astype=astype)]
    check(
        (abs(numbers(dtype)) % 100).astype(dtype),
        filters,
        decoded="host" if half else "emulated",
        encoded="host" if half or astype != "<f4" else "emulated",
    )


@pytest.mark.parametrize("dtype", CALCULATED)
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_special_floats(dtype: str) -> None:
    check(numbers(dtype, special=True), [FixedScaleOffset(offset=-1.5, scale=37, dtype=dtype)])
    for digits in (0, 3, 10):
        check(numbers(dtype, special=True), [Quantize(digits, dtype)])


def test_integers_and_scales_that_are_not_plain_stay_on_the_host() -> None:
    filters = [FixedScaleOffset(offset=1, scale=0.5, dtype="<i4", astype="<f4")]
    check(numbers("<i4") % 1000, filters, decoded="host", encoded="host")
    filters = [FixedScaleOffset(offset=0, scale=10, dtype="<i4", astype="<i4")]
    check(numbers("<i4") % 1000, filters, decoded="host", encoded="host")


@pytest.mark.parametrize("dtype", FLOATS)
def test_quantize(dtype: str) -> None:
    check(numbers(dtype), [Quantize(2, dtype)], encoded="host" if dtype == "<f2" else "emulated")
    if dtype == "<f8":
        check(numbers(dtype), [Quantize(2, dtype, "<f4")])
    if dtype == "<f4":
        check(numbers(dtype), [Quantize(3, dtype, "<f2")], encoded="host")


@pytest.mark.parametrize("dtype", FLOATS)
def test_scale_offset_of_floats(dtype: str) -> None:
    where = "host" if dtype == "<f2" else "emulated"
    spec = codecs.ScaleOffsetCodec(offset=3.25, scale=7)
    with np.errstate(all="ignore"):
        check(numbers(dtype, special=True), [spec], decoded=where, encoded=where, zarr_format=3)


def test_scale_offset_of_integers_is_checked_on_the_host() -> None:
    spec = codecs.ScaleOffsetCodec(5, 3)
    check(numbers("i2").astype("i8"), [spec], decoded="host", encoded="host", zarr_format=3)
