"""Counts what a read costs, out of how an array is stored: the model that advice and its estimates come from.

Geometry is exact: which chunks and objects a read touches, how many of the chunks of an object. Bytes and streams are
means of a sample times these counts. Nothing here is a time. The rules that are counted:

- a chunk is fetched and decoded whole, however little of it is wanted;
- of a shard, the index and then the chunks are fetched, one request each; all of it in one request where half of its
  chunks or more are wanted, where the store cannot tell one version of an object from the next, and where codecs lie
  around the shard (local files are read piece by piece on a GPU whatever is wanted, which this leaves out);
- a GPU decodes in waves of whole objects, of so many decoded bytes; all streams of a wave are decoded at once, and
  `FULL_STREAMS` of them keep a large GPU busy.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from gzarr.advising.access import Probe
from gzarr.grid import Axis, Grid, RegularAxis, nchunks
from gzarr.layout import WHOLE_SHARD_SHARE

#: Streams that keep a GPU busy: 132 multiprocessors (H100, H200) with 32 warps each, one warp a stream. Not measured.
FULL_STREAMS = 4096
#: A wave of a GPU with memory to spare: `MAX_WAVE_NBYTES` and `MAX_WAVE_NCHUNKS` of the GPU backend.
WAVE_NBYTES = 1 << 30
WAVE_NCHUNKS = 1 << 16


@dataclass(frozen=True, slots=True)
class Stored:
    """How an array is stored.

    Attributes:
        grid: its chunks.
        objects: its stored objects; the same as ``grid`` without shards.
        chunk_nbytes: decoded bytes of a chunk.
        encoded_nbytes: stored bytes of a chunk that is there, on average.
        present: share of the chunks that are there.
        streams: streams that a GPU decodes for a chunk, on average; 0 if nothing is compressed.
        index_nbytes: bytes of a shard's index; 0 without shards.
        in_ranges: whether chunks of an object are fetched one by one.
    """

    grid: Grid
    objects: Grid
    chunk_nbytes: float
    encoded_nbytes: float
    present: float
    streams: float
    index_nbytes: int = 0
    in_ranges: bool = True

    @property
    def sharded(self) -> bool:
        """Whether an object holds several chunks."""
        return self.index_nbytes > 0

    @property
    def nbytes(self) -> float:
        """Stored bytes of all chunks and indexes."""
        return nchunks(self.grid) * self.present * self.encoded_nbytes + nchunks(self.objects) * self.index_nbytes


@dataclass(frozen=True, slots=True)
class Cost:
    """What one read costs.

    Attributes:
        name: which read.
        wanted_nbytes: decoded bytes asked for.
        decoded_nbytes: decoded bytes of all chunks that are touched.
        read_nbytes: stored bytes fetched.
        chunks: chunks touched.
        streams: streams decoded.
        streams_per_wave: how many of them at once, on average.
        objects: stored objects touched.
        requests: requests to the store; adjacent ones may be joined.
    """

    name: str
    wanted_nbytes: int
    decoded_nbytes: float
    read_nbytes: float
    chunks: int
    streams: float
    streams_per_wave: float
    objects: int
    requests: int

    @property
    def amplification(self) -> float:
        """Decoded bytes for each wanted byte."""
        return self.decoded_nbytes / max(self.wanted_nbytes, 1)

    @property
    def read_amplification(self) -> float:
        """Stored bytes fetched for each wanted byte."""
        return self.read_nbytes / max(self.wanted_nbytes, 1)


def count(stored: Stored, probe: Probe, itemsize: int, wave: tuple[int, int] = (WAVE_NBYTES, WAVE_NCHUNKS)) -> Cost:
    """What a read costs. wave: decoded bytes and chunks of one wave."""
    touched = _touched(stored, probe)
    objects = sum(touched.values())
    chunks = sum(k * n for k, n in touched.items())
    streams = chunks * stored.present * stored.streams
    requests, read_nbytes = _fetched(stored, touched)
    return Cost(
        name=probe.name,
        wanted_nbytes=probe.nelements * itemsize,
        decoded_nbytes=chunks * stored.chunk_nbytes,
        read_nbytes=read_nbytes,
        chunks=chunks,
        streams=streams,
        streams_per_wave=streams / max(_waves(stored, chunks, objects, wave), 1),
        objects=objects,
        requests=requests,
    )


def _fetched(stored: Stored, touched: Counter[int]) -> tuple[int, float]:
    """(requests, stored bytes fetched)."""
    present = stored.present * stored.encoded_nbytes
    if not stored.sharded:
        chunks = sum(k * n for k, n in touched.items())
        return chunks, chunks * present
    capacity = math.prod(_capacity(a, o) for a, o in zip(stored.grid, stored.objects, strict=True))
    held = nchunks(stored.grid) / max(nchunks(stored.objects), 1)
    requests, nbytes = 0, 0.0
    for k, n in touched.items():
        whole = not stored.in_ranges or k >= capacity * WHOLE_SHARD_SHARE
        requests += n if whole else n * (1 + k)
        nbytes += n * (stored.index_nbytes + (max(held, k) if whole else k) * present)
    return requests, nbytes


def _waves(stored: Stored, chunks: int, objects: int, wave: tuple[int, int]) -> int:
    """Number of waves: whole objects, until there are chunks enough."""
    limit = min(max(int(wave[0] // max(stored.chunk_nbytes, 1)), 1), wave[1])
    each = max(math.ceil(limit / (chunks / max(objects, 1))), 1) if chunks else 1
    return math.ceil(objects / each)


def _touched(stored: Stored, probe: Probe) -> Counter[int]:
    """By number of its chunks that are touched: how many objects."""
    if probe.points is not None:
        return _touched_by_points(stored, probe.points)
    found = Counter({1: 1})
    for axis, objects, wanted in zip(stored.grid, stored.objects, probe.axes, strict=True):
        along = _along(axis, objects, wanted)
        pairs = product(found.items(), along.items())
        found = Counter()
        for (a, n), (b, m) in pairs:
            found[a * b] += n * m
    return found


def _along(axis: Axis, objects: Axis, wanted: NDArray[np.int64] | None) -> Counter[int]:
    """`_touched` along one axis."""
    if wanted is not None:
        chunks = np.unique(axis.locate_all(wanted))
        return _tally(objects.locate_all(axis.starts_of(chunks)))
    if axis is objects or axis == objects:
        return Counter({1: axis.nchunks})
    if not isinstance(axis, RegularAxis) or not isinstance(objects, RegularAxis):
        return _tally(objects.locate_all(axis.starts_of(np.arange(axis.nchunks))))
    each, n = _capacity(axis, objects), objects.nchunks
    found = Counter({each: max(n - 1, 0)})
    if n:
        found[axis.nchunks - each * (n - 1)] += 1
    return found


def _touched_by_points(stored: Stored, points: Iterable[NDArray[np.int64]]) -> Counter[int]:
    pairs = list(zip(stored.grid, points, strict=True))
    chunks = np.unique(np.stack([axis.locate_all(p) for axis, p in pairs], axis=1), axis=0)
    starts = [axis.starts_of(column) for axis, column in zip(stored.grid, chunks.T, strict=True)]
    owners = np.stack([axis.locate_all(s) for axis, s in zip(stored.objects, starts, strict=True)], axis=1)
    return Counter(np.unique(owners, axis=0, return_counts=True)[1].tolist())


def _tally(owners: NDArray[np.int64]) -> Counter[int]:
    return Counter(np.unique(owners, return_counts=True)[1].tolist())


def _capacity(axis: Axis, objects: Axis) -> int:
    """Chunks of the first object along an axis, beyond the array's edge too."""
    return (objects.bounds(0)[1] - objects.bounds(0)[0]) // max(axis.bounds(0)[1] - axis.bounds(0)[0], 1)
