"""place_box gives what NumPy's indexing gives, for chunks that lie in memory in every way that codecs leave them."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gzarr.indexing.grid import RegularAxis
from gzarr.indexing.plan import BoxPlan, Span, make_plan
from gzarr.indexing.selection import Box, normalize_basic, normalize_orthogonal
from tests.gpu.kernels.launching import (
    HAS_COMPILER,
    NO_COMPILER,
    Layout,
    Sources,
    at_offset,
    box_columns,
    layouts,
    make_sources,
    place_boxes,
)

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason=NO_COMPILER)

RECORD = np.dtype([("flag", "u1"), ("low", "<f4"), ("high", ">f8"), ("name", "S5"), ("pair", "<c16"), ("odd", "V3")])
DTYPES = [np.dtype(d) for d in ("u1", "<i2", "<f4", "<f8", "<c8", "<c16", "S3", "S12", "S16", "U5", "V33")]


@dataclass(frozen=True)
class Chunking:
    """An array and how its chunks are stored. `unit`: bytes that lie in the other order; `order`: axes in memory."""

    shape: tuple[int, ...]
    lengths: tuple[int, ...]
    dtype: np.dtype
    field: str | None
    unit: int
    order: tuple[int, ...]

    @property
    def grid(self) -> tuple[RegularAxis, ...]:
        return tuple(RegularAxis(n, length) for n, length in zip(self.shape, self.lengths, strict=True))

    @property
    def nbytes(self) -> int:
        return math.prod(self.lengths) * self.dtype.itemsize

    @property
    def strides(self) -> np.ndarray:
        """Of a chunk in memory, in elements, by array axis."""
        strides = np.ones(len(self.order), np.int64)
        for after, axis in zip(self.order[:0:-1], self.order[-2::-1], strict=True):
            strides[axis] = strides[after] * self.lengths[after]
        return strides

    @property
    def copied(self) -> tuple[int, np.dtype]:
        """(offset, dtype) of what is copied of each element."""
        if self.field is None:
            return 0, self.dtype
        dtype, offset = self.dtype.fields[self.field][:2]
        return offset, dtype


def swapped(data: np.ndarray, unit: int) -> np.ndarray:
    """An array with the bytes of each number reversed."""
    if unit < 2:
        return data
    raw = np.ascontiguousarray(data).view(np.uint8).reshape(-1, unit)
    return np.ascontiguousarray(raw[:, ::-1]).reshape(-1).view(data.dtype).reshape(data.shape)


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Random bytes: what is copied is never interpreted."""
    nbytes = math.prod(shape) * dtype.itemsize
    raw = rng.integers(0, 256, max(nbytes, 1), np.uint8)[:nbytes]
    return raw.view(dtype).reshape(shape) if nbytes else np.empty(shape, dtype)


def chunk_bytes(model: np.ndarray, case: Chunking, coords: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """A chunk as it lies in memory, padded with noise, not yet shuffled."""
    chunk = random_array(rng, case.lengths, case.dtype)
    bounds = [axis.bounds(c) for axis, c in zip(case.grid, coords, strict=True)]
    piece = model[tuple(slice(low, high) for low, high in bounds)]
    chunk[tuple(slice(0, n) for n in piece.shape)] = piece
    stored = chunk if case.field is not None else swapped(chunk, case.unit)
    return np.frombuffer(np.ascontiguousarray(stored.transpose(case.order)).tobytes(), np.uint8)


def place(
    case: Chunking, plan: BoxPlan, sources: Sources, out: np.ndarray, fill: np.ndarray, n_threads: int | None = None
) -> None:
    offset, copied = case.copied
    inside = 0, sources, offset, case.strides * case.dtype.itemsize
    outside = 1, np.int64(out.ctypes.data), np.array(out.strides, np.int64)
    place_boxes(box_columns(plan.axes), inside, outside, (copied.itemsize, case.unit, fill), n_threads)


def same_bytes(found: np.ndarray, wanted: np.ndarray) -> bool:
    return found.shape == wanted.shape and found.tobytes() == wanted.tobytes()


@st.composite
def chunkings(draw: st.DrawFn, max_ndim: int = 4, min_ndim: int = 0) -> Chunking:
    ndim = draw(st.integers(min_ndim, max_ndim))
    longest = 60 if ndim == 1 else 9 if ndim < 4 else 5
    shape = tuple(draw(st.integers(0 if draw(st.integers(0, 9)) == 9 else 1, longest)) for _ in range(ndim))
    lengths = tuple(draw(st.sampled_from([1, 2, 3, 4, 5, 8, 16])) for _ in range(ndim))
    if ndim == 4:
        lengths = tuple(min(n, 4) for n in lengths)
    dtype = draw(st.sampled_from([*DTYPES, RECORD]))
    field = draw(st.sampled_from([None, *RECORD.names])) if dtype is RECORD else None
    order = tuple(draw(st.permutations(range(ndim)))) if draw(st.booleans()) else tuple(range(ndim))
    case = Chunking(shape, lengths, dtype, field, 0, order)
    size = case.copied[1].itemsize
    return replace(case, unit=draw(st.sampled_from([0, 0, *(u for u in (1, 2, 4, 8) if size % u == 0)])))


@st.composite
def wide_chunkings(draw: st.DrawFn) -> Chunking:
    """Rows of several units of small elements, of which a chunk holds many."""
    shape = draw(st.integers(1, 3)), draw(st.integers(40, 150))
    lengths = draw(st.sampled_from([1, 3])), draw(st.sampled_from([33, 48, 64, 160]))
    dtype = draw(st.sampled_from([*(np.dtype(d) for d in ("u1", "<i2", "<f4", "<f8")), RECORD]))
    field = draw(st.sampled_from(["flag", "low", "high"])) if dtype is RECORD else None
    return Chunking(shape, lengths, dtype, field, 0, draw(st.sampled_from([(0, 1), (0, 1), (1, 0)])))


@st.composite
def filled(draw: st.DrawFn, case: Chunking, plan: BoxPlan) -> tuple[Sources, np.ndarray, np.ndarray]:
    """(the chunks that a plan touches, some of them missing; what the array then holds; the fill value)."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    model = random_array(rng, case.shape, case.dtype)
    _, copied = case.copied
    fill = random_array(rng, (1,), copied)
    stored = []
    result = (model if case.field is None else model[case.field]).copy()
    if case.field is not None:
        result = swapped(result, case.unit)
    absent = draw(st.sampled_from([0, 0, 0.3, 1]))
    for coords in itertools.product(*([span.chunk for span in spans] for spans in plan.axes)):
        if rng.random() < absent:
            bounds = [axis.bounds(c) for axis, c in zip(case.grid, coords, strict=True)]
            result[tuple(slice(low, high) for low, high in bounds)] = fill[0]
            stored.append(None)
            continue
        plain = chunk_bytes(model, case, coords, rng)
        stored.append(at_offset(plain, int(rng.choice([0, 0, 8, 4, 1, 3]))))
    return make_sources(stored), result, fill


def check(data: st.DataObject, case: Chunking, selection: Box, wanted_of: Any) -> None:
    plan = make_plan(selection, case.grid)
    assert isinstance(plan, BoxPlan)
    sources, model, fill = data.draw(filled(case, plan))
    layout = data.draw(layouts(len(selection.shape)))
    user, memory = layout.empty(selection.shape, case.copied[1])
    out = user if selection.view is None else user[selection.view]
    place(case, plan, sources, out, fill, data.draw(st.sampled_from([None, None, 1, 300])))
    # Plain bytes, because NumPy's scalars forget the byte order.
    assert same_bytes(user, np.asarray(wanted_of(model.view(f"V{model.dtype.itemsize}"))))
    # No byte beside the result is written.
    mine, touched = layout.empty(selection.shape, case.copied[1])
    mine.view(f"V{case.copied[1].itemsize}")[...] = user.view(f"V{case.copied[1].itemsize}")
    assert np.array_equal(memory, touched)


def a_slice(data: st.DataObject, extent: int) -> slice:
    ends = st.one_of(st.none(), st.integers(-extent - 1, extent + 1))
    return slice(data.draw(ends), data.draw(ends), data.draw(st.sampled_from([None, None, 1, 2, 3, -1, -2])))


@given(chunkings(), st.data())
def test_basic_selections(case: Chunking, data: st.DataObject) -> None:
    key: list[Any] = []
    for extent in case.shape:
        integer = extent > 0 and data.draw(st.integers(0, 4)) == 0
        key.append(data.draw(st.integers(-extent, extent - 1)) if integer else a_slice(data, extent))
    if data.draw(st.booleans()):
        key = [slice(None)] * len(case.shape)
    if data.draw(st.integers(0, 4)) == 0:
        key.insert(data.draw(st.integers(0, len(key))), None)
    check(data, case, normalize_basic(tuple(key), case.shape), lambda model: model[tuple(key)])


@given(chunkings(min_ndim=1), st.data())
def test_orthogonal_selections(case: Chunking, data: st.DataObject) -> None:
    key: list[Any] = []
    for extent in case.shape:
        if extent and data.draw(st.integers(0, 2)):
            key.append(data.draw(st.lists(st.integers(-extent, extent - 1), max_size=12)))
        else:
            key.append(a_slice(data, extent))
    selection = normalize_orthogonal(
        tuple(np.array(k, np.int64) if isinstance(k, list) else k for k in key), case.shape
    )

    def wanted(model: np.ndarray) -> np.ndarray:
        for axis, item in enumerate(key):
            index = np.array(item, np.int64) if isinstance(item, list) else np.arange(model.shape[axis])[item]
            model = np.take(model, index, axis=axis)
        return model

    check(data, case, selection, wanted)


@given(wide_chunkings(), st.sampled_from(["all", "step", "back", "sorted", "any"]), st.data())
def test_wide_rows(case: Chunking, kind: str, data: st.DataObject) -> None:
    """Units of elements that are far apart, or in index lists, beside units that are whole runs of bytes."""
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    extent = case.shape[1]
    index = {
        "all": slice(None),
        "step": slice(data.draw(st.integers(0, 3)), None, 2),
        "back": slice(None, None, -1),
        "sorted": np.sort(rng.integers(0, extent, 70)),
        "any": rng.integers(0, extent, 70),
    }[kind]
    selection = normalize_orthogonal((slice(None), index), case.shape)
    check(data, case, selection, lambda model: model[:, index])


@pytest.mark.parametrize(
    ("dtype", "unit"),
    [(d, u) for d in ("u1", "<u2", "<f4", "<f8", "<c16") for u in (0, 2, 4, 8) if u <= np.dtype(d).itemsize],
)
@pytest.mark.parametrize("offset", [0, 8, 1])
def test_whole_chunks_in_c_order_take_the_fast_path(dtype: str, unit: int, offset: int) -> None:
    """Rows that units divide, at aligned and other addresses, for every size of element."""
    element = np.dtype(dtype)
    case = Chunking((24, 96), (8, 48), element, None, unit, (0, 1))
    rng = np.random.default_rng(7)
    model = random_array(rng, case.shape, element)
    plan = make_plan(normalize_basic((), case.shape), case.grid)
    coords = list(itertools.product(range(3), range(2)))
    chunks = [at_offset(chunk_bytes(model, case, c, rng), offset) for c in coords]
    out = np.zeros(case.shape, element)
    place(case, plan, make_sources(chunks), out, np.zeros(1, element))
    assert same_bytes(out, model)


@pytest.mark.parametrize("field", RECORD.names)
def test_fields_of_wide_rows(field: str) -> None:
    """Elements that follow each other in the chunk and in the result, but not byte for byte in the chunk."""
    case = Chunking((2, 64), (1, 64), RECORD, field, 0, (0, 1))
    rng = np.random.default_rng(8)
    model = random_array(rng, case.shape, RECORD)
    chunks = [chunk_bytes(model, case, (i, 0), rng) for i in range(2)]
    out = np.zeros(case.shape, case.copied[1])
    plan = make_plan(normalize_basic((), case.shape), case.grid)
    place(case, plan, make_sources(chunks), out, np.zeros(1, case.copied[1]))
    assert same_bytes(out, model[field])


def test_no_parts_write_nothing() -> None:
    case = Chunking((4, 0), (2, 3), np.dtype("f4"), None, 0, (0, 1))
    plan = make_plan(normalize_basic((), case.shape), case.grid)
    out = np.full(4, 7, np.float32)
    place(case, plan, make_sources([], []), out[:0].reshape(4, 0), np.zeros(1, np.float32), n_threads=64)
    assert (out == 7).all()


def test_parts_without_elements() -> None:
    """Rows of the tables may select nothing; those after them are found, also by a thread that began before them."""
    case = Chunking((4,), (4,), np.dtype("<u2"), None, 0, (0,))
    spans = [
        (slice(0, 3), slice(0, 3)),
        (slice(0, 0), slice(0, 0)),
        (slice(2, 2), slice(3, 3)),
        (slice(1, 3), slice(3, 5)),
    ]
    plan = BoxPlan((tuple(Span(i, *span, full=False) for i, span in enumerate(spans)),), (5,), case.grid)
    chunks = [np.arange(10 * i, 10 * i + 4, dtype="<u2").view(np.uint8) for i in range(4)]
    out = np.zeros(5, "<u2")
    place(case, plan, make_sources(chunks), out, np.zeros(1, "<u2"))
    assert out.tolist() == [0, 1, 2, 31, 32]


def test_no_dimensions() -> None:
    case = Chunking((), (), np.dtype("f8"), None, 8, ())
    plan = make_plan(normalize_basic((), ()), ())
    out = np.zeros((), "f8")
    chunk = np.frombuffer(np.array(2.5, ">f8").tobytes(), np.uint8)
    place(case, plan, make_sources([chunk]), out, np.zeros(1))
    assert out == 2.5
    place(case, plan, make_sources([None]), out, np.array([4.5]))
    assert out == 4.5


def test_thirty_two_dimensions() -> None:
    shape = (1,) * 28 + (2, 3, 1, 4)
    case = Chunking(shape, (1,) * 28 + (2, 2, 1, 3), np.dtype("<i4"), None, 0, tuple(range(32)))
    model = np.arange(24, dtype="<i4").reshape(shape)
    plan = make_plan(normalize_basic((), shape), case.grid)
    coords = itertools.product(*([span.chunk for span in spans] for spans in plan.axes))
    chunks = [chunk_bytes(model, case, c, np.random.default_rng(1)) for c in coords]
    out, _ = Layout(tuple(range(32))[::-1], (1,) * 32, 0).empty(shape, np.dtype("<i4"))
    place(case, plan, make_sources(chunks), out, np.zeros(1, "<i4"))
    assert (out == model).all()


def test_an_axis_without_extent_in_memory() -> None:
    """An out axis may have stride 0: all its elements are one, as in a broadcast view of one row."""
    case = Chunking((3, 4), (3, 4), np.dtype("<i4"), None, 0, (0, 1))
    row = np.zeros(4, "<i4")
    out = np.lib.stride_tricks.as_strided(row, (3, 4), (0, 4))
    chunk = np.frombuffer(np.tile(np.arange(4, dtype="<i4"), (3, 1)).tobytes(), np.uint8)
    plan = make_plan(normalize_basic((), (3, 4)), case.grid)
    place(case, plan, make_sources([chunk]), out, np.zeros(1, "<i4"))
    assert row.tolist() == [0, 1, 2, 3]


# -- values of writes ------------------------------------------------------------------------------------------------


def gather(
    case: Chunking, plan: BoxPlan, source: tuple[np.ndarray, Any, Any], rows: np.ndarray, n_threads: int | None = None
) -> None:
    """source: memory of the value, and for each part where it begins there, and its strides."""
    value, starts, strides = source
    n, ndim, size = plan.nparts, len(case.shape), case.dtype.itemsize
    low, high = np.lib.array_utils.byte_bounds(value) if value.size else (value.ctypes.data,) * 2
    sources = Sources(
        np.full(n, low, np.uint64),
        np.zeros(n, np.uint8),
        np.ones(n, np.int32),
        np.ones(n, np.int64),
        np.full(n, high - low, np.int64),
        [],
    )
    first = np.array(starts, np.int64) + (value.ctypes.data - low)
    given = np.array(strides, np.int64).reshape(n, ndim).T
    into = 0, rows.ctypes.data + np.arange(n) * case.nbytes, case.strides * size
    values = size, case.unit, np.zeros(size, np.uint8)
    place_boxes(box_columns(plan.axes), (1, sources, first, given), into, values, n_threads)


def laid_over(case: Chunking, plan: BoxPlan, value: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The rows as NumPy would leave them."""
    wanted = rows.copy()
    for number, part in enumerate(plan.parts()):
        lengths = tuple(case.lengths[axis] for axis in case.order)
        stored = wanted[number * case.nbytes : (number + 1) * case.nbytes].view(f"V{case.dtype.itemsize}")
        chunk = stored.reshape(lengths).transpose(np.argsort(np.array(case.order, int)).tolist())
        chunk[part.inside] = swapped(value, case.unit).view(chunk.dtype)[part.out]
    return wanted


def check_gathered(data: st.DataObject, case: Chunking, selection: Box) -> None:
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
    check_gathered(data, case, normalize_orthogonal(tuple(key), case.shape))


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
