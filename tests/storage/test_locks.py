"""Read-modify-write under locks: nothing is lost, nobody waits for ever."""

import _thread
import operator
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.concurrency import Pool, is_held_here, new_lock
from gzarr.errors import ReadOnlyError, StoreError
from gzarr.storage import LocalStore, MemoryStore, SQLiteStore, Store, WrapperStore, changing, locks, read_only
from gzarr.storage.capabilities import Buffer, Change, Conditional
from gzarr.storage.changing import change_object
from gzarr.storage.file_holding import Holding
from gzarr.storage.locks import entering, key_locks
from gzarr.storage.wrappers import ForwardedConditional


def test_crossing_sets_of_names_do_not_block_each_other() -> None:
    names = [f"c/{i}" for i in range(12)]
    counts = dict.fromkeys(names, 0)
    start = threading.Barrier(8)

    def work(seed: int) -> None:
        rng = random.Random(seed)
        start.wait()
        for _ in range(200):
            chosen = rng.sample(names, rng.randint(2, 6))
            with key_locks(chosen):
                for name in chosen:
                    counts[name] += 1
                    if rng.random() < 0.02:
                        threading.Event().wait(0.0001)

    threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "deadlock"
    expected = dict.fromkeys(names, 0)
    for seed in range(8):
        rng = random.Random(seed)
        for _ in range(200):
            chosen = rng.sample(names, rng.randint(2, 6))
            for name in chosen:
                expected[name] += 1
                rng.random()
    assert counts == expected


def taken_within(name: object, timeout_s: float) -> bool:
    """Whether another thread gets the lock of the name in time."""
    got = threading.Event()

    def take() -> None:
        with key_locks([name]):
            got.set()

    threading.Thread(target=take, daemon=True).start()
    return got.wait(timeout_s)


def is_held(name: object) -> bool:
    return not taken_within(name, 0.05)


def is_free(name: object) -> bool:
    return taken_within(name, 10)


def test_locks_are_held_and_released() -> None:
    with key_locks(["a"]):
        assert is_held("a")
    assert is_free("a")
    several = key_locks(["a", "b", ("c", 1), "a"])
    assert is_free("b"), "nothing is locked before entering"
    with several:
        assert is_held("b")
        assert is_held(("c", 1))
    for name in ("a", "b", ("c", 1)):
        assert is_free(name)
    with key_locks([]):
        pass


def test_a_thread_that_locks_a_name_again_is_told_so() -> None:
    with key_locks(["a", "b"]):
        for names in (["a"], ["c", "b"]):
            with (
                pytest.raises(StoreError, match=r"'[ab]' is in use by this very thread.*another thread"),
                key_locks(names),
            ):
                pass
        assert is_held("a")
        assert is_free("c")
    assert is_free("a")


def test_a_lock_is_not_entered_again_by_its_thread() -> None:
    lock = new_lock()
    assert not is_held_here(lock)
    with entering(lock, "the file 'x'"):
        assert is_held_here(lock)
        with pytest.raises(StoreError, match=r"the file 'x' is in use by this very thread.*finalizers"):
            entering(lock, "the file 'x'")
        assert not Pool().call(lambda: is_held_here(lock))
    with entering(lock, "the file 'x'"):
        pass


def test_an_error_releases_the_locks() -> None:
    with pytest.raises(ValueError, match="inside"), key_locks(["a", "b"]):
        raise ValueError("inside")
    assert is_free("a")
    assert is_free("b")


def test_an_interrupt_while_waiting_releases_the_first_locks() -> None:
    table, taken = locks._LockTable(), held_by(acquire=partial(next, iter(())), _is_owned=bool)
    table.holders["c"] = taken
    with pytest.raises(StopIteration), table.holding(["a", "b", "c"]):
        pass
    assert table.holders == {"c": taken}
    with table.holding(["a", "b"]):
        pass


def held_by(**lock: Any) -> Any:
    """The holder of a name, by a lock with these methods."""
    holder: Any = locks._LockTable().holding(["c"])
    holder.lock = SimpleNamespace(**lock)
    return holder


@pytest.mark.parametrize("behind", [False, True], ids=["asked last", "behind one that was interrupted"])
def test_an_interrupt_as_a_lock_is_taken_releases_it(behind: bool) -> None:
    """It comes when the system has given the lock, and Python goes on."""
    table, real = locks._LockTable(), threading.RLock()
    taken: list[Callable[[], object]] = [_thread.interrupt_main, real.acquire]
    is_owned = partial(is_held_here, real)
    last = held_by(acquire=partial(any, map(operator.call, taken)), release=real.release, _is_owned=is_owned)
    if behind:
        waiting: Any = table.holding(["c"])
        waiting.after, last = {"c": last}, waiting
    table.holders["c"] = last
    with pytest.raises(KeyboardInterrupt), table.holding(["a", "c"]):
        time.sleep(1)  # where it comes if nothing was looked at before
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(real.acquire, timeout=0.05).result(), "still locked"
    assert table.holders == {"c": last}


def test_an_interrupt_as_locks_are_released_releases_them_all() -> None:
    table, real = locks._LockTable(), threading.RLock()
    let_go: list[Callable[[], object]] = [_thread.interrupt_main, real.release]
    held: Any = table.holding(["a", "b"])
    held.lock = SimpleNamespace(
        acquire=real.acquire, release=partial(any, map(operator.call, let_go)), _is_owned=partial(is_held_here, real)
    )
    with pytest.raises(KeyboardInterrupt), held:
        pass
    assert not is_held_here(real)
    assert not table.holders


@pytest.mark.parametrize("behind", [True, False], ids=["before the interrupt", "after it"])
def test_names_stay_locked_when_one_that_waits_for_them_is_interrupted(behind: bool) -> None:
    """behind: whether another one waits for the one that is interrupted, or comes after that."""
    table, order = locks._LockTable(), list[str]()
    entered, leave = threading.Event(), threading.Event()

    class Interrupted(locks._HeldNames):
        def _await(self, holder: object) -> None:
            entered.set()
            leave.wait(60)
            raise InterruptedError

    def take(held: Any, name: str) -> None:
        with held:
            order.append(name)

    with ThreadPoolExecutor(2) as pool:
        with table.holding(["a", "b"]):
            waiting = pool.submit(take, Interrupted(table, {"a", "c"}), "interrupted")
            assert entered.wait(60)
            if not behind:
                leave.set()
                waiting.exception(10)
            last = pool.submit(take, table.holding(["a"]), "last")
            time.sleep(0.05)
            leave.set()
            assert type(waiting.exception(10)) is InterruptedError
            time.sleep(0.05)
            order.append("first")
        last.result(60)
    assert order == ["first", "last"]
    assert not table.holders


def test_other_names_are_never_waited_for_and_none_is_kept() -> None:
    """However many are locked: batches of 64 objects, written by two threads, would meet in any table of fair size."""
    mine, theirs = ([(side, i) for i in range(5000)] for side in "ab")
    done = threading.Event()

    def take() -> None:
        with key_locks(theirs):
            done.set()

    with key_locks(mine):
        assert len(locks._objects.holders) >= 5000
        other = threading.Thread(target=take, daemon=True)
        other.start()
        assert done.wait(60)
    other.join(60)
    assert is_free(mine[0])
    assert not [name for name in locks._objects.holders if name in {*mine, *theirs}]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_that_is_forked_under_a_lock_lets_it_go() -> None:
    """Whatever other threads were about to do with locks as it was forked."""
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with locks._objects.guard:
            entered.set()
            leave.wait(60)

    holder = threading.Thread(target=hold)
    with key_locks(["a", "b"]):
        holder.start()
        assert entered.wait(60)
        child = os.fork()
        if child == 0:
            signal.alarm(10)  # what ends the child if it waits for ever
            # The same name again, in the child, which has new locks: what the first one leaves is not this one's.
            again = key_locks(["a"])
            again.__enter__()
        leave.set()
    if child == 0:
        os._exit(0 if is_held("a") and is_free("b") else 1)
    holder.join()
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(("kind", "lock"), [("memory", locks._HeldNames), ("local", Holding)])
def test_an_interrupt_as_a_write_begins_to_release_releases_all_the_same(
    kind: str, lock: Any, native: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = gzarr.MemoryStore() if kind == "memory" else gzarr.LocalStore(tmp_path / "a")
    array = gzarr.create_array(store, data=np.arange(16), chunks=2, shards=8)  # the loop locks a single shard itself
    leave, left = lock.__exit__, []

    def interrupted(held: Any, *exc: object) -> None:
        left.append(held)
        if len(left) == 1:
            raise KeyboardInterrupt
        leave(held, *exc)

    with monkeypatch.context() as patch, gzarr.config.set({"cpu.native": native, "threading.max_workers": 1}):
        patch.setattr(lock, "__exit__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            array.oindex[range(1, 8)] = 1  # a slice would be locked by the loop
    assert len(left) == 2
    with ThreadPoolExecutor(1) as pool:
        pool.submit(array.__setitem__, slice(1, None), 2).result(60)
    assert array[...].tolist() == [0] + [2] * 15


NODE_CHANGES: dict[str, Callable[[gzarr.Group], Any]] = {
    "attributes": lambda group: group["a"].attrs.update(x=1),
    "append": lambda group: group["a"].append([1]),
    "resize": lambda group: group["a"].resize(3),
    "create": lambda group: group.create_array("b", shape=2, chunks=2, dtype="i4", overwrite=True),
    "consolidate": gzarr.consolidate_metadata,
}


@pytest.mark.parametrize("change", NODE_CHANGES)
@pytest.mark.parametrize("kind", ["memory", "local", "synchronized"])
def test_an_interrupt_as_any_lock_of_a_node_is_released_releases_it(
    kind: str, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synchronizer = gzarr.ThreadSynchronizer() if kind == "synchronized" else None
    store = MemoryStore() if kind == "memory" else LocalStore(tmp_path / "g")
    group = gzarr.open_group(store, "w", synchronizer=synchronizer)
    group.create_array("a", data=np.arange(8), chunks=2)
    leave, number, interrupts = locks._HeldNames.__exit__, 0, 0
    go_on = True

    def interrupted(held: Any, *exc: object) -> None:
        nonlocal number
        number += 1
        if number == interrupts:
            raise KeyboardInterrupt
        leave(held, *exc)

    while go_on:
        number, interrupts, go_on = 0, interrupts + 1, False
        with monkeypatch.context() as patch:
            patch.setattr(locks._HeldNames, "__exit__", interrupted)
            try:
                NODE_CHANGES[change](group)
            except KeyboardInterrupt:
                go_on = True
        other = threading.Thread(target=NODE_CHANGES[change], args=(group,), daemon=True)
        other.start()
        other.join(60)
        assert not other.is_alive(), f"still locked after an interrupt of release {interrupts}"
    assert interrupts > 1


# -- read-modify-write -------------------------------------------------------------------------------------------------


class Busy(WrapperStore):
    """A store whose object another writer extends before each of the first changes."""

    def __init__(self, store: Store, n_others: int) -> None:
        super().__init__(store)
        self.n_others = n_others

    @property
    def conditional(self) -> Conditional | None:
        below, busy = self._store.conditional, self
        assert below is not None

        class Late(ForwardedConditional):
            def set_if(self, changes: Sequence[Change]) -> list[bool]:
                if busy.n_others:
                    busy.n_others -= 1
                    busy._store["zarr.json"] = busy._store.get("zarr.json", b"") + b"o"
                return super().set_if(changes)

        return Late(below)


def add(old: Buffer | None) -> bytes:
    return bytes(old or b"") + b"+"


def test_a_change_is_done_again_until_it_is_not_refused() -> None:
    store = Busy(SQLiteStore(":memory:"), 3)
    change_object(store, "zarr.json", add)
    assert store["zarr.json"] == b"ooo+"
    change_object(store, "zarr.json", add)
    assert store["zarr.json"] == b"ooo++"


def test_a_change_is_given_up_after_many_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changing, "MAX_ATTEMPTS", 4)
    with pytest.raises(StoreError, match=r"sqlite.*: 'zarr.json' was replaced by other writers each of the 4 times"):
        change_object(Busy(SQLiteStore(":memory:"), 9), "zarr.json", add)


def test_an_error_of_the_change_stores_nothing(tmp_path: Path) -> None:
    for store in (MemoryStore(), SQLiteStore(tmp_path / "x.sqlite"), LocalStore(tmp_path / "x")):
        store["zarr.json"] = b"old"
        with pytest.raises(ZeroDivisionError):
            change_object(store, "zarr.json", lambda _: bytes(1 // 0))
        change_object(store, "zarr.json", add)
        assert store["zarr.json"] == b"old+"


def test_a_read_only_store_is_not_changed() -> None:
    below = SQLiteStore(":memory:")
    for store in (read_only(below), read_only(MemoryStore())):
        with pytest.raises(ReadOnlyError):
            change_object(store, "zarr.json", add)
    assert "zarr.json" not in below
