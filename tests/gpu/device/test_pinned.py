"""A pipeline slot pins one staging buffer, as large as its batches need. What stores hold is not lent again."""

from __future__ import annotations

import gc
import signal
import weakref

import numpy as np
import pytest

from gzarr.gpu.device.memory import MIN_BLOCK_NBYTES
from gzarr.gpu.device.pinned import MAX_TABLE_NBYTES, Pinned, Staging

MIB = 1 << 20


class Blocks:
    """Pins blocks, and knows which of them are alive."""

    def __init__(self) -> None:
        self.made: list[int] = []
        self.live = 0

    def __call__(self, nbytes: int) -> np.ndarray:
        block = np.zeros(nbytes, np.uint8)
        self.made.append(nbytes)
        self.live += nbytes
        weakref.finalize(block, self._freed, nbytes)
        return block

    def _freed(self, nbytes: int) -> None:
        self.live -= nbytes


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@pytest.fixture
def blocks() -> Blocks:
    return Blocks()


def test_a_staging_buffer_is_one_block_which_a_larger_one_replaces(blocks) -> None:
    staging = Staging(Pinned(blocks))
    for nbytes in (20 * MIB, 3 * MIB, 21 * MIB, 30 * MIB, 31 * MIB):
        staging.rewind()
        piece = staging.staging_buffer(nbytes)
        assert piece.nbytes == nbytes
        del piece
    assert len(blocks.made) == 2
    assert 31 * MIB <= blocks.live <= 31 * MIB * 17 / 16


def test_small_reads_share_a_staging_buffer_of_the_least_size(blocks) -> None:
    staging = Staging(Pinned(blocks))
    for nbytes in (1, 1000, MIN_BLOCK_NBYTES):
        staging.rewind()
        staging.staging_buffer(nbytes)
    assert blocks.made == [MIN_BLOCK_NBYTES]


def test_a_staging_buffer_that_is_replaced_lives_as_long_as_a_batch_uses_it(blocks) -> None:
    staging = Staging(Pinned(blocks))
    held = staging.staging_buffer(2 * MIB)
    held[:] = 7
    staging.rewind()
    staging.staging_buffer(9 * MIB)[:] = 1
    assert (held == 7).all()
    assert blocks.live > 11 * MIB
    del held
    assert blocks.live < 11 * MIB


def test_tables_do_not_come_from_the_staging_buffer_unless_they_are_large(blocks) -> None:
    staging = Staging(Pinned(blocks))
    staging_buffer = staging.staging_buffer(50 * MIB)
    tables = [staging.take(n) for n in (100, 5000, MAX_TABLE_NBYTES)]
    assert not any(np.shares_memory(staging_buffer, table) for table in tables)
    assert blocks.live <= 50 * MIB * 17 / 16 + 3 * MIB
    values = staging.take(4 * MAX_TABLE_NBYTES)
    assert not np.shares_memory(staging_buffer, values)
    assert blocks.live <= 50 * MIB * 17 / 16 + 8 * MIB
    staging.rewind()
    assert address(staging.take(4 * MAX_TABLE_NBYTES)) == address(staging_buffer)


def test_a_batch_that_is_tried_again_keeps_the_staging_buffer_it_was_read_into(blocks) -> None:
    staging = Staging(Pinned(blocks))
    staging_buffer = staging.staging_buffer(2 * MIB)
    mark = staging.mark()
    first = [address(staging.take(n)) for n in (100, 3 * MIB)]
    staging.rewind(mark)
    again = [address(staging.take(n)) for n in (100, 3 * MIB)]
    assert first == again
    assert address(staging_buffer) not in again


def test_beyond_the_cap_memory_is_pageable(blocks) -> None:
    pinned = Pinned(blocks, 19 * MIB)
    pipeline_slots = [Staging(pinned) for _ in range(3)]
    pieces = [pipeline_slot.staging_buffer(9 * MIB) for pipeline_slot in pipeline_slots]
    for number, piece in enumerate(pieces):
        piece[:] = number
    assert blocks.live <= 19 * MIB
    assert len(blocks.made) == 2  # the second without slack
    assert all((piece == number).all() for number, piece in enumerate(pieces))
    del pieces, piece
    pipeline_slots[0].release()
    pipeline_slots[2].release()
    pipeline_slots[2].staging_buffer(9 * MIB)
    assert len(blocks.made) == 3


def test_memory_that_could_not_be_pinned_is_not_counted(blocks) -> None:
    def refuse(nbytes: int) -> np.ndarray:
        raise MemoryError

    pinned = Pinned(refuse, 10 * MIB)
    for _ in range(3):
        with pytest.raises(MemoryError):
            Staging(pinned).staging_buffer(8 * MIB)
    pinned._allocate = blocks
    Staging(pinned).staging_buffer(8 * MIB)
    assert blocks.made == [MIB * 17 // 2]


def test_a_result_is_lent_again_when_nothing_refers_to_it(blocks) -> None:
    results = Pinned(blocks).results
    chunk = results.take(2 * MIB)[1000:2000]
    chunk[:] = 7
    gc.collect()
    results.take(2 * MIB)[:] = 1
    assert (chunk == 7).all()
    assert len(blocks.made) == 2
    view = memoryview(chunk)
    del chunk
    results.take(2 * MIB)[:] = 1
    assert set(view) == {7}
    assert len(blocks.made) == 2
    del view
    for _ in range(5):
        results.take(2 * MIB)
    assert len(blocks.made) == 2
    assert results.take(0).nbytes == 0


def test_results_that_have_become_too_small_are_freed(blocks) -> None:
    results = Pinned(blocks).results
    for nbytes in (MIB, 5 * MIB, 4 * MIB, 20 * MIB):
        results.take(nbytes)
    assert len(blocks.made) == 3
    assert blocks.live <= 20 * MIB * 17 / 16
    results.release()
    assert blocks.live == 0


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers that interrupt")
def test_an_interrupt_while_memory_is_given_back_is_not_lost() -> None:
    """Neither is the memory: interrupts come whenever Python code runs."""
    pinned = Pinned(lambda nbytes: np.empty(nbytes, np.uint8))
    raised = caught = 0

    def interrupt(*_: object) -> None:
        nonlocal raised
        raised += 1
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0002)
                for _ in range(1000):
                    pinned.results.take(100)
            except KeyboardInterrupt:
                caught += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert raised == caught
