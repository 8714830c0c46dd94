"""The cache on disk: bytes are fetched once for all processes, and whatever happens to its files, values are right."""

import os
import pickle
import shutil
import subprocess
import sys
import time
from unittest.mock import Mock

import numpy as np
import pytest

import gzarr
from gzarr.storage import LocalStore, LRUStoreCache, ObjectStore
from gzarr.storage.base import Store
from gzarr.storage.capabilities import Request, Versions
from gzarr.storage.disk_cache import DiskCache, _Room, _room_of
from gzarr.storage.wrappers import WrapperStore

DATA = np.random.default_rng(0).integers(0, 1000, (40, 50)).astype("i4")


class Tags(Versions):
    """Tokens as a server gives them."""

    remote = True

    def __init__(self, store: "Server") -> None:
        self._store = store

    def token(self, key: str) -> object | None:
        return self._store.tags.get(key)


class Server(WrapperStore):
    """A store that counts what is fetched, and tells versions by texts."""

    def __init__(self) -> None:
        super().__init__(gzarr.MemoryStore())
        self.tags: dict[str, str] = {}
        self.fetched = 0

    @property
    def versions(self) -> Versions:
        return Tags(self)

    @property
    def conditional(self) -> None:
        return None

    def get_many(self, requests):
        found = super().get_many(requests)
        self.fetched += sum(len(data) for data in found if data is not None)
        return found

    def set_many(self, items):
        for key, value in items:
            self.tags[key] = f"{key} {len(self.tags)} {time.perf_counter_ns()}"
            self._store.set(key, value)

    def __str__(self) -> str:
        return "server://test"


@pytest.fixture
def server() -> Server:
    store = Server()
    gzarr.create_array(store, path="z", data=DATA, chunks=(10, 50), compressors=None)
    store.fetched = 0
    return store


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def opened(server: Store, folder, nbytes=None):
    path = "z" if isinstance(server, Server) else None
    return gzarr.open_array(server, "r", path=path, cache=folder, cache_nbytes=nbytes)


def test_bytes_are_fetched_once_for_all(server, tmp_path):
    assert np.array_equal(opened(server, tmp_path)[...], DATA)
    once = server.fetched
    assert once >= DATA.nbytes
    for _ in range(2):
        assert np.array_equal(opened(server, tmp_path)[...], DATA)
    assert server.fetched == once


def test_parts_of_shards_and_the_loader(server, tmp_path):
    gzarr.create_array(server, path="sharded", data=DATA, chunks=(2, 50), shards=(20, 50))
    for epoch in range(2):
        z = gzarr.open_array(server, "r", path="sharded", cache=tmp_path)
        before = server.fetched
        loader = gzarr.Loader(z, 8, shuffle=True, memory=8000)
        for step, batch in enumerate(loader):
            assert np.array_equal(batch, DATA[loader.batch_ids(step)])
        assert (server.fetched == before) == bool(epoch)


def test_a_loader_with_a_cache_reads_nothing_in_its_second_epoch(server, tmp_path):
    group = gzarr.open_group(server)
    for number in range(3):
        group.create_array(f"many/{number}", data=DATA + number, chunks=(8, 50))
    group.create_array("flat", data=np.arange(900), chunks=100)
    many = [group[f"many/{number}"] for number in range(3)]
    ragged = gzarr.Ragged(group["flat"], np.arange(0, 121 * 5, 5))
    for epoch in range(2):
        before = server.fetched
        cache = {"cache": tmp_path, "cache_nbytes": 10**7}
        loader = gzarr.Loader({"x": many, "r": ragged}, 8, shuffle=True, memory=20_000, **cache)
        for step, batch in enumerate(loader):
            ids = loader.batch_ids(step)
            assert np.array_equal(batch["x"], np.concatenate([DATA, DATA + 1, DATA + 2])[ids])
            assert np.array_equal(batch["r"]["values"][:, 0], 5 * ids)
        assert (server.fetched == before) == bool(epoch)
    with pytest.raises(ValueError, match="is a view"):
        gzarr.Loader(many[0].astype("f8"), 8, cache=tmp_path)


def test_a_changed_source_is_read_anew(server, tmp_path):
    assert opened(server, tmp_path)[0, 0] == DATA[0, 0]
    gzarr.open_array(server, "r+", path="z")[:10] = 7
    assert (opened(server, tmp_path)[:10] == 7).all()
    assert np.array_equal(opened(server, tmp_path)[10:], DATA[10:])


@pytest.mark.parametrize("damage", [b"", b"gzarr", "torn", "flipped", "longer", "empty"])
def test_damaged_files_are_never_used(server, tmp_path, damage):
    opened(server, tmp_path)[...]
    for path in files(tmp_path):
        data = bytearray(path.read_bytes())
        if damage == "flipped":
            data[-1] ^= 1
        elif damage == "longer":
            data += b"x"
        elif damage in ("torn", "empty"):
            data = data[: len(data) // 2 if damage == "torn" else 0]
        else:
            data = damage
        path.write_bytes(data)
    before = server.fetched
    assert np.array_equal(opened(server, tmp_path)[...], DATA)
    assert server.fetched > before
    before = server.fetched
    assert np.array_equal(opened(server, tmp_path)[...], DATA)
    assert server.fetched == before


def test_a_full_disk_is_passed_by(server, tmp_path, monkeypatch):
    monkeypatch.setattr("pathlib.Path.replace", Mock(side_effect=OSError(28, "No space left on device")))
    for _ in range(2):
        assert np.array_equal(opened(server, tmp_path)[...], DATA)
    assert files(tmp_path) == []


def test_the_limit_keeps_what_is_in_use_and_drops_what_is_old(server, tmp_path):
    limit = DATA.nbytes // 2 + 1500
    opened(server, tmp_path, limit)[...]
    kept = {path: path.stat().st_size for path in files(tmp_path)}
    assert sum(kept.values()) <= limit
    before = server.fetched
    z = opened(server, tmp_path, limit)
    assert np.array_equal(z[...], DATA)
    assert server.fetched - before <= DATA.nbytes // 2  # what was kept is not fetched again
    _room_of.cache_clear()  # another process
    for path in files(tmp_path):
        os.utime(path, (1, 1))
    gzarr.create_array(server, path="other", data=DATA, chunks=(10, 50), compressors=None)
    other = gzarr.open_array(server, "r", path="other", cache=tmp_path, cache_nbytes=limit)
    assert np.array_equal(other[...], DATA)
    assert not all(path.exists() for path in kept)
    assert sum(path.stat().st_size for path in files(tmp_path)) <= limit


def test_a_folder_is_looked_at_once_for_all_caches(server, tmp_path, monkeypatch):
    looks = []
    monkeypatch.setattr(_Room, "_trim", lambda self, most, more: looks.append(1) or 0)
    for _ in range(5):
        opened(server, tmp_path, 10**9)[...]
        gzarr.open_array(server, "r+", path="z")[:] = DATA
    assert len(looks) == 1


def test_only_files_of_the_cache_are_deleted_or_counted(server, tmp_path):
    others = [tmp_path / "z.zarr" / "c" / "0", tmp_path / "photos" / "1.png", tmp_path / "ab" / "notes"]
    for path in others:
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(10**6))
        os.utime(path, (1, 1))
    assert np.array_equal(opened(server, tmp_path, 10**5)[...], DATA)
    assert all(path.exists() for path in others)
    assert len(files(tmp_path)) > len(others)


def test_a_folder_that_somebody_deletes_costs_time_only(server, tmp_path):
    folder = tmp_path / "cache"
    z = opened(server, folder, 10**6)
    shutil.rmtree(folder)
    assert np.array_equal(z[...], DATA)


def test_files_of_killed_writers_go(tmp_path, server):
    folder = tmp_path / "ab"
    folder.mkdir()
    left = folder / f"{'c' * 38}.1-1.part"
    left.write_bytes(b"half")
    os.utime(left, (1, 1))
    opened(server, tmp_path, 10**6)[...]
    assert not left.exists()


def test_local_files_that_changed_just_now_are_not_kept(tmp_path):
    gzarr.create_array(tmp_path / "data", data=DATA, chunks=(10, 50))
    store, folder = LocalStore(tmp_path / "data"), tmp_path / "cache"
    assert np.array_equal(opened(store, folder)[...], DATA)
    assert files(folder) == []
    for path in (tmp_path / "data").rglob("*"):
        os.utime(path, (1, 1))
    assert np.array_equal(opened(store, folder)[...], DATA)
    assert files(folder) == []  # the time of the change counts


def test_stores_without_lasting_versions_are_read_each_time(tmp_path):
    store = gzarr.MemoryStore()
    gzarr.create_array(store, data=DATA)
    assert np.array_equal(opened(store, tmp_path)[...], DATA)
    assert files(tmp_path) == []


def test_processes_share_the_folder_while_some_are_killed(tmp_path):
    """Writers are killed at any moment; whoever reads finds right values."""
    gzarr.create_array(tmp_path / "data", data=np.arange(200_000), chunks=(1000,), compressors=None)
    time.sleep(2.2)
    script = (
        "import gzarr, numpy as np, sys\n"
        f"z = gzarr.open_array({str(tmp_path / 'data')!r}, 'r', cache={str(tmp_path / 'cache')!r})\n"
        "print('go', flush=True)\n"
        "sys.exit(0 if np.array_equal(z[...], np.arange(200_000)) else 1)\n"
    )
    for wait_s in (0.0, 0.004, 0.01):
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(wait_s)
        process.kill()
        process.communicate()
    assert subprocess.run([sys.executable, "-c", script], check=False, stdout=subprocess.DEVNULL).returncode == 0
    z = gzarr.open_array(tmp_path / "data", "r", cache=tmp_path / "cache")
    assert np.array_equal(z[...], np.arange(200_000))
    assert z.store.hits >= 200
    assert z.store.misses <= 1


def test_pickled(server, tmp_path):
    again = pickle.loads(pickle.dumps(DiskCache(LocalStore(tmp_path / "data"), tmp_path / "cache", 1000)))
    assert (again._folder, again._max_nbytes) == (tmp_path / "cache", 1000)


@pytest.mark.parametrize("nbytes", ["1 GiB", 1e9, -1])
def test_limits_that_are_none_are_refused(tmp_path, nbytes):
    z = gzarr.create_array(tmp_path / "z", data=DATA)
    for fails in (
        lambda: gzarr.open_array(tmp_path / "z", "r", cache=tmp_path / "c", cache_nbytes=nbytes),
        lambda: gzarr.Loader(z, 2, cache=tmp_path / "c", cache_nbytes=nbytes),
    ):
        with pytest.raises(TypeError, match="cache_nbytes must be a whole number"):
            fails()


def test_a_limit_without_a_folder_is_refused(tmp_path):
    z = gzarr.create_array(tmp_path / "z", data=DATA)
    for fails in (
        lambda: gzarr.open_array(tmp_path / "z", "r", cache_nbytes=9),
        lambda: gzarr.Loader(z, 2, cache_nbytes=9),
    ):
        with pytest.raises(ValueError, match="give cache="):
            fails()


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_files_in_use_that_stay_are_as_good_as_those_that_are_used_next(server, tmp_path, share):
    """Two epochs in random order find what the optimal rule, which knows the next epoch, finds."""
    n, rng = 100, np.random.default_rng(0)
    data = rng.integers(0, 99, (n, 1000)).astype("u1")
    gzarr.create_array(server, path="rows", data=data, chunks=(1, 1000), compressors=None)
    limit = int(share * n) * 1020 + 1000  # beside the metadata
    orders = [rng.permutation(n).tolist() for _ in range(4)]
    kept, optimal, found = set(), 0, 0
    for epoch, order in enumerate(orders[:3]):
        later = {row: at for at, row in enumerate(orders[epoch + 1])}
        z = gzarr.open_array(server, "r", path="rows", cache=tmp_path, cache_nbytes=limit)
        for at, row in enumerate(order):
            rest = {one: order.index(one) for one in kept & set(order[at:])}  # used again within this epoch
            optimal += row in kept and epoch > 0
            kept.add(row)
            if len(kept) > share * n:
                kept.remove(max(kept, key=lambda one: rest.get(one, n + later[one]) if one != row else n + later[one]))
            before = server.fetched
            assert np.array_equal(z[row], data[row])
            found += server.fetched == before and epoch > 0
    assert abs(found - optimal) <= 0.1 * n


@pytest.mark.parametrize("cached", [DiskCache, lambda store, _: LRUStoreCache(store, None)])
def test_servers_are_asked_for_a_token_once_and_compare_it_themselves(tmp_path, monkeypatch, cached) -> None:
    obstore = pytest.importorskip("obstore.store")
    store, looks, replacing = ObjectStore(obstore.MemoryStore()), [], []
    store.set_many([("a", b"one"), ("b", b"two")])
    look_up, get = ObjectStore._look_up, ObjectStore._get

    def replaced_first(self, request, version=None):
        if replacing:
            store.set("a", replacing.pop())
        return get(self, request, version)

    monkeypatch.setattr(ObjectStore, "_look_up", lambda self, key: looks.append(key) or look_up(self, key))
    monkeypatch.setattr(ObjectStore, "_get", replaced_first)
    cache = cached(store, tmp_path)
    requests = [Request("a"), Request("a", 1, 2), Request("b"), Request("c")]
    for misses in (4, 5):  # what is missing is asked for again
        assert list(map(bytes_of, cache.get_many(requests))) == [b"one", b"ne", b"two", None]
        assert (sorted(looks), cache.misses) == (["a", "b", "c"], misses)
        looks.clear()
    cache.invalidate()
    replacing.append(b"new")
    assert list(map(bytes_of, cached(store, tmp_path / "b").get_many(requests))) == [b"new", b"ew", b"two", None]
    assert bytes_of(cache.get_many(requests)[0]) == b"new"
    store._ranges, again = False, cached(store, tmp_path / "c")
    replacing.append(b"new")
    for expected in (b"new", None):  # made after a look for it, and gone by the next one
        store.delete_many(["a"])
        assert bytes_of(again.get_one(Request("a", 0, 9))) == expected


def bytes_of(found) -> bytes | None:
    return None if found is None else bytes(found)
