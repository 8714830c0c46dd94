"""reduce_windows makes of windows what NumPy makes of them (gzarr.cpu.windows), for arrays of any strides."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gzarr.backend import WINDOW_METHODS
from gzarr.cpu.windows import reduce_by_numpy
from gzarr.gpu.kernels import NUMBERS
from gzarr.gpu.pipeline.arrays import reduce_windows, reduces
from tests.gpu.kernels.boxes import BOXES
from tests.gpu.kernels.launching import at_offset


def values(dtype: str, shape: Sequence[int], seed: int) -> np.ndarray:
    """Numbers with ties, extreme ones, and NaNs, infinities, subnormal numbers and both zeros."""
    rng = np.random.default_rng(seed)
    few = rng.integers(0, 3, shape)
    kind = np.dtype(dtype)
    if kind.kind == "f":
        info = np.finfo(kind)
        special = np.array([0, -0.0, 1, -1, info.smallest_subnormal, -info.tiny, np.nan, np.inf, 3.1, -7], kind)
        return np.where(rng.random(shape) < 0.5, special[few * 2], special[rng.integers(0, 10, shape)])
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return np.where(rng.random(shape) < 0.5, few.astype(kind), np.array([info.max, info.min], kind)[few % 2])
    return few.astype(kind)


def spread(device: Any, array: np.ndarray, steps: Sequence[int], offset: int) -> tuple[Any, Any]:
    """An array in the memory of a device, with gaps between elements, and backwards: the memory, and a view of it."""
    wide = np.zeros([n * abs(step) for n, step in zip(array.shape, steps, strict=True)], array.dtype)
    index = tuple(slice(None, None, step) for step in steps)
    wide[index] = array
    memory = BOXES.put(device, at_offset(wide.reshape(-1).view(np.uint8), offset * array.itemsize))
    return memory, memory[: wide.nbytes].view(array.dtype).reshape(wide.shape)[index]


def check(array: np.ndarray, factors: Sequence[int], method: str, layouts: Any = None) -> list[str]:
    """Compare with NumPy. layouts: steps of the block and of the result, and an offset. Returns: what was launched."""
    device, shape = BOXES.make(), [-(-n // f) for n, f in zip(array.shape, factors, strict=True)]
    steps, out_steps, offset = layouts or ([1] * array.ndim, [1] * array.ndim, 0)
    _, block = spread(device, array, steps, offset)
    memory, out = spread(device, np.zeros(shape, array.dtype), out_steps, offset)
    assert reduces(block, factors, method)
    reduce_windows(device, block, factors, method, out, device.upload)
    wanted = np.zeros(shape, array.dtype)
    reduce_by_numpy(array, factors, method, wanted)
    sizes = [n * abs(step) for n, step in zip(shape, out_steps, strict=True)]
    found = BOXES.got(device, memory)[: int(np.prod(sizes)) * array.itemsize].view(array.dtype).reshape(sizes)
    index = tuple(slice(None, None, step) for step in out_steps)
    np.testing.assert_array_equal(found[index], wanted)
    assert np.count_nonzero(found) == np.count_nonzero(wanted)
    return list(device.launches)


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
    ndim = draw(st.integers(1, 5))
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 5, 8, 13]), min_size=ndim, max_size=ndim)))
    factors = draw(st.lists(st.sampled_from([1, 1, 2, 2, 3, 5]), min_size=ndim, max_size=ndim))
    if ndim == 5:
        factors[draw(st.integers(0, 4))] = 1
    steps = st.lists(st.sampled_from([1, 1, 1, 2, -1]), min_size=ndim, max_size=ndim)
    return shape, tuple(factors), (draw(steps), draw(steps), draw(st.integers(0, 3)))


ON_DEVICE = ("test_windows_of_any_numbers", "test_common_factors", "test_large_windows")


@given(st.sampled_from(NUMBERS), st.sampled_from(WINDOW_METHODS), cases(), st.integers(0, 2**32))
def test_windows_of_any_numbers(dtype: str, method: str, case: Any, seed: int) -> None:
    shape, factors, layouts = case
    assert check(values(dtype, shape, seed), factors, method, layouts) == ["reduce_windows"]


@pytest.mark.parametrize("method", WINDOW_METHODS)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_common_factors(dtype: str, method: str) -> None:
    for shape, factors in (((30, 70), (2, 2)), ((9, 14, 33), (2, 2, 2)), ((4, 9, 5, 3), (1, 2, 2, 1))):
        check(values(dtype, shape, 1), factors, method)


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_the_mean_of_complex_numbers(dtype: str) -> None:
    parts = values(f"f{int(dtype[1:]) // 2}", (9, 11, 2), 1)
    assert check(parts.view(dtype)[..., 0], (2, 3), "mean") == ["reduce_windows"] * 2


def test_large_windows() -> None:
    rng = np.random.default_rng(0)
    for dtype in ("u1", "u8", "i8", "f4"):
        check(rng.integers(0, 100, (2, 1500)).astype(dtype), (2, 1500), "mean")
    check(np.full((1, 300), 2**64 - 1, "u8"), (1, 300), "mean")


def test_axes_that_follow_each_other_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    tables: list[np.ndarray] = []
    monkeypatch.setattr("gzarr.gpu.pipeline.arrays._table", lambda axes: tables.append(axes) or np.zeros(8, np.int64))
    device = BOXES.make()
    monkeypatch.setattr(device, "launch", lambda *_: None)
    for shape, factors in (((4, 6, 8, 3), (1, 1, 2, 1)), ((4, 6, 8, 3), (2, 1, 1, 1)), ((1, 5, 1), (1, 1, 1))):
        out = np.zeros([-(-n // f) for n, f in zip(shape, factors, strict=True)])
        reduce_windows(device, np.zeros(shape), factors, "mean", out, np.asarray)
    assert [[axis[:2] for axis in axes] for axes in tables] == [[(24, 1), (8, 2), (3, 1)], [(4, 2), (144, 1)], [(5, 1)]]


def test_a_launch_has_few_enough_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gzarr.gpu.pipeline.arrays._LIMIT", 50)
    assert check(values("u2", (7, 41), 0), (2, 2), "mean") == ["reduce_windows"] * 2
    assert check(values("u2", (7, 41, 3), 0), (1, 2, 2), "mean") == ["reduce_windows"] * 8


def test_what_the_host_has_to_reduce() -> None:
    block = np.zeros((2, 2, 2, 2, 2), "u2")
    assert not reduces(block, (2, 2, 2, 2, 2), "mean")
    assert reduces(block[:1], (2, 2, 2, 2, 2), "mean")
    assert not reduces(np.zeros(4, "c8"), (2,), "mode")
    assert not reduces(np.zeros(4, ">u2"), (2,), "mean")


def test_nothing_is_reduced() -> None:
    assert check(np.zeros((0, 4), "i4"), (2, 2), "mean") == []
