"""Many threads on one array, and processes that fork: nothing is lost, nothing is torn, nothing waits forever."""

import faulthandler
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr import concurrency
from gzarr.codecs import BytesCodec, NumcodecsCodec, ShardingCodec, ZstdCodec
from gzarr.concurrency import Pool, Turns, run_in_threads
from gzarr.config import config
from gzarr.cpu import threads as cpu_threads
from gzarr.storage import LocalStore, MemoryStore, Request, Store, locks
from gzarr.storage.capabilities import Versions
from gzarr.storage.wrappers import ForwardedVersions
from tests.support.processes import run_python

N_THREADS = 16

#: Layouts of 64 elements that are one object.
LAYOUTS: dict[str, dict[str, Any]] = {
    "one chunk": {"chunks": 64},
    "one v2 chunk": {"chunks": 64, "zarr_format": 2},
    "one shard": {"chunks": 2, "shards": 64},
    "one shard, index first": {"chunks": 8, "shards": {"shape": 64, "index_location": "start"}},
    "one shard, codecs around": {
        "chunks": 64, "codecs": [ShardingCodec(4, codecs=[BytesCodec(), ZstdCodec(1)]), ZstdCodec(1)]
    },
    "one nested shard": {
        "chunks": 64, "codecs": [ShardingCodec(16, codecs=[ShardingCodec(4, codecs=[BytesCodec()])])]
    },
    "one nested shard, codecs within": {
        "chunks": 64, "codecs": [ShardingCodec(16, codecs=[ShardingCodec(4, codecs=[BytesCodec()]), ZstdCodec(1)])]
    },
    "one shard that cannot be addressed": {
        "chunks": 64, "codecs": [NumcodecsCodec("delta", {"dtype": "<i8"}), ShardingCodec(4)]
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def _threads_take_turns_often() -> Iterator[None]:
    """Let threads run into each other far more often than by default; end the tests loudly if they block."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    faulthandler.dump_traceback_later(300, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    sys.setswitchinterval(interval)


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "data")


def together(tasks: list[Callable[[], None]]) -> None:
    """Start all at the same moment, wait for all, raise what any raised."""
    start = threading.Barrier(len(tasks))

    def run(task: Callable[[], None]) -> None:
        start.wait(timeout=120)
        task()

    with ThreadPoolExecutor(len(tasks)) as pool:
        for future in [pool.submit(run, task) for task in tasks]:
            future.result()


def made(store: Any, layout: str, **kwargs: Any) -> gzarr.Array:
    return gzarr.create_array(store, shape=64, dtype="i8", overwrite=True, **LAYOUTS[layout], **kwargs)


# -- writers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_disjoint_slices_of_one_object_are_all_kept(store: Store, layout: str) -> None:
    array = made(store, layout)
    for turn in range(1, 4):

        def write(thread: int, turn: int = turn) -> None:
            for i in range(4 * thread, 4 * thread + 4):
                array[i] = turn * 100 + i

        together([lambda t=thread: write(t) for thread in range(N_THREADS)])
        assert array[:].tolist() == [turn * 100 + i for i in range(64)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_writers_of_all_and_of_parts_leave_one_of_their_values(store: Store, layout: str) -> None:
    """A write that covers an object whole must not let a partial one bring the old contents back."""
    array = made(store, layout)
    for turn in range(1, 6):
        array[:] = -turn
        new = turn * 1000

        def cover(new: int = new) -> None:
            array[:] = new

        def touch(i: int, new: int = new) -> None:
            array[i] = new + 1

        together([cover, *[lambda i=i: touch(i) for i in range(0, 64, 8)]])
        found = array[:]
        assert set(found.tolist()) <= {new, new + 1}


def test_chunks_that_turn_to_fill_value_beside_others_in_a_shard(store: Store) -> None:
    array = made(store, "one shard")
    for turn in range(12):
        array[:] = 1

        def write(thread: int, value: int) -> None:
            array[4 * thread : 4 * thread + 4] = value

        together([lambda t=t, v=(t + turn) % 2 * 5: write(t, v) for t in range(N_THREADS)])
        assert array[:].tolist() == [(i // 4 + turn) % 2 * 5 for i in range(64)]


# -- readers beside writers ------------------------------------------------------------------------------------------

READS: dict[str, Callable[[gzarr.Array], Any]] = {
    "all": lambda array: array[:],
    "a part": lambda array: array[3:29],
    "an element": lambda array: array[33],
    "two points": lambda array: array.vindex[[0, 20]],
    "points": lambda array: array.vindex[[63, 0, 17, 40]],
    "lists": lambda array: array.oindex[[63, 0, 17, 40]],
    "steps": lambda array: array[1::9],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_readers_never_see_a_torn_object(store: Store, layout: str) -> None:
    """An object is replaced whole, so each read of it gives one version, whichever chunks it takes."""
    array = made(store, layout)
    array[:] = 1
    # Versions differ in size and in which chunks are stored, so that an old index does not fit a new shard.
    versions = [1, 2**40 + np.arange(64) % 2, np.where(np.arange(64) % 16 < 8, 0, 3), np.arange(64) * 2**33]
    allowed = [np.broadcast_to(version, 64) for version in versions]
    finished = threading.Event()
    handles = [gzarr.open_array(store, mode="r") for _ in range(3)]

    def rewrite() -> None:
        try:
            for turn in range(16):
                array[:] = allowed[turn % 4]
        finally:
            finished.set()

    def read(handle: gzarr.Array, take: Callable[[Any], Any]) -> None:
        wanted = [np.asarray(take(gzarr.array(version))).tolist() for version in allowed]
        turns = 0
        while not finished.is_set() or turns < 3:
            assert np.asarray(take(handle)).tolist() in wanted
            turns += 1

    readers = [lambda n=n, take=take: read(handles[n % 3], take) for n, take in enumerate(READS.values())]
    together([rewrite, *readers])


class SteppingVersions(ForwardedVersions):
    """Does something after every look at a token."""

    def __init__(self, versions: Versions, step: Callable[[], None]) -> None:
        super().__init__(versions)
        self.step = step

    def token(self, key: str) -> object | None:
        found = super().token(key)
        self.step()
        return found

    def tokens(self, keys: Sequence[str]) -> list[object | None]:
        return [self.token(key) for key in keys]


class ReplacingStore(MemoryStore):
    """Replaces one object after certain calls.

    Args:
        key: the object.
        schedule: what to put in its place after so many calls that look at the object.
    """

    def __init__(self, data: dict[str, bytes], key: str, schedule: dict[int, bytes]) -> None:
        super().__init__(data)
        self.key, self.schedule, self.ncalls = key, schedule, 0

    def get_one(self, request: Request) -> Any:
        return self.get_many([request])[0]

    def get_many(self, requests: Sequence[Request]) -> list[Any]:
        found = super().get_many(requests)
        if requests and requests[0].key == self.key:
            self.step()
        return found

    @property
    def versions(self) -> Versions | None:
        found = super().versions
        return None if found is None else SteppingVersions(found, self.step)

    def step(self) -> None:
        self.ncalls += 1
        if self.ncalls in self.schedule:
            self.set(self.key, self.schedule[self.ncalls])


HALVES = np.repeat([1, 0], 32), np.repeat([0, 2], 32)
#: The same parts of a nested shard lack other chunks: a read may find nothing but missing chunks.
GAPS = np.repeat([1, 0, 1, 0], [4, 20, 4, 36]), np.repeat([0, 2, 0, 2, 0], [4, 4, 12, 4, 40])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("first", range(1, 6))
@pytest.mark.parametrize("versions", [HALVES, GAPS], ids=["halves", "gaps"])
def test_an_object_replaced_between_two_calls_is_read_again(layout: str, first: int, versions: Any) -> None:
    """Replaced by a version in which other chunks lie at the same offsets, and perhaps put back soon after."""
    old, new = versions
    documents: dict[str, bytes] = {}
    array = made(MemoryStore(documents), layout)
    array[:] = new
    key = next(key for key in documents if key not in ("zarr.json", ".zarray"))
    replacement = documents[key]
    array[:] = old
    for take in READS.values():
        wanted = [np.asarray(take(gzarr.array(version))).tolist() for version in (old, new)]
        for then in (None, first + 1, first + 2, first + 3):
            back = bytes(bytearray(documents[key]))  # the same contents, in another object
            schedule = {first: replacement} | ({} if then is None else {then: back})
            store = ReplacingStore(dict(documents), key, schedule)
            handle = gzarr.open_array(store, mode="r", zarr_format=array.zarr_format)
            assert np.asarray(take(handle)).tolist() in wanted
            store.schedule = {}
            # Facts about the new contents must not be taken for facts about the old ones, even if those come back.
            store.set(key, documents[key])
            assert np.asarray(take(handle)).tolist() == wanted[0]


# -- resizing --------------------------------------------------------------------------------------------------------

HANDLES = pytest.mark.parametrize("shared", [True, False], ids=["one object", "an object each"])


@HANDLES
@pytest.mark.parametrize(
    "keywords", [{"chunks": 4}, {"chunks": 2, "shards": 8}, {"chunks": 3, "zarr_format": 2}], ids=str
)
def test_appends_from_threads_are_all_kept(store: Store, keywords: dict[str, Any], shared: bool) -> None:
    """Each append comes whole and in one place; the last chunk, which two appends share, loses nothing."""
    array = gzarr.create_array(store, shape=0, dtype="i8", **keywords)
    handles = [array if shared else gzarr.open_array(store, mode="r+") for _ in range(8)]

    def work(thread: int) -> None:
        for turn in range(6):
            handles[thread].append(np.full(3, 1 + 10 * thread + turn))

    together([lambda t=thread: work(t) for thread in range(8)])
    found = gzarr.open_array(store, mode="r")[:]
    assert found.shape == (8 * 6 * 3,)
    rows = found.reshape(-1, 3)
    assert (rows == rows[:, :1]).all()
    assert sorted(rows[:, 0].tolist()) == sorted(1 + 10 * thread + turn for thread in range(8) for turn in range(6))


def test_attributes_and_appends_do_not_undo_each_other(store: Store) -> None:
    gzarr.create_array(store, shape=0, chunks=4, dtype="i8")

    def grow() -> None:
        mine = gzarr.open_array(store, mode="r+")
        for _ in range(20):
            mine.append([1])

    def label(thread: int) -> None:
        mine = gzarr.open_array(store, mode="r+")
        for turn in range(20):
            mine.attrs[f"{thread}-{turn}"] = turn

    together([grow, grow, lambda: label(0), lambda: label(1)])
    after = gzarr.open_array(store, mode="r")
    assert after[:].tolist() == [1] * 40
    assert len(after.attrs) == 40


def test_resizing_a_large_shard_does_not_wait_for_itself() -> None:
    """The pool's threads lock the shard while the caller holds the array."""
    array = gzarr.zeros(1 << 19, chunks=1 << 12, shards=1 << 19, dtype="i8")
    array[:] = 1
    with config.set(threading__max_workers=2):
        array.resize(1000)
        array.append(np.ones(1 << 18))
    assert array[:].sum() == 1000 + (1 << 18)


def test_copies_between_arrays_do_not_wait_for_each_other() -> None:
    """Writing reads its value while objects are locked; two copies in opposite directions must both end."""
    shape = (1 << 9, 1 << 9)
    one, two = (gzarr.create_array(shape=shape, chunks=(64, 512), dtype="i8", fill_value=n) for n in (1, 2))
    with config.set(threading__max_workers=4):

        def copy(target: gzarr.Array, source: gzarr.Array) -> None:
            for _ in range(3):
                target[...] = source

        together([lambda: copy(one, two), lambda: copy(two, one)] * 2)
    assert set(np.unique(one[...])) <= {1, 2}


# -- the pool of threads ---------------------------------------------------------------------------------------------


def large() -> gzarr.Array:
    return gzarr.array(np.arange(1 << 19), chunks=1 << 16)


def use_pool(array: gzarr.Array) -> bool:
    with config.set(threading__max_workers=2):
        array[:] = array[:] + 1
        return bool((array[:] == np.arange(1 << 19) + 1).all())


def in_child(array: gzarr.Array, answers: Any) -> None:
    answers.put((use_pool(array), cpu_threads._helpers.n_threads > 0))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers that interrupt")
def test_results_do_not_wait_for_threads_that_are_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_threads, "_helpers", Pool())
    array = gzarr.create_array(None, shape=3 << 18, chunks=1 << 18, dtype="u1", compressors=None)
    array[...] = 1
    busy, go_on = threading.Event(), threading.Event()

    def keep_busy() -> None:
        busy.set()
        go_on.wait(60)

    with config.set({"threading.max_workers": 2}):
        cpu_threads._helpers.submit(keep_busy, 1)
        assert busy.wait(60)
        try:
            result = array[...]
            assert (result == 1).all()
            assert cpu_threads._helpers._tasks.qsize() == 1
            dead = weakref.ref(result)
            del result
            assert dead() is None
        finally:
            go_on.set()


def test_nothing_is_written_into_the_result_after_an_interrupt() -> None:
    code = """
import signal, time
import numpy as np
import gzarr
from gzarr.concurrency import Pool, Turns, new_lock, run_in_threads
from gzarr.config import config
from gzarr.cpu import threads
from gzarr.storage import MemoryStore

model = np.random.default_rng(0).integers(0, 10**6, (40, 100_000), np.int32)
array = gzarr.create_array(MemoryStore(), shape=model.shape, chunks=(1, 100_000), dtype="i4")
array[...] = model
signal.signal(signal.SIGALRM, signal.default_int_handler)
interrupted = 0
with config.set({"threading.max_workers": 8}):
    for i in range(1, 101):
        threads._helpers.reset()  # interrupts hit the starting of threads, too
        out = np.zeros_like(model)
        try:
            signal.setitimer(signal.ITIMER_REAL, i * 6e-5)
            array.get_basic_selection(..., out=out)
            time.sleep(0.1)
        except KeyboardInterrupt:
            seen = out.copy()
            time.sleep(0.003)
            assert (out == seen).all(), f"written after interrupt {i}"
            interrupted += 1
assert (array[...] == model).all()
print(interrupted)
"""
    assert int(run_python(code)) > 50


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_thread_that_is_interrupted_still_shares_its_work_later(n_threads: int) -> None:
    """Interrupts at the start of every function of the backend, where the interpreter looks for signals."""
    array = large()
    n_calls = reached = 0
    files = (cpu_threads.__file__, concurrency.__file__)

    def interrupt(frame: Any, event: str, _: Any) -> None:
        nonlocal n_calls
        if event == "call" and frame.f_code.co_filename in files:
            n_calls += 1
            if n_calls == reached:
                raise KeyboardInterrupt

    with config.set({"threading.max_workers": n_threads}):
        while n_calls == reached:
            n_calls, reached = 0, reached + 1
            try:
                sys.setprofile(interrupt)
                _ = array[...]
            except KeyboardInterrupt:
                pass
            finally:
                sys.setprofile(None)
            assert not cpu_threads._in_task.active
    assert reached > 3


def test_chunks_are_read_and_written_while_the_interpreter_exits() -> None:
    code = """
import atexit, gzarr
array = gzarr.zeros(shape=(8, 400_000), chunks=(1, 400_000), dtype="u1", store={})
gzarr.config.set({"threading.max_workers": 2})
def late():
    array[...] = 3
    print(int(array[...].sum()))
atexit.register(late)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert (run.stdout.strip(), run.stderr) == (str(3 * 8 * 400_000), "")


def test_a_forked_process_starts_its_own_threads() -> None:
    """The child of a fork has the parent's helpers without their threads: work given to them would never be done."""
    assert use_pool(large())
    assert cpu_threads._helpers.n_threads > 0
    array = large()
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    children = [context.Process(target=in_child, args=(array, answers)) for _ in range(2)]
    for child in children:
        child.start()
    try:
        assert [answers.get(timeout=120) for _ in children] == [(True, True)] * 2
    finally:
        for child in children:
            end(child)
    assert use_pool(large())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_process_forked_while_locks_are_held_can_write() -> None:
    array = gzarr.array(np.arange(8), chunks=8)
    names = [array.store.lock_name("c/0"), array.store.lock_name("zarr.json")]
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with locks.key_locks(names), locks.node_lock(names[1]):
            held.set()
            release.wait(timeout=120)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(timeout=30)
    child = context.Process(target=write_in_child, args=(array, answers))
    child.start()
    try:
        assert answers.get(timeout=120) == [9, 1, 2, 3, 4, 5, 6, 7, 8]
    finally:
        release.set()
        holder.join()
        end(child)


def end(child: Any) -> None:
    child.join(timeout=5)
    child.terminate()
    child.join()


def write_in_child(array: gzarr.Array, answers: Any) -> None:
    array[0] = 9
    array.append([8])
    answers.put(array[:].tolist())


def test_no_more_threads_have_turns_than_there_are() -> None:
    turns, there, most, lock = Turns(2, 60), 0, 0, threading.Lock()

    def decode(_: int) -> None:
        nonlocal there, most
        with lock:
            there += 1
            most = max(most, there)
        time.sleep(0.002)
        turns.call(int)  # a turn within a turn does not wait for itself
        with lock:
            there -= 1

    run_in_threads(lambda i: turns.call(lambda: decode(i)), range(24), 8, Pool())
    assert 1 <= most <= 2


def test_a_turn_that_does_not_come_is_not_waited_for_again() -> None:
    """An interrupt has lost it."""
    turns = Turns(1, 0.05)
    turns._free.get()
    assert (turns.call(lambda: 1), len(turns._free)) == (1, 1)
    with pytest.raises(ValueError, match="wrong"):
        turns.call(lambda: int("wrong"))
    turns._free.get()
    assert turns.reset in concurrency._hooks
    turns.reset()  # in a forked child
    assert len(turns._free) == 1


@pytest.mark.parametrize("n", [0, 1, 2, 7, 64, 65])
@pytest.mark.parametrize("n_threads", [0, 1, 2, 3, 16, 100])
def test_spread_takes_every_number_once(n: int, n_threads: int) -> None:
    assert sorted(cpu_threads.spread(n, n_threads)) == list(range(n))


def test_threads_that_take_turns_stay_apart() -> None:
    assert list(cpu_threads.spread(8, 1)) == list(range(8))
    assert list(cpu_threads.spread(8, 2)) == [0, 4, 1, 5, 2, 6, 3, 7]
    assert list(cpu_threads.spread(7, 3)) == [0, 3, 6, 1, 4, 2, 5]
