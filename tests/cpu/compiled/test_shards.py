"""Shards that the compiled loop writes in part are byte for byte those of the reference path; damaged ones stay."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, NumcodecsCodec, ShardingCodec, ZstdCodec
from gzarr.cpu.compiled import eligibility
from gzarr.cpu.compiled import write as compiled_write
from gzarr.errors import GzarrError
from tests.cpu.compiled.looping import Watched, both_ways, needs_loop
from tests.properties.cases import same

pytestmark = [needs_loop, pytest.mark.usefixtures("few_chunks_are_enough")]

#: Two shards of 12 chunks along the first axis, of which the second reaches over the edge; two along the other.
SHAPE, SHARD, CHUNK = (47, 37), (24, 24), (8, 6)
CODECS: dict[str, list[Any]] = {
    "plain": [],
    "blosc": [BloscCodec("lz4", 5, "shuffle", 4)],
    "zstd": [ZstdCodec(1)],
    "lz4": [NumcodecsCodec("lz4", {})],
}


def sharding(name: str, *, endian: Any = "little", checksum: bool = False, index: Any = "end") -> list[Any]:
    inner = [BytesCodec(endian), *CODECS[name], *[Crc32cCodec()] * checksum]
    return [ShardingCodec(CHUNK, inner, index_location=index)]


# -- bytes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("name", CODECS)
def test_the_loop_does_it_in_several_calls(
    name: str, checksum: bool, tmp_path: Path, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_write, "_MAX_NCHUNKS", 2)
    model = np.arange(1, 47 * 37 + 1, dtype="i4").reshape(SHAPE)

    def write(folder: Path) -> None:
        array = gzarr.create_array(
            folder, shape=SHAPE, chunks=SHARD, dtype="i4", codecs=sharding(name, checksum=checksum)
        )
        array[9:20, 3:30] = model[9:20, 3:30]  # shards that are not there
        array[...] = model
        array[9:20, 3:30] = model[9:20, 3:30] * 3
        array[8:16] = 0
        array[5, 5] = 7

    both_ways(tmp_path, write)
    assert (watched.written, watched.refused) == (10 + 42 + 10 + 7 + 1, 0)


# -- shards that others wrote ----------------------------------------------------------------------------------------


def forged(
    folder: Path, name: str, change: Any, *, endian: Any = "little", index: Any = "end"
) -> tuple[gzarr.Array, Path]:
    """An array of one shard of four chunks of four, without a checksum of its index. change: other entries
    of the index (4, 2), or what changes them and the bytes of the chunks.
    """
    inner = [BytesCodec(endian), *CODECS[name]]
    codecs = [ShardingCodec((4,), inner, index_codecs=[BytesCodec()], index_location=index)]
    array = gzarr.create_array(folder, shape=16, chunks=16, dtype="i4", codecs=codecs)
    array[...] = np.arange(1, 17, dtype="i4")
    path = folder / "c/0"
    data = path.read_bytes()
    body, table = (data[64:], data[:64]) if index == "start" else (data[:-64], data[-64:])
    entries = np.frombuffer(table, "<u8").reshape(4, 2).copy()
    if callable(change):
        body, entries = change(body, entries)
    else:
        entries[change[0]] = change[1]
    path.write_bytes(entries.tobytes() + body if index == "start" else body + entries.tobytes())
    return array, path


def garbled(body: bytes, entries: Any) -> Any:
    return b"\xee" * len(body), entries


def shortened(body: bytes, entries: Any) -> Any:
    entries[1, 1] -= 1
    return body, entries


def nothing(body: bytes, entries: Any) -> Any:
    return b"", entries[:2]


def shared(body: bytes, entries: Any) -> Any:
    """All entries are one chunk: what is done to one must not be seen in the others."""
    entries[:] = entries[0]
    return body, entries


def swollen(body: bytes, entries: Any) -> Any:
    """Copies of the entries have more bytes than the shard."""
    entries[:] = 0, len(body)
    return body, entries


def backwards(body: bytes, entries: Any) -> Any:
    gap, chunks = b"gap", [body[at : at + n] for at, n in entries.astype(int) - [int(entries[:, 0].min()), 0]]
    at = int(entries[:, 0].min())
    out = b""
    for i in (3, 1, 0, 2):
        entries[i, 0] = at + len(out) + len(gap)
        out += gap + chunks[i]
    return out, entries


#: Entries of the index that are something else, and shards that are.
CHANGES: dict[str, Any] = {
    "outside": (np.s_[2, 0], 10_000),
    "far outside": (np.s_[2], (2**63 - 1, 2**62)),
    "too long": (np.s_[3, 1], 10_000),
    "overflowing": (np.s_[1], (2**64 - 2, 8)),
    "half missing": (np.s_[0, 1], 2**64 - 1),
    "empty": (np.s_[1:, 1], 0),
    **{change.__name__: change for change in (garbled, shortened, nothing, shared, swollen, backwards)},
}


@pytest.mark.parametrize("key", [np.s_[1:3], np.s_[4:8], np.s_[2:14], np.s_[4:16]], ids=repr)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", CODECS)
def test_odd_shards_are_dealt_with_as_ever(name: str, change: str, key: slice, tmp_path: Path) -> None:
    index = "start" if key.start % 2 else "end"

    def write(folder: Path) -> None:
        array, path = forged(folder, name, CHANGES[change], endian="big", index=index)
        before = path.read_bytes()
        try:
            array[key] = np.arange(50, 66, dtype="i4")[key]
        except GzarrError:
            assert path.read_bytes() == before
            raise
        finally:
            assert not list(folder.rglob("*tmp*"))

    _, said = both_ways(tmp_path, write, GzarrError)
    assert said or change in ("shortened", "empty", "garbled", "shared", "swollen", "backwards")


def test_old_bytes_that_are_shared_stay_as_they_are(tmp_path: Path, watched: Watched) -> None:
    array, _ = forged(tmp_path, "plain", shared, endian="big")
    array[1:3] = 9
    same(array[...], np.array([1, 9, 9, 4] + [1, 2, 3, 4] * 3, "i4"))
    assert not watched.refused


# -- what is for the loop --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nchunks", "key", "loops"), [
    (8, np.s_[:15], False), (99, np.s_[:5], False), (200, np.s_[:5], True), (99, np.s_[:15], True)])  # fmt: skip
def test_shards_are_for_the_loop_where_it_saves_something(
    nchunks: int, key: slice, loops: bool, tmp_path: Path, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eligibility, "MIN_SAVED", 40)
    array = gzarr.create_array(tmp_path, shape=10 * nchunks, chunks=10, shards=10 * nchunks, dtype="i4")
    array[key] = 5
    assert bool(watched.written) is loops


def test_shards_that_may_become_large_take_the_reference_path(
    tmp_path: Path, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = gzarr.create_array(tmp_path, shape=400, chunks=10, shards=400, dtype="i4", compressors=None)
    monkeypatch.setattr(compiled_write, "_MAX_SHARD_NBYTES", 40 * (40 + 128))
    array[:390] = 5
    assert not watched.written  # with what the loop needs besides
    monkeypatch.setattr(compiled_write, "_MAX_SHARD_NBYTES", 40 * (40 + 128) + (1 << 14))
    array[:390] = 6
    assert watched.written == 39
    same(array[...], np.where(np.arange(400) < 390, 6, 0).astype("i4"))


# -- several writers -------------------------------------------------------------------------------------------------
