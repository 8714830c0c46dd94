"""Shards that are replaced between reads of the compiled loop, and during them: what is read is of one version."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.chunk_io import engine
from gzarr.codecs import BytesCodec, ShardingCodec
from gzarr.config import config
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled import read as compiled_read
from gzarr.storage import LocalStore, MemoryStore, Store
from gzarr.storage.capabilities import Versions
from gzarr.storage.local_files import WRITTEN
from gzarr.storage.wrappers import ForwardedVersions
from tests.cpu.compiled.looping import Watched
from tests.properties.test_copies import job_for

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")


@pytest.fixture(autouse=True)
def several_batches_of_a_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_read, "_MIN_NCHUNKS_OF_SHARD", 2)


class Looking(LocalStore):
    """Counts looks at versions, and may replace an object after one; may hide what versions are from the loop."""

    files = LocalStore.files
    opaque = True
    looks = 0
    replaces_after, successor = -1, b""

    @property
    def versions(self) -> Versions | None:
        found = super().versions
        return None if found is None else Looks(found, self)


class Looks(ForwardedVersions):
    def __init__(self, versions: Versions, store: Looking) -> None:
        super().__init__(versions)
        self._store = store

    def token(self, key: str) -> object | None:
        found, store = super().token(key), self._store
        store.looks += 1
        if store.looks == store.replaces_after:
            store.set(key, store.successor)
        return ("version", found) if store.opaque and found is not None else found

    def tokens(self, keys: Any) -> list[object | None]:
        return [self.token(key) for key in keys]


def one_shard(store: Store, *, nested: bool = False) -> tuple[gzarr.Array, list[bytes]]:
    """An array of one shard of 256 chunks, and the shard if they are all 1, and all 2, elsewhere in it."""
    codecs: list[Any] = [ShardingCodec((1,), [BytesCodec()])]
    codecs = [ShardingCodec((32,), codecs)] if nested else codecs
    array = gzarr.create_array(store, shape=(256,), chunks=(256,), dtype="i4", codecs=codecs)
    made = []
    for value in (1, 2):
        array[::value] = value
        array[...] = value
        made.append(bytes(store["c/0"]))
    return array, made


def reads_of(array: gzarr.Array, ids: list[int]) -> list[np.ndarray]:
    """The same elements by boxes, by steps, by a list and as points."""
    job = job_for(array, [(i,) for i in ids], (1,), range(len(ids)), (array.dtype, 1, len(ids)))
    engine.read([job])
    return [job.out[0], array[ids[0] :: ids[1] - ids[0]], array.oindex[ids], array.vindex[ids]]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("how", ["files", "in place", "opaque", "opaque, in place", "memory"])
def test_a_shard_that_was_replaced_is_read_again(how: str, nested: bool, tmp_path: Path) -> None:
    """in place: by a program that writes over the file."""
    store = MemoryStore() if how == "memory" else Looking(tmp_path)
    if isinstance(store, Looking):
        store.opaque = "opaque" in how
    array, shards = one_shard(store, nested=nested)
    for times in range(6):
        for found in reads_of(array, list(range(0, 256, 3))):
            assert set(found.ravel().tolist()) == {2 - times % 2}
        if "in place" in how:
            (tmp_path / "c/0").write_bytes(shards[times % 2])
        else:
            store.set("c/0", shards[times % 2])
    del store["c/0"]
    assert not any(found.any() for found in reads_of(array, list(range(0, 256, 3))))


@pytest.mark.parametrize("opaque", [False, True])
def test_nobody_looks_at_a_shard_whose_index_is_cached(opaque: bool, tmp_path: Path, watched: Watched) -> None:
    store = Looking(tmp_path)
    store.opaque = opaque
    array, _ = one_shard(store)
    for kind in range(4):
        ids = list(range(kind, 256, 7))
        reads_of(array, ids)
        store.looks = 0
        assert {*np.concatenate([found.ravel() for found in reads_of(array, ids)]).tolist()} == {2}
        assert (store.looks == 0) is not opaque
    assert watched.left == 0


def test_a_file_of_the_same_inode_size_and_times_is_told_apart_by_its_number(tmp_path: Path, watched: Watched) -> None:
    """Inodes are used again, and clocks of file systems tick every few milliseconds."""
    array, _ = one_shard(LocalStore(tmp_path))
    ids = list(range(0, 256, 7))
    reads_of(array, ids)
    assert watched.left == 0
    WRITTEN[(tmp_path / "c/0").stat().st_ino % len(WRITTEN)] += 1
    assert {*np.concatenate([found.ravel() for found in reads_of(array, ids)]).tolist()} == {2}
    assert watched.left > 0


def test_files_that_the_loop_writes_get_a_number(tmp_path: Path) -> None:
    array = gzarr.create_array(tmp_path, shape=(8, 8), chunks=(2, 8), dtype="i4")
    store = LocalStore(tmp_path)
    for key in (np.s_[...], np.s_[2:4]):  # many chunks, and one in a call
        before = list(WRITTEN)
        array[key] = 1
        place = (tmp_path / "c/1/0").stat().st_ino % len(WRITTEN)
        assert WRITTEN[place] != before[place]
        assert store.versions.token("c/1/0").number == WRITTEN[place]
        array[...] = 2


@pytest.mark.parametrize("opaque", [False, True])
def test_a_shard_replaced_meanwhile_is_of_one_version(opaque: bool, tmp_path: Path) -> None:
    store = Looking(tmp_path)
    store.opaque = opaque
    array, shards = one_shard(store)
    over, found = threading.Event(), set()

    def replace() -> None:
        n = 0
        while not over.is_set():
            n += 1
            store.set("c/0", shards[n % 2])

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        for _ in range(30):
            for values in reads_of(array, list(range(0, 256, 2))):
                assert len(np.unique(values)) == 1, "torn"
                found.add(int(values.ravel()[0]))
    finally:
        over.set()
        writer.join()
    assert found <= {1, 2}


@pytest.mark.parametrize("n_threads", [1, 3])
def test_batches_of_one_shard_are_of_one_version(n_threads: int, tmp_path: Path, watched: Watched) -> None:
    """Wherever between looks it is replaced."""
    store = Looking(tmp_path)
    array, (before, store.successor) = one_shard(store)
    found = set()
    with config.set({"threading.max_workers": n_threads}):
        for looks in range(1, 40):
            store.set("c/0", before)
            store.looks, store.replaces_after = 0, looks
            values = array[...]
            store.replaces_after = -1
            assert values.min() == values.max(), f"torn after {looks} looks"
            found.add(int(values[0]))
    assert found == {1, 2}
    assert watched.done > 20 * 256
