"""Synchronizers: writers in several processes, and of zarr 2's kind, lose nothing."""

import contextlib
import multiprocessing
import os
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import fasteners
import pytest

import gzarr
from gzarr.errors import MissingExtraError, StoreError
from gzarr.storage import LocalStore, MemoryStore, synchronized

N = 3


def write_one(folder: str, ready: Any) -> None:
    array = gzarr.open(
        f"{folder}/x.zarr", path="a", mode="r+", synchronizer=gzarr.ProcessSynchronizer(f"{folder}/x.sync")
    )
    ready.set()
    array[3] = 7


def test_a_chunk_is_locked_under_the_file_that_zarr_2_locks(tmp_path: Path) -> None:
    synchronizer = gzarr.ProcessSynchronizer(tmp_path / "x.sync")
    root = gzarr.group(tmp_path / "x.zarr", zarr_format=2, synchronizer=synchronizer)
    array = root.zeros("a", shape=4, chunks=2, dtype="i4")
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=write_one, args=(str(tmp_path), ready))
    try:
        with fasteners.InterProcessLock(str(tmp_path / "x.sync/a/1")):
            process.start()
            assert ready.wait(60)
            array[0] = 5  # another chunk is free
            process.join(0.5)
            assert process.is_alive()
            assert array[...].tolist() == [5, 0, 0, 0]
        process.join(60)
        assert process.exitcode == 0
    finally:
        process.kill()
    assert array[...].tolist() == [5, 0, 0, 7]


class Recorder:
    """A synchronizer of a user's own."""

    def __init__(self) -> None:
        self.held: list[str] = []
        self.seen: list[tuple[str, ...]] = []

    def __getitem__(self, key: str) -> Any:
        @contextlib.contextmanager
        def lock() -> Any:
            self.held.append(key)
            self.seen.append(tuple(self.held))
            yield
            self.held.remove(key)

        return lock()


def test_any_object_that_gives_locks_is_honoured_in_sorted_order() -> None:
    recorder = Recorder()
    root = gzarr.group(zarr_format=2, synchronizer=recorder)
    array = root.create_array("a/x", shape=25, chunks=2, dtype="i4")
    recorder.seen.clear()
    with gzarr.config.set({"threading.max_workers": 1}):  # the recorder is for one thread
        array[3:24] = 1
    assert all(held == tuple(sorted(held)) for held in recorder.seen)  # of each batch
    assert max(map(len, recorder.seen)) > 1
    assert {key for held in recorder.seen for key in held} == {f"a/x/{n}" for n in range(1, 12)}
    recorder.seen.clear()
    array.append([1])
    array.attrs["q"] = 1
    node = "a/x/.zattrs"
    assert {(node, "a/x/12"), (node, "a/x/.zarray.document"), (f"{node}.document",)} <= set(recorder.seen)
    assert recorder.held == []


def test_members_and_reopened_nodes_keep_it(tmp_path: Path) -> None:
    synchronizer = gzarr.ThreadSynchronizer()
    root = gzarr.open_group(tmp_path, synchronizer=synchronizer)
    assert root.create_group("a").create_array("x", shape=3).synchronizer is synchronizer
    assert root["a/x"].synchronizer is synchronizer
    assert gzarr.open(tmp_path, path="a/x", synchronizer=synchronizer).synchronizer is synchronizer
    assert root.create_array("y", shape=3, synchronizer=(other := gzarr.ThreadSynchronizer())).synchronizer is other
    again = pickle.loads(pickle.dumps(root))
    assert isinstance(again.synchronizer, gzarr.ThreadSynchronizer)
    assert "LocalStore" in repr(root.info)
    process = gzarr.ProcessSynchronizer(tmp_path / "sync")
    assert pickle.loads(pickle.dumps(process)).path == process.path


def test_what_cannot_be_a_synchronizer_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for bad in (object(), 5, threading.Lock()):
        with pytest.raises(TypeError, match="synchronizer must be"):
            synchronized(MemoryStore(), bad)
    (tmp_path / "file").write_text("")
    useless = gzarr.ProcessSynchronizer(tmp_path / "file")
    gzarr.zeros(4, store=tmp_path / "x")
    array = gzarr.open_array(tmp_path / "x", synchronizer=useless)
    for write in (lambda: array.__setitem__(0, 1), lambda: gzarr.zeros(4, store=tmp_path / "y", synchronizer=useless)):
        with pytest.raises(StoreError, match=r"cannot lock the file .*a directory of its own"):
            write()
    assert LocalStore(tmp_path / "x").list_dir() == (["zarr.json"], [])
    assert LocalStore(tmp_path / "y").list_dir() == ([], [])
    monkeypatch.setitem(sys.modules, "fasteners", None)
    with pytest.raises(MissingExtraError, match=r"gzarr\[sync\]"):
        gzarr.ProcessSynchronizer(tmp_path)


def test_a_lock_file_lies_in_its_directory(tmp_path: Path) -> None:
    locks = gzarr.ProcessSynchronizer(tmp_path / "locks")
    for key in ("../x", "/x", "a//b"):
        with pytest.raises(StoreError, match="not allowed"):
            locks[key]


def test_a_pipe_in_the_place_of_a_lock_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "k")
    lock = gzarr.ProcessSynchronizer(tmp_path)["k"]
    with pytest.raises(StoreError, match="k', its lock, is no file; delete it"), lock:
        pass
