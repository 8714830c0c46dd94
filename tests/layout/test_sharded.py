"""Shards against a dict of chunks: what is built is found again, and damage is named."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gzarr
from gzarr.codecs import BytesCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
from gzarr.errors import CodecError
from gzarr.layout import sharded as layout_module
from gzarr.layout.chunk_layout import Layout
from gzarr.layout.shard import check_overlaps, write_order
from gzarr.layout.sharded import Sharded
from gzarr.storage import CountingStore, MemoryStore, Request
from gzarr.storage.base import token_of

Chunks = dict[tuple[int, ...], bytes]


def layout_of(codecs: list[Any], shape: Any = (12, 8), chunks: Any = (12, 8)) -> Layout:
    return gzarr.create_array(shape=shape, chunks=chunks, dtype="u1", codecs=codecs)._io.layout


def raw(shape: tuple[int, ...], location: str = "end", inner: Any = None) -> ShardingCodec:
    return ShardingCodec(shape, codecs=[inner or BytesCodec()], index_location=location)


#: All have an object of 6 x 4 innermost chunks.
SHARDED: dict[str, Callable[[], Layout]] = {
    "index at the end": lambda: layout_of([raw((2, 2))]),
    "index at the start": lambda: layout_of([raw((2, 2), "start")]),
    "codecs around": lambda: layout_of([raw((2, 2)), GzipCodec(1), ZstdCodec(1)]),
    "transposed": lambda: layout_of([TransposeCodec((1, 0)), raw((2, 2))]),
    "nested": lambda: layout_of([raw((4, 4), "end", raw((2, 2)))]),
    "nested, indexes at the start": lambda: layout_of([raw((4, 4), "start", raw((2, 2), "start"))]),
    "nested three times": lambda: layout_of([raw((12, 4), "end", raw((4, 4), "start", raw((2, 2))))]),
    "nested, codecs within": lambda: layout_of(
        [ShardingCodec((4, 4), codecs=[raw((2, 2)), ZstdCodec(1)], index_location="start")]
    ),
    "rectilinear": lambda: (
        gzarr.create_array(shape=(20, 8), chunks=(2, 2), shards=[[12, 8], [8]], dtype="u1")._io.layout
    ),
}
COORDS = [(i, j) for i in range(6) for j in range(4)]


@pytest.fixture(params=SHARDED)
def layout(request: pytest.FixtureRequest) -> Layout:
    return SHARDED[request.param]()


def changes() -> st.SearchStrategy[Mapping[tuple[int, int], bytes | None]]:
    return st.dictionaries(st.sampled_from(COORDS), st.none() | st.binary(max_size=9), min_size=1, max_size=24)


# -- building and finding --------------------------------------------------------------------------------------------


@given(st.sampled_from(list(SHARDED)), st.lists(changes(), min_size=1, max_size=3), st.permutations(COORDS))
def test_what_is_built_is_found(name: str, steps: list[Any], asked: list[tuple[int, int]]) -> None:
    layout, store, model = SHARDED[name](), MemoryStore(), Chunks()
    stored: Any = None
    for changed in steps:
        stored = layout.build(stored, (0, 0), changed)
        model = {c: d for c, d in {**model, **changed}.items() if d is not None}
        assert (stored is None) == (not model)
        if stored is None:
            store.delete_many(["c/0/0"])
            continue
        store.set("c/0/0", stored)
        assert [None if d is None else bytes(d) for d in layout.extract(stored, (0, 0), asked)] == [
            model.get(c) for c in asked
        ]
    for wanted in (asked[:1], asked[:5], asked):
        token = token_of(store, "c/0/0")
        located = layout.locate(store, (0, 0), token, wanted=len(wanted)).located("c/0/0", wanted)
        found = [store.get_one(item) if isinstance(item, Request) else item for item in located]
        assert [None if d is None else bytes(d) for d in found] == [model.get(c) for c in wanted]


def test_nothing_is_found_where_no_shard_is(layout: Layout) -> None:
    assert layout.locate(MemoryStore(), (0, 0), wanted=24).located("c/0/0", COORDS) == [None] * 24
    assert layout.locate(MemoryStore(), (0, 0)).located("c/0/0", COORDS[:1]) == [None]


def test_removing_all_chunks_leaves_nothing(layout: Layout) -> None:
    stored = layout.build(None, (0, 0), dict.fromkeys(COORDS, b"x"))
    assert layout.build(stored, (0, 0), dict.fromkeys(COORDS)) is None
    assert layout.build(None, (0, 0), {(0, 0): None}) is None


def test_building_does_not_depend_on_the_order_of_changes(layout: Layout) -> None:
    data = {c: bytes([i]) for i, c in enumerate(COORDS)}
    backwards = dict(reversed(data.items()))
    assert layout.build(None, (0, 0), data) == layout.build(None, (0, 0), backwards)


def test_an_object_is_whole_with_all_its_chunks_within_the_array() -> None:
    layout = layout_of([raw((2, 2))], shape=(13, 7), chunks=(12, 8))
    for coords, nchunks in (((0, 0), 24), ((1, 0), 4)):
        assert layout.is_whole(coords, nchunks)
        assert not layout.is_whole(coords, nchunks - 1)


def test_the_index_is_laid_out_as_the_transpose_says() -> None:
    """The index of a shard behind a transpose has the transposed order: the second axis varies slowest."""
    plain = layout_of([raw((2, 2))]).build(None, (0, 0), {(1, 0): b"x"})
    turned = layout_of([TransposeCodec((1, 0)), raw((2, 2))]).build(None, (0, 0), {(1, 0): b"x"})
    entries = [np.frombuffer(bytes(shard or b"")[1:-4], "<u8").reshape(-1, 2) for shard in (plain, turned)]
    assert [np.flatnonzero(e[:, 0] == 0).tolist() for e in entries] == [[4], [1]]


# -- counting --------------------------------------------------------------------------------------------------------


def test_initialized_counts_the_chunks_of_the_first_level(layout: Layout) -> None:
    assert isinstance(layout, Sharded)
    store = MemoryStore()
    assert layout.initialized(store, (0, 0)) == 0
    store.set("c/0/0", layout.build(None, (0, 0), {(0, 0): b"", (0, 1): b"x", (5, 3): b"y"}) or b"")
    nested = len(layout.levels((12, 8))) > 1
    assert layout.initialized(store, (0, 0)) == (2 if nested else 3)


def test_kept_indexes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_module, "INDEX_CACHE_NBYTES", 2 * 4 * 16)
    array = gzarr.array(np.arange(40), chunks=2, shards=8)
    for i in range(0, 40, 8):
        assert array[i] == i
    assert len(array._io.layout._indexes) == 2  # type: ignore[attr-defined]


def test_of_stores_without_versions_shards_are_read_whole() -> None:
    """Nothing would tell that a shard was replaced between the reading of its index and of its chunks."""

    class Plain(MemoryStore):
        versions = None

    store = CountingStore(Plain())
    array = gzarr.array(np.arange(40), chunks=2, shards=8, store=store)
    store.reset()
    assert [array[i] for i in (0, 6)] == [0, 6]
    assert store.requests == [Request("c/0"), Request("c/0")]


# -- damage ----------------------------------------------------------------------------------------------------------


def shard_of(layout: Layout) -> bytes:
    return bytes(layout.build(None, (0, 0), {c: bytes([i]) * 5 for i, c in enumerate(COORDS)}) or b"")


def find_all(layout: Layout, stored: bytes) -> None:
    """Look for every chunk, one at a time and all at once, in memory and in a store."""
    store = MemoryStore({"c/0/0": stored})
    for chunks in ([c] for c in COORDS):
        for item in layout.locate(store, (0, 0), token_of(store, "c/0/0")).located("c/0/0", chunks):
            if isinstance(item, Request):
                found = store.get_one(item)
                if found is None or len(found) != item.length:
                    raise CodecError("short")
    layout.extract(stored, (0, 0), COORDS)


def test_a_truncated_shard_is_never_taken_for_whole(layout: Layout) -> None:
    stored = shard_of(layout)
    find_all(layout, stored)
    for size in {0, 1, 3, 19, len(stored) // 2, len(stored) - 1}:
        with pytest.raises(CodecError):
            layout.extract(stored[:size], (0, 0), COORDS)
        with pytest.raises(CodecError):
            find_all(layout, stored[:size])
        with pytest.raises(CodecError):
            layout.build(stored[:size], (0, 0), {(0, 0): b"new"})


@pytest.mark.parametrize(
    "entry", [(10**6, 5), (0, 10**6), (2**63, 2**63), (2**64 - 1, 5), (5, 2**64 - 1), (1, 2**64 - 2)]
)
@pytest.mark.parametrize("location", ["start", "end"])
def test_an_index_that_points_outside_is_refused(location: str, entry: tuple[int, int]) -> None:
    codec = ShardingCodec((2, 2), codecs=[BytesCodec()], index_codecs=[BytesCodec()], index_location=location)
    layout = layout_of([codec])
    stored = bytearray(shard_of(layout))
    at = 0 if location == "start" else len(stored) - 16 * 24
    stored[at : at + 16] = np.array(entry, "<u8").tobytes()
    with pytest.raises(CodecError, match=r"points outside|impossible entry"):
        layout.extract(bytes(stored), (0, 0), COORDS)
    with pytest.raises(CodecError):
        find_all(layout, bytes(stored))


def test_a_nested_index_must_not_point_into_its_neighbour() -> None:
    inner = ShardingCodec((2, 2), codecs=[BytesCodec()], index_codecs=[BytesCodec()])
    layout = layout_of([ShardingCodec((4, 4), codecs=[inner])])
    stored = bytearray(shard_of(layout))
    first = 4 * 5  # four chunks of five bytes, then the index of the first nested shard
    for nbytes in (10**3, first + 4 * 16 - 4):  # far beyond, and a byte of the next one
        stored[first : first + 16] = np.array([5, nbytes], "<u8").tobytes()
        store = MemoryStore({"c/0/0": bytes(stored)})
        for token in (None, token_of(store, "c/0/0")):  # fetched whole, and in ranges
            with pytest.raises(CodecError, match="points outside"):
                layout.locate(store, (0, 0), token).find([(0, 0)])
    with pytest.raises(CodecError, match="points outside"):
        layout.extract(bytes(stored), (0, 0), [(0, 0)])


def test_overlaps_are_found_whatever_lies_between() -> None:
    """A long chunk may reach over a short one into the one behind that."""
    for entries, n in (([(0, 30), (5, 2), (20, 5)], 2), ([(0, 10), (0, 10), (10, 5)], 0), ([(0, 12), (10, 5)], 1)):
        index = np.array(entries, np.uint64)
        if n:
            with pytest.raises(CodecError, match=f"{n} chunks overlap others"):
                check_overlaps(index, 64, 16, "end")
        else:
            check_overlaps(index, 64, 16, "end")


@pytest.mark.parametrize(
    ("name", "numbers"),
    [("lexicographic", None), ("colexicographic", (0, 3, 1, 4, 2, 5)), ("morton", (0, 3, 1, 4, 2, 5))],
)
def test_chunks_are_written_in_an_order(name, numbers):
    assert write_order(name, (2, 3)) == numbers
    assert write_order(name, (5,)) is None
    assert write_order(name, ()) is None
