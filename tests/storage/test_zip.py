"""What is particular to archives: no duplicates, a valid file at the end, archives of other programs, damage."""

import gc
import io
import os
import pickle
import subprocess
import sys
import warnings
import zipfile
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from gzarr.errors import ContainsNodeError, NodeNotFoundError, ReadOnlyError, StoreError
from gzarr.storage import Request, ZipStore
from gzarr.storage import archive as archive_module
from tests.support.interrupts import interrupted
from tests.support.processes import run_in_child

DATA = bytes(range(256)) * 4


def names_in(path: Any) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return archive.namelist()


class Pipe(io.BytesIO):
    """A file object that can only be written from begin to end."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: Any) -> int:
        raise io.UnsupportedOperation("seek")

    def tell(self) -> int:
        raise io.UnsupportedOperation("tell")


# -- no duplicates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["w", "x", "a"])
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("as_object", [False, True])
def test_overwriting_and_deleting_leave_no_duplicates(
    tmp_path: Path, mode: Any, compression: int, as_object: bool
) -> None:
    target: Any = io.BytesIO() if as_object else tmp_path / "x.zip"
    with ZipStore(target, mode=mode, compression=compression) as store:
        for i in range(5):
            store["zarr.json"] = b"%d" % i
            store["c/0"] = DATA + b"%d" % i
            store["c/1"] = b"doomed"
        store.delete_many(["c/1"])
    assert sorted(names_in(target)) == ["c/0", "zarr.json"]
    with ZipStore(target, mode="a", compression=compression) as store:
        store["zarr.json"] = b"new"
        store["c/0"] = b"new"
        store["c/2"] = b"more"
    assert sorted(names_in(target)) == ["c/0", "c/2", "zarr.json"]
    with ZipStore(target, mode="r+") as store:
        store.delete_many(["c/2"])
    with ZipStore(target) as store:
        assert dict(store) == {"zarr.json": b"new", "c/0": b"new"}


# -- archives of others --------------------------------------------------------------------------------------------


def test_directories_and_duplicates_of_other_programs_are_tolerated(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of the duplicates that we want
        archive.mkdir("a")
        archive.writestr("a/zarr.json", b"old")
        archive.writestr("a/c/0", DATA)
        archive.writestr("a/zarr.json", b"new")
    with ZipStore(path) as store:
        assert dict(store) == {"a/zarr.json": b"new", "a/c/0": DATA}
        assert store.list_dir("a") == (["zarr.json"], ["c"])
    before = path.read_bytes()
    ZipStore(path, mode="a").close()
    assert path.read_bytes() == before, "an archive that nobody changed is not touched"
    with ZipStore(path, mode="a") as store:
        store["b"] = b""
    assert sorted(names_in(path)) == ["a/", "a/c/0", "a/zarr.json", "b"]


# -- reading in place ----------------------------------------------------------------------------------------------


def test_a_range_of_a_stored_entry_reads_only_that() -> None:
    file = io.BytesIO()
    with ZipStore(file, mode="w") as store:
        store["big"] = bytes(1_000_000)
    nread = 0

    class Watched(io.BytesIO):
        def read(self, nbytes: int | None = -1, /) -> bytes:
            nonlocal nread
            data = super().read(nbytes)
            nread += len(data)
            return data

    watched = Watched(file.getvalue())
    store = ZipStore(watched)
    nread = 0
    assert store.get_one(Request("big", 500_000, 100)) == bytes(100)
    assert store.get_one(Request("big", -7)) == bytes(7)
    assert nread < 300


# -- closing -------------------------------------------------------------------------------------------------------


def test_a_forgotten_store_is_finished_by_the_garbage_collector(tmp_path: Path) -> None:
    store = ZipStore(tmp_path / "x.zip", mode="w")
    store["zarr.json"], store["c/0"] = b"{}", DATA
    del store
    gc.collect()
    assert sorted(names_in(tmp_path / "x.zip")) == ["c/0", "zarr.json"]


def test_a_forgotten_store_is_finished_at_the_end_of_the_program(tmp_path: Path) -> None:
    code = "import sys; from gzarr.storage import ZipStore; s = ZipStore(sys.argv[1], 'w'); s['zarr.json'] = b'{}'"
    root = Path(archive_module.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(tmp_path / "x.zip")], cwd=root, capture_output=True, check=True
    )
    assert done.stderr == b""
    assert names_in(tmp_path / "x.zip") == ["zarr.json"]


def test_a_failing_write_keeps_the_old_bytes_and_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.zip"
    store = ZipStore(path, mode="w")
    store["c/0"] = DATA
    real_write = archive_module.Archive._write_at

    def fail(self: Any, data: Any, offset: int) -> None:
        real_write(self, data[:100], offset)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(archive_module.Archive, "_write_at", fail)
        for key in ("c/0", "c/1"):
            with pytest.raises(StoreError, match=f"{key}.*No space left"):
                store[key] = bytes(5000)
    assert dict(store) == {"c/0": DATA}
    store["c/2"] = b"later"
    store.close()
    assert names_in(path) == ["c/0", "c/2"]
    with ZipStore(path) as again:
        assert dict(again) == {"c/0": DATA, "c/2": b"later"}


# -- what is never lost --------------------------------------------------------------------------------------------


def changed(path: Path, *, commit: Any = ZipStore.close) -> dict[str, bytes]:
    """Append to an archive, overwrite and delete. Returns: what it then holds."""
    store = ZipStore(path, "a")
    store.update({"c/1": DATA, "c/2": b"overwritten", "zarr.json": b"{1}"})
    store.delete_many(["c/0"])
    commit(store)
    return {"c/1": DATA, "c/2": b"overwritten", "zarr.json": b"{1}"}


def archive_of(path: Path) -> dict[str, bytes]:
    objects = {"c/0": DATA, "c/2": b"old", "zarr.json": b"{}"}
    with ZipStore(path, "w") as store:
        store.update(objects)
    return objects


def test_while_an_archive_is_appended_to_others_read_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    old = archive_of(path)
    with ZipStore(path, "a") as writer:
        writer.update({"c/1": DATA, "c/2": b"new", "zarr.json": b"{1}"})
        with pytest.warns(UserWarning, match=r"x\.zip.*3 entries, without the last \d+ bytes"):
            assert dict(ZipStore(path)) == old
        writer.flush()
        writer.flush()
        flushed = dict(writer)
        assert dict(ZipStore(path)) == flushed
        assert sorted(names_in(path)) == sorted(flushed)
        writer["c/3"] = b"later"
        assert dict(writer) == flushed | {"c/3": b"later"}
        with pytest.warns(UserWarning, match="4 entries"):
            assert dict(ZipStore(path)) == flushed
    assert dict(ZipStore(path)) == flushed | {"c/3": b"later"}


def test_one_store_at_a_time_writes(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    old = archive_of(path)
    with ZipStore(path, "a") as store:
        for mode in ("a", "r+", "w"):
            with pytest.raises(StoreError, match=r"another store has .*x\.zip.* open for writing"):
                ZipStore(path, mode)  # type: ignore[arg-type]
        assert dict(ZipStore(path)) == dict(store) == old
    with ZipStore(path, "r+") as store:
        store["c/0"] = b"short"
    assert dict(ZipStore(path)) == old | {"c/0": b"short"}


def test_a_forgotten_writer_that_is_not_collected_yet_is_no_other_writer(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    old = archive_of(path)
    store = ZipStore(path, "a")
    store["c/1"] = DATA
    cycle: list[Any] = [store]
    cycle.append(cycle)
    del store, cycle
    with ZipStore(path, "a") as again:
        assert dict(again) == old | {"c/1": DATA}


#: Appends to an archive in children, which are killed, and checks what is left after each. Prints what differs.
KILL = """
import os, random, signal, sys, time, warnings
warnings.simplefilter("ignore")
from gzarr.storage import ZipStore
path, rng = sys.argv[1], random.Random(5)
whole = set()
for n in range(40):
    with ZipStore(path) as store:
        held = dict(store)
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        store = ZipStore(path, "a")
        os.write(write_end, b"x")
        for i in range(100_000):
            store[f"c/{n}/{i % 7}"] = bytes([n]) * 3000
            store["zarr.json"] = b"%d" % n
            if n % 2 and i == 10:
                store.flush()
                os.write(write_end, b"x")
    os.read(read_end, 1)
    if n == 39:
        os.read(read_end, 1)  # however slow the child is, one comes to that
    time.sleep(rng.random() * 0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    flushed = held | {f"c/{n}/{i}": bytes([n]) * 3000 for i in range(7)} | {"zarr.json": b"%d" % n}
    with ZipStore(path) as store:
        found = dict(store)
    if found != held and not (n % 2 and found == flushed):
        print("lost", n, len(found), len(held))
    whole.add(found == held)
    if n % 5 == 4:  # appending works, and leaves an archive without a warning
        with ZipStore(path, "a") as store:
            store[f"after/{n}"] = b"x"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with ZipStore(path) as store:
                if dict(store) != found | {f"after/{n}": b"x"}:
                    print("not appended", n)
print(sorted(whole))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_killed_writer_loses_nothing_that_was_closed_or_flushed(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    archive_of(path)
    root = Path(archive_module.__file__).parents[2]
    code = [sys.executable, "-W", "ignore", "-c", KILL, str(path)]
    done = subprocess.run(code, cwd=root, capture_output=True, text=True, timeout=300, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.splitlines() == ["[False, True]"]
    names_in(path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_reads_an_open_archive_and_is_refused_as_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    old = archive_of(path)
    store = ZipStore(path, "a")
    store["c/1"] = DATA

    def use() -> None:
        assert dict(store) == old | {"c/1": DATA}
        for change in (
            lambda: store.set("c/2", b"child"),
            lambda: store.set("zarr.json", b"child"),
            lambda: store.delete_many(["c/0"]),
            store.flush,
        ):
            with pytest.raises(StoreError, match="before this process was forked"):
                change()
        store.close()

    run_in_child(use)
    store.close()
    assert dict(ZipStore(path)) == old | {"c/1": DATA}


def test_a_close_that_fails_may_be_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.zip"
    old = archive_of(path)
    store = ZipStore(path, "a")
    store["c/1"] = DATA
    held = dict(store)

    with monkeypatch.context() as patch:
        patch.setattr(archive_module.os, "pwrite", Mock(side_effect=OSError(28, "No space left on device")))
        for finish in (store.flush, store.close):
            with pytest.raises(StoreError, match=r"No space left.*make room"):
                finish()
    with pytest.warns(UserWarning, match="3 entries"):
        assert dict(ZipStore(path)) == old
    assert dict(store) == held
    store.close()
    assert dict(ZipStore(path)) == held


def test_interrupts_leave_an_archive_that_works(tmp_path: Path) -> None:
    path, objects = tmp_path / "x.zip", archive_of(tmp_path / "x.zip")
    for at in count(0, 3):
        store = ZipStore(path, "a")
        wanted = {"c/1": b"%d" % at * 300, "zarr.json": b"%d" % at}

        def change(store: ZipStore = store, wanted: dict[str, bytes] = wanted) -> None:
            store.update(wanted)
            store.delete_many(["c/3"])
            store["c/3"] = b"3"
            store.flush()

        done = interrupted(change, at, {archive_module.__file__})
        found = dict(store)
        for key, value in found.items():
            assert value in (objects.get(key), wanted.get(key), b"3"), (at, key)
        assert objects.keys() - {"c/3"} <= found.keys()
        store["c/4"] = b"4"
        store.close()
        objects = found | {"c/4": b"4"}
        assert dict(ZipStore(path)) == objects
        if done:
            break
    assert at > 50


# -- modes ---------------------------------------------------------------------------------------------------------


def test_modes(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    for mode in ("r", "r+"):
        with pytest.raises(NodeNotFoundError, match=r"x\.zip"):
            ZipStore(path, mode=mode)  # type: ignore[arg-type]
        assert not path.exists()
    with ZipStore(path, mode="x") as store:
        store["a"] = b"1"
    with pytest.raises(ContainsNodeError, match="mode 'x'"):
        ZipStore(path, mode="x")
    with ZipStore(path) as store:
        assert store.read_only
        with pytest.raises(ReadOnlyError, match="zip://"):
            store["a"] = b"2"
    with ZipStore(path, mode="r+") as store:
        assert not store.read_only
        assert store["a"] == b"1"
    with ZipStore(path, mode="w") as store:
        assert list(store) == []
    with pytest.raises(NodeNotFoundError, match="make its folder"):
        ZipStore(tmp_path / "none" / "x.zip", mode="w")


def test_modes_of_file_objects() -> None:
    file = io.BytesIO()
    with pytest.raises(StoreError, match="not a ZIP archive"):
        ZipStore(file)
    with ZipStore(file, mode="x") as store:
        store["a"] = DATA
    assert not file.closed, "the file object belongs to its owner"
    with pytest.raises(ContainsNodeError, match="not empty"):
        ZipStore(file, mode="x")
    with ZipStore(file, mode="w") as store:
        store["b"] = b""
    assert names_in(file) == ["b"]
    with pytest.raises(StoreError, match="cannot seek"):
        ZipStore(Pipe(), mode="w")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "w-"}, "mode must be one of"),
        ({"mode": "r", "read_only": False}, "contradicts"),
        ({"mode": "w", "read_only": True}, "contradicts"),
        ({"mode": "w", "compression": 77}, "compression"),
    ],
)
def test_impossible_arguments_are_refused(tmp_path: Path, arguments: Any, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        ZipStore(tmp_path / "x.zip", **arguments)


def test_what_is_not_an_archive_is_said_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(b"something else")
    for mode in ("r", "r+", "a"):
        with pytest.raises(StoreError, match="not a ZIP archive"):
            ZipStore(path, mode=mode)  # type: ignore[arg-type]
    assert path.read_bytes() == b"something else"
    with pytest.raises(StoreError, match="cannot open"):
        ZipStore(tmp_path)


def test_pickling_opens_the_file_again(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with ZipStore(path, mode="w") as store:
        store["a"] = DATA
        with pytest.raises(StoreError, match="pickled"):
            pickle.dumps(store)
    with ZipStore(path) as store, pickle.loads(pickle.dumps(store)) as again:
        assert (again, again.read_only) == (store, True)
        assert dict(again) == {"a": DATA}
    with pytest.raises(StoreError, match="pickled"):
        pickle.dumps(ZipStore(io.BytesIO(path.read_bytes())))


def test_lock_names_come_from_the_real_path(tmp_path: Path) -> None:
    with ZipStore(tmp_path / "x.zip", mode="w") as store:
        store["a"] = b""
    (tmp_path / "link.zip").symlink_to(tmp_path / "x.zip")
    with ZipStore(tmp_path / "x.zip") as one, ZipStore(tmp_path / "link.zip") as two:
        assert one.lock_name("a") == two.lock_name("a")
        assert one == two


# -- damage --------------------------------------------------------------------------------------------------------


#: Kinds of damage: where in the archive, or (negative) from its directory on, which bytes, and the key that is read.
DAMAGE = {
    "data": (50, b"damage", "c/0"),  # of the entry, past any header of the compression
    "header": (0, b"XY", "c/0"),
    "encrypted": (-8, b"\1", "c/0"),
    "unknown method": (-10, b"\x37\0", "c/0"),
    "huge": (-20, b"\0\xff\xff\xff" * 2, "c/0"),
    "sizes disagree": (-24, b"\x4d\0\0\0", "c/0"),
    "renamed": (-46, b"b", "b/0"),
    "shortened": (-28, b"\1\0\2\0", "c"),  # what follows the name is an extra field
}


@pytest.mark.parametrize("compression", [0, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_an_error_that_names_the_key(compression: int, kind: str) -> None:
    file, (at, patch, key) = io.BytesIO(), DAMAGE[kind]
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("c/0", DATA)
    data = bytearray(file.getvalue())
    begin = at if at >= 0 else data.index(b"PK\1\2") - at
    data[begin : begin + len(patch)] = patch
    store = ZipStore(io.BytesIO(bytes(data)))
    with pytest.raises(StoreError, match=f"key '{key}'"):
        store.get_one(Request(key))
    if kind != "data" or compression:
        with pytest.raises(StoreError, match=f"key '{key}'"):
            store.get_one(Request(key, 5, 5))
