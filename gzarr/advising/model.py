"""Models the cost of a read from the way an array is stored. Advice and its estimates come from here.

Geometry is exact: the chunks and objects that a read touches, and the number of chunks of each object. Bytes and
streams are means of a sample times these counts. Nothing here is a time. The rules:

- A chunk is fetched and decoded whole, however little of it is wanted.
- A shard costs a request for its index and requests for its chunks. Chunks that are adjacent, or as close as the gap
  for files, share a request; chunks are assumed to be stored in order and of equal size. The whole shard is fetched in
  one request if at least half of its chunks are wanted, if the store has no version tokens, or if codecs enclose the
  shard. (A GPU reads local files in parts in any case, which this ignores.)
- A GPU decodes in batches of whole objects. All streams of the batches in flight are decoded at once, and
`FULL_STREAMS` of
  them keep a large GPU busy.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.advising.access import Probe
from gzarr.devices import large_gpu_batch
from gzarr.indexing.grid import Axis, Grid, RegularAxis, nchunks
from gzarr.layout.sharded import WHOLE_SHARD_SHARE
from gzarr.storage.coalesce import MAX_GAP_NBYTES, MAX_NBYTES

#: Streams that keep a GPU busy: 132 multiprocessors (H100, H200) with 32 warps each, one warp a stream. Not measured.
FULL_STREAMS = 4096
#: Batches that a GPU has in flight.
BATCHES_IN_FLIGHT = 3
#: Says how many chunks a batch takes: (chunks of the read, decoded bytes of a chunk, its streams) -> chunks.
BatchNChunks: TypeAlias = Callable[[int, int, int], int]


@dataclass(frozen=True, slots=True)
class StoredLayout:
    """How an array is stored.

    Attributes
    ----------
    grid : Grid
        Its chunks.
    objects : Grid
        Its stored objects; the same as ``grid`` without shards.
    chunk_nbytes : float
        Decoded bytes of a chunk.
    encoded_nbytes : float
        Stored bytes of a stored chunk, on average.
    present : float
        Share of the chunks that are stored.
    streams : float
        Streams that a GPU decodes for a chunk, on average; 0 without compression.
    index_nbytes : int
        Bytes of a shard's index; 0 without shards.
    in_ranges : bool
        Whether chunks of an object can be fetched one by one.
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
        """Share of the objects that are stored: those with a chunk, if chunks are missing at random."""
        held = nchunks(self.grid) / max(nchunks(self.objects), 1)
        return 1.0 - float((1 - self.present) ** held)

    @property
    def nbytes(self) -> float:
        """Stored bytes of all chunks and indexes."""
        indexes = nchunks(self.objects) * self.present_objects * self.index_nbytes
        return nchunks(self.grid) * self.present * self.encoded_nbytes + indexes


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one read.

    Attributes
    ----------
    name : str
        Name of the read.
    wanted_nbytes : int
        Decoded bytes of the elements that are read.
    decoded_nbytes : float
        Decoded bytes of all chunks that are touched.
    read_nbytes : float
        Stored bytes fetched.
    chunks : int
        Chunks touched.
    streams : float
        Streams decoded.
    streams_per_batch : float
        Streams of a batch, on average.
    objects : int
        Stored objects touched.
    requests : int
        Requests to the store.
    """

    name: str
    wanted_nbytes: int
    decoded_nbytes: float
    read_nbytes: float
    chunks: int
    streams: float
    streams_per_batch: float
    objects: int
    requests: int

    @property
    def streams_at_once(self) -> float:
        """Streams of all batches in flight."""
        return min(self.streams, BATCHES_IN_FLIGHT * self.streams_per_batch)

    @property
    def amplification(self) -> float:
        """Decoded bytes for each requested byte."""
        return self.decoded_nbytes / max(self.wanted_nbytes, 1)

    @property
    def read_amplification(self) -> float:
        """Stored bytes fetched for each requested byte."""
        return self.read_nbytes / max(self.wanted_nbytes, 1)


@dataclass(frozen=True, slots=True, eq=False)
class _TouchedObjects:
    """Objects in which a read touches the same chunks.

    Attributes
    ----------
    nobjects : int
        Number of objects.
    nchunks : int
        Number of chunks in each.
    local : tuple of tuple of int
        Coordinates of these chunks in the object along each axis; their product is meant.
    places : array of int64, optional
        Instead of ``local``, numbers of the chunks in the object.
    """

    nobjects: int
    nchunks: int
    local: tuple[tuple[int, ...], ...] = ()
    places: NDArray[np.int64] | None = None

    def numbers(self, counts: tuple[int, ...]) -> NDArray[np.int64]:
        """Numbers of the chunks in an object with ``counts`` chunks along each axis, in order."""
        if self.places is not None:
            return np.sort(self.places)
        grid = np.ix_(*(np.asarray(numbers) for numbers in self.local))
        return np.asarray(np.ravel_multi_index(grid, counts), np.int64).reshape(-1)


def count(stored: StoredLayout, probe: Probe, itemsize: int, batch: BatchNChunks = large_gpu_batch) -> Cost:
    """The cost of a read. batch: how many chunks a batch takes."""
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
        streams_per_batch=streams / max(_batches(stored, chunks, objects, batch), 1),
        objects=objects,
        requests=sum(t.nobjects * n for t, (n, _) in zip(touched, fetched, strict=True)),
    )


def _fetched(stored: StoredLayout, touched: _TouchedObjects, counts: tuple[int, ...]) -> tuple[int, float]:
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


def _batches(stored: StoredLayout, chunks: int, objects: int, batch: BatchNChunks) -> int:
    """Number of batches of whole objects."""
    limit = batch(chunks, max(int(stored.chunk_nbytes), 1), round(stored.streams))
    each = max(math.ceil(limit / (chunks / max(objects, 1))), 1) if chunks else 1
    return math.ceil(objects / each)


def _by_axes(stored: StoredLayout, axes: Iterable[NDArray[np.int64] | None]) -> list[_TouchedObjects]:
    """The objects that a read of some indices of each axis touches."""
    touched: list[tuple[tuple[tuple[int, ...], ...], int]] = [((), 1)]
    for axis, objects, wanted in zip(stored.grid, stored.objects, axes, strict=True):
        along = _along(axis, objects, wanted)
        touched = [((*local, numbers), n * m) for local, n in touched for numbers, m in along.items()]
    return [_TouchedObjects(n, math.prod(map(len, local)), local) for local, n in touched]


def _along(axis: Axis, objects: Axis, wanted: NDArray[np.int64] | None) -> Counter[tuple[int, ...]]:
    """The chunks of an object that are touched along one axis, and the number of such objects."""
    if wanted is None and axis == objects:
        return Counter({(0,): axis.nchunks})
    if wanted is None and isinstance(axis, RegularAxis) and isinstance(objects, RegularAxis):
        each, n = _capacity(axis, objects), objects.nchunks
        whole = Counter({tuple(range(each)): n - 1} if n > 1 else {})
        whole[tuple(range(axis.nchunks - each * max(n - 1, 0)))] += min(n, 1)
        return whole
    chunks = np.arange(axis.nchunks) if wanted is None else np.unique(axis.locate_all(wanted))
    owners = objects.locate_all(axis.starts_of(chunks))
    local = chunks - axis.locate_all(objects.starts_of(owners))
    return Counter(tuple(local[owners == owner].tolist()) for owner in np.unique(owners))


def _by_points(
    stored: StoredLayout, points: Iterable[NDArray[np.int64]], counts: tuple[int, ...]
) -> list[_TouchedObjects]:
    """The objects that a read of single elements touches."""
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
    return [_TouchedObjects(1, group.size, places=group.astype(np.int64)) for group in groups]


def _capacity(axis: Axis, objects: Axis) -> int:
    """Chunks of the largest object along an axis, including those beyond the edge of the array."""
    longest = max(getattr(objects, "lengths", (objects.bounds(0)[1],)))
    return int(longest // max(axis.bounds(0)[1] - axis.bounds(0)[0], 1)) if axis != objects else 1
