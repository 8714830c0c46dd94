"""Transposes anywhere in a chain, both directions."""

from __future__ import annotations

import numpy as np
import pytest

from gzarr import codecs
from gzarr.gpu.device.hostbuild import find_compiler
from tests.gpu.codecs.encoding import spec_of
from tests.gpu.codecs.filtering import COMPLEX, FLOATS, INTEGERS, check, numbers

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")


@pytest.mark.parametrize("dtype", [*INTEGERS[:4], *FLOATS, *COMPLEX, "?"])
@pytest.mark.parametrize("endian", ["big", "little"])
def test_at_the_beginning_with_either_byte_order(dtype: str, endian: str) -> None:
    serializer = codecs.BytesCodec(endian)
    for filters in ([codecs.TransposeCodec((1, 0))], [codecs.TransposeCodec((1, 0))] * 3):
        check(numbers(dtype), filters, zarr_format=3, serializer=serializer)


def test_behind_other_filters() -> None:
    delta = spec_of("delta", dtype="<i4")
    check(numbers("<i4"), [delta, codecs.TransposeCodec((1, 0)), delta], zarr_format=3)
    data = np.arange(40 * 17 * 6, dtype="i4").reshape(40, 17, 6)
    filters = [codecs.TransposeCodec((2, 0, 1)), delta, codecs.TransposeCodec((1, 2, 0)), delta]
    check(data, filters, zarr_format=3, chunks=(13, 4, 5))
