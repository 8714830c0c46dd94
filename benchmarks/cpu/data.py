"""The arrays that the workloads read: values, chunks, codecs, and paths in the cache."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

DATA_VERSION = 1  # raise it when values or layouts change: it names the folder in the cache
VIRTUAL_BYTES = (10**6, 10**9, 10**12, 10**15, 10**16)  # 1 MB to 10 PB


@dataclass(frozen=True, slots=True)
class Scale:
    """The sizes of all arrays. Chunk sizes follow from the extents, so that chunk counts are those of the tables."""

    side: int = 8000  # extent of both axes of the large arrays
    small_per_side: int = 80  # small chunks along an axis; large ones: 8
    images: int = 2000
    image_side: int = 224
    tiny_per_side: int = 100  # tiny chunks along an axis: 10,000 chunks
    points: int = 100_000
    members: int = 1000  # arrays in the group
    missing: int = 1_000_000  # chunks touched at the end of the scaling curve

    @property
    def large(self) -> int:
        """Extent of a large chunk."""
        return self.side // 8

    @property
    def small(self) -> int:
        """Extent of a small chunk."""
        return self.side // self.small_per_side

    @property
    def name(self) -> str:
        """Folder of this scale in the cache."""
        return f"v{DATA_VERSION}-" + "-".join(str(value) for value in asdict(self).values())


SMALL = Scale(160, 16, 40, 16, 10, 500, 20, 1000)


@dataclass(frozen=True, slots=True)
class Layout:
    """How an array is stored.

    Attributes
    ----------
    dtype : str
        "string" for strings of variable length, which Zstandard compresses whatever the codec.
    codec : str or None
        "lz4" or "zstd" within Blosc at level 5 with byte shuffle, or None.
    v2 : tuple of dict, optional
        Of an array of Zarr v2: the configurations of its filters, and then of its compressor, instead of a codec.
    """

    shape: tuple[int, ...]
    dtype: str
    chunks: tuple[int, ...]
    codec: str | None = "lz4"
    shards: tuple[int, ...] | None = None
    v2: tuple[dict[str, Any], ...] | None = None


@dataclass(frozen=True, slots=True)
class Dataset:
    """Values and their layout. values: a source, "last" for ones in the last chunk only, None for no chunks."""

    values: str | None
    layout: Callable[[Scale], Layout]


def _square(dtype: str, codec: str | None, *, small: bool = False, sharded: bool = False) -> Callable[[Scale], Layout]:
    def layout(scale: Scale) -> Layout:
        chunk = scale.small if small else scale.large
        shards = (scale.large, scale.large) if sharded else None
        return Layout((scale.side, scale.side), dtype, (chunk, chunk), codec, shards)

    return layout


def _images(scale: Scale) -> Layout:
    one = (scale.image_side, scale.image_side, 3)
    return Layout((scale.images, *one), "u1", (1, *one))


def _shards(scale: Scale) -> Layout:
    # Of 16 MB with 64 inner chunks of 250 kB, at the default scale.
    inner, shard = scale.side // 32, scale.side // 4
    return Layout((scale.side, scale.side), "i4", (inner, inner), None, (shard, shard))


def _tiny(scale: Scale) -> Layout:
    side = 10 * scale.tiny_per_side
    return Layout((side, side), "i4", (10, 10))


def _records(scale: Scale) -> Layout:
    side = scale.side // 4
    return Layout((side, side), "i4,f4,f8", (scale.large // 2, scale.large // 2))


def _table(scale: Scale) -> Layout:
    return Layout((10 * scale.points, 16), "f4", (max(scale.points // 100, 1), 16))


def _strings(scale: Scale) -> Layout:
    return Layout((10 * scale.points,), "string", (scale.points // 2,))


def _missing(scale: Scale) -> Layout:
    # Chunks of one byte would measure bookkeeping alone, larger ones the filling of memory.
    return Layout((4 * scale.missing, 8), "i4", (4, 8), None)


def _old(dtype: str, *codecs: dict[str, Any]) -> Callable[[Scale], Layout]:
    def layout(scale: Scale) -> Layout:
        side, chunk = scale.side // 4, scale.side // 32
        return Layout((side, side), dtype, (chunk, chunk), v2=codecs)

    return layout


_ZLIB = {"id": "zlib", "level": 1}
_LZ4 = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}
_ZSTD = {**_LZ4, "cname": "zstd", "clevel": 1}
_DELTA = {"id": "delta", "dtype": "<i4", "astype": "<i4"}
_PACKED = {"id": "fixedscaleoffset", "offset": 280.0, "scale": 64.0, "dtype": "<f4", "astype": "<i2"}
_SHUFFLE_GZIP = {"id": "shuffle", "elementsize": 4}, {"id": "gzip", "level": 4}


def _virtual(nbytes: int) -> Callable[[Scale], Layout]:
    def layout(_: Scale) -> Layout:
        return Layout((max(1, nbytes // 2**18), 2**16), "i4", (1, 2**12))

    return layout


DATASETS: dict[str, Dataset] = {
    "lz4-i4": Dataset("i4", _square("i4", "lz4")),
    "lz4-u1": Dataset("u1", _square("u1", "lz4")),
    "records": Dataset("quarter records", _records),
    "zstd-f4": Dataset("f4", _square("f4", "zstd")),
    "lz4-i4-small": Dataset("i4", _square("i4", "lz4", small=True)),
    "raw-f4": Dataset("f4", _square("f4", None)),
    "sharded-zstd-i4": Dataset("i4", _square("i4", "zstd", small=True, sharded=True)),
    "images": Dataset("images", _images),
    "shards": Dataset("i4", _shards),
    "mebibytes": Dataset("i4", lambda s: Layout((s.side, s.side), "i4", (s.side // 16, s.side // 16), None)),
    "zlib-i4": Dataset("quarter i4", _old("<i4", _ZLIB)),
    "shuffle-gzip-f4": Dataset("quarter f4", _old("<f4", *_SHUFFLE_GZIP)),
    "delta-blosc-i4": Dataset("quarter i4", _old("<i4", _DELTA, _ZSTD)),
    "packed-zlib-f4": Dataset("quarter kelvin", _old("<f4", _PACKED, _ZLIB)),
    "bits-lz4": Dataset("quarter bits", _old("|b1", {"id": "packbits"}, _LZ4)),
    "bitround-lz4-f4": Dataset("quarter f4", _old("<f4", {"id": "bitround", "keepbits": 16}, _LZ4)),
    "tiny": Dataset("tiny", _tiny),
    "strings": Dataset("names", _strings),
    "table": Dataset("table", _table),
    "missing": Dataset(None, _missing),
    **{f"virtual-{n:.0e}": Dataset("last", _virtual(n)) for n in VIRTUAL_BYTES},
}
GROUP = "group"  # made by `Scale.members` creations, not by one
CONSOLIDATED = "consolidated"  # a group of these arrays with consolidated metadata
CONSOLIDATED_MEMBERS = tuple(f"a{i}" for i in range(10))


def make_source(name: str, scale: Scale) -> Any:
    """The values of a source: smooth in both directions with noise in the low bits, as measured fields are."""
    rng = np.random.default_rng(7)
    if name == "images":
        shape = (scale.images, scale.image_side, scale.image_side, 3)
        ramp = np.add.outer(np.arange(scale.image_side), np.arange(scale.image_side))[None, :, :, None] // 4
        return (ramp + rng.integers(0, 16, shape, dtype="u1")).astype("u1")
    if name == "table":
        return np.round(np.cumsum(rng.normal(size=(10 * scale.points, 16)), axis=0), 1).astype("f4")
    if name == "names":
        return np.array([f"name-{number:x}" for number in rng.integers(0, 1 << 30, 10 * scale.points)])
    name, is_quarter = name.removeprefix("quarter "), name.startswith("quarter ")
    side = 10 * scale.tiny_per_side if name == "tiny" else scale.side // 4 if is_quarter else scale.side
    rows, columns = (np.cumsum(rng.integers(-20, 21, side, dtype="i4")) for _ in range(2))
    field = (rows[:, None] + columns[None, :] + rng.integers(0, 16, (side, side), dtype="i4")).astype("i4")
    if name == "kelvin":  # in steps that are exact: what is packed as integers is unpacked to the same
        return (field % 4096 / 64 + 280).astype("f4")
    if name == "bits":
        return field % 64 > 15
    if name == "records":
        records = np.empty(field.shape, "i4,f4,f8")
        records["f0"], records["f1"], records["f2"] = field, field / 16, field * 0.1
        return records
    if name == "u1":
        return ((field >> 4) & 255).astype("u1")
    return field.astype("f4") / np.float32(16) if name == "f4" else field


@dataclass(frozen=True, slots=True)
class Cache:
    """The folder with the sources (as .npy) and the datasets in every format.

    Attributes
    ----------
    written : Path or None
        Where the workloads write; ``root`` if that is None.
    """

    root: Path
    scale: Scale
    written: Path | None = None

    @property
    def scratch(self) -> Path:
        """The folder that the workloads write to."""
        return (self.written or self.root) / "gzarr-bench-written"

    @property
    def folder(self) -> Path:
        """The folder of this scale."""
        return self.root / self.scale.name

    def source(self, name: str) -> Any:
        """The values, mapped into memory; created if missing."""
        path = self.folder / f"{name}.npy"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial.npy")
            np.save(partial, make_source(name, self.scale))
            partial.rename(path)
        return np.load(path, mmap_mode="r")

    def dataset(self, name: str, suffix: str) -> Path:
        """The path of a dataset in one format."""
        return self.folder / (name + suffix)

    def is_ready(self, name: str, suffix: str) -> bool:
        """Whether a dataset was completely written."""
        return self._marker(name, suffix).exists()

    def mark_ready(self, name: str, suffix: str, by: str) -> None:
        """Record that a dataset is complete, and which library wrote it."""
        self._marker(name, suffix).write_text(json.dumps({"written by": by}))

    def _marker(self, name: str, suffix: str) -> Path:
        return self.folder / f"{name}{suffix}.ready"
