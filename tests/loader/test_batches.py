"""The hand-over of batches, with a producer that only counts."""

import gc
import pickle
import threading
import time
import weakref

import pytest

from gzarr.concurrency import Pool, new_lock
from gzarr.loader.batches import BatchItem, BatchIterator, Handover
from gzarr.loader.stats import Meter
from tests.support.threads import side_by_side

METER = Meter(0, 0)


class Counting:
    """Items 0, 1, 2, ...; notes what was made and whether it was ended."""

    def __init__(self, n=10, fail_at=None):
        self.n, self.fail_at = n, fail_at
        self.made, self.ended, self.over = [], 0, []
        self.threads = Pool()

    def items(self, step):
        try:
            for number in range(step, self.n):
                if number == self.fail_at:
                    raise ValueError(f"batch {number}")
                self.made.append(number)
                yield BatchItem(number, number)
        finally:
            self.ended += 1

    def batches(self, prefetch=2):
        return batches_of(self.items, prefetch, self.threads, ended=lambda: self.over.append(1))


def batch_of(item):
    return item.batch


def batches_of(items, prefetch=2, threads=None, taken=batch_of, ended=lambda: None):
    return BatchIterator(items, prefetch, METER, threads or Pool(), new_lock(), taken, ended)


def wait_until(condition, timeout_s=60):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_all_batches_come_in_order_and_the_end_is_told_once():
    counting = Counting()
    batches = counting.batches()
    assert list(batches) == list(range(10))
    assert list(batches) == []
    assert counting.over == [1]


@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_no_more_than_prefetch_batches_wait(prefetch):
    counting = Counting(100)
    batches = counting.batches(prefetch=prefetch)
    for taken in range(1, 6):
        next(batches)
        wait_until(lambda taken=taken: len(counting.made) == taken + prefetch)
    time.sleep(0.02)
    assert len(counting.made) == 5 + prefetch
    batches.close()


def test_an_error_comes_after_the_batches_before_it_and_comes_again():
    batches = Counting(fail_at=3).batches()
    assert [next(batches) for _ in range(3)] == [0, 1, 2]
    for _ in range(3):
        with pytest.raises(ValueError, match="batch 3"):
            next(batches)


def test_a_closed_iteration_ends_its_thread_and_says_so():
    counting = Counting(1000)
    batches = counting.batches()
    next(batches)
    batches.close("closed by a test")
    assert counting.ended == 1
    with pytest.raises(RuntimeError, match="closed by a test"):
        next(batches)


def test_who_waits_for_the_next_batch_hears_that_another_thread_has_closed_the_iteration():
    goes_on = threading.Event()

    def items(_):
        goes_on.wait(60)
        yield BatchItem(0, 0)

    over = []
    batches = batches_of(items, ended=lambda: over.append(1))
    threading.Timer(0.05, lambda: (batches.stop("closed by another thread"), goes_on.set())).start()
    with pytest.raises(RuntimeError, match="closed by another thread"):
        next(batches)
    assert not over


def test_a_dropped_iteration_ends_its_thread():
    counting = Counting(1000)
    batches = counting.batches()
    next(batches)
    gone = weakref.ref(batches)
    del batches
    assert gone() is None
    wait_until(lambda: counting.ended == 1)


def test_batches_are_not_kept():
    class Batch:
        pass

    def items(_):
        return (BatchItem(number, Batch()) for number in range(100))

    batches = batches_of(items)
    gone = weakref.ref(next(batches))
    wait_until(lambda: gone() is None)
    batches.close()


def test_an_interrupt_between_any_two_steps_loses_no_batch():
    """An error at the end of `next`, as Ctrl-C may raise it anywhere, leaves the batch to the next call."""
    counting = Counting(50)
    interrupts = iter([True, False] * 100)

    def taken(item):
        if next(interrupts):
            raise KeyboardInterrupt
        return item.batch

    batches = batches_of(counting.items, taken=taken)
    got = []
    while len(got) < 50:
        try:
            got.append(next(batches))
        except KeyboardInterrupt:
            continue
    assert got == list(range(50))


def test_threads_that_share_an_iteration_take_each_batch_once():
    batches, got = Counting(500).batches(), []
    side_by_side(lambda _: got.extend(batches), range(4))
    assert sorted(got) == list(range(500))


def test_an_iteration_is_not_pickled():
    with pytest.raises(TypeError, match="pickle the loader"):
        pickle.dumps(Counting().batches())


def test_a_handover_that_was_stopped_before_it_began_makes_nothing():
    hand = Handover(2, METER)
    hand.stop()
    hand.produce(lambda: pytest.fail("nothing is wanted"))
    hand.join()
    assert hand.ready == {}


def test_an_error_keeps_no_memory_of_batches():
    class Memory:
        pass

    seen = []

    def items(_):
        memory = Memory()
        seen.append(weakref.ref(memory))
        yield BatchItem(0, 0)
        raise ValueError("damaged")

    batches = batches_of(items)
    next(batches)
    with pytest.raises(ValueError, match="damaged"):
        next(batches)
    gc.collect()
    assert seen[0]() is None
