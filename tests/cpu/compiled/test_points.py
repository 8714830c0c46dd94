"""Points are sorted by the compiled loop as by the reference path, by several threads, and within its tables."""

from contextlib import suppress
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.config import config
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.points import make_point_batches
from gzarr.indexing.plan import PointPlan
from tests.support.threads import side_by_side

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")


@settings(max_examples=40)
@given(data=st.data())
def test_points_are_sorted_as_by_the_reference(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    ndim = data.draw(st.integers(1, 4))
    chunk = tuple(data.draw(st.integers(1, 9)) for _ in range(ndim))
    per_shard = tuple(data.draw(st.integers(1, 3)) for _ in range(ndim))
    shape = tuple(data.draw(st.sampled_from([3, 40, 10**4, 10**9, 10**12])) for _ in range(ndim))
    shards = tuple(a * b for a, b in zip(chunk, per_shard, strict=True))
    more = {"shards": shards} if data.draw(st.booleans()) else {}
    folder = tmp_path_factory.mktemp("sorted")
    array = gzarr.create_array(folder, shape=shape, chunks=chunk, dtype="i2", compressors=None, **more)
    layout = array._io.layout
    source = array._io.compiled._decide().read
    n, limit = data.draw(st.integers(1, 300)), data.draw(st.sampled_from([10, 2**62]))
    rng = np.random.default_rng(n)
    plan = PointPlan(tuple(rng.integers(0, min(extent, limit), n) for extent in shape), (n,), layout.grid)
    size = data.draw(st.integers(1, 30))
    of_chunk = source.chain.strides, source.chain.nbytes
    batches = [make_point_batches(plan, layout, of_chunk, 0, size, whole=whole) for whole in (False, True)]
    if batches[0] is None:  # too many chunks
        assert np.prod([float(extent) for extent in shape]) / np.prod(chunk) > 2**61
        return
    wanted = [(owner, part) for owner, parts in plan.groups(layout.objects) for part in parts]
    for whole, some in enumerate(batches):
        assert some is not None
        rest, seen = iter(wanted), set[Any]()
        for number in range(some.n):
            table = some.table(number)
            assert whole or table.nchunks <= size
            owners = table.coords if table.owners is None else np.repeat(table.owners, np.diff(table.bounds), axis=0)
            assert not more or not whole or len(table.owners) == 1
            for at, part in enumerate(some.parts(number, table, range(table.nchunks))):
                owner, reference = next(rest)
                run = slice(*table.starts[at : at + 2])
                assert part.coords == reference.coords == tuple(table.coords[at].tolist())
                assert part.out.tolist() == reference.out.tolist() == table.order[run].tolist()
                assert [at.tolist() for at in part.inside] == [at.tolist() for at in reference.inside]
                assert table.places[run].tolist() == (np.ravel_multi_index(reference.inside, chunk) * 2).tolist()
                assert tuple(owners[at].tolist()) == owner
                seen.add(owner)
        assert next(rest, None) is None
        assert not more or some.nobjects == len(seen)


@pytest.mark.parametrize(("n", "n_blocks"), [(1, 1), (5, 3), (3000, 1), (3000, 7), (40_000, 32)])
@pytest.mark.parametrize(("length", "granule_bits"), [(640, 7), (90, 0), (1, 0)])
def test_threads_sort_points_together(n: int, n_blocks: int, length: int, granule_bits: int) -> None:
    coords = tuple(np.random.default_rng(axis).integers(0, 700, n) for axis in range(2))
    axes = np.array([[700, length, length, 8 * length], [700, length, length, 8]])
    order, places, starts, rows = np.empty(n, "i8"), np.empty(n, "i8"), np.empty(n + 1, "i8"), np.empty((n, 2), "i8")
    sort, into = library.extension().begin_sort(axes, n, n_blocks, granule_bits, 3), (order, places, starts, rows)
    found = side_by_side(lambda _: library.extension().sort_points(sort, coords, *into), range(4))
    chunks = np.stack([column // length for column in coords], axis=1)
    place = 3 + 8 * ((coords[0] % length) * length + coords[1] % length)
    keys = np.stack([*chunks.T, place >> 15 if granule_bits else 0 * place])
    assert order.tolist() == np.lexsort(keys[::-1]).tolist()
    assert places.tolist() == place[order].tolist()
    firsts = np.unique(chunks, axis=0, return_counts=True)
    assert found == [len(firsts[0])] * 4
    assert rows[: found[0]].tolist() == firsts[0].tolist()
    assert starts[: found[0] + 1].tolist() == [0, *np.cumsum(firsts[1]).tolist()]


def test_points_that_others_change_while_threads_sort_them_together_overrun_no_table() -> None:
    n = 1 << 15
    coords, is_over = np.arange(n) % 64, Event()
    into = (*np.empty((2, n), "i8"), np.empty(n + 1, "i8"), np.empty((n, 1), "i8"))

    def change() -> None:
        some, good = coords[-4096:], coords[-4096:].copy()
        while not is_over.is_set():
            some[:] = 1 << 61
            some[:] = good

    changing = Thread(target=change)
    changing.start()
    for _ in range(500):
        sort = library.extension().begin_sort(np.array([[64, 4, 4, 1]]), n, 1, 0, 0)
        with suppress(ValueError):  # they are out of bounds
            library.extension().sort_points(sort, (coords,), *into)
    is_over.set()
    changing.join()


@settings(max_examples=40)
@given(data=st.data())
def test_tables_that_lie_are_refused(data: st.DataObject) -> None:
    n, ndim = 50, data.draw(st.integers(1, 3))
    numbers = st.one_of(st.integers(-3, 90), st.integers(-(2**63), 2**63 - 1))
    axes = np.array([[70, 20, 10, 4]] * ndim)
    coords = [np.random.default_rng(i).integers(0, 70, n) for i in range(ndim)]
    for _ in range(data.draw(st.integers(0, 2))):
        axes[data.draw(st.integers(0, ndim - 1)), data.draw(st.integers(0, 3))] = data.draw(numbers)
    if data.draw(st.booleans()):
        coords[0][data.draw(st.integers(0, n - 1))] = data.draw(numbers)
    order, places, starts, rows = np.empty(n, "i8"), np.empty(n, "i8"), np.empty(n + 1, "i8"), np.empty((n, ndim), "i8")
    if data.draw(st.integers(0, 4)) == 0:
        starts = starts[1:]
    try:
        numbers = n, data.draw(st.integers(-1, 60)), data.draw(st.integers(-1, 70)), data.draw(st.integers(-1, 9))
        sort = library.extension().begin_sort(axes, *numbers)
        found = library.extension().sort_points(sort, tuple(coords), order, places, starts, rows)
    except ValueError:
        return
    assert 0 < found <= n
    assert sorted(order.tolist()) == list(range(n))


@pytest.mark.parametrize("native", [True, False])
def test_of_several_values_for_a_point_the_last_one_stays(native: bool) -> None:
    array, model = gzarr.zeros(200, chunks=10, shards=100, dtype="i4"), np.zeros(200, "i4")
    points = np.random.default_rng(0).integers(0, 200, 2000)
    with config.set({"cpu.native": native}):
        array.vindex[points] = model[points] = np.arange(1, 2001)
    np.testing.assert_array_equal(array[...], model)
