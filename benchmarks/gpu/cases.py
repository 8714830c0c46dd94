"""What the GPU benchmark reads and writes: stored arrays, the most telling first, and selections of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from benchmarks.gpu.loading import LoaderCase, loader_cases
from benchmarks.gpu.pyramids import PyramidCase, pyramid_cases
from gzarr.codecs import BloscCodec, GzipCodec, NumcodecsCodec, ZstdCodec

CODECS: dict[str, dict[str, Any]] = {
    "blosc-lz4": {"compressor": BloscCodec("lz4", 5, "shuffle")},
    "zstd": {"compressor": ZstdCodec(1)},
    "blosc-zstd": {"compressor": BloscCodec("zstd", 1, "shuffle")},
    "none": {"compressor": None},
    "gzip": {"compressor": GzipCodec(1)},
    "lz4": {"compressor": NumcodecsCodec("lz4")},
}
KIB = 1 << 10
LAYOUTS = ("plain", "sharded")
#: Bytes of a chunk, decoded.
SIZES, SMALL_SIZES = tuple(KIB * k for k in (1024, 256, 64, 16384, 4096)), (4 * KIB, 16 * KIB)
#: Streams of one call, and the decoded bytes of each chunk of these arrays.
STREAMS, SMALL_STREAMS, STREAM_NBYTES = (10**5, 1, 10**4, 100, 1000, 10), (1, 100), 16 * KIB
STREAM_CODECS = ("zstd", "lz4", "blosc-lz4")
#: Rows and columns of the stored arrays: 4 GiB, 1 GiB, 256 MiB.
LARGE, MIDDLE, LEAN, TINY = 32768, 16384, 8192, 256
#: The usual reason why a case is left out.
NO_TIME = "the time was used up"
#: Rows and columns of a shard.
SHARD = 2048


@dataclass(frozen=True, slots=True)
class Case:
    """One stored array.

    Attributes
    ----------
    codec, chunk_nbytes, layout
        How it is stored.
    n : int
        Rows and columns.
    full : bool
        Whether all peers read all selections and write the array, and memory is measured; otherwise only gzarr and
        the best decoders of the host take part, with fewer selections.
    """

    codec: str
    chunk_nbytes: int
    layout: str
    n: int
    full: bool = False

    @property
    def side(self) -> int:
        """Rows and columns of a chunk, of float32."""
        return int((self.chunk_nbytes // 4) ** 0.5)

    def keywords(self) -> dict[str, Any]:
        """The keywords of `gzarr.create_array`."""
        shards = {"shards": (min(max(SHARD, self.side), self.n),) * 2} if self.layout == "sharded" else {}
        return {"chunks": (self.side,) * 2, **CODECS[self.codec], **shards}


@dataclass(frozen=True, slots=True)
class StreamsCase:
    """An array in memory with a number of chunks of one codec: one, few or many streams in a call."""

    codec: str
    nchunks: int


class Selection(NamedTuple):
    """A selection: its name, its kind ("basic", "oindex", "vindex"), and the key."""

    name: str
    kind: str
    key: Any

    def of(self, array: Any) -> Any:
        """Read the selection from an array of gzarr, zarr-python or TensorStore."""
        return array[self.key] if self.kind == "basic" else getattr(array, self.kind)[self.key]


def cases(*, small: bool) -> Iterator[Case | StreamsCase | LoaderCase | PyramidCase]:
    """The cases, the most telling first: those of the goals, then the others."""
    if small:
        yield Case("blosc-lz4", 4 * KIB, "plain", TINY, full=True)
        yield Case("zstd", 16 * KIB, "sharded", TINY)
        yield Case("none", 16 * KIB, "plain", TINY)
        yield from (StreamsCase(codec, n) for n in SMALL_STREAMS for codec in STREAM_CODECS)
        yield from loader_cases(small=True)
        yield from pyramid_cases(small=True)
        return
    leading = [
        Case("blosc-lz4", 1024 * KIB, "plain", LARGE, full=True),
        Case("zstd", 256 * KIB, "sharded", MIDDLE, full=True),
        Case("blosc-lz4", 64 * KIB, "plain", MIDDLE, full=True),
    ]
    yield leading[0]
    yield from loader_cases(small=False)
    yield from leading[1:]
    yield from pyramid_cases(small=False)
    yield from (StreamsCase(codec, n) for n in STREAMS[:2] for codec in STREAM_CODECS)
    known = {(case.codec, case.chunk_nbytes, case.layout) for case in leading}
    grid = [(codec, nbytes, layout) for codec in CODECS for nbytes in SIZES for layout in LAYOUTS]
    # Each codec once, then each size of the two leading ones, then all the rest.
    first = [(codec, SIZES[0], "plain") for codec in CODECS]
    second = [case for case in grid if case[0] in ("blosc-lz4", "zstd")]
    for codec, nbytes, layout in dict.fromkeys([*first, *second]):
        if (codec, nbytes, layout) not in known:
            yield Case(codec, nbytes, layout, LEAN)
    yield from (StreamsCase(codec, n) for n in STREAMS[2:] for codec in STREAM_CODECS)
    for codec, nbytes, layout in grid:
        if (codec, nbytes, layout) not in known | set(first) | set(second):
            yield Case(codec, nbytes, layout, LEAN)


def selections(case: Case) -> list[Selection]:
    """The selections of a case, the smallest first: a chunk, 100 random chunks, 1000 points, some rows, everything."""
    n, side = case.n, case.side
    rng = np.random.default_rng(1)
    rows, columns = (_random_chunks(rng, n, side) for _ in range(2))
    points = tuple(rng.integers(0, n, min(1000, n)) for _ in range(2))
    everything = [
        Selection("one chunk", "basic", np.s_[side : 2 * side, :side]),
        Selection("100 random chunks", "oindex", (rows, columns)),
        Selection("points", "vindex", points),
        Selection("rows", "basic", np.s_[n // 4 : n // 4 + max(n // 32, 1), :]),
        Selection("whole", "basic", np.s_[:, :]),
    ]
    return everything if case.full else [s for s in everything if s.name not in ("points", "rows")]


def _random_chunks(rng: np.random.Generator, n: int, side: int) -> np.ndarray:
    """Indices of ten chunks along one axis, or of all if there are fewer."""
    chosen = np.sort(rng.permutation(n // side)[:10])
    return (chosen[:, None] * side + np.arange(side)).ravel()


def make_source(n: int) -> np.ndarray:
    """n x n float32: a random walk, rounded like measurements; all tiles differ."""
    tile = min(n, 2048)
    walk = np.cumsum(np.random.default_rng(0).normal(size=(tile, tile)), axis=1).astype("f4")
    walk = np.round(walk * 64) / 64
    times = n // tile
    out = np.empty((n, n), "f4")
    for i in range(times):
        for j in range(times):
            out[i * tile : (i + 1) * tile, j * tile : (j + 1) * tile] = walk + (i * times + j)
    return out
