"""The bytes codec behind filters, which work on native numbers."""

from __future__ import annotations

import numpy as np
import pytest

from gzarr import codecs
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.hostbuild import find_compiler
from tests.gpu.codecs.encoding import encode, encode_on_host, spec_of

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")


@pytest.mark.parametrize("dtype", ["<i4", ">i4", "u1"])
@pytest.mark.parametrize("endian", ["little", "big", None])
def test_bytes_behind_filters_swaps(endian: str | None, dtype: str) -> None:
    values = (np.arange(60).reshape(3, 20) * 77).astype(dtype)
    specs = [spec_of("delta", dtype=dtype), codecs.BytesCodec(endian)]
    assert encode(EmulatedDevice(), specs, values) == encode_on_host(specs, values)
