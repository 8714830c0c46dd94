"""place_points gives what NumPy's coordinate indexing gives, for chunks that lie in memory in every way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gzarr.gpu.kernels import point_threads
from gzarr.indexing.plan import PointPlan, make_plan
from gzarr.indexing.selection import Points, normalize_coordinates, normalize_mask
from tests.gpu.kernels.launching import DEVICE, HAS_COMPILER, NO_COMPILER, Sources, at_offset, make_sources
from tests.gpu.kernels.test_place_box import Chunking, chunk_bytes, chunkings, random_array, same_bytes, swapped

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason=NO_COMPILER)


def place(
    case: Chunking,
    points: tuple[np.ndarray, np.ndarray, np.ndarray],
    sources: Sources,
    out: np.ndarray,
    fill: np.ndarray,
    n_threads: int | None = None,
) -> None:
    """points: part, element within its chunk, position in the flat result."""
    part, element, position = points
    offset, copied = case.copied
    threads = point_threads(part.size, copied.itemsize) if n_threads is None else n_threads
    inside = element.astype(np.int64) * case.dtype.itemsize + offset
    args = (part.size, part.astype(np.int32), inside, position * out.strides[0], sources.address)
    args += (out, copied.itemsize, case.unit, fill, sources.nbytes)
    DEVICE.launch("place_points", threads, args)


def check(data: st.DataObject, case: Chunking, selection: Points, wanted_of: object) -> None:
    plan = make_plan(selection, case.grid)
    assert isinstance(plan, PointPlan)
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    model = random_array(rng, case.shape, case.dtype)
    _, copied = case.copied
    fill = random_array(rng, (1,), copied)
    result = (model if case.field is None else model[case.field]).copy()
    if case.field is not None:
        result = swapped(result, case.unit)
    absent = data.draw(st.sampled_from([0, 0, 0.3, 1]))
    stored = []
    part, element, position = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for number, (coords, inside, out, _) in enumerate(plan.parts()):
        if rng.random() < absent:
            bounds = [axis.bounds(c) for axis, c in zip(case.grid, coords, strict=True)]
            result[tuple(slice(low, high) for low, high in bounds)] = fill[0]
            stored.append(None)
        else:
            plain = chunk_bytes(model, case, coords, rng)
            stored.append(at_offset(plain, int(rng.choice([0, 0, 8, 1]))))
        where = np.arange(out.start, out.stop) if isinstance(out, slice) else out
        position.append(where)
        part.append(np.full(where.size, number))
        # Without axes a part's index is one new axis, which stands for no array axis.
        indices = np.array(inside if case.shape else (), np.int64).reshape(len(case.shape), where.size)
        element.append(case.strides @ indices)
    step = data.draw(st.sampled_from([1, 1, 2, -1]))
    memory = np.full(plan.shape[0] * abs(step) * copied.itemsize, 0xA5, np.uint8)
    out = memory.view(copied)[::step]
    points = np.concatenate(part), np.concatenate(element), np.concatenate(position)
    place(case, points, make_sources(stored), out, fill, data.draw(st.sampled_from([None, None, 1])))
    assert same_bytes(out, np.asarray(wanted_of(result)).reshape(-1))
    if abs(step) == 2:
        assert (memory.view(copied)[1::2].copy().view(np.uint8) == 0xA5).all()


@given(chunkings(min_ndim=1), st.data())
def test_coordinates(case: Chunking, data: st.DataObject) -> None:
    n = data.draw(st.integers(0, 40)) if all(case.shape) else 0
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    key = tuple(rng.integers(-extent, extent, n) if extent else np.empty(0, np.int64) for extent in case.shape)
    check(data, case, normalize_coordinates(key, case.shape), lambda model: model[key])


@given(chunkings(), st.data())
def test_masks(case: Chunking, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    mask = np.asarray(rng.random(case.shape) < data.draw(st.sampled_from([0, 0.1, 0.5, 1])))
    check(data, case, normalize_mask(mask, case.shape), lambda model: model[mask])


def test_points_may_lie_anywhere_in_the_result() -> None:
    """Offsets into the result are free: the same element may go to several places, and the order is any."""
    case = Chunking((8,), (8,), np.dtype("<f4"), None, 4, (0,))
    model = np.arange(8, dtype="<f4")
    sources = make_sources([chunk_bytes(model, case, (0,), np.random.default_rng(0)), None])
    out = np.zeros(6, "<f4")
    points = np.array([0, 0, 0, 1]), np.array([3, 3, 7, 5]), np.array([5, 0, 2, 3])
    place(case, points, sources, out, np.array([-1], "<f4"))
    assert out.tolist() == [3, 0, 7, -1, 0, 3]


def test_no_points_write_nothing() -> None:
    case = Chunking((8,), (8,), np.dtype("<f4"), None, 0, (0,))
    none = np.empty(0, np.int64)
    out = np.full(2, 7, "<f4")
    place(case, (none, none, none), make_sources([]), out, np.zeros(1, "<f4"), n_threads=8)
    assert out.tolist() == [7, 7]
