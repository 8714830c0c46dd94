"""Samples a few chunks of an array: their stored sizes, their streams, and the result of a re-encoding.

Positions are drawn in elements, the same ones for every grid over the same shape, so that two layouts are compared on
the same data. Nothing is listed: the number of requests does not grow with the array.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gzarr.advising.chains import BLOSC, compressors_of
from gzarr.advising.model import StoredLayout
from gzarr.chunk_io.array_io import ArrayIO
from gzarr.chunk_io.prepare import find_shardings, prepare_array
from gzarr.codecs.chain import complete, prepare
from gzarr.codecs.spec import ArrayRepr, CodecSpec, fill_of
from gzarr.cpu.codecs.frames import BLOSC_HEADER
from gzarr.devices import backend_for
from gzarr.hierarchy.array import Array
from gzarr.indexing.grid import Grid, chunk_shape, nchunks
from gzarr.indexing.keys import Coords
from gzarr.storage.base import Buffer, Request, host_view, token_of

#: Number of chunks sampled, and of regions re-encoded.
NSAMPLED = 16
#: Limits on the stored chunks, and on their decoded bytes, that are read to be re-encoded.
TRIAL_NBYTES = 64 << 20
TRIAL_NCHUNKS = 4096
#: Stored bytes from which a shard that cannot be read in part is left out of the sample.
_WHOLE_NBYTES = 64 << 20
#: Most bytes that are encoded to learn how a compressor cuts chunks.
_PROBE_NBYTES = 16 << 20
#: Codecs that only append bytes to a chunk.
_SUFFIXES = ("crc32c", "numcodecs.crc32c", "numcodecs.fletcher32")
_MEMCPY, _WHOLE, _MOST_SPLITS, _LEAST_SPLIT = 2, 16, 16, 128

_HOST = backend_for("cpu")


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of how an array is stored.

    Attributes
    ----------
    stored : Stored
        Input of the model.
    versions : bool
        Whether the store has version tokens, so that shards are read in ranges.
    nsampled : int
        Number of chunks looked at.
    npresent : int
        Number of those that are stored.
    """

    stored: StoredLayout
    versions: bool
    nsampled: int
    npresent: int


@dataclass(frozen=True, slots=True)
class Reencoding:
    """The result of re-encoding regions of an array.

    Attributes
    ----------
    nregions : int
        Number of regions; 0 if reading them would take too long.
    present : float
        Share of regions that hold more than the fill value.
    ratio : float
        Stored bytes per decoded byte of those.
    """

    nregions: int
    present: float
    ratio: float


def positions(shape: tuple[int, ...], n: int) -> list[Coords]:
    """Coordinates of random elements, the same ones for the same shape."""
    rng = np.random.default_rng(1)
    return [tuple(int(rng.random() * extent) for extent in shape) for _ in range(n)]


def coords_at(grid: Grid, shape: tuple[int, ...]) -> list[Coords]:
    """The chunks at these positions, or all chunks if there are few."""
    if nchunks(grid) <= NSAMPLED:
        return [tuple(map(int, c)) for c in np.ndindex(*(axis.nchunks for axis in grid))]
    coords = [tuple(a.locate(i) for a, i in zip(grid, at, strict=True)) for at in positions(shape, NSAMPLED)]
    return list(dict.fromkeys(coords))


def io_of(array: Array) -> ArrayIO:
    """The layout and the chains of an array on the host."""
    return prepare_array(array.metadata, array.store, array.path, _HOST)


def sample(array: Array) -> Sample:
    """Look at a few stored chunks. Raises StoreError, CodecError for a damaged index."""
    io = io_of(array)
    shardings, specs = find_shardings(array.metadata.codecs, array.ndim)
    sizes: list[int] = []
    streams: list[float] = []
    looked = 0
    versions = True
    chunk_nbytes = _nbytes(array, io.layout.grid)
    for coords in coords_at(io.layout.grid, array.shape):
        key, nbytes, head = _look(io, coords, specs)
        if nbytes is None:
            continue
        looked += 1
        if nbytes:
            versions = token_of(io.store, key) is not None
            sizes.append(nbytes)
            streams.append(_streams_in(head, specs, chunk_nbytes))
    wrapped = any(sharding.wrap for sharding in shardings)
    each = math.prod(
        (o.bounds(0)[1] - o.bounds(0)[0]) // (a.bounds(0)[1] - a.bounds(0)[0])
        for a, o in zip(io.layout.grid, io.layout.objects, strict=True)
    )
    stored = StoredLayout(
        grid=io.layout.grid,
        objects=io.layout.objects,
        chunk_nbytes=chunk_nbytes,
        encoded_nbytes=fmean(sizes) if sizes else chunk_nbytes,
        present=len(sizes) / looked if looked else 1.0,
        streams=fmean(streams) if streams else streams_of(specs, array, chunk_nbytes),
        index_nbytes=16 * each + 4 if shardings else 0,
        in_ranges=versions and not wrapped,
    )
    return Sample(stored, versions, looked, len(sizes))


def _nbytes(array: Array, grid: Grid) -> int:
    """Decoded bytes of the first chunk."""
    itemsize = 16 if array.metadata.data_type.dtype.hasobject else array.metadata.data_type.dtype.itemsize
    return math.prod(chunk_shape(grid, (0,) * len(grid))) * itemsize


def _look(io: ArrayIO, coords: Coords, specs: Sequence[CodecSpec]) -> tuple[str, int | None, Buffer]:
    """(key of a chunk's object; its stored bytes: 0 if missing, None if unknown at low cost; its first bytes)."""
    store, layout = io.store, io.layout
    starts = [axis.bounds(c)[0] for axis, c in zip(layout.grid, coords, strict=True)]
    owner = tuple(axis.locate(s) for axis, s in zip(layout.objects, starts, strict=True))
    key = layout.key(owner)
    size = store.getsize(key)
    if size is None:
        return key, 0, b""
    version = token_of(store, key)
    if layout.objects is layout.grid:
        beginning = Request(key) if version is None else Request(key, 0, BLOSC_HEADER.size)
        head = store.get_one(beginning) if _is_blosc(specs) else b""
        return key, size, head or b""
    if version is None and size > _WHOLE_NBYTES:
        return key, None, b""
    (located,) = layout.locate(store, owner, version).located(key, [coords])
    if located is None:
        return key, 0, b""
    if not isinstance(located, Request):
        return key, host_view(located).nbytes, located
    head = store.get_one(Request(key, located.start, BLOSC_HEADER.size)) if _is_blosc(specs) else b""
    return key, located.length or 0, head or b""


def _is_blosc(specs: Sequence[CodecSpec]) -> bool:
    """Whether chunks begin with a Blosc header: only checksums come after Blosc."""
    last = next((s for s in reversed(specs) if s.name not in _SUFFIXES), None)
    return last is not None and last.name in BLOSC


def _streams_in(head: Buffer, specs: Sequence[CodecSpec], chunk_nbytes: int) -> float:
    """Streams of an encoded chunk, from its first bytes."""
    if not compressors_of(specs):
        return 0
    if not _is_blosc(specs) or host_view(head).nbytes < BLOSC_HEADER.size:
        return 1
    _, _, flags, typesize, nbytes, blocksize, _ = BLOSC_HEADER.unpack_from(host_view(head))
    if flags & _MEMCPY or not blocksize or not typesize:
        return 1
    split = not flags & _WHOLE and typesize <= _MOST_SPLITS and blocksize // typesize >= _LEAST_SPLIT
    whole, short = divmod(int(nbytes), int(blocksize))
    return float(whole * (typesize if split else 1) + (short > 0))


def streams_of(specs: tuple[CodecSpec, ...], array: Array, chunk_nbytes: float) -> float:
    """Streams of a chunk of some size, as the compressor cuts zeros."""
    dtype = array.metadata.data_type.dtype
    if not compressors_of(specs) or dtype.hasobject:
        return float(bool(compressors_of(specs)))
    if not _is_blosc(specs):
        return 1
    n = max(min(int(chunk_nbytes), _PROBE_NBYTES) // dtype.itemsize, 1)
    blosc = [s for s in specs if s.name in BLOSC]
    encoded = encode(blosc, np.zeros(n, dtype), None)
    return _streams_in(encoded, blosc, n * dtype.itemsize) * max(chunk_nbytes / (n * dtype.itemsize), 1)


def encode(specs: Sequence[CodecSpec], data: NDArray[Any], fill: Any) -> Buffer:
    """One chunk, encoded on the host."""
    chunk = ArrayRepr(data.dtype, data.shape, fill)
    chain = _HOST.prepare(prepare(complete(tuple(specs), chunk), chunk), chunk)
    encoded: Buffer = chain.encode([data])[0]
    return encoded


class SampledRegions:
    """Decoded regions of an array in the shape of a chunk, to be encoded by several chains."""

    def __init__(self, array: Array, chunks: tuple[int, ...]) -> None:
        self._fill = array.metadata.fill_value
        self.data = _regions(array, chunks)
        self.nbytes = math.prod(chunks) * array.metadata.data_type.dtype.itemsize
        self._present = [data for data in self.data if not self._is_fill(data)]

    def encoded(self, specs: tuple[CodecSpec, ...]) -> Reencoding:
        """Encode the regions with a chain."""
        if not self._present:
            return Reencoding(len(self.data), 0.0 if self.data else 1.0, 1.0)
        size = fmean(host_view(encode(specs, data, self._fill)).nbytes for data in self._present)
        return Reencoding(len(self.data), len(self._present) / len(self.data), size / max(self.nbytes, 1))

    def _is_fill(self, data: NDArray[Any]) -> bool:
        if self._fill is None:
            return False
        chunk = ArrayRepr(data.dtype, data.shape, self._fill)
        return data.tobytes() == np.full(data.shape, fill_of(chunk), data.dtype).tobytes()


def _regions(array: Array, chunks: tuple[int, ...]) -> list[NDArray[Any]]:
    """Read regions at the positions of the sample, within the limits."""
    io = io_of(array)
    on_host = array.to("cpu")
    dtype = array.metadata.data_type.dtype
    left, left_chunks = TRIAL_NBYTES, TRIAL_NCHUNKS
    regions: list[NDArray[Any]] = []
    chunk = ArrayRepr(dtype, chunks, array.metadata.fill_value)
    starts = [tuple(i // c * c for i, c in zip(at, chunks, strict=True)) for at in positions(array.shape, NSAMPLED)]
    for start in dict.fromkeys(starts):
        stops = [min(s + c, n) for s, c, n in zip(start, chunks, array.shape, strict=True)]
        ends = zip(io.layout.grid, start, stops, strict=True)
        touched = math.prod(axis.locate(stop - 1) - axis.locate(first) + 1 for axis, first, stop in ends)
        left, left_chunks = left - touched * io.chunk_nbytes, left_chunks - touched
        if left < 0 or left_chunks < 0:
            break
        data = np.full(chunks, fill_of(chunk), dtype)
        region = tuple(slice(first, stop) for first, stop in zip(start, stops, strict=True))
        data[tuple(slice(0, r.stop - r.start) for r in region)] = on_host[region]
        regions.append(data)
    return regions
