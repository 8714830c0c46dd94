"""The shuffle of numcodecs on the device, both directions."""

from __future__ import annotations

import pytest
from numcodecs import Shuffle

from gzarr.gpu.device.hostbuild import find_compiler
from tests.gpu.codecs.filtering import COMPLEX, FLOATS, INTEGERS, check, numbers

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, *COMPLEX, "?"])
def test_elements_of_any_size(dtype: str) -> None:
    data = numbers(dtype)
    for elementsize in {1, data.itemsize, 3, 5, 8} - ({8} if data.itemsize % 4 else set()):
        check(data, [Shuffle(elementsize)])
