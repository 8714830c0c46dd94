"""What is particular to files: atomic replacement, paths that must not leave the root, errors of the system."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import gzarr
from gzarr.errors import GzarrError, ReadOnlyError, StoreError
from gzarr.storage import LocalStore, Request
from gzarr.storage import local_files as local_module
from gzarr.storage.base import token_of


def files_under(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_objects_are_plain_files(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "x.zarr")
    assert not (tmp_path / "x.zarr").exists()
    store["a/c/0"] = b"abc"
    assert (tmp_path / "x.zarr" / "a" / "c" / "0").read_bytes() == b"abc"
    assert files_under(tmp_path) == ["x.zarr/a/c/0"]


@pytest.mark.parametrize("call", ["write", "replace", "fstat"])
@pytest.mark.parametrize("old", [None, b"old bytes"])
def test_a_failing_write_leaves_the_old_bytes_and_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, old: bytes | None
) -> None:
    store = LocalStore(tmp_path / "x")
    if old is not None:
        store["a/b/c"] = old
    real_write = os.write

    def fail(*args: Any) -> None:
        if call == "write":
            real_write(args[0], bytes(args[1])[:3])  # the disk takes a little, then is full
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(local_module.os, call, fail)
        with pytest.raises(StoreError, match=r"cannot write '.*x/a/b/c': No space left on device") as caught:
            store["a/b/c"] = b"new bytes"
    assert isinstance(caught.value.__cause__, OSError)
    assert store.get_one(Request("a/b/c")) == old
    assert files_under(tmp_path) == ([] if old is None else ["x/a/b/c"])
    assert store.list_dir() == ([], [] if old is None else ["a"]), "a failed first write leaves no directories"


def test_short_writes_and_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_module, "_CALL_NBYTES", 7)
    store = LocalStore(tmp_path)
    for value in (b"", b"1234567", bytes(range(100))):
        store["k"] = value
        assert store["k"] == value
        assert store.get_one(Request("k", 3, 60)) == value[3:63]
        assert store.get_one(Request("k", -30)) == value[-30:]


def test_ranges_work_without_pread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    store["k"] = bytes(range(100))
    monkeypatch.setattr(local_module, "_pread", local_module._seek_and_read)
    assert store.get_many([Request("k", 5, 3), Request("k"), Request("k", -4, 2)]) == [
        b"\5\6\7",
        bytes(range(100)),
        b"\x60\x61",
    ]


def test_unfinished_files_are_never_listed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store["a/b"] = b"x"
    (tmp_path / "a" / ".__gzarr_tmp_0123").write_bytes(b"left by a process that was killed")
    (tmp_path / ".__gzarr_tmp_4567").mkdir()
    assert list(store) == ["a/b"]
    assert (store.list_dir("a"), store.list_dir()) == ((["b"], []), ([], ["a"]))
    assert store.nbytes_stored() == 1
    store.delete_prefix("a")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("key", ["../secret", "a/../../secret", "/etc/passwd", "..", "a//b", "a\0", "", "a/"])
def test_nothing_outside_the_root_can_be_reached(tmp_path: Path, key: str) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    with pytest.raises(StoreError, match="holds NUL"):
        LocalStore("x\0")
    store = LocalStore(tmp_path / "x")
    store["a/k"] = b"v"
    for use in (
        lambda: store.get_one(Request(key)),
        lambda: store.get_many([Request("a/k"), Request(key)]),
        lambda: store.set(key, b""),
        lambda: store.delete_many([key]),
        lambda: store.getsize(key),
        lambda: token_of(store, key),
        lambda: store.move_prefix("a", key),
        lambda: store.move_prefix(key, "b"),
    ):
        with pytest.raises(StoreError):
            use()
    if key:
        for use in (
            lambda: store.delete_prefix(key),
            lambda: list(store.list_prefix(key)),
            lambda: store.list_dir(key),
        ):
            with pytest.raises(StoreError, match="not allowed"):
                use()
    assert files_under(tmp_path) == ["secret", "x/a/k"]


def test_a_file_where_a_directory_is_needed_is_named(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store["a"] = b"x"
    store["d/e"] = b"y"
    with pytest.raises(StoreError, match="a/b"):
        store["a/b"] = b""
    with pytest.raises(StoreError, match=r"/d'"):
        store["d"] = b""
    assert dict(store) == {"a": b"x", "d/e": b"y"}


@pytest.mark.parametrize("call", ["open", "stat", "scandir", "unlink", "rename"])
def test_errors_of_the_system_name_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    store = LocalStore(tmp_path)
    store["a/k"] = b"x"
    uses = {
        "open": lambda: store["a/k"],
        "stat": lambda: store.getsize("a/k"),
        "scandir": lambda: list(store),
        "unlink": lambda: store.delete_many(["a/k"]),
        "rename": lambda: store.delete_prefix("a"),
    }
    with monkeypatch.context() as patch:
        patch.setattr(local_module.os, call, Mock(side_effect=PermissionError(errno.EACCES, "Permission denied")))
        if call == "stat":  # os.path.isdir goes through it too
            patch.setattr(local_module.os.path, "isdir", lambda _: False)
        with pytest.raises(StoreError, match="Permission denied") as caught:
            uses[call]()
    assert str(tmp_path) in str(caught.value)
    assert isinstance(caught.value.__cause__, PermissionError)
    assert store["a/k"] == b"x"


def test_moving_fails_cleanly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    store["a/k"] = b"x"

    with monkeypatch.context() as patch:
        patch.setattr(local_module.os, "rename", Mock(side_effect=OSError(errno.EXDEV, "Invalid cross-device link")))
        with pytest.raises(StoreError, match="Invalid cross-device link"):
            store.move_prefix("a", "b/c")
    assert store.list_dir() == ([], ["a"])


def test_empty_parents_go_but_never_the_root(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "x")
    store["a/b/c"] = b""
    store["a/k"] = b""
    store.delete_prefix("a/b")
    assert (tmp_path / "x" / "a").is_dir()
    store.delete_prefix("a")
    assert list((tmp_path / "x").iterdir()) == []
    store.clear()
    assert (tmp_path / "x").is_dir()


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "zarr.json").write_bytes(b"{}")
    store = LocalStore(tmp_path / "x")
    store["g/zarr.json"] = b"{}"
    (tmp_path / "x" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "x" / "g" / "up").symlink_to(tmp_path / "x")
    (tmp_path / "x" / "broken").symlink_to(tmp_path / "nothing")
    assert sorted(store) == ["broken", "g/zarr.json", "linked/zarr.json"], "what is lost is not left out of copies"
    store.delete_many(["broken"])
    store.delete_prefix("linked")
    assert files_under(tmp_path / "elsewhere") == ["zarr.json"], "deleting a link leaves what it points to"
    assert list(store) == ["g/zarr.json"]


def test_stores_with_different_roots_agree_on_lock_names(tmp_path: Path) -> None:
    (tmp_path / "x" / "a").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "x")
    stores = LocalStore(tmp_path / "x"), LocalStore(tmp_path / "x" / "a"), LocalStore(tmp_path / "link")
    names = stores[0].lock_name("a/c/0"), stores[1].lock_name("c/0"), stores[2].lock_name("a/c/0")
    assert len(set(names)) == 1
    assert stores[0] == stores[2]
    assert stores[0] != stores[1]


def test_lock_names_follow_links_that_are_made_or_moved_later(tmp_path: Path) -> None:
    for name in ("v1", "v2"):
        (tmp_path / name).mkdir()
    link = tmp_path / "latest"
    store = LocalStore(link)
    for name in ("v1", "v2"):
        store.lock_name("a/b")
        link.unlink(missing_ok=True)
        link.symlink_to(name)
        assert store.lock_name("b") == LocalStore(tmp_path / name).lock_name("b")
        assert store.lock_name("a/b") == LocalStore(tmp_path / name).lock_name("a/b")


def test_lock_names_in_the_root_of_the_file_system_do_not_depend_on_the_working_directory() -> None:
    assert LocalStore("/").lock_name("name-of-no-file") == os.path.normcase(os.path.realpath("/name-of-no-file"))
    assert LocalStore("/") != LocalStore(os.curdir)


def test_a_directory_is_no_object_to_any_way_of_reading(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    store = LocalStore(tmp_path)
    assert store.get_one(Request("a")) is None
    assert store.get_many([Request("a"), Request("a", 0, 3), Request("a", 3, 3)]) == [None] * 3


def test_a_relative_root_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    store = LocalStore("data.zarr")
    monkeypatch.chdir(tmp_path / "there")
    store["k"] = b"v"
    assert (tmp_path / "here" / "data.zarr" / "k").exists()
    assert str(store) == "file://data.zarr"
    assert store.root == str(tmp_path / "here" / "data.zarr")


def test_a_read_only_store_makes_no_directory(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "x", read_only=True)
    assert list(store) == []
    with pytest.raises(ReadOnlyError, match="file://"):
        store["a"] = b""
    assert not (tmp_path / "x").exists()


def test_several_ranges_of_a_file_open_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    store["a"], store["b"] = bytes(range(100)), b"bbb"
    opened: list[str] = []
    real_open = os.open

    def counting_open(path: str, *args: Any) -> int:
        opened.append(path)
        return real_open(path, *args)

    monkeypatch.setattr(local_module.os, "open", counting_open)
    got = store.get_many([Request("a", 1, 2), Request("b"), Request("a", -1), Request("none"), Request("a", 50, 1)])
    assert got == [b"\1\2", b"bbb", b"\x63", None, b"\x32"]
    assert sorted(opened) == sorted([str(tmp_path / name) for name in ("a", "b", "none")])


def test_a_reused_inode_is_a_new_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    store["k"] = b"one"
    same = (tmp_path / "k").stat()
    monkeypatch.setattr(local_module, "find_file", lambda *_: same)
    for look in ("fstat", "lstat"):  # the next file gets the same inode
        monkeypatch.setattr(local_module.os, look, lambda _: same)
    first = token_of(store, "k")
    store["k"] = b"two"
    assert token_of(store, "k") != first


def test_a_generation_is_never_that_of_a_file_to_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks of a reader a file is replaced, and its inode is taken by one that will replace it again."""
    store = LocalStore(tmp_path)
    store["k"] = b"first"
    look = local_module.find_file

    def look_and_dawdle(path: str, name: str) -> os.stat_result | None:
        info = look(path, name)
        monkeypatch.setattr(local_module, "find_file", look)
        assert info is not None
        (tmp_path / "held").hardlink_to(tmp_path / "k")  # so that the inode is free when we say so
        store["k"] = b"second"
        local_module.WRITTEN[info.st_ino % len(local_module.WRITTEN)] = next(local_module._numbers)
        return info

    monkeypatch.setattr(local_module, "find_file", look_and_dawdle)
    found = token_of(store, "k")
    assert found == token_of(store, "k")


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("shards", [None, 2])
@pytest.mark.parametrize(
    ("key", "plant", "what"),
    [
        ("c/0", os.mkfifo, "Illegal seek"),
        ("c/0", lambda path: path.symlink_to("gone"), "symbolic link to 'gone'"),
        ("c", lambda path: path.symlink_to("gone"), "symbolic link to 'gone'"),
    ],
)
def test_a_pipe_or_a_link_to_nothing_in_the_place_of_a_chunk_or_its_folder_is_named(
    key: str, plant: Callable[[Path], None], what: str, shards: Any, native: bool, tmp_path: Path
) -> None:
    chunks = 1 if shards else 2
    z = gzarr.create_array(tmp_path, shape=4, dtype="i4", chunks=chunks, shards=shards, fill_value=0, compressors=None)
    z[:] = 1
    remove = shutil.rmtree if key == "c" else os.unlink
    remove(tmp_path / key)
    plant(tmp_path / key)
    store = LocalStore(tmp_path)
    into = gzarr.group()
    with gzarr.config.set({"cpu.native": native}):
        for read in (lambda: z[:], lambda: z[0], lambda: z.oindex[[0, 3]], lambda: gzarr.copy(z, into, name="y")):
            with pytest.raises(GzarrError, match=rf"cannot read '.*c/0': .*{what}"):
                read()
    for request in (Request("c/0"), Request("c/0", 0, 4), Request("c/0", -4)):
        with pytest.raises(StoreError, match=rf"cannot read '.*c/0': .*{what}"):
            store.get_one(request)
    assert what == "Illegal seek" or [(p.kind, p.key) for p in z.verify().problems] == [
        ("unreadable", "/" if key == "c" else key)
    ]
    if key == "c/0":
        z[:2] = 2
        assert z[:].tolist() == [2, 2, 1, 1]
    else:
        with pytest.raises(StoreError, match="symbolic link to 'gone'"):
            z.nbytes_stored()
        for part, value in ((slice(None), 2), (0, 2)):
            with pytest.raises(StoreError, match=r"cannot (write|lock) '.*c/0': .*symbolic link to 'gone'.*delete the"):
                z[part] = value
        group = gzarr.create_group(tmp_path / "g")
        (tmp_path / "g" / "lost").symlink_to("gone")
        assert "symbolic link to 'gone'" in str(gzarr.verify(tmp_path / "g").problems)
        for act in (lambda: gzarr.copy_all(group, into), lambda: gzarr.consolidate_metadata(tmp_path / "g")):
            with pytest.warns(UserWarning, match="a member may be lost: .*'gone'"):
                act()


def test_a_tree_is_deleted_though_it_is_replaced_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    store["a/b"] = b"x"
    rmtree, failures = shutil.rmtree, [OSError("Cannot call rmtree on a symbolic link")]  # as of Python 3.11

    def replaced(path: str) -> None:
        if failures:
            raise failures.pop()
        rmtree(path)

    monkeypatch.setattr(shutil, "rmtree", replaced)
    store.delete_prefix("a")
    assert list(tmp_path.iterdir()) == []
