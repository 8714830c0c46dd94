"""How objects are sent to buckets: one request each, or parts beside each other where connections are idle."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from benchmarks.s3.objects import Answer, Objects, Request, error
from benchmarks.s3.server import S3Server
from gzarr.errors import ReadOnlyError, StoreError
from gzarr.identity.inputs import describe_input
from gzarr.storage import ObjectStore, ZarrStore, objects, open_store
from tests.support.servers import options_of

pytest.importorskip("obstore")

KB = 1000
VALUES = np.random.default_rng(1).integers(0, 1 << 30, (128, 512), "i4")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server, and sizes in kB where they are MiB."""
    monkeypatch.setattr(objects, "_PUT_NBYTES", 12 * KB)
    monkeypatch.setattr(objects, "_BUSY_PUT_NBYTES", 64 * KB)
    monkeypatch.setattr(objects, "_MIN_PART_NBYTES", 5 * KB)
    monkeypatch.setattr(objects, "_MAX_PART_NBYTES", 16 * KB)
    with S3Server(Objects({"bucket": {}})) as running:
        yield running


def opened(server: S3Server) -> ObjectStore:
    retry = {"max_retries": 1, "backoff": {"init_backoff": 0.01, "max_backoff": 0.02}}
    options = {**options_of(server.endpoint), "retry_config": retry}
    store, _ = open_store("s3://bucket/x", storage_options=options)
    assert isinstance(store, ObjectStore)
    return store


def asked(server: S3Server) -> tuple[int, int]:
    """Numbers of PUT and POST requests since this was asked last."""
    told = server.told()
    return told.get("PUT", 0), told.get("POST", 0)


@pytest.mark.parametrize(
    ("nbytes", "n_objects", "requests"),
    [
        (12 * KB, 1, (1, 0)),
        (13 * KB, 1, (2, 2)),
        (16 * KB, 20, (60, 40)),
        (16 * KB, 30, (60, 60)),
        (16 * KB, 33, (33, 0)),  # they take all connections
        (64 * KB, 1, (12, 2)),
        (65 * KB, 33, (33 * 12, 66)),
        (200 * KB, 1, (13, 2)),
    ],
)
def test_large_objects_are_sent_in_parts_while_connections_are_idle(
    server: S3Server, nbytes: int, n_objects: int, requests: tuple[int, int]
) -> None:
    store = opened(server)
    data = {f"c/{i}": bytes([i]) * nbytes for i in range(n_objects)}
    store.set_many(data.items())
    assert asked(server) == requests
    assert {key: bytes(store[key]) for key in data} == data


def test_few_connections_are_not_divided(server: S3Server) -> None:
    store = opened(server)
    with gzarr.config.set({"remote.concurrency": 1}):
        store.set("c/0", bytes(64 * KB))
    assert asked(server) == (1, 0)


def test_changes_on_a_condition_are_one_request(server: S3Server) -> None:
    store = opened(server)
    assert store.set_if_missing("c/0", bytes(40 * KB))
    assert not store.set_if_missing("c/0", b"")
    assert asked(server) == (2, 0)


def test_parts_that_fail_leave_the_old_object_and_no_parts(server: S3Server) -> None:
    store = opened(server)
    store.set("c/0", b"old")

    def hook(request: Request, answer: Answer) -> Answer:
        return Answer(500, b"<Error><Code>InternalError</Code></Error>") if "partNumber" in request.query else answer

    server.hook = hook
    with pytest.raises(StoreError, match=r"cannot write 'c/0'.*(InternalError|500)"):
        store.set("c/0", bytes(40 * KB))
    assert bytes(store["c/0"]) == b"old"
    assert server.told()["DELETE"] == 1


@pytest.mark.parametrize("ending", [Answer(200, cut=-1), error(400, "InvalidBlockList")], ids=["lost", "overtaken"])
def test_an_upload_that_the_server_has_forgotten_is_made_again(server: S3Server, ending: Answer) -> None:
    """It has, if the answer to its end was lost, or on Azure, if another writer of the object ended his first."""
    ended: list[str] = []

    def hook(request: Request, answer: Answer) -> Answer:
        if "uploadId" in request.query and request.method == "POST" and not ended:
            ended.append(request.key)
            server.objects.buckets["bucket"][request.key] = server.objects.put("bucket", "other", b"another's")
            return ending
        return answer

    server.hook = hook
    store = opened(server)
    store.set("c/0", bytes(40 * KB))
    assert (ended, bytes(store["c/0"])) == (["x/c/0"], bytes(40 * KB))


def test_a_store_in_memory_keeps_no_buffer_of_the_caller() -> None:
    store = ObjectStore(pytest.importorskip("obstore").store.MemoryStore())
    values = np.ones((128, 512), "i4")
    array = gzarr.create_array(store, **{**SHARDED, "chunks": (128, 512)}, device="cpu")
    array[:] = values
    values[:] = 7
    assert np.all(array[:] == 1)
    data = bytearray(bytes(2000))
    assert store.set_if_missing("x", data)
    data[0] = 1
    assert bytes(store["x"]) == bytes(2000)


@pytest.mark.parametrize("wrapped", [False, True])
def test_folders_that_deletions_have_emptied_are_not_listed(tmp_path: Path, wrapped: bool) -> None:
    inner = pytest.importorskip("obstore").store.LocalStore(tmp_path)
    store = ZarrStore(pytest.importorskip("zarr.storage").ObjectStore(inner)) if wrapped else ObjectStore(inner)
    store.set_many([(key, b"1") for key in ("a/b/c/0", "a/x", "d/e", "f/g/h")])
    store.delete_many(["a/b/c/0", "d/e"])
    assert (store.list_dir(), store.list_dir("a")) == (([], ["a", "f"]), (["x"], []))
    assert store.list_dir("a/b") == store.list_dir("d") == ([], [])
    assert sorted(store.list_prefix()) == ["a/x", "f/g/h"]


def test_stores_of_a_folder_have_one_name_and_the_same_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = pytest.importorskip("obstore").store.LocalStore
    monkeypatch.chdir(tmp_path)
    one, two = ObjectStore(local(tmp_path)), ObjectStore(local("."))
    assert str(one) == str(two) == f"file://{tmp_path}"
    assert one.lock_name("a") == two.lock_name("a")
    assert describe_input(gzarr.zeros(3, store=one, path="x")).said["place"] == f"file://{tmp_path}/x"


SHARDED: dict[str, Any] = {"shape": (128, 512), "dtype": "i4", "chunks": (128, 128), "compressors": None}


@pytest.mark.parametrize("location", ["start", "end"])
def test_shards_are_sent_from_the_buffers_of_their_chunks(
    server: S3Server, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ObjectStore, "_payload", lambda _, data, __: taken.append(len(data)) or list(data))
    taken: list[int] = []
    shards = {"shape": (128, 256), "index_location": location}
    array = gzarr.create_array(opened(server), **SHARDED, shards=shards, fill_value=0, device="cpu")
    del taken[:]
    array[:] = VALUES
    assert taken == [3, 3]  # two chunks of 64 KiB and the index
    array[:, 256:] = 0  # a shard without chunks is deleted
    assert len(list(array.store)) == 2
    assert np.array_equal(gzarr.open_array(opened(server), mode="r")[:, :256], VALUES[:, :256])
    array[:64, :256] = 1  # merged with what is stored
    assert taken[2:] == [1]
    assert np.array_equal(array[64:, :256], VALUES[64:, :256])
    assert np.all(array[:64, :256] == 1)


def test_small_chunks_are_joined(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ObjectStore, "_payload", lambda _, data, __: taken.append(len(data)) or list(data))
    taken: list[int] = []
    array = gzarr.create_array(opened(server), **{**SHARDED, "chunks": (64, 64)}, shards=(128, 512), device="cpu")
    array[:] = VALUES
    assert taken[-1] == 1
    assert np.array_equal(array[:], VALUES)


def test_segments_are_one_object(server: S3Server) -> None:
    store = opened(server)
    pieces = [b"a", np.arange(20_000, dtype="u2"), bytearray(b"b" * 70 * KB), b""]
    store.segments.set_many([("c/0", pieces), ("c/1", [b"x", b"y"])])
    assert bytes(store["c/0"]) == b"".join(map(bytes, pieces))
    assert bytes(store["c/1"]) == b"xy"
    with pytest.raises(ReadOnlyError):
        ObjectStore(store.store, read_only=True).segments.set_many([("c/0", pieces)])
    with pytest.raises(TypeError, match="'c/0': expected bytes"):
        store.segments.set_many([("c/0", ["text"])])


class Inverted(ObjectStore):
    """Stores chunks with all bits turned round."""

    def set_many(self, items: Iterable[tuple[str, Any]]) -> None:
        super().set_many((key, value if "json" in key else ~np.frombuffer(value, "u1")) for key, value in items)


def test_a_subclass_that_changes_what_is_written_is_given_whole_objects(server: S3Server) -> None:
    plain = opened(server)
    store = Inverted(plain.store, path="x")
    array = gzarr.create_array(store, **SHARDED, shards=(128, 256), device="cpu")
    array[:] = VALUES
    assert (store.segments, plain.segments is None) == (None, False)
    chunks = ~np.frombuffer(plain["c/0/0"], "u1")[: 128 * 256 * 4]
    assert np.array_equal(chunks.view("<i4").reshape(2, 128, 128)[1], VALUES[:, 128:256])
