"""The S3 server of benchmarks and tests answers as Amazon's does, late, and counts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.s3.objects import Answer, Objects, Request
from benchmarks.s3.server import BUCKET, S3Server, unchunked

obstore = pytest.importorskip("obstore")
from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError  # noqa: E402
from obstore.store import S3Store  # noqa: E402

MIB = 1 << 20


@pytest.fixture
def server() -> Iterator[S3Server]:
    with S3Server(Objects({BUCKET: {}})) as running:
        yield running


def client(server: S3Server) -> Any:
    keys = {"access_key_id": "x", "secret_access_key": "x", "region": "us-east-1"}
    retries: Any = {"max_retries": 0}
    options: Any = {"allow_http": True}
    return S3Store(BUCKET, endpoint=server.endpoint, client_options=options, retry_config=retries, **keys)


def test_ranges_and_conditions(server: S3Server) -> None:
    store = client(server)
    old = obstore.put(store, "a/b +&é", b"0123456789")["e_tag"]
    assert bytes(obstore.get_range(store, "a/b +&é", start=2, length=3)) == b"234"
    assert bytes(obstore.get(store, "a/b +&é", options={"range": {"suffix": 3}}).bytes()) == b"789"
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "a/b +&é", b"new", mode="create")
    new = obstore.put(store, "a/b +&é", b"new", mode={"e_tag": old})["e_tag"]
    with pytest.raises(PreconditionError):
        obstore.put(store, "a/b +&é", b"lost", mode={"e_tag": old})
    with pytest.raises(PreconditionError):
        obstore.get(store, "a/b +&é", options={"if_match": old})
    assert bytes(obstore.get(store, "a/b +&é", options={"if_match": new}).bytes()) == b"new"
    with pytest.raises(FileNotFoundError):
        obstore.get(store, "a")


def test_uploads_in_parts_copies_lists_and_deletions(server: S3Server) -> None:
    store, data = client(server), bytes(range(256)) * (6 * MIB // 256)
    obstore.put(store, "parts", data, use_multipart=True, chunk_size=5 * MIB)
    told = server.told()
    assert (told["POST"], told["PUT"], told["bytes_received"] >= len(data)) == (2, 2, True)
    assert bytes(obstore.get(store, "parts").bytes()) == data
    obstore.copy(store, "parts", "copies/one")
    for page, keys in ((1, ["copies/one", "parts"]), (1000, ["copies/one", "parts"])):
        assert [o["path"] for found in obstore.list(store, chunk_size=page) for o in found] == keys
    found = obstore.list_with_delimiter(store)
    assert ([o["path"] for o in found["objects"]], found["common_prefixes"]) == (["parts"], ["copies"])
    obstore.delete(store, ["parts", "copies/one"])
    assert server.objects.buckets == {BUCKET: {}}


def test_pages_of_a_listing_go_on_where_the_last_ended() -> None:
    objects = Objects({BUCKET: {}})
    for key in ("a/1", "a/2", "b", "c/1"):
        objects.put(BUCKET, key, b"")
    seen, token = [], ""
    while True:
        query = {"list-type": "2", "max-keys": "2", "delimiter": "/", "continuation-token": token}
        page = objects.answer(Request("GET", BUCKET, "", query, {})).body.decode()
        seen += [part.partition("<")[0] for part in page.replace("<Prefix>", "<Key>").split("<Key>")[1:]]
        if "<IsTruncated>false" in page:
            break
        token = page.partition("<NextContinuationToken>")[2].partition("<")[0]
    assert seen == ["a/", "b", "c/"]


def test_answers_are_late_slow_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(bytes(MIB))
    with S3Server(Objects({BUCKET: {}}, tmp_path), delay_s=0.03, rate=20e6) as server:
        store = client(server)
        start = time.perf_counter()
        assert len(obstore.get(store, "a/b").bytes()) == MIB
        assert time.perf_counter() - start > 0.03 + (MIB - (1 << 18)) / 20e6
        assert server.told() == {"GET": 1, "bytes_received": 0, "bytes_sent": MIB, "most_at_once": 1}
        assert server.told() == {}


def test_a_hook_replaces_answers_and_cuts_them(server: S3Server) -> None:
    server.objects.put(BUCKET, "a", bytes(MIB))
    answers = iter([Answer(500), Answer(200, bytes(MIB), cut=1000), Answer(200, b"x")])
    server.hook = lambda *_: next(answers)
    for _ in range(2):
        with pytest.raises(GenericError):
            obstore.get(client(server), "a").bytes()
    assert bytes(obstore.get(client(server), "a").bytes()) == b"x"


def test_signed_chunks_are_put_together() -> None:
    assert unchunked(b"3;chunk-signature=0\r\nabc\r\n2\r\n\r\n\r\n0\r\nx-amz-checksum-crc32:x\r\n\r\n") == b"abc\r\n"
