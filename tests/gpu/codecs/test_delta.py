"""Delta on the device, both directions."""

from __future__ import annotations

import numpy as np
import pytest
from numcodecs import Delta, Shuffle

from gzarr.gpu.device.hostbuild import find_compiler
from tests.gpu.codecs.filtering import INTEGERS, SHAPE, check, numbers

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype: str) -> None:
    check(numbers(dtype), [Delta(dtype)])
    check(numbers(dtype), [Delta(dtype), Delta(dtype)])
    check(numbers(dtype), [Delta(dtype), Shuffle(np.dtype(dtype).itemsize)])
    wider = {"i": "<i8", "u": ">u8"}[np.dtype(dtype).kind]
    check(numbers(dtype), [Delta(dtype, wider)])


def test_integers_stored_in_narrower_ones_are_encoded_on_the_host() -> None:
    check((np.arange(23 * 17) * 3).reshape(SHAPE).astype("<i4"), [Delta("<i4", "<i2")], encoded="host")


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8", "<c8", "<c16", ">c16"])
def test_floats_are_added_in_the_order_of_the_host(dtype: str) -> None:
    values = numbers(dtype, special=True)
    with np.errstate(all="ignore"):
        check(np.where(np.isfinite(values), values, 1).astype(dtype), [Delta(dtype)])


def test_half_floats_and_floats_stored_in_others_stay_on_the_host() -> None:
    check(numbers("<f2"), [Delta("<f2")], decoded="host", encoded="host")
    check(numbers("<f8"), [Delta("<f8", "<f4")], decoded="host", encoded="host")
