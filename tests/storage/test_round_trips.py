"""What is asked of servers, request by request: nothing twice, and nothing ahead of what brings the bytes."""

import contextlib
import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

import gzarr
from gzarr.codecs import BytesCodec, ShardingCodec
from gzarr.errors import ReplacedError
from gzarr.storage import CountingStore, HTTPStore, LoggingStore, ObjectStore, Request, open_store
from gzarr.storage.base import token_of, tokens_of
from gzarr.storage.wrappers import PinnedStore
from tests.support.fileserver import answer

pytest.importorskip("obstore")


class Log(list[tuple[str, str, bool]]):
    """(method, path, whether a range was asked for) of each request, in order.

    connections: how many brought them.
    """

    connections = 0


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[tuple[str, Log]]:
    """A server of a folder's files: (URL, what it was asked for)."""
    log = Log()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            log.connections += 1
            super().setup()

        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            log.append((self.command, self.path.lstrip("/"), "range" in headers))
            status, found, body = answer(folder, self.command, self.path, headers)
            self.send_response(status)
            for name, value in {**found, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body)

        do_HEAD = do_GET  # noqa: N815 - the base class's names

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", log
    finally:
        server.shutdown()
        thread.join()
        server.socket.close()


def memory() -> ObjectStore:
    return ObjectStore(pytest.importorskip("obstore.store").MemoryStore())


def sharded(store: Any, *, nested: bool = False) -> None:
    """1 to 64, in one shard of chunks of four."""
    codec = ShardingCodec((4,), codecs=[BytesCodec()])
    codecs = [ShardingCodec((16,), codecs=[codec])] if nested else [codec]
    z = gzarr.create_array(store, shape=128, chunks=64, dtype="i4", codecs=codecs)
    z[:64] = np.arange(1, 65)


# -- arrays --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_opening_and_reading_a_chunk(tmp_path: Path, zarr_format: int) -> None:
    gzarr.save_array(tmp_path / "a", np.arange(8), chunks=4, zarr_format=zarr_format)
    with serving(tmp_path) as (url, log):
        z = gzarr.open_array(f"{url}/a", mode="r", zarr_format=zarr_format)
        documents = ["zarr.json"] if zarr_format == 3 else [".zarray", ".zattrs", ".zgroup"]
        assert sorted(log) == [("GET", f"a/{name}", False) for name in documents]
        log.clear()
        assert z[5] == 5
        assert log == [("GET", "a/1" if zarr_format == 2 else "a/c/1", False)]


def test_what_is_opened_on_one_server_shares_its_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["a", "b/c.zarr", "d e~%20"]
    for name in names:
        gzarr.save_array(tmp_path / name, np.arange(8), chunks=4)
    with serving(tmp_path) as (url, log):

        def client(name: str, **options: Any) -> Any:
            store = open_store(f"{url}/{quote(name)}", storage_options=options)[0]
            assert isinstance(store, HTTPStore)
            assert str(store) == f"{url}/{quote(name)}".rstrip("/")
            assert gzarr.open_array(store, mode="r")[5] == 5
            assert gzarr.open_array(pickle.loads(pickle.dumps(store)), mode="r")[5] == 5
            return store.store

        first = client("b/c.zarr")
        assert client("a/") is client("b/c.zarr") is first
        assert client("d e~%20") is client("d e~%20") is not first  # which keys write otherwise
        other = client("a", headers={"X-A": "b"})
        assert other is client("b/c.zarr", headers={"X-A": "b"}) is not first
        monkeypatch.setenv("NO_PROXY", "somewhere.else")
        assert client("a") is not first
        log.connections = 0
        for _ in range(20):
            assert gzarr.open_array(f"{url}/a", mode="r")[5] == 5
        assert log.connections < 5


@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
def test_parts_of_a_shard(tmp_path: Path, nested: bool) -> None:
    """The answer that brings the index says the version: no request of its own asks for it."""
    sharded(tmp_path / "a", nested=nested)
    with serving(tmp_path) as (url, log):
        z = gzarr.open_array(f"{url}/a", mode="r")
        log.clear()
        assert z[5:7].tolist() == [6, 7]
        assert log == [("GET", "a/c/0", True)] * (3 if nested else 2)
        log.clear()
        assert z[6:13].tolist() == list(range(7, 14))
        assert log == [("GET", "a/c/0", True)]


def test_whole_shards_and_missing_ones(tmp_path: Path) -> None:
    sharded(tmp_path / "a")
    with serving(tmp_path) as (url, log):
        z = gzarr.open_array(f"{url}/a", mode="r")
        log.clear()
        assert z[:64].tolist() == list(range(1, 65))
        assert z[100] == 0
        assert log == [("GET", "a/c/0", False), ("GET", "a/c/1", True)]


@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
@pytest.mark.parametrize("tags", ["untagged", "weak"])
def test_shards_of_servers_without_tags(tmp_path: Path, tags: str, nested: bool) -> None:
    """The document already came without a tag, so the shard is asked for whole, and for nothing else."""
    sharded(tmp_path / tags / "a", nested=nested)
    with serving(tmp_path) as (url, log):
        z = gzarr.open_array(f"{url}/{tags}/a", mode="r")
        log.clear()
        assert [z[5], z[6]] == [6, 7]
        assert z[100] == 0
        shards = [("GET", f"{tags}/a/c/{i}", False) for i in (0, 0, 1)]
        assert log == shards


def test_a_shard_without_a_tag_where_the_metadata_have_one(tmp_path: Path) -> None:
    sharded(tmp_path / "a")
    (tmp_path / "a" / "c").rename(tmp_path / "c")
    (tmp_path / "a" / "untagged").mkdir()
    (tmp_path / "c").rename(tmp_path / "a" / "untagged" / "c")
    with serving(tmp_path) as (url, log):
        store = open_store(f"{url}/a")[0]
        assert store["zarr.json"]
        log.clear()
        view = PinnedStore(store, {})
        assert bytes(view.get_one(Request("untagged/c/0", -3, 3)) or b"") == store["untagged/c/0"][-3:]
        assert view.get_many([Request("untagged/c/0", 2, 4), Request("untagged/c/0")]) == [
            store["untagged/c/0"][2:6],
            store["untagged/c/0"],
        ]
        assert log[:2] == [("GET", "a/untagged/c/0", True), ("GET", "a/untagged/c/0", False)]
        assert token_of(view, "untagged/c/0") is None


def test_shards_with_tags_where_the_metadata_have_none(tmp_path: Path) -> None:
    """One shard is fetched in vain, then the server is known to give tags."""
    sharded(tmp_path / "a")
    (tmp_path / "a" / "untagged").mkdir()
    (tmp_path / "a" / "untagged" / "x").write_bytes(b"x")
    with serving(tmp_path) as (url, log):
        store = open_store(f"{url}/a")[0]
        z = gzarr.open_array(store, mode="r")
        assert store["untagged/x"] == b"x"
        log.clear()
        assert [z[5], z[6]] == [6, 7]
        assert log == [("GET", "a/c/0", ranged) for ranged in (False, True, True)]


def test_counting_the_chunks_of_a_shard() -> None:
    store = memory()
    sharded(store)
    watched = CountingStore(store)
    assert gzarr.open_array(watched, mode="r").nchunks_initialized == 16
    assert [request.key for request in watched.requests] == ["zarr.json", "c/0"]
    assert watched.sized == []


# -- versions ------------------------------------------------------------------------------------------------------


def test_consolidated_and_logged_stores_are_read_in_pinned_ranges() -> None:
    store = memory()
    root = gzarr.open_group(store, mode="w")
    root.create_array("a", data=np.arange(1, 65, dtype="i4"), chunks=4, shards=64)
    gzarr.consolidate_metadata(root)
    watched = CountingStore(store)
    z = gzarr.open_consolidated(LoggingStore(watched))["a"]
    watched.reset()
    assert z[5] == 6
    assert (watched.nbatches, len(watched.requests), watched.sized) == (2, 2, [])


def test_a_pinned_view_reads_the_version_that_it_read_first() -> None:
    store = memory()
    store["a"] = b"one of them"
    store["b"] = b"bee"
    versions = {"b": token_of(store, "b")}
    watched = CountingStore(store)
    view = PinnedStore(watched, versions)
    assert tokens_of(view, ["a", "b", "none"]) == [None, versions["b"], None]
    found = view.get_many([Request("a", -4), Request("b"), Request("none", 0, 1), Request("a", 0, 3), Request("none")])
    assert found == [b"them", b"bee", None, b"one", None]
    assert tokens_of(view, ["a", "b", "none"]) == [token_of(store, "a"), versions["b"], None]
    watched.reset()
    store["none"] = b"here"
    assert view.get_one(Request("none")) is None
    assert (watched.requests, watched.sized) == ([], [])
    store["a"] = b"two of them"
    with pytest.raises(ReplacedError, match="'a'"):
        view.get_one(Request("a", 0, 3))
    store.delete_many(["a"])
    with pytest.raises(ReplacedError, match="'a' was deleted"):
        view.get_one(Request("a", 0, 3))


@pytest.mark.parametrize("asked", [(0, 0), (3, 0), (1 << 63, 1), (4, 4), (9, None)])
def test_no_bytes_of_another_version_are_not_given(asked: tuple[int, int | None], tmp_path: Path) -> None:
    store = memory()
    store["a"] = b"eight by"
    old = {"a": token_of(store, "a")}
    store["a"] = b"four"
    with pytest.raises(ReplacedError, match="'a'"):
        store.versions.get_pinned([Request("a", *asked)], old)
