"""Object stores that fail: an error in passing is tried again, a lasting one is named, and no value is ever wrong."""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gzarr
from benchmarks.s3.objects import Answer, Objects, Request
from benchmarks.s3.server import S3Server
from gzarr.errors import ChunkError, GzarrError, StoreError
from gzarr.storage import FsspecStore, Store, open_store
from tests.support.servers import options_of

pytest.importorskip("obstore")

VALUES = np.arange(32 * 32, dtype="i4").reshape(32, 32)
LAYOUTS: dict[str, Any] = {"chunks": {"chunks": (8, 8)}, "shards": {"chunks": (8, 8), "shards": (16, 16)}}
Fault = Callable[[Answer], Answer]


def error(status: int, code: str) -> Fault:
    return lambda _: Answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())


def page(_: Answer) -> Answer:
    """What a captive portal answers."""
    headers = {"ETag": '"x"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
    return Answer(200, b"<html>Please log in</html>", headers)


def cut(part: float) -> Fault:
    return lambda answer: replace(answer, cut=int(part * len(answer.body)))


def shortened(answer: Answer) -> Answer:
    """Half of the body, with headers that fit it."""
    return replace(answer, body=answer.body[: len(answer.body) // 2])


#: What passes: tried again, or harmless.
PASSING: dict[str, Fault] = {
    "internal error": error(500, "InternalError"),
    "slow down": error(503, "SlowDown"),
    "too many requests": error(429, "TooManyRequests"),
    "request timeout": error(408, "RequestTimeout"),
    "reset before the answer": lambda answer: replace(answer, cut=-1),
    "reset after the head": cut(0),
    "reset in the body": cut(0.5),
    "slow": lambda answer: replace(answer, delay_s=0.05),
}
#: What lasts, and what the message says.
LASTING: dict[str, tuple[Fault, str]] = {
    "internal error": (error(500, "InternalError"), "InternalError"),
    "reset in the body": (cut(0.5), "reachable|not completed"),
    "expired token": (error(400, "ExpiredToken"), "credentials have expired"),
    "denied": (error(403, "AccessDenied"), "requires credentials, or rejects those given"),
    "missing bucket": (error(404, "NoSuchBucket"), "bucket or container named rightly"),
    "shortened": (shortened, "c/0/0.*(truncated|damaged)"),
    "page of a portal": (page, "c/0/0.*(truncated|damaged)"),
    "empty": (lambda answer: replace(answer, body=b""), "c/0/0.*(truncated|damaged)"),
}


@pytest.fixture
def server() -> Iterator[S3Server]:
    with S3Server(Objects({"bucket": {}})) as running:
        yield running


def store(server: S3Server, through: str = "obstore") -> Store:
    options = options_of(server.endpoint)
    if through == "fsspec":
        fs = pytest.importorskip("s3fs").S3FileSystem(
            **options, skip_instance_cache=True, config_kwargs={"retries": {"max_attempts": 1}}
        )
        fs.retries = 2
        return FsspecStore(fs, path="bucket/x")
    retry = {"max_retries": 2, "backoff": {"init_backoff": 0.01, "max_backoff": 0.02}}
    return open_store("s3://bucket/x", storage_options={**options, "retry_config": retry})[0]


def written(server: S3Server, layout: str) -> Any:
    kinds = {**LAYOUTS[layout], "compressors": gzarr.codecs.BloscCodec("lz4", 5, "shuffle")}
    array = gzarr.create_array(store(server), shape=(32, 32), dtype="i4", fill_value=0, **kinds)
    array[:] = VALUES
    return array


def inject(server: S3Server, methods: str, fault: Fault, times: float) -> None:
    """Replace the first answers to requests for chunks or shards."""
    numbers = itertools.count()

    def hook(request: Request, answer: Answer) -> Answer:
        chosen = request.method in methods.split() and "/c/" in request.key
        return fault(answer) if chosen and next(numbers) < times else answer

    server.hook = hook


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("fault", PASSING)
def test_what_passes_is_not_noticed(server: S3Server, layout: str, fault: str) -> None:
    array = written(server, layout)
    inject(server, "GET", PASSING[fault], 1)
    assert np.array_equal(gzarr.open_array(store(server), mode="r")[:], VALUES)
    for selection in (np.s_[:], np.s_[3:20, 5:30]):  # whole objects, and parts on a condition
        inject(server, "PUT POST", PASSING[fault], 1)
        array[selection] = VALUES[selection] + 1
    server.hook = None
    assert np.array_equal(array[:], VALUES + 1)


@pytest.mark.parametrize(("layout", "through"), [("chunks", "obstore"), ("shards", "obstore"), ("chunks", "fsspec")])
@pytest.mark.parametrize("fault", LASTING)
def test_what_lasts_is_named(server: S3Server, layout: str, fault: str, through: str) -> None:
    written(server, layout)
    array = gzarr.open_array(store(server, through), mode="r")
    made, message = LASTING[fault]
    inject(server, "GET", made, np.inf)
    start = time.perf_counter()
    with pytest.raises((ChunkError, StoreError), match=f"(?s)s3://bucket/x.*{message}"):
        array[:]
    assert time.perf_counter() - start < 60  # trying again for three minutes is the default of obstore


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_write_that_fails_leaves_old_or_new_objects(server: S3Server, layout: str) -> None:
    array = written(server, layout)
    numbers = itertools.count()
    denied = error(403, "AccessDenied")
    server.hook = lambda request, answer: denied(answer) if request.method == "PUT" and next(numbers) % 2 else answer
    with pytest.raises(GzarrError, match=r"(?s)s3://bucket/x.*c/\d/\d.*rejects those given"):
        array[:] = VALUES + 1
    server.hook = None
    n = LAYOUTS[layout].get("shards", (8, 8))[0]
    for i, j in itertools.product(range(0, 32, n), repeat=2):
        assert np.unique(array[i : i + n, j : j + n] - VALUES[i : i + n, j : j + n]).tolist() in ([0], [1])


@pytest.mark.parametrize("through", ["obstore", "fsspec"])
@pytest.mark.parametrize("after", [1, 2])
def test_a_shard_that_is_replaced_as_it_is_read_gives_one_version(server: S3Server, after: int, through: str) -> None:
    array = written(server, "shards")
    old = {key: each.data for key, each in server.objects.buckets["bucket"].items()}
    array[:] = VALUES * 977 % 4001
    new = {key: each.data for key, each in server.objects.buckets["bucket"].items()}
    for key, data in old.items():
        server.objects.put("bucket", key, data)
    numbers = itertools.count(1)

    def hook(request: Request, answer: Answer) -> Answer:
        if request.method == "GET" and request.key.endswith("c/0/0") and next(numbers) == after:
            server.objects.put("bucket", request.key, new[request.key])
        return answer

    server.hook = hook
    got = gzarr.open_array(store(server, through), mode="r")[3, :8]
    assert any(np.array_equal(got, each) for each in (VALUES[3, :8], VALUES[3, :8] * 977 % 4001))
    assert next(numbers) > after


def test_another_bucket_can_be_read_while_an_error_about_a_missing_one_is_handled(server: S3Server) -> None:
    written(server, "chunks")
    del server.objects.buckets["bucket"]["x/c/0/0"]
    options = {"storage_options": options_of(server.endpoint)}
    try:
        gzarr.open_array("s3://missing/x", mode="r", **options)
    except StoreError:
        assert gzarr.open_array("s3://bucket/x", mode="r", **options)[0, :9].tolist() == [0] * 8 + [8]


def test_a_server_that_does_not_answer_is_given_up(server: S3Server) -> None:
    written(server, "chunks")
    client = {"client_options": {"timeout": "200ms"}, "retry_config": {"max_retries": 1}}
    impatient, _ = open_store("s3://bucket/x", storage_options={**options_of(server.endpoint), **client})
    inject(server, "GET", lambda answer: replace(answer, delay_s=60), np.inf)
    with pytest.raises(StoreError, match=r"(?s)s3://bucket/x.*reachable"):
        impatient["c/0/0"]
