"""Counts what a read costs, out of how an array is stored: the model that advice and its estimates come from.

Geometry is exact: which chunks and objects a read touches, how many of the chunks of an object. Bytes and streams are
means of a sample times these counts. Nothing here is a time. The rules that are counted:

- a chunk is fetched and decoded whole, however little of it is wanted;
- of a shard, the index and then the chunks are fetched, those together that lie next to each other or nearly (as far
  apart as for files; chunks are taken to lie in order, each as long as all); all of it in one request where half of
  its chunks or more are wanted, where the store cannot tell one version of an object from the next, and where codecs
  lie around the shard (local files are read piece by piece on a GPU whatever is wanted, which this leaves out);
- a GPU decodes in waves of whole objects, of so many decoded bytes; all streams of a wave are decoded at once, and
  `FULL_STREAMS` of them keep a large GPU busy.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gzarr.advising.access import Probe
from gzarr.indexing.grid import Axis, Grid, RegularAxis, nchunks
from gzarr.layout.sharded import WHOLE_SHARD_SHARE
from gzarr.storage.coalesce import MAX_GAP_NBYTES, MAX_NBYTES

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
    def present_objects(self) -> float:
        """Share of the objects that are there: those with a chunk, if chunks are there or missing at random."""
        held = nchunks(self.grid) / max(nchunks(self.objects), 1)
        return 1.0 - float((1 - self.present) ** held)

    @property
    def nbytes(self) -> float:
        """Stored bytes of all chunks and indexes."""
        indexes = nchunks(self.objects) * self.present_objects * self.index_nbytes
        return nchunks(self.grid) * self.present * self.encoded_nbytes + indexes


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
        requests: requests to the store.
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


@dataclass(frozen=True, slots=True, eq=False)
class _Touched:
    """Objects that a read touches alike.

    Attributes:
        nobjects: how many.
        nchunks: chunks wanted of each.
        local: which ones, by coordinates in the object: numbers along each axis, whose product is meant.
        places: which ones, instead, by number in the object.
    """

    nobjects: int
    nchunks: int
    local: tuple[tuple[int, ...], ...] = ()
    places: NDArray[np.int64] | None = None

    def numbers(self, counts: tuple[int, ...]) -> NDArray[np.int64]:
        """Numbers of the chunks in the object, in order. counts: chunks of an object along each axis."""
        if self.places is not None:
            return np.sort(self.places)
        grid = np.ix_(*(np.asarray(numbers) for numbers in self.local))
        return np.asarray(np.ravel_multi_index(grid, counts), np.int64).reshape(-1)


def count(stored: Stored, probe: Probe, itemsize: int, wave: tuple[int, int] = (WAVE_NBYTES, WAVE_NCHUNKS)) -> Cost:
    """What a read costs. wave: decoded bytes and chunks of one wave."""
    counts = tuple(_capacity(a, o) for a, o in zip(stored.grid, stored.objects, strict=True))
    touched = _by_points(stored, probe.points, counts) if probe.points is not None else _by_axes(stored, probe.axes)
    objects = sum(t.nobjects for t in touched)
    chunks = sum(t.nobjects * t.nchunks for t in touched)
    streams = chunks * stored.present * stored.streams
    fetched = [_fetched(stored, t, counts) for t in touched]
    return Cost(
        name=probe.name,
        wanted_nbytes=probe.nelements * itemsize,
        decoded_nbytes=chunks * stored.chunk_nbytes,
        read_nbytes=sum(t.nobjects * nbytes for t, (_, nbytes) in zip(touched, fetched, strict=True)),
        chunks=chunks,
        streams=streams,
        streams_per_wave=streams / max(_waves(stored, chunks, objects, wave), 1),
        objects=objects,
        requests=sum(t.nobjects * n for t, (n, _) in zip(touched, fetched, strict=True)),
    )


def _fetched(stored: Stored, touched: _Touched, counts: tuple[int, ...]) -> tuple[int, float]:
    """(requests, stored bytes fetched) of one object."""
    each = stored.present * stored.encoded_nbytes
    if not stored.sharded:
        return touched.nchunks, touched.nchunks * each
    if not stored.in_ranges or touched.nchunks >= math.prod(counts) * WHOLE_SHARD_SHARE:
        held = nchunks(stored.grid) / max(nchunks(stored.objects), 1)
        return 1, stored.index_nbytes + max(held, touched.nchunks) * each
    numbers = touched.numbers(counts)
    gaps = (np.diff(numbers) - 1) * each
    joined = float(gaps[gaps <= MAX_GAP_NBYTES].sum())
    nbytes = numbers.size * each + joined
    return 1 + int((gaps > MAX_GAP_NBYTES).sum()) + max(math.ceil(nbytes / MAX_NBYTES), 1), stored.index_nbytes + nbytes


def _waves(stored: Stored, chunks: int, objects: int, wave: tuple[int, int]) -> int:
    """Number of waves: whole objects, until there are chunks enough."""
    limit = min(max(int(wave[0] // max(stored.chunk_nbytes, 1)), 1), wave[1])
    each = max(math.ceil(limit / (chunks / max(objects, 1))), 1) if chunks else 1
    return math.ceil(objects / each)


def _by_axes(stored: Stored, axes: Iterable[NDArray[np.int64] | None]) -> list[_Touched]:
    """What a read of some indices of each axis touches."""
    found: list[tuple[tuple[tuple[int, ...], ...], int]] = [((), 1)]
    for axis, objects, wanted in zip(stored.grid, stored.objects, axes, strict=True):
        along = _along(axis, objects, wanted)
        found = [((*local, numbers), n * m) for local, n in found for numbers, m in along.items()]
    return [_Touched(n, math.prod(map(len, local)), local) for local, n in found]


def _along(axis: Axis, objects: Axis, wanted: NDArray[np.int64] | None) -> Counter[tuple[int, ...]]:
    """Which chunks of an object are touched along one axis, and of how many objects."""
    if wanted is None and axis == objects:
        return Counter({(0,): axis.nchunks})
    if wanted is None and isinstance(axis, RegularAxis) and isinstance(objects, RegularAxis):
        each, n = _capacity(axis, objects), objects.nchunks
        found = Counter({tuple(range(each)): n - 1} if n > 1 else {})
        found[tuple(range(axis.nchunks - each * max(n - 1, 0)))] += min(n, 1)
        return found
    chunks = np.arange(axis.nchunks) if wanted is None else np.unique(axis.locate_all(wanted))
    owners = objects.locate_all(axis.starts_of(chunks))
    local = chunks - axis.locate_all(objects.starts_of(owners))
    return Counter(tuple(local[owners == owner].tolist()) for owner in np.unique(owners))


def _by_points(stored: Stored, points: Iterable[NDArray[np.int64]], counts: tuple[int, ...]) -> list[_Touched]:
    """What a read of single elements touches."""
    pairs = list(zip(stored.grid, points, strict=True))
    chunks = np.unique(np.stack([axis.locate_all(p) for axis, p in pairs], axis=1), axis=0)
    columns = zip(stored.grid, stored.objects, chunks.T, strict=True)
    owners, local = [], []
    for axis, objects, column in columns:
        owners.append(objects.locate_all(axis.starts_of(column)))
        local.append(column - axis.locate_all(objects.starts_of(owners[-1])))
    inside = np.ravel_multi_index(tuple(local), counts)
    which = np.unique(np.stack(owners, axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    order = np.argsort(which, kind="stable")
    groups = np.split(inside[order], np.flatnonzero(np.diff(which[order])) + 1)
    return [_Touched(1, group.size, places=group.astype(np.int64)) for group in groups]


def _capacity(axis: Axis, objects: Axis) -> int:
    """Chunks of the largest object along an axis, beyond the array's edge too."""
    longest = max(getattr(objects, "lengths", (objects.bounds(0)[1],)))
    return int(longest // max(axis.bounds(0)[1] - axis.bounds(0)[0], 1)) if axis != objects else 1
