"""copy_bytes copies boxes of byte-shuffled chunks as NumPy does."""

import pytest
from hypothesis import given

from gzarr.gpu.kernels import BYTE_SHUFFLED
from tests.gpu.kernels.boxes import Case, cases, check
from tests.gpu.kernels.launching import HAS_COMPILER, NO_COMPILER

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason=NO_COMPILER)


@given(cases(BYTE_SHUFFLED))
def test_boxes(case: Case) -> None:
    check(case)
