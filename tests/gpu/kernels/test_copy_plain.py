"""copy_plain copies boxes of plain chunks as NumPy does."""

from __future__ import annotations

import pytest
from hypothesis import given

from gzarr.gpu.kernels import PLAIN
from tests.gpu.kernels.boxes import Case, cases, check
from tests.gpu.kernels.launching import HAS_COMPILER, NO_COMPILER

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason=NO_COMPILER)


@given(cases(PLAIN))
def test_boxes(case: Case) -> None:
    check(case)
