"""Planners are run against a memory that notes what each slot holds."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gzarr.indexing.grid import RegularAxis, VaryingAxis
from gzarr.indexing.selection import Indices
from gzarr.loader import look_ahead
from gzarr.loader.look_ahead import DirectPlanner, EpochPlan, Planner, PlanStep, PoolPlanner, mode_of
from tests.loader.planners import boxes_epoch, decodes, rows_epoch, shuffled


class Memory:
    """Slots, each with the sample that it holds and which of its elements are there."""

    def __init__(self, epoch: EpochPlan, slots: int) -> None:
        self.epoch = epoch
        self.boxes = epoch.boxes(epoch.ids(0, epoch.n))
        self.owner = np.full((slots, len(epoch.size)), -1)
        self.placed = np.zeros(slots, np.int64)
        self.lent = np.zeros(slots, bool)
        self.at = 0

    def read(self, step: PlanStep) -> None:
        """Carry out the copies of a step."""
        grid, (_, chunk, starts) = self.epoch.grid, step.fragments
        coords = np.unravel_index(chunk, [axis.nchunks for axis in grid])
        low, high = (np.stack([axis.starts_of(c + n) for axis, c in zip(grid, coords, strict=True)], 1) for n in (0, 1))
        counts = np.minimum(starts + self.epoch.size, high) - np.maximum(starts, low)
        assert (counts > 0).all()
        for slot, start, n in zip(step.slots, starts, counts.prod(axis=1), strict=True):
            assert not self.lent[slot]
            if (self.owner[slot] != start).any() or self.placed[slot] == prod(self.epoch.size):
                self.owner[slot], self.placed[slot] = start, 0
            self.placed[slot] += n
        assert step.opened == len(np.unique(chunk))

    def lend(self, step: PlanStep) -> None:
        """Check the batches of a step."""
        for slots in step.batches:
            assert len(slots) == min(self.epoch.batch_size, self.epoch.n - self.at)
            assert not self.lent[slots].any()
            assert (self.placed[slots] == prod(self.epoch.size)).all()
            assert (self.owner[slots] == self.boxes[self.at : self.at + len(slots)]).all()
            self.lent[slots] = True
            self.at += len(slots)


@contextmanager
def first_horizon(n: int) -> Iterator[None]:
    """Let planners look ahead this far at first; the usual horizon is longer than epochs of tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(look_ahead, "_FIRST_HORIZON", n)
        patch.setattr(look_ahead, "_FAR_HORIZON", n)
        yield


def run(planner: Planner, slots: int, steps: list[int], lag: int) -> int:
    """Plan an epoch; the batches of a step are freed when ``lag`` more were planned. Returns: chunks opened."""
    memory, under_way, opened = Memory(planner.epoch, slots), deque[PlanStep](), 0
    while memory.at < planner.epoch.n:
        while len(under_way) > lag or not planner.room():
            done = under_way.popleft()
            memory.lent[np.concatenate(done.batches)] = False
            planner.free(len(done.batches))
        step = planner.step(min(steps[0], planner.room()))
        steps = steps[1:] + steps[:1]
        memory.read(step)
        memory.lend(step)
        opened += step.opened
        under_way.append(step)
    return opened


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_every_batch_of_a_pool_is_there_when_it_is_ready(data: st.DataObject) -> None:
    n, batch, ahead = data.draw(st.integers(1, 120)), data.draw(st.integers(1, 9)), data.draw(st.integers(1, 4))
    axis = data.draw(st.sampled_from([RegularAxis(n, 7), VaryingAxis(n, (1, 2, 5, 20, n))]))
    grid = (axis, RegularAxis(5, 3))
    ids = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=200)))
    slots = ahead * batch + data.draw(st.integers(0, 60))
    steps = data.draw(st.lists(st.integers(1, ahead), min_size=1, max_size=3))
    epoch = rows_epoch(ids, batch, grid)._replace(span=data.draw(st.none() | st.integers(1, 300)))
    horizon = data.draw(st.none() | st.integers(0, 100))
    with first_horizon(data.draw(st.integers(1, 300))):
        run(PoolPlanner(epoch, slots, ahead, horizon), slots, steps, data.draw(st.integers(0, 2)))


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_every_direct_batch_is_there_when_it_is_ready(data: st.DataObject) -> None:
    shape, batch = data.draw(st.tuples(*[st.integers(3, 20)] * 2)), data.draw(st.integers(1, 5))
    grid = (RegularAxis(shape[0], data.draw(st.integers(1, 9))), VaryingAxis(shape[1], (1, 2, shape[1])))
    size = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    starts = [st.integers(0, extent - n) for extent, n in zip(shape, size, strict=True)]
    boxes = np.array(data.draw(st.lists(st.tuples(*starts), min_size=1, max_size=40)))
    blocks = data.draw(st.integers(1, 6))
    steps = data.draw(st.lists(st.integers(1, blocks), min_size=1, max_size=3))
    with first_horizon(data.draw(st.integers(1, 60))):
        planner = DirectPlanner(boxes_epoch(boxes, size, batch, grid), blocks)
        run(planner, blocks * batch, steps, data.draw(st.integers(0, 2)))


def test_blocks_that_fit_into_memory_are_decoded_once() -> None:
    assert decodes(DirectPlanner(shuffled(4096, 16, 64, block=16), 16 * 16 // 64 + 2)) <= 1.05
    assert decodes(PoolPlanner(shuffled(4096, 16, 64, block=16), 16 * 16 + 2 * 64, 2)) <= 1.05


@pytest.mark.parametrize(
    ("per_chunk", "share", "most"),
    [
        *((4, 0.1, 2.1), (4, 0.35, 1.4)),
        *((16, 0.05, 6.2), (16, 0.2, 2.7), (16, 0.35, 1.95), (16, 0.7, 1.3)),
        *((64, 0.1, 6.0), (64, 0.35, 2.4), (64, 0.5, 1.95)),
    ],
)
def test_exactly_shuffled_samples_are_decoded_few_times(per_chunk: int, share: float, most: float) -> None:
    """Better than any rule by which the sample that is wanted last gives way; LRU of chunks takes 10 and more."""
    assert decodes(PoolPlanner(shuffled(5008, per_chunk, 64), int(5008 * share), 1)) <= most


def test_a_pool_looks_no_farther_than_its_slots_allow() -> None:
    """Ten million samples and a pool of a thousand: what is known of them must not need more memory than the pool."""
    asked = []

    def ids(lo: int, hi: int) -> Indices:
        asked.append(hi)
        return np.arange(lo, hi) * 7919 % 10_000_000

    epoch = rows_epoch(np.arange(0), 64, (RegularAxis(10_000_000, 16),))._replace(n=10_000_000, ids=ids)
    for horizon, most in ((None, 16 * 1000), (3000, 3000)):
        asked.clear()
        pool = PoolPlanner(epoch, 1000, 1, horizon)
        for _ in range(10):
            pool.free(len(pool.step(1).batches))
        assert 2000 < max(asked) <= most + 10 * 64


def test_crops_share_the_chunks_that_they_touch() -> None:
    """512 crops of 64^3 out of 512^3, with memory for 48 % of the array: two batches are planned at once."""
    starts = np.random.default_rng(0).integers(0, 512 - 64 + 1, (512, 3))
    epoch = boxes_epoch(starts, (64, 64, 64), 8, (RegularAxis(512, 64),) * 3)
    assert decodes(DirectPlanner(epoch, int(0.48 * 512) // 8)) <= 2.3


@pytest.mark.parametrize(
    ("size", "chunk", "span", "expected"),
    [
        ((1, 8), 16, 1000, "pool"),
        ((1, 8), 16, 100, "direct"),  # all that share a chunk fit
        ((1, 8), 1, 1000, "direct"),  # nothing is shared
        ((2, 8), 16, 1000, "direct"),
        ((1, 4), 16, 1000, "direct"),
    ],
)
def test_a_pool_serves_rows_that_share_chunks(size: tuple[int, ...], chunk: int, span: int, expected: str) -> None:
    assert mode_of(size, (RegularAxis(1000, chunk), RegularAxis(8, 4)), span, 200) == expected
