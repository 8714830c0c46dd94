"""Many boxes read into slots of their own hold what NumPy's boxes do, in every layout, for every dtype."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.chunk_io import engine
from gzarr.chunk_io.reference import ReadJob
from gzarr.errors import ChunkError, SelectionError
from gzarr.indexing.copies import cut_boxes, make_copies
from gzarr.storage import CountingStore, LocalStore, MemoryStore
from tests.properties.cases import Case, filled, same
from tests.properties.memory import on_host

Filled = tuple[Case, gzarr.Array, np.ndarray]


def job_for(array: gzarr.Array, starts: Any, size: Any, slots: Any, memory: tuple[Any, int, int]) -> ReadJob:
    """memory: dtype, number of blocks, and rows of each."""
    dtype, n_blocks, rows = memory
    io = array._io
    grid, objects = io.layout.grid, io.layout.objects
    starts = np.array(starts, np.int64).reshape(len(starts), len(size))
    fragments = cut_boxes(starts, size, grid)
    shape = (n_blocks * rows, *size)
    plan = make_copies(fragments, np.array(slots, np.int64)[fragments.box], shape, rows, grid, objects)
    return ReadJob(io, plan, tuple(io.backend.empty((rows, *size), dtype) for _ in range(n_blocks)))


def check(job: ReadJob, wanted: np.ndarray, starts: Any, slots: Any) -> None:
    size = job.plan.shape[1:]
    found = np.concatenate([on_host(block) for block in job.out]) if job.out else np.empty((0, *size))
    for start, slot in zip(starts, slots, strict=True):
        same(found[slot], wanted[tuple(slice(low, low + n) for low, n in zip(start, size, strict=True))])


def wider(dtype: np.dtype[Any]) -> list[np.dtype[Any]]:
    """Dtypes of the same kind, or of one that it can become."""
    more = {"i": ["<i8", "<f4", "<i2"], "u": ["<u4", "<f4"], "f": ["<f8", "<f4", "<f2"]}.get(dtype.kind, [])
    native = dtype.newbyteorder("=") if dtype.names is None else dtype
    return [native, *map(np.dtype, more)]


@st.composite
def boxes(draw: Any, shape: tuple[int, ...]) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    size = tuple(draw(st.integers(min(n, 1), n)) for n in shape)
    start = st.tuples(*[st.integers(0, extent - n) for extent, n in zip(shape, size, strict=True)])
    return draw(st.lists(start, min_size=1, max_size=6)), size


@given(filled(), st.data())
@settings(max_examples=100)
def test_boxes_are_read_into_slots_of_their_own(drawn: Filled, data: st.DataObject) -> None:
    _, array, model = drawn
    cached = data.draw(st.sampled_from([None, None, 1 << 20])) if array.device == "cpu" else None
    array = gzarr.open_array(array.store, mode="r", chunk_cache=cached)
    jobs = []
    for _ in range(data.draw(st.integers(1, 2))):  # of one array or several, as one queue
        starts, size = data.draw(boxes(model.shape))
        rows = data.draw(st.integers(1, 4))
        n_blocks = -(-len(starts) // rows)
        slots = data.draw(st.permutations(range(n_blocks * rows)))[: len(starts)]
        dtype = data.draw(st.sampled_from(wider(array.dtype)))
        jobs.append((job_for(array, starts, size, slots, (dtype, n_blocks, rows)), starts, slots))
    for _ in range(1 if cached is None else 2):
        engine.read([job for job, _, _ in jobs])
    with np.errstate(all="ignore"):
        for job, starts, slots in jobs:
            check(job, model.astype(job.out[0].dtype), starts, slots)


@pytest.fixture(params=["files", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Any) -> CountingStore:
    return CountingStore(LocalStore(tmp_path) if request.param == "files" else MemoryStore())


DATA = np.arange(40 * 6, dtype="i4").reshape(40, 6)


@pytest.mark.parametrize("options", [{}, {"shards": (8, 6)}])
def test_a_chunk_of_many_boxes_is_fetched_once(store: CountingStore, options: dict[str, Any]) -> None:
    array = gzarr.create_array(store, data=DATA, chunks=(4, 3), **options)
    array = gzarr.open_array(store, mode="r")
    starts = [(i, 0) for i in (3, 0, 1, 2, 9, 8)]
    job = job_for(array, starts, (1, 6), range(6), (np.dtype("i4"), 2, 3))
    store.reset()
    engine.read([job])
    check(job, DATA, starts, range(6))
    if not options:
        assert sorted(request.key for request in store.requests) == ["c/0/0", "c/0/1", "c/2/0", "c/2/1"]


def test_slots_need_not_follow_one_another_in_memory() -> None:
    array = gzarr.array(DATA, chunks=(4, 3))
    starts, slots = [(5, 1), (0, 2), (3, 0)], [0, 2, 1]
    job = job_for(array, starts, (2, 4), slots, (np.dtype("i4"), 1, 3))
    io = array._io
    job = job._replace(out=(io.backend.empty((6, 3, 4), np.dtype("i4"))[::2, :2],))
    engine.read([job])
    check(job, DATA, starts, slots)


def test_a_damaged_chunk_is_named() -> None:
    store = MemoryStore()
    array = gzarr.create_array(store, data=DATA, chunks=(4, 3))
    store["c/5/1"] = bytes(store["c/5/1"])[:-3]
    starts = [(i, 0) for i in (3, 9, 22, 20, 39)]
    with pytest.raises(ChunkError, match="c/5/1") as caught:
        engine.read([job_for(array, starts, (1, 6), range(5), (np.dtype("i4"), 1, 5))])
    assert caught.value.chunk_coords == (5, 1)


def test_values_that_would_change_their_kind_are_refused() -> None:
    array = gzarr.array(DATA.astype("f4"), chunks=(4, 3))
    with pytest.raises(SelectionError, match="float32 cannot become int32"):
        engine.read([job_for(array, [(0, 0)], (1, 6), [0], (np.dtype("i4"), 1, 1))])


@pytest.mark.parametrize("dtype", ["f4", "f2"])
@pytest.mark.parametrize("kind", ["files", "memory"])
def test_numbers_that_become_infinite_are_no_warning(kind: str, dtype: str, tmp_path: Path) -> None:
    """Of chunks that are there, and of one that is missing; by the loop, and by the reference path."""
    store = LocalStore(tmp_path) if kind == "files" else MemoryStore()
    model = np.full((40, 6), 1e300)
    model[0, 0] = -1e300
    array = gzarr.create_array(store, shape=model.shape, dtype="f8", chunks=(4, 3), fill_value=1e300)
    array[:, :3] = model[:, :3]
    starts = [(i, 0) for i in (0, 1, 20)]
    job = job_for(array, starts, (1, 6), range(3), (np.dtype(dtype), 1, 3))
    engine.read([job])
    with np.errstate(all="ignore"):
        check(job, model.astype(dtype), starts, range(3))


def test_fields_are_refused() -> None:
    array = gzarr.array(np.zeros(4, [("a", "i4"), ("b", "f4")]), chunks=2)
    job = job_for(array, [(0,)], (1,), [0], (array.dtype, 1, 1))
    with pytest.raises(SelectionError, match="whole elements"):
        engine.read([job._replace(fields="a")])


def test_copies_are_counted_by_profiles() -> None:
    array = gzarr.array(DATA, chunks=(4, 3))
    with gzarr.profile() as report:
        engine.read([job_for(array, [(0, 0), (1, 0)], (1, 6), [0, 1], (np.dtype("i4"), 1, 2))])
    assert report.stages["place"].chunks == 2
    assert report.stages["place"].bytes_out == 2 * 6 * 4


def test_threads_go_by_what_is_copied_not_by_the_memory_of_all_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    works = []
    array = gzarr.array(DATA, chunks=(4, 3), device="cpu")
    monkeypatch.setattr(type(array._io.backend), "run", lambda *given: works.append(given[-1]))
    engine.read([job_for(array, [(0, 0), (1, 0)], (1, 6), [0, 1], (np.dtype("i4"), 1, 1000))])
    assert [work.part_nbytes for work in works] == [6 * 4]
