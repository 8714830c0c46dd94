"""Stores across a network: many requests at once, reads tied to versions, and errors that say what to do."""

import os
import pickle
import socket
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from benchmarks.s3.objects import Answer, Objects
from benchmarks.s3.objects import Request as Asked
from benchmarks.s3.server import S3Server
from gzarr import storage
from gzarr.errors import MetadataError, MissingExtraError, ReadOnlyError, ReplacedError, StoreError
from gzarr.storage.base import token_of
from gzarr.storage.remote import run_together
from gzarr.storage.urls import StoreURL, to_obstore
from tests.support.meeting import Meeting
from tests.support.servers import options_of

obstore = pytest.importorskip("obstore")
fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def s3(s3_options: dict[str, object]) -> storage.ObjectStore:
    store, _ = storage.open_store(f"s3://bucket/{uuid.uuid4().hex}", storage_options=s3_options)
    assert isinstance(store, storage.ObjectStore)
    return store


def served(server: tuple[str, Path]) -> tuple[str, Path]:
    """(URL, directory) of a new place on a server."""
    url, folder = server
    name = uuid.uuid4().hex
    return f"{url}/{name}", folder / name


# -- consolidated metadata -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_servers_without_listings_are_walked_by_metadata(http_server: tuple[str, Path], zarr_format: int) -> None:
    url, folder = served(http_server)
    root = gzarr.open_group(folder, "w", zarr_format=zarr_format)
    for i in range(20):
        root.create_array(f"g{i % 3}/x{i}", data=np.arange(i, i + 5))
    gzarr.consolidate_metadata(folder)
    store = storage.CountingStore(storage.open_store(url)[0])
    remote = gzarr.open_group(store, "r")
    assert repr(remote.tree()) == repr(gzarr.open_group(folder, "r").tree())
    assert (store.nbatches, store.listed, store.sized) == (4 - zarr_format, [], [])  # zarr.json is asked for first
    assert remote["g1/x4"][...].tolist() == [4, 5, 6, 7, 8]
    assert gzarr.open_consolidated(url)["g2/x5"][0] == 5


# -- concurrency ---------------------------------------------------------------------------------------------------


def test_a_setting_limits_the_calls_at_once(s3: storage.ObjectStore) -> None:
    meeting = Meeting(3)
    with gzarr.config.set({"remote.concurrency": 3}):
        s3.together(lambda _: meeting.attend(), range(30))
    assert meeting.most == 3


def test_calls_run_at_once_and_nested_calls_do_not_wait_for_each_other() -> None:
    def outer(i: int) -> int:
        return sum(run_together(lambda j: i * j, range(5)))

    assert run_together(outer, range(1000)) == [10 * i for i in range(1000)]
    meeting = Meeting(64)
    run_together(lambda _: meeting.attend(), range(64))
    assert meeting.met


def test_the_first_failure_is_raised_and_stops_the_rest() -> None:
    done = []

    def call(i: int) -> None:
        done.append(i)
        time.sleep(0.001)
        if i == 3:
            raise StoreError("three")

    with pytest.raises(StoreError, match="three"):
        run_together(call, range(100_000), concurrency=4)
    assert len(done) < 100_000  # the thread that fails may not run for long


def test_an_object_is_stored_by_one_request() -> None:
    data = bytes(6 << 20)
    with S3Server(Objects({"bucket": {}})) as server:
        store, _ = storage.open_store("s3://bucket/x", storage_options=options_of(server.endpoint))
        store["a"] = data
        told = server.told()
        assert (told.pop("most_at_once"), told) == (1, {"PUT": 1, "bytes_received": len(data), "bytes_sent": 0})
        assert store["a"] == data


def test_scattered_chunks_bring_few_bytes_that_nobody_wants() -> None:
    shape, chunk = (2, 1 << 22), 1 << 15

    def read(*selection: Any) -> tuple[int, int]:
        """The requests that a read makes, and the chunks that it brings."""
        z = gzarr.open_array(store, mode="r")
        server.told()
        assert np.array_equal(z.oindex[selection], values[np.ix_(*np.atleast_1d(*selection))].squeeze())
        told = server.told()
        return told["GET"], told["bytes_sent"] // chunk

    with S3Server(Objects({"bucket": {}})) as server:
        store, _ = storage.open_store("s3://bucket/x", storage_options=options_of(server.endpoint))
        values = np.random.default_rng(0).integers(1, 256, shape, "u1")
        gzarr.save_array(store, values, chunks=(1, chunk), shards=shape, compressors=None)
        assert read(0, [0, 4 * chunk, 8 * chunk]) == (4, 3)  # the index, and chunks that are 96 KiB from each other
        assert read(0, [0, 3 * chunk, 6 * chunk]) == (2, 7)  # 64 KiB
        assert read([0, 1], list(range(0, shape[1], chunk))) == (1, 256)
        # Half of it is read in ranges, because the other half is far more than a round trip is worth.
        assert read(0, list(range(0, shape[1], chunk))) == (2, 128)
        with gzarr.config.set({"remote.concurrency": 2}):  # no connection to spare
            assert read(0, [0, 4 * chunk, 8 * chunk]) == (2, 9)


# -- versions ------------------------------------------------------------------------------------------------------


def sharded(store: Any, value: int) -> None:
    z = gzarr.create_array(store, shape=64, chunks=4, shards=64, dtype="i8", overwrite=True, compressors=None)
    z[:] = np.arange(64) + value


@pytest.mark.parametrize("nested", [False, True])
def test_a_chunk_that_a_shard_lacked_is_seen_once_it_is_written(nested: bool, s3: storage.ObjectStore) -> None:
    inner = gzarr.codecs.ShardingCodec((16,), [gzarr.codecs.ShardingCodec((4,), [gzarr.codecs.BytesCodec()])])
    layout: Any = {"chunks": 64, "codecs": [inner]} if nested else {"chunks": 4, "shards": 64}
    writer = gzarr.create_array(s3, shape=64, dtype="i8", fill_value=0, **layout)
    writer[0] = 1
    watched = storage.CountingStore(s3)
    z = gzarr.open_array(watched, mode="r")
    assert (z[0], z[8], z[60]) == (1, 0, 0)
    writer[8] = 2
    writer[60] = 3
    assert (z[8], z[60]) == (2, 3)
    s3.delete_many(["c/0"])
    assert z[16] == z[0] == 0
    writer[20] = 4
    assert z[20] == 4


@pytest.mark.parametrize("kind", ["s3", "azure", "http"])
def test_a_read_of_another_version_is_refused(kind: str, request: pytest.FixtureRequest) -> None:
    if kind == "http":
        url, folder = served(request.getfixturevalue("http_server"))
        store, writer = storage.open_store(url)[0], storage.LocalStore(folder)
    else:
        from tests.contracts.stores import MAKERS

        writer = store = MAKERS[kind](Path(), request)  # type: ignore[assignment]
    writer["a"] = b"one of them"
    version = token_of(store, "a")
    assert store.versions.get_pinned([storage.Request("a", 0, 3), storage.Request("a", -4)], {"a": version}) == [
        b"one",
        b"them",
    ]
    writer["a"] = b"two of them"
    with pytest.raises(ReplacedError, match="'a'"):
        store.versions.get_pinned([storage.Request("a", 0, 3)], {"a": version})


def on_server(server: S3Server, *, through_fsspec: bool) -> Any:
    """A store in the bucket of a server."""
    if through_fsspec:
        pytest.importorskip("s3fs")
        return storage.FsspecStore.from_url("s3://bucket/x", options_of(server.endpoint))
    return storage.open_store("s3://bucket/x", storage_options=options_of(server.endpoint))[0]


@pytest.mark.parametrize("kind", ["s3", "s3fs"])
@pytest.mark.parametrize("weak", [False, True])
@pytest.mark.filterwarnings("ignore:.*cannot store objects on a condition")
def test_buckets_without_versions_are_read_by_whole_shards(kind: str, weak: bool) -> None:
    """A proxy has taken the entity tags away, or made weak ones of them, which no condition ever fits."""

    def spoil(asked: Asked, answer: Answer) -> Answer:
        if weak and asked.headers.get("if-match"):
            return Answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        headers = dict(answer.headers)
        tag = headers.pop("ETag", None) if asked.method != "PUT" else None
        return replace(answer, headers=headers | ({"ETag": f"W/{tag}"} if weak and tag else {}))

    with S3Server(Objects({"bucket": {}}), hook=spoil) as server:
        store = on_server(server, through_fsspec=kind == "s3fs")
        sharded(store, 100)
        server.told()
        z = gzarr.open_array(store)
        assert [z[5], z[6]] == [105, 106]
        assert server.told()["GET"] < 10
        z[7] = 9
        assert z[5:8].tolist() == [105, 106, 9]


@pytest.mark.parametrize("kind", ["s3", "http", "s3fs"])
def test_servers_without_ranges_send_each_shard_once(kind: str) -> None:
    with S3Server(Objects({"bucket": {}}, ranges=False)) as server:
        options = options_of(server.endpoint)
        values = np.arange(1, 4097).reshape(64, 64)
        gzarr.save_array("s3://bucket/x", values, chunks=(4, 4), shards=(32, 64), storage_options=options)
        store: Any = "s3://bucket/x"
        if kind == "http":
            store, options = f"{server.endpoint}/bucket/x", {}
        elif kind == "s3fs":
            pytest.importorskip("s3fs")
            store, options = storage.FsspecStore.from_url(store, options), {}
        z = gzarr.open_array(store, mode="r", storage_options=options or None)
        rows, columns = np.arange(0, 64, 9), np.arange(0, 64, 13)
        assert np.array_equal(z.oindex[rows, columns], values[np.ix_(rows, columns)])
        server.told()
        assert np.array_equal(z.oindex[rows, columns], values[np.ix_(rows, columns)])
        assert server.told()["GET"] == 2
        key = z.store.get_one(storage.Request("c/1/0", 8, 8))
        assert [key] == z.store.get_many([storage.Request("c/1/0", 8, 8)])


# -- URLs ----------------------------------------------------------------------------------------------------------


def test_options_reach_the_server(rclone_options: dict[str, object]) -> None:
    url = f"s3://bucket/{uuid.uuid4().hex}"
    root = gzarr.open_group(url, mode="w", storage_options=rclone_options)
    root.create_array("a", data=np.arange(10), chunks=3)
    assert str(root.store) == url
    assert gzarr.open_array(url, path="a", mode="r", storage_options=rclone_options)[:].sum() == 45
    assert gzarr.open(url, mode="r", storage_options=rclone_options)["a"].shape == (10,)
    assert gzarr.load(url, "a", storage_options=rclone_options).tolist() == list(range(10))
    gzarr.save(f"{url}/b", np.arange(3), storage_options=rclone_options)
    assert gzarr.load(StoreURL(f"{url}/b", rclone_options)).tolist() == [0, 1, 2]
    gzarr.zeros(4, store=f"{url}/c", storage_options=rclone_options)[:] = 1
    assert gzarr.group(f"{url}/d", storage_options=rclone_options).attrs.asdict() == {}
    n5 = gzarr.open(f"{url}/x.n5", mode="w", shape=4, chunks=2, storage_options=rclone_options)
    n5[:] = 3
    assert isinstance(n5.store, storage.N5Store)
    assert gzarr.open(f"{url}/x.n5", mode="r", storage_options=rclone_options)[:].tolist() == [3] * 4


def test_stores_of_one_bucket_share_a_client(s3_options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Making one takes longer than a request, and connections would be made anew."""
    place = f"s3://bucket/{uuid.uuid4().hex}"
    outer, inner, odd = (
        storage.open_store(f"{place}{end}", storage_options=s3_options)[0] for end in ("/", "/a", "/a%20b")
    )
    assert outer.store is inner.store is not odd.store
    inner["x"], inner["y/z"], odd["x"] = b"1", b"2", b"3"
    assert (sorted(outer), sorted(inner)) == (["a b/x", "a/x", "a/y/z"], ["x", "y/z"])
    assert (inner.list_dir(), outer.list_dir(), outer.nbytes_stored("a")) == ((["x"], ["y"]), ([], ["a", "a b"]), 2)
    copy = pickle.loads(pickle.dumps(inner))
    assert (copy, copy["x"], copy.set_if_missing("x", b"")) == (inner, b"1", False)
    copy.delete_many(["x", "y/z"])
    assert sorted(outer) == ["a b/x"]
    monkeypatch.setenv("AWS_SESSION_TOKEN", "another")
    assert storage.open_store(f"{place}/a", storage_options=s3_options)[0].store is not inner.store


@pytest.mark.parametrize("path", ["{folder}/token", "token.txt"])
def test_a_client_is_made_anew_when_a_file_of_credentials_has_changed(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients read such files once."""
    monkeypatch.chdir(tmp_path)
    token = tmp_path / path.format(folder=tmp_path)
    token.write_text("one")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", path.format(folder=tmp_path))
    stores = [storage.open_store(f"s3://bucket/{name}", storage_options={"region": "eu-west-1"})[0] for name in "ab"]
    assert stores[0].store is stores[1].store
    os.utime(token, ns=(1, 1))
    assert storage.open_store("s3://bucket/a", storage_options={"region": "eu-west-1"})[0].store is not stores[0].store


def test_s3_through_fsspec(rclone_options: dict[str, object]) -> None:
    s3fs = pytest.importorskip("s3fs")
    # The test server sends the checksum of the whole with a part of it.
    options = {**rclone_options, "config_kwargs": {"response_checksum_validation": "when_required"}}
    url = f"bucket/{uuid.uuid4().hex}"
    by_url = gzarr.open_group(f"s3://{url}", mode="w", storage_options=options)
    assert isinstance(by_url.store, storage.FsspecStore)
    by_url.create_array("a", data=np.arange(1000), chunks=10, shards=100)
    fs = s3fs.S3FileSystem(**options)
    for store in (
        s3fs.S3Map(url, s3=fs, check=False),
        storage.FSStore(url, fs=fs, mode="r"),
        storage.FSStore(f"s3://{url}", **options),
    ):
        root = gzarr.open_group(store, mode="r")
        assert isinstance(root.store, storage.FsspecStore) or root.read_only
        assert root["a"][5:995:10].tolist() == list(range(5, 995, 10))
        assert list(root) == ["a"]


def test_http_is_read_only_and_lists_directory_pages(http_server: tuple[str, Path]) -> None:
    url, folder = served(http_server)
    root = gzarr.open_group(str(folder), mode="w")
    root.create_array("a b/x", data=np.arange(10), chunks=3)
    remote = gzarr.open_group(url)
    assert isinstance(remote.store, storage.HTTPStore)
    assert remote["a b/x"][:].tolist() == list(range(10))
    assert sorted(remote.store) == sorted(root.store)
    assert list(remote.group_keys()) == ["a b"]
    with pytest.raises(ReadOnlyError, match="HTTP"):
        remote.create_group("c")
    with pytest.raises(ReadOnlyError):
        remote["a b/x"][:] = 0
    assert storage.FsspecStore.from_url(url)["a b/x/c/0"] == (folder / "a b" / "x" / "c" / "0").read_bytes()
    assert storage.FsspecStore.from_url(url).get_many(
        [storage.Request("zarr.json", 0, 1), storage.Request("none")]
    ) == [b"{", None]


class OddNames(fsspec.AbstractFileSystem):
    """A file system that lists names which no key may have, such as Azure's folder markers and S3's empty folders."""

    protocol = "odd"
    cachable = False

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        names = {"ok": "directory", ".": "directory", "..": "directory", "/": "directory", "": "file", "x": "file"}
        return [{"name": f"{path}/{name}", "type": kind, "size": 0} for name, kind in names.items()]


def test_names_that_are_not_allowed_lead_nowhere() -> None:
    for path in ("data", "/"):
        assert storage.FsspecStore(OddNames(), path=path).list_dir() == (["../", "./", "x"], ["ok"])


def test_links_that_are_refused_lead_nowhere(http_server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    url, folder = served(http_server)
    folder.mkdir()
    (folder / "zarr.json").write_bytes(b"{}")
    store = storage.open_store(url, mode="r")[0]
    page = [{"name": f"{url}/{name}"} for name in ("zarr.json", "%2e%2e/", "./", "a/", "")]
    monkeypatch.setattr("fsspec.implementations.http.HTTPFileSystem.ls", lambda self, url, **_: page)
    assert store.list_dir() == (["../", "./", "zarr.json"], ["a"])


def test_chains_and_references(http_server: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = served(http_server)
    gzarr.save(tmp_path / "x.zip", np.arange(10))
    folder.mkdir()
    (folder / "x.zip").write_bytes((tmp_path / "x.zip").read_bytes())
    for chain in (
        f"zip::{url}/x.zip",
        f"{url}/x.zip",
        f"zip::file://{tmp_path}/x.zip",
        f"simplecache::zip::{url}/x.zip",
    ):
        assert gzarr.open_array(chain, mode="r")[:].tolist() == list(range(10)), chain
    with pytest.raises(ReadOnlyError):
        gzarr.open_array(f"zip::file://{tmp_path}/x.zip", mode="r+")[:] = 0
    array = gzarr.save_array(tmp_path / "y.zarr", np.arange(6, dtype="i4"), zarr_format=2, compressor=None)
    assert array is None
    document = (tmp_path / "y.zarr" / ".zarray").read_text()
    references = {"version": 1, "refs": {".zarray": document, "0": [f"{tmp_path}/y.zarr/0", 0, 24]}}
    read = gzarr.open_array("reference://", mode="r", storage_options={"fo": references})
    assert read[:].tolist() == list(range(6))


def test_a_cache_of_fsspec_is_used_by_one_thread_at_a_time(http_server: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = served(http_server)
    data = np.arange(400).reshape(200, 2)
    gzarr.save_array(folder, data, chunks=(1, 2))
    options = {"filecache": {"cache_storage": str(tmp_path)}}
    arrays = [gzarr.open_array(f"filecache::{url}", mode="r", storage_options=options) for _ in range(2)]
    with ThreadPoolExecutor() as pool:
        np.testing.assert_array_equal(list(pool.map(np.asarray, arrays)), [data] * 2)


def test_objects_of_other_libraries_are_stores(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    zarr = pytest.importorskip("zarr")
    mapper = fsspec.get_mapper("memory://gzarr-mapper")
    gzarr.zeros(3, store=mapper)[:] = 4
    assert gzarr.open(mapper, mode="r")[:].tolist() == [4, 4, 4]
    kept, other = (pytest.importorskip("obstore.store").MemoryStore() for _ in range(2))
    gzarr.zeros(3, store=kept)[:] = 5
    assert gzarr.open(kept, mode="r")[:].tolist() == [5, 5, 5]
    for store in (zarr.storage.MemoryStore(), zarr.storage.LocalStore(tmp_path / "z"), zarr.storage.ObjectStore(other)):
        z = gzarr.create_array(store, name="a", shape=64, chunks=4, shards=16, dtype="i4")
        z[:] = np.arange(64)
        assert zarr.open_array(store, path="a", mode="r")[:].tolist() == list(range(64))
        assert gzarr.open_array(store, path="a", mode="r")[3:60:7].tolist() == list(range(3, 60, 7))
    assert isinstance(storage.open_store(zarr.storage.LocalStore(tmp_path / "z"))[0], storage.LocalStore)


# -- errors --------------------------------------------------------------------------------------------------------


def soon(call: Any, match: str) -> str:
    """The message of an error that is told without the minutes of trying again that are the default of obstore."""
    start = time.perf_counter()
    with pytest.raises((StoreError, MissingExtraError), match=match) as caught:
        call()
    assert time.perf_counter() - start < 60
    return str(caught.value)


def test_unreachable_servers_are_named_soon() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))  # and does not listen, nor does another one meanwhile
        nowhere = f"http://127.0.0.1:{sock.getsockname()[1]}"
        options = {"endpoint_url": nowhere, "anon": True, "region_name": "us-east-1"}
        assert "s3://bucket/x" in soon(lambda: gzarr.open("s3://bucket/x", "r", storage_options=options), "reachable")
        assert nowhere in soon(lambda: gzarr.open(f"{nowhere}/x.zarr", "r"), "reachable")


def test_wrong_credentials_and_buckets_are_named(rclone_options: dict[str, Any]) -> None:
    wrong = {**rclone_options, "key": "nobody"}
    message = soon(lambda: gzarr.open_group("s3://bucket/x", "r", storage_options=wrong), "credentials")
    assert "storage_options" in message
    message = soon(lambda: gzarr.open_group("s3://none/x", "r", storage_options=rclone_options), "bucket")
    assert "s3://none/x" in message
    assert "NoSuchBucket" in message


@pytest.mark.parametrize("through_fsspec", [False, True])
def test_expired_credentials_are_named(through_fsspec: bool) -> None:
    text = "<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
    with S3Server(Objects({"bucket": {}}), hook=lambda *_: Answer(400, text.encode())) as server:
        store = on_server(server, through_fsspec=through_fsspec)
        message = soon(lambda: store["a"], "have expired")
    assert "reachable" not in message


@pytest.mark.parametrize("url", ["s3://", "gs:///x", "az://"])
def test_a_url_without_a_bucket_is_refused(url: str) -> None:
    soon(lambda: storage.open_store(url), "names no bucket")


@pytest.mark.parametrize("given", ["x.zarr", "memory://a", "file:///tmp/x", {}, None])
def test_options_without_a_server_are_refused(given: Any) -> None:
    with pytest.raises(StoreError, match="storage_options"):
        gzarr.open_group(given, "r", storage_options={"anon": True})
    with pytest.raises((StoreError, MetadataError), match="storage_options"):
        gzarr.zeros(3, store=given, storage_options={"anon": True})


def test_missing_packages_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str) -> Any:
        raise ImportError(f"No module named {module!r}")

    monkeypatch.setattr(storage.extras, "import_module", missing)
    soon(lambda: storage.open_store("s3://bucket/x"), r"gzarr\[s3\]")
    soon(lambda: storage.open_store("gs://bucket/x"), r"gzarr\[gcs\]")
    soon(lambda: storage.open_store("az://bucket/x"), r"gzarr\[azure\]")
    soon(lambda: storage.open_store("http://host/x"), r"gzarr\[http\]")
    soon(lambda: storage.open_store("sftp://host/x"), r"gzarr\[fsspec\]")


def test_options_are_translated() -> None:
    assert to_obstore({"anon": True}) == {"skip_signature": True}
    assert to_obstore({"token": "anon"}) == {"skip_signature": True}
    assert to_obstore({"key": "a", "secret": "b", "client_kwargs": {"endpoint_url": "http://h"}}) == {
        "access_key_id": "a",
        "secret_access_key": "b",
        "endpoint": "http://h",
    }
    assert to_obstore({"connection_string": "AccountName=a;AccountKey=b==;BlobEndpoint=http://h/a;"}) == {
        "account_name": "a",
        "account_key": "b==",
        "endpoint": "http://h/a",
    }
    assert to_obstore({"profile": "work"}) is None
    soon(lambda: storage.open_store("s3://b", storage_options={"endpoint": 5}), "cannot open")


@pytest.mark.parametrize("name", ["client_options", ""])
def test_options_of_the_http_client_are_taken_with_those_of_the_store(name: str) -> None:
    client = {"allow_http": "true", "timeout": "7 seconds"}
    options = {"region": "x", **({name: client} if name else client)}
    store: Any = storage.open_store("s3://b", storage_options=options)[0]
    assert client.items() <= store.store.client_options.items()


@pytest.mark.parametrize("stored", [False, True])
def test_a_conditional_write_that_is_reset_is_done_once(stored: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the server has stored the object before the connection broke cannot be known."""
    store = storage.ObjectStore(obstore.store.MemoryStore())
    put, n_calls = obstore.put, 0

    def broken_at_first(*args: Any, **kwargs: Any) -> None:
        nonlocal n_calls
        n_calls += 1
        if n_calls > 1 or stored:
            put(*args, **kwargs)
        if n_calls == 1:
            raise obstore.exceptions.GenericError("kind: ConnectionReset")

    monkeypatch.setattr(obstore, "put", broken_at_first)
    assert store._put_if("a", b"mine", None)
    assert store["a"] == b"mine"
    assert not store._put_if("a", b"other", None)
    assert n_calls == 3
