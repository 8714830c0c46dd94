"""``device="auto"`` takes real hardware: the self-check passes, in this process and in one of its own."""

import time
from typing import Any

import pytest

import gzarr
from gzarr import selfcheck
from gzarr.gpu.detection import driver, verify

pytestmark = pytest.mark.gpu


def test_the_self_check_passes(cuda: Any) -> None:
    assert selfcheck.find_faults("cuda:0") == []


def test_the_self_check_passes_in_a_process_of_its_own_in_time() -> None:
    start = time.perf_counter()
    assert verify.run_self_check(verify.TIMEOUT_S) == []
    assert time.perf_counter() - start < verify.TIMEOUT_S / 2


def test_auto_is_the_gpu() -> None:
    assert driver.identify(0).name
    assert gzarr.zeros(3, device="auto").device == "cuda:0"
