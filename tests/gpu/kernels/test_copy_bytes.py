"""copy_bytes copies boxes of byte-shuffled chunks as NumPy does."""

from hypothesis import given

from gzarr.gpu.kernels import BYTE_SHUFFLED
from tests.gpu.kernels.boxes import Case, cases, check


@given(cases(BYTE_SHUFFLED))
def test_boxes(case: Case) -> None:
    check(case)
