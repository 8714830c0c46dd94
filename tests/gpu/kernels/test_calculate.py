"""calculate casts and computes bit for bit as NumPy does, subnormal numbers and NaNs included."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gzarr.gpu.kernels import NUMBERS, OPERATIONS
from tests.gpu.kernels.floats import floats
from tests.gpu.kernels.launching import DEVICE

STEPS: dict[str, Any] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "rint": lambda x, _: np.rint(x),
}


def numbers(dtype: str, n: int, seed: int) -> np.ndarray:
    """Any bits for floats, of which many are special; integers of all sizes."""
    rng = np.random.default_rng(seed)
    if dtype[0] == "f":
        return floats(dtype, n, seed)
    if dtype[0] == "b":
        return rng.integers(0, 4, n).astype(np.uint8).view(bool)
    info = np.iinfo(dtype)
    shifted = rng.integers(info.min, info.max, n, dtype, endpoint=True) >> rng.integers(0, info.bits, n).astype(dtype)
    shifted[: min(n, 2)] = [info.min, info.max][: min(n, 2)]
    return shifted


def bits(operand: Any, work: str) -> int:
    return int(np.full(1, operand, work).view(f"i{work[1:]}")[0])


def calculate(
    values: np.ndarray, work: str, target: str, steps: list[tuple[str, Any]], n_threads: int = 64, spread: int = 1
) -> np.ndarray:
    out = np.full(values.size * spread, 99, target)
    flat = [x for op, operand in steps for x in (OPERATIONS.index(op), bits(operand, work))]
    flat += [0] * (6 - len(flat))
    infinity = np.full(1, np.inf, work)
    with np.errstate(invalid="ignore"):
        own_nan = int((infinity - infinity).view(f"i{work[1:]}")[0])
    kinds = NUMBERS.index(values.dtype.str[1:]), int(work[1:]), NUMBERS.index(target)
    DEVICE.launch("calculate", n_threads, (values.size, *kinds, *flat, own_nan, spread, values, out))
    return out


@given(
    st.sampled_from(NUMBERS),
    st.sampled_from(["f4", "f8"]),
    st.integers(0, 300),
    st.integers(0, 2**32),
    st.sampled_from([1, 7, 300]),
)
def test_casts(source: str, target: str, n: int, seed: int, n_threads: int) -> None:
    values = numbers(source, n, seed)
    work = source if source in ("f4", "f8") else target
    with np.errstate(all="ignore"):
        expected = values.astype(target)
    assert calculate(values, work, target, [], n_threads).tobytes() == expected.tobytes()
    spread = calculate(values, work, target, [], n_threads, spread=2).reshape(-1, 2)
    assert spread[:, 0].tobytes() == expected.tobytes()
    assert not spread[:, 1].view(f"u{target[1:]}").any()


@given(
    st.sampled_from(["f4", "f8"]),
    st.sampled_from(["f4", "f8"]),
    st.lists(st.tuples(st.sampled_from(list(STEPS)), st.integers(0, 2**32)), min_size=1, max_size=3),
    st.integers(0, 2**32),
)
def test_steps(work: str, target: str, drawn: list[tuple[str, int]], seed: int) -> None:
    values = floats(work, 257, seed)
    steps = []
    for op, number in drawn:
        operand = floats(work, 64, number)
        steps.append((op, operand[np.isfinite(operand)][0]))
    expected = values
    with np.errstate(all="ignore"):
        for op, operand in steps:
            expected = STEPS[op](expected, operand)
        expected = expected.astype(target)
    found = calculate(values, work, target, steps)
    assert found.tobytes() == expected.tobytes()
