"""Filters on bits, both directions: bitround and packbits."""

from __future__ import annotations

import numpy as np
import pytest
from numcodecs import BitRound, PackBits

from gzarr.gpu.device.hostbuild import find_compiler
from tests.gpu.codecs.encoding import spec_of, stays_on_host
from tests.gpu.codecs.filtering import check, numbers

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")


@pytest.mark.parametrize("keepbits", [0, 1, 7, 10])
@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8"])
def test_bitround(dtype: str, keepbits: int) -> None:
    values = numbers(dtype, special=True)
    values[1, 9:11] = np.nan
    check(values, [BitRound(keepbits)])
    check(values, [BitRound(int(np.finfo(dtype).nmant))])


def test_more_bits_than_there_are_stay_on_the_host() -> None:
    assert stays_on_host(spec_of("bitround", keepbits=24), np.zeros(8, "<f4"))


@pytest.mark.parametrize("chunks", [(1, 1), (2, 7), (3, 8), (4, 9), (23, 17)])
@pytest.mark.parametrize("threshold", [0, 128, 256])
def test_packbits(threshold: int, chunks: tuple[int, ...]) -> None:
    check(numbers("u1") >= threshold, [PackBits()], chunks=chunks)
