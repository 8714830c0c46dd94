"""A rehearsal of the kernel tests on hardware: their launcher, with a double of CuPy. Nothing here runs on a GPU."""

from __future__ import annotations

import pytest

from gzarr.gpu.hostbuild import find_compiler
from tests.gpu.hardware.test_hardware_kernels import *  # noqa: F403
from tests.gpu.test_cuda_calls import cuda  # noqa: F401

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")
