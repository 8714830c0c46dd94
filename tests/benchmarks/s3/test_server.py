"""The S3 server of benchmarks and tests answers as Amazon's does, late, and counts."""

from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.s3.objects import Objects
from benchmarks.s3.server import BUCKET, S3Server, unchunked

obstore = pytest.importorskip("obstore")
from obstore.exceptions import AlreadyExistsError, PreconditionError  # noqa: E402
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


def test_signed_chunks_are_put_together() -> None:
    assert unchunked(b"3;chunk-signature=0\r\nabc\r\n2\r\n\r\n\r\n0\r\nx-amz-checksum-crc32:x\r\n\r\n") == b"abc\r\n"
