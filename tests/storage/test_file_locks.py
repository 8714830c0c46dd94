"""Locks of files: processes that change the same objects lose nothing, wait for nobody who is gone, leave nothing."""

import errno
import gc
import io
import os
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import gzarr
from gzarr.errors import StoreError
from gzarr.storage import LocalStore, file_holding, file_locks, leftover_files, local_files, lock_kinds, rules
from gzarr.storage.base import Buffer
from gzarr.storage.changing import change_object
from gzarr.storage.file_locks import temporary_path
from gzarr.storage.locks import while_locked
from tests.support.interrupts import interrupted
from tests.support.processes import ROOT

fcntl = pytest.importorskip("fcntl")

#: What the scripts of the tests begin with: functions that fork, and one that tells what is left.
PRELUDE = """
import os, signal, sys, threading, time
import numpy as np
import gzarr
from gzarr.storage import LocalStore, file_holding, file_locks
from tests.support.processes import forked, wait

root = sys.argv[1]

def leftover_files():
    return [os.path.join(above, name) for above, *both in os.walk(root) for name in sum(both, []) if "_tmp_" in name]
"""


def run(script: str, root: Path, *args: str) -> None:
    """Run a script in another process, which may fork, be stuck, or be killed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore::DeprecationWarning"}
    command = [sys.executable, "-c", PRELUDE + script, str(root), *args]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def files_under(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# -- races -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("native", ["1", ""])
def test_processes_that_change_parts_of_one_object_lose_nothing(native: str, tmp_path: Path) -> None:
    script = """
gzarr.config.set({"cpu.native": bool(sys.argv[2]), "threading.max_workers": 1})
cells, rounds = 4, 20
for kind in ("chunk", "shard", "fsspec"):
    path = f"{root}/{kind}"
    arguments = dict(shape=(4 * cells, 2), dtype="i4", chunks=(cells if kind == "shard" else 4 * cells, 1))
    if kind == "shard":
        arguments["shards"] = (4 * cells, 1)
    store = path
    if kind == "fsspec":
        store = gzarr.storage.FSStore(path)
    z = gzarr.create_array(store, fill_value=0, **arguments)
    def change(k):
        for i in range(rounds):
            z[k * cells : (k + 1) * cells] = 100 * k + i + 1
            assert (z[k * cells : (k + 1) * cells] == 100 * k + i + 1).all()
    wait(forked(*(lambda k=k: change(k) for k in range(4))))
    assert z[:, 0].tolist() == z[:, 1].tolist() == [100 * k + rounds for k in range(4) for _ in range(cells)], kind
assert not leftover_files(), leftover_files()
"""
    run(script, tmp_path, native)


@pytest.mark.parametrize("native", ["1", ""])
def test_a_whole_chunk_and_a_deleted_one_are_not_undone_by_a_partial_write(native: str, tmp_path: Path) -> None:
    script = """
gzarr.config.set({"cpu.native": bool(sys.argv[2]), "threading.max_workers": 1})
z = gzarr.create_array(root, shape=12, dtype="i4", chunks=4, fill_value=0)
def whole():
    for i in range(40):
        z[:8] = i % 3  # chunks of zeros are deleted
        assert (z[1:4] == i % 3).all() and (z[5:8] == i % 3).all(), i
def part(value):
    for i in range(100):
        z[::4] = value  # of two chunks
wait(forked(whole, lambda: part(7), lambda: part(0)))
assert not leftover_files(), leftover_files()
"""
    run(script, tmp_path, native)


def test_a_file_is_created_once(tmp_path: Path) -> None:
    script = """
store = LocalStore(root)
def create(k):
    for i in range(40):
        if store.set_if_missing(f"a/{i}/new", b"%d" % k):
            store.set(f"won/{i}/{k}", b"")
wait(forked(*(lambda k=k: create(k) for k in range(4))))
for i in range(40):
    (winner,) = store.list_dir(f"won/{i}")[0]
    assert store[f"a/{i}/new"] == winner.encode()
assert not leftover_files(), leftover_files()
"""
    run(script, tmp_path)


@pytest.mark.parametrize("name", [".zattrs", ".zarray", ".zgroup", ".zmetadata", "zarr.json"])
@pytest.mark.parametrize("remove", [lambda s: s.delete_prefix("a"), lambda s: s.move_prefix("a", "b")])
def test_a_document_that_is_changed_does_not_come_back_when_its_node_is_replaced(
    name: str, remove: Callable[[LocalStore], None], tmp_path: Path
) -> None:
    store = LocalStore(tmp_path)
    store[f"a/{name}"] = b"old"

    def replace() -> None:
        remove(store)
        store[f"a/{name}"] = b"new"

    thread = threading.Thread(target=replace)

    def change(stored: Buffer | None) -> bytes:
        thread.start()
        thread.join(0.1)
        return b"old, changed"

    change_object(store, f"a/{name}", change)
    thread.join(60)
    assert (tmp_path / "a" / name).read_bytes() == b"new"
    assert not list(tmp_path.rglob(".__gzarr_tmp_*"))


def test_directories_that_others_delete_are_made_again(tmp_path: Path) -> None:
    script = """
store = LocalStore(root)
def write(k):
    for i in range(60):
        key = f"a/b/{k}"
        with store.locked([key, "a/b/all"]):
            store.set(key, b"x")
            store.set("a/b/all", b"x")
        store.delete_many([key])
def delete():
    for i in range(60):
        store.delete_prefix("a")
wait(forked(lambda: write(0), lambda: write(1), delete, delete))
store.clear()
assert os.listdir(root) == [], os.listdir(root)
"""
    run(script, tmp_path)


# -- processes that end ------------------------------------------------------------------------------------------------


def test_a_killed_writer_holds_nobody_up_and_its_file_is_removed(tmp_path: Path) -> None:
    script = """
store = LocalStore(root)
store["a/k"] = b"old"
def die():
    with store.locked(["a/k"]):
        os.write(next(iter(file_locks._held.values())).fileno(), b"half of the new")
        os.kill(os.getpid(), signal.SIGKILL)
child, = forked(die)
assert os.waitpid(child, 0)[1] == signal.SIGKILL
assert len(leftover_files()) == 1 and store["a/k"] == b"old"
store["a/k"] = b"new"
assert store["a/k"] == b"new" and not leftover_files()
"""
    run(script, tmp_path)


def test_a_child_that_is_forked_under_a_lock_holds_nothing(tmp_path: Path) -> None:
    script = """
store = LocalStore(root)
held, written = threading.Event(), threading.Event()
def hold():
    with store.locked(["a/k", "a/l"]):
        held.set()
        written.wait(60)
thread = threading.Thread(target=hold)
thread.start()
held.wait(60)
with store.document_locked("d"):
    def outlive():
        assert not file_locks._held
        for descriptor in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
            assert "_tmp_" not in os.path.realpath(f"/proc/self/fd/{descriptor}")
        store["d"] = b"child"  # waits for the parent
        store["a/k"] = b"child"
    children = forked(outlive)
    time.sleep(0.1)
    assert "d" not in store
    store["d"] = b"parent"
written.set()
thread.join()
wait(children)
assert store["d"] == store["a/k"] == b"child"
assert not leftover_files(), leftover_files()
"""
    run(script, tmp_path)


def test_threads_do_not_run_out_of_descriptors(tmp_path: Path) -> None:
    script = """
import resource
from concurrent.futures import ThreadPoolExecutor
z = gzarr.create_array(root, shape=800, dtype="i4", chunks=4, fill_value=0)
resource.setrlimit(resource.RLIMIT_NOFILE, (160, 160))
def write(k):
    for i in range(3):
        z[k::8] = 10 * k + i  # parts of 200 chunks
with gzarr.config.set({"cpu.native": False}), ThreadPoolExecutor(8) as pool:
    list(pool.map(write, range(8)))
assert z[...].tolist() == [10 * k + 2 for _ in range(100) for k in range(8)]
assert not leftover_files() and not file_holding._claims and not file_locks._held
"""
    run(script, tmp_path)


# -- one thread --------------------------------------------------------------------------------------------------------


def is_free(store: LocalStore, key: str) -> bool:
    """Whether another descriptor can lock a key."""
    path = temporary_path(f"{store.root}/{key}")
    if not Path(path).exists():
        return True
    with Path(path).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_a_thread_stores_what_it_has_locked_and_does_not_lock_it_again(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "x")
    (tmp_path / "x").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "x")
    linked = LocalStore(tmp_path / "link")
    for other in (store, linked):
        with store.locked(["a", "b"]):
            with pytest.raises(StoreError, match=r"/a' is in use by this very thread"), other.locked(["a"]):
                pass
            other["a"] = b"1"
            other["a"] = b"22"
            other["b"] = b"333"
            other.delete_many(["b"])
            assert other.set_if_missing("b", b"4")
            other["b"] = b"5"
            assert not other.set_if_missing("b", b"4")
        assert files_under(tmp_path) == ["x/a", "x/b"]
        assert (store["a"], store["b"]) == (b"22", b"5")
    with store.locked(["a"]), pytest.raises(StoreError, match="in use"), store.locked(["a", "b"], ()):
        pass
    assert not file_locks._held


def test_locks_that_other_threads_take_while_they_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run where the garbage collector does: until Python 3.11, between two items of a list, too."""
    numbers, thresholds = count(), gc.get_threshold()
    with LocalStore(tmp_path).locked(["a"]):
        held = {(-n, "a"): lock for n, lock in enumerate(list(file_locks._held.values()) * 2000)}
    monkeypatch.setattr(file_locks, "_held", held)
    gc.callbacks.append(lambda *_: held.update({(next(numbers), "b"): held[0, "a"]}))
    gc.set_threshold(1)
    try:
        assert not file_locks.holds_any()
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.pop()


def test_a_lock_lasts_until_the_file_is_stored(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    blocks: list[AbstractContextManager[Any]] = [store.locked(["a/k"]), store.locked(["a/k", "a/l"], ["a/l"])]
    for block in blocks:
        with block, store.document_locked("a/k"):
            assert not is_free(store, "a/k")
            store["a/k"] = b""
            assert is_free(store, "a/k")
        assert files_under(tmp_path) == ["a/k"]
    with store.locked(["a/k"], ()):
        assert is_free(store, "a/k"), "nothing is read before it is stored"


def test_a_lock_that_stores_nothing_leaves_nothing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with store.node_locked("a/b/zarr.json"), store.document_locked("a/b/zarr.json"), store.document_locked(""):
        assert not is_free(store, "a/b/zarr.json.node")
        assert not is_free(store, "a/b/zarr.json")
        assert not is_free(store, "")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ZeroDivisionError), store.locked(["a/b/c", "a/d"]):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_value_not_stored_under_a_lock_leaves_no_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    write = os.write

    def fill_up(fd: int, data: Any) -> int:
        write(fd, bytes(data)[:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    with store.locked(["k"]):
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", fill_up)
            with pytest.raises(StoreError, match="No space left"):
                store["k"] = b"long value"
        store["k"] = b"new"
    assert store["k"] == b"new"
    assert files_under(tmp_path) == ["k"]


def test_locks_need_no_directory_until_something_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    store["k"] = b"old"

    with monkeypatch.context() as patch:
        patch.setattr(io, "FileIO", Mock(side_effect=PermissionError(errno.EACCES, "Permission denied")))
        with store.node_locked("k"), store.document_locked("k"):
            pass
        with pytest.raises(StoreError, match=r"cannot lock '.*k': Permission denied"), store.locked(["k"]):
            pass
        with pytest.raises(StoreError, match=r"cannot write '.*k': Permission denied"):
            store["k"] = b"new"
    view = LocalStore(tmp_path / "none", read_only=True)
    with view.node_locked("k"), view.document_locked("k"):
        assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("length", [1, 20, 26, 100, 101, 200, 255])
@pytest.mark.parametrize("letter", ["a", "é"])
def test_names_of_any_length_are_stored(length: int, letter: str, tmp_path: Path) -> None:
    name = letter * max(length // len(letter.encode()), 1)
    store = LocalStore(tmp_path)
    with store.locked([f"{name}/{name}"]):
        store[f"{name}/{name}"] = b"x"
    store.delete_prefix(name)
    assert list(tmp_path.iterdir()) == []


def test_a_name_with_two_links_is_never_written_to(tmp_path: Path) -> None:
    """A process was killed as it had just linked a new object to its place."""
    store = LocalStore(tmp_path)
    store["k"] = b"stored"
    os.link(tmp_path / "k", temporary_path(str(tmp_path / "k")))
    with (tmp_path / "k").open("rb") as reader:
        store["k"] = b"new"
        assert reader.read() == b"stored"
    assert files_under(tmp_path) == ["k"]


def test_a_file_is_created_where_there_are_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", Mock(side_effect=PermissionError(errno.EPERM, "Operation not permitted")))
    store = LocalStore(tmp_path)
    assert store.set_if_missing("a/k", b"one")
    assert not store.set_if_missing("a/k", b"two")
    with pytest.raises(StoreError, match="directory"):
        store.set_if_missing("a", b"three")
    assert (store["a/k"], files_under(tmp_path)) == (b"one", ["a/k"])


# -- systems and users -------------------------------------------------------------------------------------------------


def test_where_there_are_no_locks_one_warning_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_locks, "_lockless", set())
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOLCK, "No locks available")))
    store = LocalStore(tmp_path)
    with pytest.warns(RuntimeWarning, match=r"no file locks \(No locks available\).*ProcessSynchronizer"):
        store["a/k"] = b"one"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        use_without_locks(store, tmp_path)


def test_a_system_without_flock_replaces_files_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (file_locks, leftover_files, lock_kinds):
        monkeypatch.setattr(module, "fcntl", None)
    monkeypatch.setattr(file_holding, "resource", None)
    use_without_locks(LocalStore(tmp_path), tmp_path)


def use_without_locks(store: LocalStore, root: Path) -> None:
    with store.locked(["a/k", "b/l"]), store.node_locked("a/m"), store.document_locked("a/m"):
        store["a/k"] = b"two"
        assert store.set_if_missing("b/l", b"three")
        assert not store.set_if_missing("b/l", b"four")
    assert (store["a/k"], store["b/l"]) == (b"two", b"three")
    store.delete_many(["a/k"])
    assert files_under(root) == ["b/l"]
    store.clear()
    assert list(root.iterdir()) == []


NOBODY, OTHER = 65534, 65533
as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be other users")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that every user can reach and write to."""
    with tempfile.TemporaryDirectory(prefix="gzarr-test-") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def plant_file(lock: Path) -> None:
    lock.write_bytes(b"planted " * 100)


def plant_theirs(lock: Path) -> None:
    plant_file(lock)
    os.chown(lock, NOBODY, NOBODY)


def plant_hidden(lock: Path) -> None:
    plant_file(lock)
    lock.chmod(0o600)


def plant_socket(lock: Path) -> None:
    with socket.socket(socket.AF_UNIX) as planted:
        planted.bind(str(lock))


#: Files that may be in the place of a lock.
PLANTED: dict[str, Callable[[Path], Any]] = {
    "hidden": plant_hidden,
    "of another user": plant_theirs,
    "with two names": lambda lock: os.link(lock.parent / "precious", lock),
}


@as_root
@pytest.mark.parametrize("found", PLANTED)
@pytest.mark.parametrize("native", [True, False])
def test_a_file_in_the_place_of_a_lock_is_removed_and_never_used(native: bool, found: str, shared: Path) -> None:
    (shared / "precious").write_bytes(b"precious")
    z = gzarr.create_array(shared, shape=4, dtype="i4", chunks=2, fill_value=0, compressors=None)
    lock = Path(temporary_path(str(shared / "c" / "0")))
    lock.parent.mkdir()
    os.link(shared / "precious", lock.parent / "precious")
    (shared / "precious").unlink()
    PLANTED[found](lock)
    with gzarr.config.set({"cpu.native": native}):
        z[:] = [1, 2, 3, 4]
    chunk = shared / "c" / "0"
    info, usual = chunk.lstat(), (shared / "c" / "1").lstat()
    assert (info.st_mode, info.st_uid, info.st_nlink) == (usual.st_mode, 0, 1)
    assert chunk.read_bytes() == np.array([1, 2], "<i4").tobytes()
    assert (lock.parent / "precious").read_bytes() == b"precious"
    assert files_under(lock.parent) == ["0", "1", "precious"]


def test_what_this_user_left_is_removed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    plant_file(Path(temporary_path(str(tmp_path / "k"))))
    store["k"] = b"new"
    assert (store["k"], files_under(tmp_path)) == (b"new", ["k"])


@pytest.mark.parametrize(
    "plant",
    [Path.mkdir, os.mkfifo, plant_socket, lambda lock: lock.symlink_to("there"), lambda lock: lock.symlink_to("none")],
    ids=["directory", "pipe", "socket", "link", "link to nothing"],
)
def test_what_is_no_file_in_the_place_of_a_lock_is_named(
    plant: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    store = LocalStore(tmp_path)
    store["there"] = b"precious"
    plant(Path(temporary_path("k")))
    uses: list[Callable[[], Any]] = [
        lambda: store.set("k", b""),
        lambda: store.document_locked("k").__enter__(),
        lambda: store.locked(["k"]).__enter__(),
        lambda: store.set_if_missing("k", b""),
    ]
    for use in uses:
        with pytest.raises(StoreError, match=r"tmp_k', its lock, is no file; delete it"):
            use()
        assert not file_locks._held
    assert dict(store) == {"there": b"precious"}


AS_USERS = """
users = [65534, 65533, 0]
def as_user(user, task, mask=0o022):
    def change():
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        os.umask(mask)
        task(user)
    return change
store = LocalStore(root)
"""


@as_root
def test_a_lock_that_this_user_cannot_remove_is_named(shared: Path) -> None:
    shared.chmod(0o1777)
    plant_theirs(Path(temporary_path(str(shared / "k"))))
    plant_hidden(Path(temporary_path(str(shared / "l"))))
    script = (
        AS_USERS
        + """
def write(user):
    for key, reason in (("k", "k', its lock, is left by user 65534; delete it"), ("l", "is another user's")):
        try:
            store[key] = b"x"
        except gzarr.errors.StoreError as error:
            assert reason in str(error) and "delete it" in str(error), error
        else:
            raise AssertionError(key)
wait(forked(as_user(65533, write)))
assert not file_locks._held
"""
    )
    run(script, shared)


@as_root
@pytest.mark.parametrize("native", ["1", ""])
def test_users_that_share_a_directory_lose_nothing_beside_one_that_is_killed(native: str, shared: Path) -> None:
    script = (
        AS_USERS
        + """
gzarr.config.set({"cpu.native": bool(sys.argv[2]), "threading.max_workers": 1})
z = gzarr.create_array(root, shape=(16, 2), dtype="i4", chunks=(16, 1), fill_value=0)
z[:] = 1
os.chmod(root + "/c", 0o777), os.chmod(root + "/c/0", 0o777)
def change(user):
    k = users.index(user)
    for i in range(20):
        z[k * 4 : k * 4 + 4] = 100 * k + i + 1
        assert (z[k * 4 : k * 4 + 4] == 100 * k + i + 1).all()
def be_killed(user):
    while True:
        with store.locked(["c/0/0"]):
            os.write(next(iter(file_locks._held.values())).fileno(), b"half")
            os.kill(os.getpid(), signal.SIGKILL)
def kill(user):
    for i in range(20):
        child, = forked(lambda: be_killed(user))
        os.waitpid(child, 0)
        time.sleep(0.005)
wait(forked(*(as_user(user, change, mask) for user, mask in zip(users, (0, 0o022, 0o022))), as_user(65532, kill)))
assert z[:12, 0].tolist() == z[:12, 1].tolist() == [100 * k + 20 for k in range(3) for _ in range(4)]
store["c/0/0"] = store["c/0/0"]
assert not leftover_files(), leftover_files()
"""
    )
    run(script, shared, native)


# -- interrupts --------------------------------------------------------------------------------------------------------


def change_under_lock(store: LocalStore) -> None:
    while_locked(store.locked(["a/k", "a/l"], ["a/l"]), lambda: store.set("a/k", b"new"))


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.set("a/k", b"new"),
        lambda store: store.set_if_missing("a/k", b"new"),
        lambda store: store.delete_many(["a/old"]),
        change_under_lock,
    ],
    ids=["set", "set_if_missing", "delete", "locked"],
)
def test_an_interrupt_anywhere_leaves_no_lock_and_no_file(change: Callable[[LocalStore], Any], tmp_path: Path) -> None:
    for at in count():
        store = LocalStore(tmp_path / str(at))
        store["a/old"] = b"old"
        done = interrupted(
            lambda store=store: change(store), at, {file_locks.__file__, file_holding.__file__, local_files.__file__}
        )  # type: ignore[misc]
        assert not [name for name in files_under(tmp_path) if "_tmp_" in name], at
        assert not [lock for lock in file_locks._held.values() if lock.is_open], at
        if done:
            break
    assert at > 10


def test_an_interrupted_wait_leaves_the_lock_of_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    flock = fcntl.flock

    def interrupt(fd: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX:
            raise KeyboardInterrupt
        flock(fd, operation)

    lock = Path(temporary_path(str(tmp_path / "k")))
    with lock.open("wb") as holder:
        flock(holder, fcntl.LOCK_EX)
        with monkeypatch.context() as patch:
            patch.setattr(fcntl, "flock", interrupt)
            with pytest.raises(KeyboardInterrupt):
                store["k"] = b"x"
        assert lock.exists()
    assert not file_locks._held


# -- what killed processes leave ---------------------------------------------------------------------------------------


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def litter(folder: Path) -> None:
    """What earlier versions and this one leave in a directory of a store."""
    (folder / ".__gzarr_tmp_0123456789abcdef").write_bytes(b"random")
    (folder / ".__gzarr_tmp_0123456789abcdef.1f").write_bytes(b"of the loop")
    (folder / ".__gzarr_tmp_k").write_bytes(b"fixed")
    tree = folder / ".__gzarr_tmp_89abcdef01234567" / "c"
    tree.mkdir(parents=True)
    (tree / "0").write_bytes(b"half-deleted")


def test_clearing_removes_what_killed_processes_left(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store["a/k"] = b""
    litter(tmp_path)
    litter(tmp_path / "a")
    with store.document_locked(""):
        store.clear()
        assert names_in(tmp_path) == [".__gzarr_tmp_"], "the lock that this thread holds"
    assert names_in(tmp_path) == []


def test_a_directory_that_holds_only_leftover_files_goes_with_its_last_object(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store["a/b/k"] = b""
    litter(tmp_path / "a")
    store.delete_many(["a/b/k"])
    assert names_in(tmp_path) == []
    store["a/k"] = store["a/l"] = b""
    litter(tmp_path / "a")
    store.delete_many(["a/k"])
    assert len(names_in(tmp_path / "a")) == 4, "nobody looks for them beside objects"


@pytest.mark.parametrize("locks", ["flock", "fcntl"])
def test_leftover_files_are_removed_and_locks_are_not(locks: str, tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store["a/k"] = b""
    litter(tmp_path / "a")
    with gzarr.config.set({"locks": locks}), store.locked(["a/used"]):
        other = file_locks.FileLock(str(tmp_path / "a/used"))
        other._open_found()
        other.end()  # as one that was interrupted while it waited
        names = [name for name in names_in(tmp_path / "a") if "_tmp_" in name]
        kept = [name for name in names if not leftover_files.remove_file_or_tree(str(tmp_path / "a" / name))]
        assert kept == [".__gzarr_tmp_used"]
        assert locks == "fcntl" or not is_free(store, "a/used")  # whose thread has the default setting
    assert files_under(tmp_path) == ["a/k"]
    assert leftover_files.remove_file_or_tree(str(tmp_path / "none"))


def test_a_file_that_windows_holds_is_replaced_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts, replace = count(1), os.replace

    def held(source: str, target: str) -> None:
        if next(attempts) < 3:
            raise PermissionError(errno.EACCES, "The process cannot access the file", target)
        replace(source, target)

    monkeypatch.setattr(os, "replace", held)
    monkeypatch.setattr(rules, "_PAUSES_S", (0.001, 0.001))
    with gzarr.config.set({"cpu.native": False}):
        store = LocalStore(tmp_path)
        store.set("a", b"1")
        assert bytes(store.get("a") or b"") == b"1"
        monkeypatch.setattr(rules, "_PAUSES_S", ())
        attempts = count(1)
        with pytest.raises(StoreError, match="cannot access the file"):
            store.set("a", b"2")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
