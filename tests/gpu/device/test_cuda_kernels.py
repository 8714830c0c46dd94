"""A rehearsal of the kernel tests on hardware: their launcher, with a double of CuPy. Nothing here runs on a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gzarr.gpu.device.hostbuild import find_compiler
from tests.gpu.device.test_cuda import cuda  # noqa: F401
from tests.gpu.fake_cupy.kernels import RawKernel
from tests.gpu.hardware.test_hardware_kernels import *  # noqa: F403
from tests.gpu.kernels import test_copy_tiles
from tests.properties.fewer import examples_of

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")


@pytest.fixture(autouse=True, scope="module")
def fewer_examples() -> Iterator[None]:
    with examples_of(globals()):
        yield


def test_boxes_are_copied_on_the_device() -> None:
    before = len(RawKernel.launches)
    test_copy_tiles.test_fortran_order_takes_tiles(4)
    assert RawKernel.launches[before:] == ["copy_tiles"]
