"""S3 through s3fs: versions and sizes come from the headers of answers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gzarr
from benchmarks.s3.objects import Answer, Objects
from benchmarks.s3.objects import Request as Asked
from benchmarks.s3.server import S3Server
from gzarr.errors import ReplacedError
from gzarr.storage import FsspecStore, Request
from tests.support.servers import options_of

pytest.importorskip("s3fs")


def test_s3fs_is_asked_for_no_head() -> None:
    with S3Server(Objects({"bucket": {}})) as server:
        store = FsspecStore.from_url("s3://bucket/x", options_of(server.endpoint))
        gzarr.save_array(store, np.arange(1, 65), chunks=4, shards=64, compressors=None)
        server.told()
        z = gzarr.open_array(store, mode="r")
        assert z[5] == 6
        told = server.told()
        assert (told["GET"], told.get("HEAD", 0)) == (3, 0)  # metadata, index, chunk
        assert z[40:44].tolist() == [41, 42, 43, 44]
        assert server.told()["GET"] == 1
        server.objects.put("bucket", "x/c/0", server.objects.buckets["bucket"]["x/c/0"].data)
        assert z[5] == 6
        assert server.told()["GET"] == 3  # the chunk, which is refused; index and chunk
        with pytest.raises(ReplacedError):
            store.versions.get_pinned([Request("c/0", 0, 8)], {"c/0": '"other"'})
        store.delete_many(["c/0"])
        assert store.get_many([Request("c/0"), Request("c/0", -3)]) == [None, None]
        assert store.get_many([Request("zarr.json", -3, 2)]) == [store["zarr.json"][-3:-1]]
        assert server.told().get("HEAD", 0) == 0


def test_a_cache_of_fsspec_is_asked_first(tmp_path: Path) -> None:
    with S3Server(Objects({"bucket": {}})) as server:
        options = options_of(server.endpoint)
        gzarr.save_array(FsspecStore.from_url("s3://bucket/x", options), np.arange(8), chunks=4)
        chained = {"s3": options, "simplecache": {"cache_storage": str(tmp_path)}}
        store = FsspecStore.from_url("simplecache::s3://bucket/x", chained)
        assert gzarr.open_array(store, mode="r")[:].tolist() == list(range(8))
        server.told()
        assert store["c/0"]
        assert server.told().get("GET", 0) == 0


def test_an_answer_that_breaks_off_is_asked_for_again() -> None:
    n_cut = 0

    def cut(asked: Asked, answer: Answer) -> Answer:
        nonlocal n_cut
        if asked.key == "x/a" and asked.method == "GET" and n_cut < 2:
            n_cut += 1
            return replace(answer, cut=5)
        return answer

    with S3Server(Objects({"bucket": {}}), hook=cut) as server:
        store = FsspecStore.from_url("s3://bucket/x", options_of(server.endpoint))
        store["a"] = bytes(100)
        assert store.get_one(Request("a", 0, 50)) == bytes(50)
    assert n_cut == 2
