"""Fewer, larger reads: ranges of one object that lie near each other are fetched together and cut apart again."""

from collections.abc import Sequence
from typing import NamedTuple

from gzarr.storage.capabilities import Buffer, Readable, Request, host_view

#: Bytes between two ranges that are read and thrown away rather than making a second request. Measured with files in
#: the page cache (Linux 6, Python 3.11): one more range of an open file costs 0.9 us, as much as 16 KiB more of a
#: merged read, whose fresh memory is the dear part; across gaps of 64 KiB, merging is 2.5 times slower than not. Stores
#: across a network merge across larger gaps themselves (`gzarr.storage.remote`).
MAX_GAP_NBYTES = 1 << 14

#: Longest read that merging makes, in bytes; it bounds what a small result keeps alive, since results are views of the
#: merged read. The same as in zarr-python 3.4 (``array.sharding_coalesce_max_bytes``). Measured as above, 1 to 16 MiB
#: make no difference to speed, and 64 MiB are slower by half: C libraries no longer reuse memory of that size.
MAX_NBYTES = 1 << 24

#: The same across a network, where a long read is faster as several at once: a connection brings 50 to 100 MB/s.
WAITING_MAX_NBYTES = 1 << 22


class Coalesced(NamedTuple):
    """What to fetch, and where each original request is found in it.

    Attributes
    ----------
    requests : list of Request
        What to fetch.
    parts : list of tuple
        For each original request, the position in `requests` and the bytes of that answer, as (begin, end); None
        means all of it.
    """

    requests: list[Request]
    parts: list[tuple[int, tuple[int, int] | None]]

    def cut(self, blocks: Sequence[Buffer | None]) -> list[Buffer | None]:
        """The answer to each original request, as views of the answers to `requests`."""
        found: list[Buffer | None] = []
        for index, part in self.parts:
            block = blocks[index]
            found.append(block if part is None or block is None else host_view(block)[part[0] : part[1]])
        return found


def _candidates(requests: Sequence[Request]) -> dict[str, list[int]]:
    """Positions of the requests that could be merged, by key: at least two ranges of known place in one object."""
    by_key: dict[str, list[int]] = {}
    for position, (key, start, length) in enumerate(requests):
        if start is not None and length is not None and start >= 0 and length >= 0:
            by_key.setdefault(key, []).append(position)
    return {key: positions for key, positions in by_key.items() if len(positions) > 1}


def coalesce(
    requests: Sequence[Request], *, max_gap_nbytes: int = MAX_GAP_NBYTES, max_nbytes: int = MAX_NBYTES
) -> Coalesced:
    """Merge requests for ranges of one object that overlap or lie near each other.

    Requests for whole objects, suffixes, and ranges without a length stay as they are.

    Parameters
    ----------
    requests : sequence of Request
        What is wanted.
    max_gap_nbytes : int
        How many unwanted bytes to merge across, at most.
    max_nbytes : int
        How many bytes a merged request may have; a single request that is longer stays whole.

    Returns
    -------
    Coalesced
        The requests to make, and how to cut the answers.
    """
    candidates = _candidates(requests)
    merged: list[Request] = []
    parts: list[tuple[int, tuple[int, int] | None]] = [(0, None)] * len(requests)
    for position, request in enumerate(requests):
        positions = candidates.get(request[0])
        if positions is None or request[1] is None or request[1] < 0 or request[2] is None or request[2] < 0:
            parts[position] = (len(merged), None)
            merged.append(request)
        elif positions[0] == position:  # the first of its key brings all of them
            for run in _runs(requests, positions, max_gap_nbytes, max_nbytes):
                begin, end = run[0][0], max(end for _, end, _ in run)
                for part_begin, part_end, index in run:
                    whole = part_begin == begin and part_end == end
                    parts[index] = (len(merged), None if whole else (part_begin - begin, part_end - begin))
                merged.append(Request(request[0], begin, end - begin))
    return Coalesced(merged, parts)


def _runs(
    requests: Sequence[Request], positions: Sequence[int], max_gap_nbytes: int, max_nbytes: int
) -> list[list[tuple[int, int, int]]]:
    """Split the ranges of one object into runs that are read together, each a list of (begin, end, position)."""
    ranges = []
    for position in positions:
        _, start, length = requests[position]
        if start is not None and length is not None:
            ranges.append((start, start + length, position))
    ranges.sort()
    runs: list[list[tuple[int, int, int]]] = []
    run_begin = run_end = 0
    for item in ranges:
        begin, end, _ = item
        if runs and begin - run_end <= max_gap_nbytes and max(end, run_end) - run_begin <= max_nbytes:
            runs[-1].append(item)
            run_end = max(run_end, end)
        else:
            runs.append([item])
            run_begin, run_end = begin, end
    return runs


def get_coalesced(
    store: Readable, requests: Sequence[Request], *, max_gap_nbytes: int = MAX_GAP_NBYTES, max_nbytes: int = MAX_NBYTES
) -> list[Buffer | None]:
    """Fetch requests from a store in one ``get_many``, merging ranges that lie near each other.

    Parameters
    ----------
    store : Readable
        Where to read.
    requests : sequence of Request
        What is wanted.
    max_gap_nbytes, max_nbytes : int
        See `coalesce`.

    Returns
    -------
    list of Buffer or None
        The answer to each request, in order, as ``store.get_many(requests)`` would give. Parts of merged reads are
        views of them, not copies.
    """
    if len(requests) < 2:
        return store.get_many(requests)
    merged = coalesce(requests, max_gap_nbytes=max_gap_nbytes, max_nbytes=max_nbytes)
    return merged.cut(store.get_many(merged.requests))
