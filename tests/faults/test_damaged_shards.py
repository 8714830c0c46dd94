"""Shards with a damaged index, cut short, or with entries that point anywhere: an error that names shard and chunk."""

import struct

import google_crc32c
import numpy as np
import pytest

import gzarr
from gzarr import codecs
from gzarr.errors import ChunkError

DATA = np.arange(16 * 16, dtype="i4").reshape(16, 16)
MISSING = 2**64 - 1
#: The index of a shard of (8, 8) with chunks of (2, 4): 8 entries of 16 bytes, and a crc32c.
INDEX_NBYTES = 8 * 16 + 4


@pytest.fixture(params=["end", "start"])
def location(request):
    return request.param


def make(location="end", **keywords):
    shards = {"shape": (8, 8), "index_location": location}
    keywords = {"compressors": codecs.Crc32cCodec(), **keywords}
    return gzarr.create_array({}, data=DATA, chunks=(2, 4), shards=shards, **keywords)


def entries(shard, location):
    raw = shard[-INDEX_NBYTES:-4] if location == "end" else shard[: INDEX_NBYTES - 4]
    return np.frombuffer(raw, "<u8").reshape(4, 2, 2).copy()


def with_index(shard, location, index):
    """The shard with another index, whose checksum is right."""
    raw = np.asarray(index, "<u8").tobytes()
    raw += struct.pack("<I", google_crc32c.value(raw))
    return shard[:-INDEX_NBYTES] + raw if location == "end" else raw + shard[INDEX_NBYTES:]


KEY = "c/1/0"
#: Ways to read chunk (4, 0) of shard (1, 0): few chunks (by range), many chunks (the whole shard), one element.
READS = [np.s_[8:10, :4], np.s_[8:, :8], np.s_[9, 3], np.s_[8:12, :]]


def expect_error(z, match, *, coords=None):
    """All ways to read and write the damaged part fail and name the shard; the other shards are fine."""
    before = dict(z.store)
    for selection in READS:
        fresh = gzarr.open(z.store)
        for _ in range(2):  # again, with whatever was cached the first time
            with pytest.raises(ChunkError, match=match) as caught:
                fresh[selection]
            assert caught.value.key == KEY
            assert str(z.store) in str(caught.value)
            assert KEY in str(caught.value)
            if coords is not None:
                assert caught.value.chunk_coords == coords
                assert f"chunk {coords}" in str(caught.value)
    fresh = gzarr.open(z.store)
    with pytest.raises(ChunkError, match=match):
        fresh[8, 0] = -1
    with pytest.raises(ChunkError, match=match):
        fresh[:] = gzarr.open(z.store)
    z.store.update(before)
    assert dict(z.store) == before
    assert np.array_equal(fresh[:8], DATA[:8])
    assert np.array_equal(fresh[8:, 8:], DATA[8:, 8:])
    fresh[8:, :8] = DATA[8:, :8]
    assert np.array_equal(gzarr.open(z.store)[:], DATA)


def test_every_byte_of_the_index_changed(location):
    z = make(location)
    whole = z.store[KEY]
    begin = 0 if location == "start" else len(whole) - INDEX_NBYTES
    for position in range(begin, begin + INDEX_NBYTES):
        for mask in (1, 0x80):
            changed = bytearray(whole)
            changed[position] ^= mask
            z.store[KEY] = bytes(changed)
            for selection in READS[:2]:
                with pytest.raises(ChunkError, match=f"key '{KEY}'.*crc32c"):
                    z[selection]
    z.store[KEY] = bytes(changed)
    expect_error(z, "crc32c")


@pytest.mark.parametrize("kept", [0, 1, 4, 50, INDEX_NBYTES - 1])
def test_shorter_than_its_index(location, kept):
    z = make(location)
    z.store[KEY] = z.store[KEY][:kept]
    expect_error(z, "truncated|crc32c")


def test_cut_anywhere(location):
    z = make(location)
    whole = z.store[KEY]
    for kept in range(len(whole)):
        z.store[KEY] = whole[:kept]
        for selection in READS[1:3]:
            # With the index at the start, what comes before the cut can still be read.
            try:
                found = gzarr.open(z.store)[selection]
            except ChunkError as error:
                assert error.key == KEY  # noqa: PT017
                continue
            assert location == "start"
            assert np.array_equal(found, DATA[selection])


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        ((10**6, 36), "outside|points"),
        ((0, 10**6), "outside|points"),
        ((2**40, 36), "outside|points"),
        ((2**63, 36), "outside|points"),
        ((2**63 - 20, 36), "outside|points"),
        ((2**64 - 2, 36), "impossible|outside"),
        ((2**64 - 36, 36), "impossible|outside"),
        ((36, 2**64 - 2), "impossible|outside"),
        ((0, 2**62), "outside|points"),
        ((MISSING, 36), "impossible"),
        ((36, MISSING), "impossible"),
    ],
    ids=str,
)
def test_an_entry_that_points_outside(location, entry, match):
    z = make(location)
    index = entries(z.store[KEY], location)
    index[0, 0] = entry
    z.store[KEY] = with_index(z.store[KEY], location, index)
    expect_error(z, match)


@pytest.mark.parametrize(("moved", "size"), [(0, 0), (0, 1), (0, 35), (0, 37), (3, 36)])
def test_an_entry_of_the_wrong_size_or_for_the_wrong_chunk_bytes(location, moved, size):
    z = make(location)
    index = entries(z.store[KEY], location)
    assert index[0, 0, 1] == 36
    index[0, 0] += np.array([moved, size - 36]).astype("u8")
    z.store[KEY] = with_index(z.store[KEY], location, index)
    expect_error(z, "crc32c", coords=(4, 0))


def test_a_damaged_inner_chunk_is_named_and_its_neighbours_are_read(location):
    z = make(location)
    index = entries(z.store[KEY], location)
    shard = bytearray(z.store[KEY])
    shard[int(index[0, 0, 0]) + 5] ^= 1
    z.store[KEY] = bytes(shard)
    assert np.array_equal(z[10:, :8], DATA[10:, :8])
    # A write beside it copies the damaged chunk encoded: it must neither fail nor heal.
    z[15, 7] = -5
    assert z[15, 7] == -5
    z[15, 7] = DATA[15, 7]
    expect_error(z, "crc32c", coords=(4, 0))


def test_decoded_size_of_an_inner_chunk():
    z = make(compressors=codecs.ZstdCodec(1))
    other = gzarr.array(np.arange(7, dtype="i4"), compressors=codecs.ZstdCodec(1), store={})
    piece = other.store["c/0"]
    shard = z.store[KEY]
    index = entries(shard, "end")
    body = shard[:-INDEX_NBYTES] + piece
    index[0, 0] = len(shard) - INDEX_NBYTES, len(piece)
    z.store[KEY] = with_index(body + shard[-INDEX_NBYTES:], "end", index)
    expect_error(z, "zstd", coords=(4, 0))


def test_overlapping_entries_are_read_as_they_say():
    """Sharing bytes between chunks is legal: nothing to refuse."""
    z = make()
    index = entries(z.store[KEY], "end")
    index[1, 0] = index[0, 0]
    z.store[KEY] = with_index(z.store[KEY], "end", index)
    assert np.array_equal(z[10:12, :4], DATA[8:10, :4])


def test_counting_chunks_of_a_damaged_shard():
    z = make()
    z.store[KEY] = b"short"
    for call in (lambda: z.nchunks_initialized, lambda: z.info):
        with pytest.raises(ChunkError, match=f"key '{KEY}', codec 'sharding_indexed': the shard is truncated"):
            call()


@pytest.mark.parametrize("damage", ["outer index", "inner index", "inner chunk", "cut"])
def test_nested_shards(damage):
    inner = codecs.ShardingCodec(chunk_shape=(2, 2), codecs=(codecs.BytesCodec("little"), codecs.Crc32cCodec()))
    z = gzarr.create_array({}, data=DATA, chunks=(4, 4), shards=(8, 8), codecs=[inner])
    shard = bytearray(z.store[KEY])
    position = {"outer index": -10, "inner index": 4 * 20 + 10, "inner chunk": 3, "cut": None}[damage]
    if position is None:
        del shard[-100:]
    else:
        shard[position] ^= 1
    z.store[KEY] = bytes(shard)
    before = dict(z.store)
    for selection in (np.s_[8, 0], np.s_[8:10, :2], np.s_[8:, :8], np.s_[:]):
        with pytest.raises(ChunkError, match=f"key '{KEY}'.*crc32c"):
            gzarr.open(z.store)[selection]
    with pytest.raises(ChunkError):
        z[8, 0] = 1
    assert dict(z.store) == before
    assert np.array_equal(z[:8], DATA[:8])


def test_codecs_around_a_shard():
    shards = codecs.ShardingCodec(chunk_shape=(2, 4), codecs=(codecs.BytesCodec("little"),))
    z = gzarr.create_array({}, data=DATA, chunks=(8, 8), codecs=[shards, codecs.GzipCodec(1), codecs.Crc32cCodec()])
    whole = z.store[KEY]
    for bad in (b"", whole[:20], whole[:-1], whole[:10] + b"\0" + whole[11:]):
        z.store[KEY] = bad
        with pytest.raises(ChunkError, match=f"key '{KEY}'"):
            z[8, 0]
        with pytest.raises(ChunkError, match=f"key '{KEY}'"):
            z[8, 0] = 1
        assert z.store[KEY] == bad
    assert np.array_equal(z[:8], DATA[:8])


def test_a_shard_that_disappears_between_index_and_chunk_is_fill():
    class Vanishing(gzarr.MemoryStore):
        versions = gzarr.MemoryStore.versions
        armed = False

        def get_many(self, requests):
            found = super().get_many(requests)
            if self.armed:
                self._data.pop("c/0/0", None)
            return found

        def get_one(self, request):
            return self.get_many([request])[0]

    store = Vanishing()
    z = gzarr.create_array(store, data=DATA, chunks=(2, 4), shards=(8, 8), fill_value=3)
    store.armed = True
    assert z[0, 0] == 3
