"""What the benchmark counts as the size of an answer."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.cpu.worker import output_bytes


@pytest.mark.parametrize(
    ("answer", "nbytes"),
    [
        (np.zeros(10, "i4"), 40),
        (np.array(["a" * 1000, "b" * 2000], object), 16 + 1056 + 2064),
        (np.array(["a" * 1000] * 5, object), 40 + 1056),
        (None, 0),
    ],
)
def test_the_objects_of_an_answer_belong_to_its_size(answer, nbytes) -> None:
    assert output_bytes(answer) == nbytes
