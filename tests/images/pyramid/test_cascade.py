"""A cascade: every level written whole, no object twice, whatever the order of the blocks."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.images.pyramid.cascade import Cascade
from gzarr.images.pyramid.units import plan_units
from gzarr.indexing.regions import Region
from gzarr.storage import CountingStore, MemoryStore
from tests.images.levels import levels_of, noise


def make_levels(
    store: Any, shape: tuple[int, ...], factors: list[tuple[int, ...]], chunks: Any, shards: Any = None, **options: Any
) -> list[gzarr.Array]:
    levels = []
    for number, step in enumerate([(1,) * len(shape), *factors]):
        shape = tuple(-(-n // f) for n, f in zip(shape, step, strict=True))
        size = chunks[number] if isinstance(chunks, list) else chunks
        more = {"dtype": "u2", "chunks": size, "shards": shards, "compressors": None, **options}
        levels.append(gzarr.create_array(store, name=str(number), shape=shape, **more))
    return levels


def writes_of_chunks(store: CountingStore) -> set[int]:
    """How often objects that are no documents were written."""
    return set(Counter(key for key in store.written if not key.endswith(".json")).values())


def regions(shape: tuple[int, ...], unit: tuple[int, ...]) -> Iterator[Region]:
    for coords in itertools.product(*[range(-(-n // u)) for n, u in zip(shape, unit, strict=True)]):
        yield tuple(slice(k * u, min((k + 1) * u, n)) for k, u, n in zip(coords, unit, shape, strict=True))


CASES = {
    "even": ((64, 64), [(2, 2), (2, 2)], (16, 16), None),
    "ragged": ((61, 45), [(2, 2), (2, 2), (2, 2)], (16, 8), None),
    "odd factors": ((50, 41), [(3, 2), (1, 3)], (8, 7), None),
    "shards": ((70, 90), [(2, 2), (2, 2)], (8, 8), (16, 32)),
    "chunks that differ": ((70, 90), [(2, 2), (2, 2)], [(8, 8), (12, 5), (9, 40)], None),
    "three axes": ((3, 20, 33), [(1, 2, 2), (2, 2, 2)], (1, 8, 8), None),
    "chunks beyond the level": ((20, 20), [(2, 2), (2, 2)], (16, 64), None),
    "one level": ((20, 20), [], (7, 7), None),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("write_base", [True, False])
def test_all_levels_are_written_once_in_any_order(case: Any, times: int, write_base: bool) -> None:
    shape, factors, chunks, shards = case
    data = noise(shape)
    store = CountingStore(MemoryStore())
    levels = make_levels(store, shape, factors, chunks, shards)
    if not write_base:
        levels[0][...] = data
        store.written.clear()
    cascade = Cascade(levels, factors, backend=levels[0].backend, write_base=write_base)
    blocks = list(regions(shape, tuple(times * n for n in cascade.unit)))
    np.random.default_rng(2).shuffle(blocks)
    for block in blocks:
        region = tuple(block)
        cascade.put(tuple(s.start for s in region), data[region])
    cascade.finish()
    assert cascade.pending_nbytes == 0
    for array, level in zip(levels, levels_of(data, factors), strict=True):
        np.testing.assert_array_equal(array[...], level)
    assert writes_of_chunks(store) <= {1}


def test_units_in_order_leave_little_pending() -> None:
    data = noise((512, 512))
    factors = [(2, 2)] * 4
    levels = make_levels(MemoryStore(), data.shape, factors, (16, 16))
    cascade = Cascade(levels, factors, backend=levels[0].backend)
    units = replace(plan_units(cascade.geometry, 64 << 20, 1), unit=cascade.unit)
    most = 0
    for region in units:
        cascade.put(tuple(s.start for s in region), data[region])
        most = max(most, cascade.pending_nbytes)
    cascade.finish()
    assert most <= 4 * 16 * 16 * 2
    np.testing.assert_array_equal(levels[4][...], levels_of(data, factors)[4])


@pytest.mark.parametrize("n_done", [0, 1, 5, 23, 62])
def test_what_was_pending_is_restored(n_done: int) -> None:
    shape, factors = (61, 125), [(2, 2), (2, 2), (2, 2)]
    data = noise(shape)
    store = CountingStore(MemoryStore())
    levels = make_levels(store, shape, factors, [(8, 8), (8, 8), (12, 10), (3, 3)])
    first = Cascade(levels, factors, backend=levels[0].backend)
    blocks = list(regions(shape, first.unit))
    np.random.default_rng(2).shuffle(blocks)
    blocks = [tuple(block) for block in blocks]
    for region in blocks[:n_done]:
        first.put(tuple(s.start for s in region), data[region])
    second = Cascade(levels, factors, backend=levels[0].backend)
    for region in blocks[:n_done]:
        second.note(tuple(s.start for s in region), data[region].shape)
    second.restore()
    assert second.pending_nbytes == first.pending_nbytes
    for region in blocks[n_done:]:
        second.put(tuple(s.start for s in region), data[region])
    second.finish()
    for array, level in zip(levels, levels_of(data, factors), strict=True):
        np.testing.assert_array_equal(array[...], level)
    assert writes_of_chunks(store) == {1}


@pytest.mark.parametrize(("start", "shape"), [((1, 0), (8, 8)), ((0, 0), (7, 8)), ((8, 8), (16, 8)), ((0, 0), (0, 8))])
def test_a_block_between_units_is_refused(start: tuple[int, ...], shape: tuple[int, ...]) -> None:
    levels = make_levels(MemoryStore(), (20, 20), [(2, 2)], (8, 8))
    cascade = Cascade(levels, [(2, 2)], backend=levels[0].backend)
    with pytest.raises(ValueError, match=r"multiples of \(8, 8\)"):
        cascade.put(start, np.zeros(shape, "u2"))


def test_what_is_missing_is_named() -> None:
    levels = make_levels(MemoryStore(), (32, 32), [(2, 2)], (8, 8))
    cascade = Cascade(levels, [(2, 2)], backend=levels[0].backend)
    cascade.put((0, 0), np.zeros((16, 24), "u2"))
    with pytest.raises(ValueError, match=r"level 1 is incomplete: its block at \(0, 8\), of shape \(8, 8\), has 32 of"):
        cascade.finish()


def test_arrays_may_grow_until_the_end() -> None:
    data = noise((29, 20))
    factors = [(2, 2), (2, 2)]
    levels = make_levels(MemoryStore(), data.shape, factors, (4, 8))
    endless = make_levels(levels[0].store, (1 << 20, 20), factors, (4, 8), overwrite=True)
    cascade = Cascade(endless, factors, backend=levels[0].backend)
    for start in range(0, 28, 4):
        cascade.put((start, 0), data[start : start + 4])
    cascade.levels = tuple(levels)
    cascade.put((28, 0), data[28:])
    cascade.finish()
    for array, level in zip(levels, levels_of(data, factors), strict=True):
        np.testing.assert_array_equal(array[...], level)


def test_cells_hold_whole_objects_and_windows() -> None:
    factors = [(3, 2), (2, 2)]
    levels = make_levels(MemoryStore(), (60, 60), factors, (8, 5))
    cascade = Cascade(levels, factors, backend=levels[0].backend)
    assert cascade.cells == ((24, 10), (8, 10), (8, 5))
    geometry = cascade.geometry
    assert geometry.footprints == ((24, 10), (24, 20), (48, 20))
    assert geometry.nbytes == tuple(2 * math.prod(n) for n in ((24, 10), (8, 10), (8, 5)))
