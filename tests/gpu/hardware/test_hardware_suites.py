"""The suites that every backend runs, on CUDA.

Damaged input is left to `test_hardware_damage.py`: a decoder that goes astray takes its whole process with it.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

import gzarr
from gzarr.gpu.backend import GpuBackend
from tests.contracts.test_backend import *  # noqa: F403
from tests.gpu.hardware.opening import cuda_backend, is_software
from tests.properties import memory
from tests.properties.fewer import examples_of
from tests.properties.test_fields import *  # noqa: F403
from tests.properties.test_resizing import *  # noqa: F403
from tests.properties.test_selections import *  # noqa: F403

del test_a_damaged_chunk_is_named_by_its_position  # noqa: F821

pytestmark = pytest.mark.gpu

#: Examples of a test where CuPy's kernels are interpreted.
SOFTWARE_EXAMPLES = 6


@pytest.fixture(autouse=True, scope="module")
def gpu_everywhere(cuda: Any) -> Iterator[None]:
    with (
        gzarr.config.set({"device": cuda_backend(cuda)}),
        memory.allocated_by(cuda.cupy),
        examples_of(globals(), SOFTWARE_EXAMPLES) if is_software(cuda) else nullcontext(),
    ):
        yield


@pytest.fixture
def backend(cuda: Any) -> GpuBackend:
    return cuda_backend(cuda)
