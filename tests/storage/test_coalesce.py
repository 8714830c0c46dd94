"""Merged reads must give what separate reads give, in no more requests than needed."""

from hypothesis import given
from hypothesis import strategies as st

from gzarr.storage import CountingStore, MemoryStore, Request
from gzarr.storage.coalesce import MAX_GAP_NBYTES, MAX_NBYTES, coalesce, get_coalesced

requests = st.lists(
    st.builds(
        Request,
        st.sampled_from(["a", "b", "missing"]),
        st.none() | st.integers(-40, 130),
        st.none() | st.integers(0, 50),
    ),
    max_size=15,
)


def make_store() -> CountingStore:
    return CountingStore(MemoryStore({"a": bytes(range(100)), "b": bytes(range(255, 215, -1))}))


@given(requests, st.integers(0, 30), st.integers(1, 80))
def test_answers_are_those_of_separate_reads(batch: list[Request], gap: int, longest: int) -> None:
    store = make_store()
    expected = store.get_many(batch)
    store.reset()
    assert get_coalesced(store, batch, max_gap_nbytes=gap, max_nbytes=longest) == expected
    assert store.nbatches == 1
    assert len(store.requests) <= len(batch)


@given(requests, st.integers(0, 30), st.integers(1, 80))
def test_merged_reads_cover_their_parts_and_keep_to_the_limits(batch: list[Request], gap: int, longest: int) -> None:
    merged, parts = coalesce(batch, max_gap_nbytes=gap, max_nbytes=longest)
    assert len(parts) == len(batch)
    wanted: dict[int, list[tuple[int, int]]] = {}
    for request, (index, part) in zip(batch, parts, strict=True):
        assert merged[index].key == request.key
        start, length = merged[index].start, merged[index].length
        if part is None:
            assert merged[index] == request
        else:
            assert start is not None
            assert length is not None
            assert request.start == start + part[0]
            assert request.length == part[1] - part[0]
            assert 0 <= part[0] <= part[1] <= length
            wanted.setdefault(index, []).append((request.start or 0, request.length or 0))
    for index, ranges in wanted.items():
        assert (merged[index].length or 0) <= max(longest, *(length for _, length in ranges))
    assert sorted({index for index, _ in parts}) == list(range(len(merged)))


def test_a_range_within_another_does_not_end_what_is_merged() -> None:
    batch = [Request("a", 0, 50), Request("a", 10, 5), Request("a", 52, 5)]
    assert coalesce(batch, max_gap_nbytes=4).requests == [Request("a", 0, 57)]


def test_the_gap_and_the_length_limit_merging() -> None:
    batch = [Request("a", 0, 10), Request("a", 15, 10), Request("a", 31, 10)]
    assert coalesce(batch, max_gap_nbytes=5).requests == [Request("a", 0, 25), Request("a", 31, 10)]
    assert coalesce(batch, max_gap_nbytes=6).requests == [Request("a", 0, 41)]
    assert coalesce(batch, max_gap_nbytes=6, max_nbytes=40).requests == [Request("a", 0, 25), Request("a", 31, 10)]
    assert coalesce(batch, max_gap_nbytes=4).requests == batch
    far = [Request("a", 0, 1), Request("a", MAX_GAP_NBYTES + 2, 1)]
    assert coalesce(far).requests == far
    long = [Request("a", 0, MAX_NBYTES), Request("a", MAX_NBYTES, 1)]
    assert coalesce(long).requests == long


def test_overlapping_and_equal_ranges_are_read_once() -> None:
    batch = [Request("a", 5, 10), Request("a", 0, 30), Request("a", 5, 10), Request("a", 20, 20)]
    assert coalesce(batch).requests == [Request("a", 0, 40)]
    equal = [Request("a", 5, 10)] * 3
    assert coalesce(equal) == ([Request("a", 5, 10)], [(0, None)] * 3)


def test_what_cannot_be_merged_passes_through() -> None:
    batch = [Request("a"), Request("a", -3), Request("a", 7), Request("b", 0, 5), Request("a", 2, 3), Request("a")]
    store = make_store()
    assert get_coalesced(store, batch) == make_store().get_many(batch)
    assert store.requests == batch
    assert coalesce(batch) == (batch, [(i, None) for i in range(6)])
