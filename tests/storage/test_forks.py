"""Forked children: databases that other threads use, clients that do not survive, and locks that are held."""

import os
import re
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
ended, until = [], time.monotonic() + 60
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
        ("LMDBStore", "LMDBStore('{path}', map_size=1 << 28)"),
    ],
)
def test_a_child_works_that_was_forked_while_threads_used_a_database(tmp_path: Path, imports: str, store: str) -> None:
    code = FORK_BESIDE_THREADS.format(imports=imports, store=store.format(path=tmp_path / "x"), nchildren=12)
    assert run_python(code).split() == ["0"] * 12


def test_a_fork_waits_for_the_calls_of_other_threads() -> None:
    entered, leave, order = threading.Event(), threading.Event(), []

    def call() -> None:
        with forks.inside_library():
            entered.set()
            leave.wait(60)
            with forks.inside_library():  # while the fork waits: a call within a call
                order.append("inside")

    thread = threading.Thread(target=call)
    thread.start()
    entered.wait(60)
    threading.Timer(0.1, leave.set).start()
    late = threading.Thread(target=lambda: (forks.inside_library(), order.append("late")))
    with forks.inside_library():  # a call of the forking thread itself
        forks._before()
        late.start()
        order.append("forked")
        forks._after()
    thread.join(60)
    late.join(60)
    assert order == ["inside", "forked", "late"]


def test_a_call_that_never_ends_delays_a_fork_and_does_not_prevent_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "_WAIT_S", 0.05)
    entered, leave = threading.Event(), threading.Event()

    def call() -> None:
        with forks.inside_library():
            entered.set()
            leave.wait(60)

    thread = threading.Thread(target=call)
    thread.start()
    entered.wait(60)
    forks._before()
    forks._after()
    leave.set()
    thread.join(60)
    with forks.inside_library():
        pass


def test_a_client_is_refused_in_a_child_only_if_the_parent_used_it(monkeypatch: pytest.MonkeyPatch) -> None:
    used, unused = forks.ForkGuard("the client"), forks.ForkGuard("another")
    used.check("s3://x")
    used.check("s3://x")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    unused.check("s3://x")
    for _ in range(2):
        with pytest.raises(StoreError, match=r"s3://x: .*forked.*the client.*'spawn' or 'forkserver'"):
            used.check("s3://x")


#: Uses a store, forks, and prints what two children get, or their errors. Threads of libraries may crash an exit.
USE_AND_FORK = """
import os, signal, warnings
warnings.simplefilter("ignore")
import gzarr
from gzarr.storage import *
{setup}
store["a"]
for n in range(2):
    child = os.fork()
    if not child:
        signal.alarm(20)
        try:
            print(bytes(store["a"]), flush=True)
        except Exception as error:
            print(str(error).replace("\\n", " "), flush=True)
        finally:
            os._exit(0)
    if os.waitpid(child, 0)[1]:
        print("ended by a signal")
print(bytes(store["a"]), flush=True)
os._exit(0)
"""
REFUSED = {
    "obstore": (
        "obstore",
        "import obstore.store as o; store = ObjectStore(o.LocalStore({path!r})); store['a'] = b'1'",
        "its parent had used obstore.*'spawn' or 'forkserver'",
    ),
    "obstore through zarr": (
        "zarr",
        (
            "import obstore.store as o, zarr.storage as z\n"
            "store = ZarrStore(z.ObjectStore(o.LocalStore({path!r}))); store['a'] = b'1'"
        ),
        "its parent had used obstore.*'spawn' or 'forkserver'",
    ),
    "icechunk": (
        "icechunk",
        (
            "import icechunk; r = icechunk.Repository.create(icechunk.in_memory_storage())\n"
            "s = r.writable_session('main').store; gzarr.group(s, attributes={{'a': 1}}); s = ZarrStore(s)\n"
            "store = type('', (), {{'__getitem__': lambda _, key: s['zarr.json'] and b'1'}})()"
        ),
        "its parent had used icechunk.*'spawn' or 'forkserver'",
    ),
}
READ = {
    "obstore memory": ("obstore", "import obstore.store as o; store = ObjectStore(o.MemoryStore()); store['a'] = b'1'"),
    "fsspec": (
        "fsspec",
        (
            "z = ZipStore({path!r} + '/x.zip', 'w'); z['a'] = b'1'; z.close()\n"
            "store = FsspecStore.from_url('zip::file://' + {path!r} + '/x.zip', read_only=True)"
        ),
    ),
    "zarr": ("zarr", "import zarr.storage as z; store = ZarrStore(z.LocalStore({path!r})); store['a'] = b'1'"),
}


@pytest.mark.parametrize("kind", [*REFUSED, *READ])
def test_a_child_reads_or_is_told_why_it_cannot(kind: str, tmp_path: Path) -> None:
    package, setup, *refused = REFUSED.get(kind) or READ[kind]
    pytest.importorskip(package)
    first, second, parent = run_python(USE_AND_FORK.format(setup=setup.format(path=str(tmp_path)))).splitlines()
    for child in (first, second):
        assert re.search(refused[0], child) if refused else child == "b'1'"
    assert parent == "b'1'"
