"""take_rows takes rows in any order, at any address, and casts them bit for bit as NumPy does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gzarr.gpu.kernels import NUMBERS
from gzarr.gpu.pipeline.taking import take_rows
from tests.gpu.kernels.boxes import BOXES
from tests.gpu.kernels.launching import HAS_COMPILER, NO_COMPILER, at_offset
from tests.gpu.kernels.test_calculate import numbers

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason=NO_COMPILER)


def laid_out(device: Any, rows: np.ndarray, offset: int, gap: int) -> tuple[Any, Any]:
    """Rows in the memory of a device, so many numbers apart and from the beginning: the memory, and a view of them."""
    n, size = rows.shape
    flat = np.zeros((n, size + gap), rows.dtype)
    flat[:, :size] = rows
    memory = BOXES.put(device, at_offset(flat.reshape(-1).view(np.uint8), offset * rows.itemsize))
    shaped = memory[: flat.nbytes].view(rows.dtype).reshape(flat.shape)
    return memory, shaped[:, :size]


def check(rows: np.ndarray, slots: Any, target: str, places: tuple[int, int, int, int]) -> list[str]:
    """Compare with NumPy. places: offsets and gaps of both arrays, in numbers. Returns: what was launched."""
    device, slots = BOXES.make(), np.array(slots, np.int64)
    _, pool = laid_out(device, rows, *places[:2])
    memory, out = laid_out(device, np.zeros((slots.size, rows.shape[1]), target), *places[2:])
    before = BOXES.got(device, memory).copy()
    take_rows(device, pool, slots, out, device.upload)
    with np.errstate(all="ignore"):
        wanted = rows[slots].astype(target)
    width = rows.shape[1] + places[3]
    found = BOXES.got(device, memory)
    shaped = found[: slots.size * width * wanted.itemsize].view(target).reshape(slots.size, width)
    assert shaped[:, : rows.shape[1]].tobytes() == wanted.tobytes()
    beside = shaped[:, rows.shape[1] :]
    assert not beside.view(np.uint8).any()
    assert found.size == before.size
    return list(device.launches)


places = st.tuples(*[st.sampled_from([0, 0, 0, 1, 2, 4])] * 4)
shapes = st.tuples(st.integers(1, 6), st.sampled_from([1, 3, 4, 8, 16, 17, 40, 300]))


ON_DEVICE = ("test_rows_of_any_numbers", "test_complex_numbers")


@given(st.sampled_from(NUMBERS), st.sampled_from(["f4", "f8", None]), shapes, places, st.integers(0, 2**32))
def test_rows_of_any_numbers(
    source: str, target: str | None, shape: tuple[int, int], where: tuple[int, int, int, int], seed: int
) -> None:
    rows = numbers(source, shape[0] * shape[1], seed).reshape(shape)
    slots = np.random.default_rng(seed).integers(0, shape[0], 7)
    assert check(rows, slots, target or source, where) == ["take_rows"]


@pytest.mark.parametrize(("source", "target"), [("c8", "c16"), ("c16", "c8"), ("c8", "c8"), ("c16", "c16")])
def test_complex_numbers(source: str, target: str) -> None:
    rows = numbers(f"f{int(source[1:]) // 2}", 240, 1).view(source).reshape(5, 24)
    assert check(rows, [3, 3, 0, 4], target, (0, 0, 0, 0)) == ["take_rows"]


@pytest.mark.parametrize(
    ("source", "target"), [("u1", "i8"), ("b1", "u2"), ("f4", "f2"), ("i4", "f2"), ("f4", "c8"), ("f8", "c8")]
)
def test_other_casts(source: str, target: str) -> None:
    rows = numbers(source, 240, 1).reshape(5, 48)
    assert check(rows, [3, 3, 0, 4], target, (0, 0, 0, 0)) == []


@pytest.mark.parametrize("source", ["b1", "i1", "u1"])
def test_bytes_become_half_floats_on_the_device(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures for half precision: the cast is exact, so nothing has to come to the host."""
    device, rows = BOXES.make(), numbers(source, 240, 1).reshape(5, 48)
    _, pool = laid_out(device, rows, 0, 0)
    memory, out = laid_out(device, np.zeros((4, 48), "f2"), 0, 0)
    slots = np.array([3, 3, 0, 4])
    with monkeypatch.context() as patch:
        patch.setattr(device, "download", lambda *_: pytest.fail("a batch was downloaded"))
        take_rows(device, pool, slots, out, device.upload)
    assert BOXES.got(device, memory)[: 4 * 48 * 2].tobytes() == rows[slots].astype("f2").tobytes()


def test_many_rows() -> None:
    rows = np.arange(1000 * 36, dtype="u2").reshape(1000, 36)
    slots = np.random.default_rng(0).integers(0, 1000, 900)
    for target in ("u2", "f4"):
        check(rows, slots, target, (0, 0, 0, 0))


def test_a_launch_has_few_enough_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gzarr.gpu.pipeline.taking._LIMIT", 40)
    rows = np.arange(20 * 36, dtype="u2").reshape(20, 36)
    slots = np.random.default_rng(0).integers(0, 20, 23)
    assert check(rows, slots, "f4", (0, 0, 0, 0)) == ["take_rows"] * 6
    assert check(rows[:, :1], slots, "u2", (0, 0, 0, 3)) == ["take_rows"]


def test_nothing_is_taken() -> None:
    assert check(np.zeros((3, 4), "i4"), [], "f4", (0, 0, 0, 0)) == []
    assert check(np.zeros((3, 0), "i4"), [1], "f4", (0, 0, 0, 0)) == []
