"""Forked children: databases that other threads use, clients that do not survive, and locks that are held."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from gzarr.errors import StoreError
from gzarr.storage import forks
from tests.support.processes import run_python

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

#: Forks children while threads use a store; prints how each ended: "0", or "hung".
FORK_BESIDE_THREADS = """
import os, signal, sys, threading, time, warnings
warnings.simplefilter("ignore")
from gzarr.storage import {imports}
store = {store}
stop = False
def work(n):
    while not stop:
        store[f"c/{{n}}"] = bytes(3000)
        list(store.list_prefix("c"))
        store.get(f"c/{{n}}")
threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(4)]
for thread in threads:
    thread.start()
children = []
for n in range({nchildren}):
    child = os.fork()
    if not child:
        store.get("c/1")
        store[f"child/{{n}}"] = b"x"
        os._exit(store[f"child/{{n}}"] != b"x")
    children.append(child)
    time.sleep(0.01)
stop = True
for thread in threads:
    thread.join()
ended, until = [], time.monotonic() + 20
while children and time.monotonic() < until:
    found, status = os.waitpid(children[0], os.WNOHANG)
    ended += [str(status)] if found else []
    del children[: bool(found)]
    time.sleep(0.01)
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    ended.append("hung")
print(*ended)
"""


@pytest.mark.parametrize(
    ("imports", "store"),
    [
        ("SQLiteStore", "SQLiteStore('{path}')"),
        ("SQLiteStore", "SQLiteStore(':memory:')"),
        pytest.param("LMDBStore", "LMDBStore('{path}')", id="lmdb"),
    ],
)
def test_a_child_works_that_was_forked_while_threads_used_a_database(tmp_path: Path, imports: str, store: str) -> None:
    if "LMDB" in store:
        pytest.importorskip("lmdb")
    code = FORK_BESIDE_THREADS.format(imports=imports, store=store.format(path=tmp_path / "x"), nchildren=12)
    assert run_python(code).split() == ["0"] * 12


def test_a_fork_waits_for_the_calls_of_other_threads() -> None:
    entered, leave, order = threading.Event(), threading.Event(), []

    def call() -> None:
        with forks.inside_library():
            entered.set()
            leave.wait(10)
            with forks.inside_library():  # while the fork waits: a call within a call
                order.append("inside")

    thread = threading.Thread(target=call)
    thread.start()
    entered.wait(10)
    threading.Timer(0.1, leave.set).start()
    late = threading.Thread(target=lambda: (forks.inside_library(), order.append("late")))
    with forks.inside_library():  # a call of the forking thread itself
        forks._before()
        late.start()
        order.append("forked")
        forks._after()
    thread.join(10)
    late.join(10)
    assert order == ["inside", "forked", "late"]


def test_a_call_that_never_ends_delays_a_fork_and_does_not_prevent_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "_WAIT_S", 0.05)
    entered, leave = threading.Event(), threading.Event()

    def call() -> None:
        with forks.inside_library():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=call)
    thread.start()
    entered.wait(10)
    forks._before()
    forks._after()
    leave.set()
    thread.join(10)
    with forks.inside_library():
        pass


def test_a_client_is_refused_in_a_child_only_if_the_parent_used_it(monkeypatch: pytest.MonkeyPatch) -> None:
    used, unused = forks.Client("the client"), forks.Client("another")
    used.check("s3://x")
    used.check("s3://x")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    unused.check("s3://x")
    for _ in range(2):
        with pytest.raises(StoreError, match=r"s3://x: .*forked.*the client.*'spawn' or 'forkserver'"):
            used.check("s3://x")
