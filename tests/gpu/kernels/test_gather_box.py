"""gather_box gives what NumPy's assignment to chunks gives, for values that lie in memory in every way."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gzarr.gpu.kernels import box_threads
from gzarr.indexing.plan import BoxPlan, make_plan
from gzarr.indexing.selection import Box, normalize_basic, normalize_orthogonal
from tests.gpu.kernels.launching import DEVICE, HAS_COMPILER, NO_COMPILER, at_offset, box_tables, layouts
from tests.gpu.kernels.test_place_box import Chunking, a_slice, chunkings, random_array, swapped, wide_chunkings

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason=NO_COMPILER)


def gather(
    case: Chunking, plan: BoxPlan, source: tuple[np.ndarray, Any, Any], rows: np.ndarray, n_threads: int | None = None
) -> None:
    """source: memory of the value, and for each part where it begins there, and its strides."""
    value, starts, strides = source
    tables = box_tables(plan.axes)
    size = case.dtype.itemsize
    threads = box_threads(int(tables.elem_start[-1]), size) if n_threads is None else n_threads
    args = (plan.nparts, len(case.shape), value, np.array(starts, np.int64), np.array(strides, np.int64).reshape(-1))
    args += (tables.part_span, tables.axis_base, *tables.columns, tables.pool, tables.elem_start, case.strides)
    DEVICE.launch("gather_box", threads, (*args, rows, case.nbytes, size, case.unit))


def laid_over(case: Chunking, plan: BoxPlan, value: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The rows as NumPy would leave them."""
    wanted = rows.copy()
    for number, part in enumerate(plan.parts()):
        lengths = tuple(case.lengths[axis] for axis in case.order)
        stored = wanted[number * case.nbytes : (number + 1) * case.nbytes].view(f"V{case.dtype.itemsize}")
        chunk = stored.reshape(lengths).transpose(np.argsort(np.array(case.order, int)).tolist())
        chunk[part.inside] = swapped(value, case.unit).view(chunk.dtype)[part.out]
    return wanted


def check(data: st.DataObject, case: Chunking, selection: Box) -> None:
    plan = make_plan(selection, case.grid)
    assert isinstance(plan, BoxPlan)
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    user, _ = data.draw(layouts(len(selection.shape))).empty(selection.shape, case.dtype)
    user[...] = random_array(rng, selection.shape, case.dtype)
    value = user if selection.view is None else user[selection.view]
    rows = at_offset(rng.integers(0, 256, plan.nparts * case.nbytes, np.uint8), int(rng.choice([0, 0, 8, 1])))
    wanted = laid_over(case, plan, np.ascontiguousarray(value).reshape(value.shape), rows)
    source = value, [0] * plan.nparts, [value.strides] * plan.nparts
    gather(case, plan, source, rows, data.draw(st.sampled_from([None, None, 1, 300])))
    assert np.array_equal(rows, wanted)


def distinct(indices: list[int], extent: int) -> np.ndarray:
    """The caller leaves out all but one of several values for an element."""
    return np.array(list(dict.fromkeys(i % extent for i in indices)), np.int64)


@given(chunkings().filter(lambda case: case.field is None), st.data())
def test_gathered_selections(case: Chunking, data: st.DataObject) -> None:
    key: list[Any] = []
    for extent in case.shape:
        if extent and data.draw(st.integers(0, 2)) == 0:
            key.append(distinct(data.draw(st.lists(st.integers(-extent, extent - 1), max_size=12)), extent))
        else:
            key.append(a_slice(data, extent))
    if data.draw(st.integers(0, 2)) == 0:
        key = [slice(None)] * len(case.shape)
    check(data, case, normalize_orthogonal(tuple(key), case.shape))


@given(wide_chunkings(), st.sampled_from(["all", "step", "back", "any"]), st.data())
def test_gathered_wide_rows(case: Chunking, kind: str, data: st.DataObject) -> None:
    """Units of elements that are far apart, or in index lists, beside units that are whole runs of bytes."""
    extent = case.shape[1]
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    index = {
        "all": slice(None),
        "step": slice(data.draw(st.integers(0, 3)), None, 2),
        "back": slice(None, None, -1),
        "any": rng.permutation(extent)[: extent // 2],
    }[kind]
    check(data, case, normalize_orthogonal((slice(None), index), case.shape))


@pytest.mark.parametrize(
    ("dtype", "unit"),
    [(d, u) for d in ("u1", "<u2", "<f4", "<f8", "<c16") for u in (0, 2, 4, 8) if u <= np.dtype(d).itemsize],
)
@pytest.mark.parametrize("offset", [0, 8, 4, 1])
def test_gathered_whole_chunks_take_the_fast_path(dtype: str, unit: int, offset: int) -> None:
    case = Chunking((24, 96), (8, 48), np.dtype(dtype), None, unit, (0, 1))
    raw = at_offset(np.random.default_rng(7).integers(0, 256, 24 * 96 * case.dtype.itemsize, np.uint8), offset)
    value = raw.view(case.dtype).reshape(case.shape)
    plan = make_plan(normalize_basic((), case.shape), case.grid)
    rows = np.zeros(6 * case.nbytes, np.uint8)
    gather(case, plan, (value, [0] * 6, [value.strides] * 6), rows)
    assert np.array_equal(rows, laid_over(case, plan, value, np.zeros_like(rows)))


def test_gathered_parts_may_lie_anywhere() -> None:
    """Parts that were packed, or belong to several arrays, have places and strides of their own; 0 repeats."""
    case = Chunking((4, 6), (4, 3), np.dtype("<i4"), None, 0, (0, 1))
    memory = np.arange(50, dtype="<i4")
    rows = np.zeros(24, "<i4")
    plan = make_plan(normalize_basic((), case.shape), case.grid)
    # The second part is asked for columns 3 to 5 of the value, so its origin is three columns before it.
    starts = [4 * 20, 4 * (35 - 3 * -2)]
    gather(case, plan, (memory, starts, [(0, 4), (12, -8)]), rows.view(np.uint8))
    first = np.broadcast_to([20, 21, 22], (4, 3))
    second = 35 + 3 * np.arange(4)[:, None] - 2 * np.arange(3)
    assert rows.reshape(2, 4, 3).tolist() == [first.tolist(), second.tolist()]


def test_nothing_to_gather() -> None:
    case = Chunking((4, 0), (2, 3), np.dtype("f4"), None, 0, (0, 1))
    plan = make_plan(normalize_basic((), case.shape), case.grid)
    rows = np.full(4, 7, np.uint8)
    gather(case, plan, (np.zeros(1, "f4"), [], []), rows, n_threads=64)
    assert (rows == 7).all()


def test_gathered_no_dimensions_and_many() -> None:
    case = Chunking((), (), np.dtype("f8"), None, 8, ())
    rows = np.zeros(8, np.uint8)
    gather(case, make_plan(normalize_basic((), ()), ()), (np.array(2.5), [0], []), rows)
    assert rows.view(">f8") == 2.5
    shape = (1,) * 28 + (2, 3, 1, 4)
    case = Chunking(shape, (1,) * 28 + (2, 2, 1, 3), np.dtype("<i4"), None, 0, tuple(range(32)))
    value = np.arange(math.prod(shape), dtype="<i4").reshape(shape)
    plan = make_plan(normalize_basic((), shape), case.grid)
    rows = np.zeros(plan.nparts * case.nbytes, np.uint8)
    gather(case, plan, (value, [0] * plan.nparts, [value.strides] * plan.nparts), rows)
    assert np.array_equal(rows, laid_over(case, plan, value, np.zeros_like(rows)))
