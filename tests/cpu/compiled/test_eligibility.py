"""Which reads and writes the compiled loop takes, and what is said of the others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    NumcodecsCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)
from gzarr.config import config
from gzarr.cpu.compiled import library
from gzarr.storage import LocalStore, MemoryStore
from gzarr.storage.wrappers import ReadableFiles
from tests.cpu.compiled.looping import Watched

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")

BY_LOOP = "by the compiled loop"


def reasons(array: gzarr.Array) -> tuple[str, str]:
    """What `placement` says of reads and writes of many chunks."""
    why = {row.step: row.why for row in array.placement}
    return why["bulk reads"], why["bulk writes"]


def made(store: Any, **options: Any) -> gzarr.Array:
    return gzarr.create_array(
        store, **{"name": "a", "shape": (40, 40), "chunks": (10, 10), "dtype": "i4", "overwrite": True} | options
    )


def test_files_of_known_codecs_are_for_the_loop(tmp_path: Path) -> None:
    assert reasons(made(tmp_path)) == (BY_LOOP, BY_LOOP)
    assert [row.step for row in made(tmp_path).placement] == ["bytes", "zstd", "bulk reads", "bulk writes"]


@pytest.mark.parametrize(
    ("codecs", "why"),
    [
        ([BytesCodec(), NumcodecsCodec("bz2")], "codec 'numcodecs.bz2' is not in the compiled loop"),
        ([BytesCodec(), Crc32cCodec(), ZstdCodec(1)], "codec 'zstd' is not in the compiled loop"),
        ([BytesCodec(), ZstdCodec(1), GzipCodec(1)], "codec 'gzip' is not in the compiled loop"),
        ([ShardingCodec((5, 5), [BytesCodec()]), ZstdCodec(1)], "codecs are around shards"),
    ],
)
def test_placement_says_why_a_chain_is_not_for_the_loop(codecs: list[Any], why: str, tmp_path: Path) -> None:
    read, written = reasons(made(tmp_path, codecs=codecs))
    assert read.startswith("by the reference path: ")
    assert why in read
    assert read == written


def test_placement_says_why_a_store_is_not_for_the_loop(tmp_path: Path) -> None:
    read, written = reasons(made(MemoryStore()))
    assert read == written == BY_LOOP

    class Own(LocalStore):
        @property
        def files(self) -> Any:
            return ReadableFiles(super().files)

        def set_many(self, items: Any) -> None:
            super().set_many(items)

    read, written = reasons(made(Own(tmp_path)))
    assert (read, "only the store" in written) == (BY_LOOP, True)


def test_placement_says_what_else_is_in_the_way(tmp_path: Path) -> None:
    made(tmp_path)
    cached = reasons(gzarr.open_array(tmp_path, path="a", chunk_cache=1 << 20))
    assert ("cached" in cached[0], cached[1]) == (True, BY_LOOP)
    record = np.dtype([("x", "<f4")])
    codecs = [BytesCodec("big")]
    assert "byte order" in reasons(made(tmp_path, dtype=record, codecs=codecs))[0]
    assert "differ in shape" in reasons(made(tmp_path, chunks=([10, 30], [20, 20])))[0]
    transposed = [TransposeCodec((1, 0)), ShardingCodec((5, 5), [BytesCodec()])]
    assert "transposed" in reasons(made(tmp_path, codecs=transposed))[1]
    blosc = [BytesCodec(), BloscCodec("lz4", 1, "shuffle", typesize=4)]
    assert "larger" in reasons(made(tmp_path, shape=(9000, 9000), chunks=(9000, 9000), codecs=blosc))[0]


def test_the_setting_counts_at_once(tmp_path: Path, watched: Watched) -> None:
    array = made(tmp_path)
    array[...] = 5
    assert watched.written
    before = watched.written, watched.done
    with config.set({"cpu.native": False}):
        assert set(reasons(array)) == {"by the reference path: disabled by the setting cpu.native"}
        array[...] = 6
        assert (array[...] == 6).all()
    assert (watched.written, watched.done) == before
    assert (array[...] == 6).all()
    assert watched.done > before[1]
    assert reasons(array) == (BY_LOOP, BY_LOOP)


def test_placement_says_that_there_is_no_extension(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = made(tmp_path)
    assert reasons(opened) == (BY_LOOP, BY_LOOP)
    with monkeypatch.context() as patch:
        patch.setattr(library, "_loaded", lambda: (None, "the extension was not built"))
        unopened = made(tmp_path, codecs=[BytesCodec(), ZstdCodec(3)])
        for array in (opened, unopened):
            assert all("the extension was not built" in why for why in reasons(array))
    assert reasons(opened) == (BY_LOOP, BY_LOOP)
