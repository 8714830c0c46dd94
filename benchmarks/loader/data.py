"""The arrays that are loaded, made once: pictures, fields and a volume that compress as real ones do.

All are smooth (random values on a coarse grid, enlarged linearly). Pictures are rounded to steps of 8, and a tenth of
their pixels has noise of 4 bits: LZ4 makes them 1.5 times as small, Zstandard the small ones 1.8 times. Fields have
noise of 0.1 K and are rounded to 1/64 K: 2.6 times. The volume has noise of 8 counts of 4,000: 1.8 times.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

DATA_VERSION = 1  # raise it when values or layouts change: it names the folder in the cache


@dataclass(frozen=True)
class Scale:
    """Extents of the arrays."""

    images: int = 4000
    image_side: int = 224
    thumbnails: int = 20_000
    thumbnail_side: int = 64
    per_shard: int = 500
    fields: int = 5000
    field_rows: int = 96
    volume_side: int = 512
    crop_side: int = 64  # the side of a chunk of the volume, too
    crops: int = 512
    batches: int = 1  # how many take the place of one batch of a case

    @property
    def name(self) -> str:
        """Folder of this scale in the cache."""
        return f"loader-v{DATA_VERSION}-" + "-".join(str(value) for value in asdict(self).values())


SMALL = Scale(70, 16, 300, 8, 50, 330, 4, 32, 8, 24, 8)


@dataclass(frozen=True)
class Dataset:
    """An array and its layout. codec: of zarr v3, by name, with its configuration."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    chunks: tuple[int, ...]
    codec: str
    shards: tuple[int, ...] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the decoded array."""
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize

    @property
    def nchunks(self) -> int:
        """Number of chunks; of inner ones, if there are shards."""
        return int(np.prod([-(-n // c) for n, c in zip(self.shape, self.chunks, strict=True)]))


def datasets(scale: Scale) -> dict[str, Dataset]:
    """Every array of this scale by its name."""
    image, thumbnail = ((side, side, 3) for side in (scale.image_side, scale.thumbnail_side))
    field = (scale.field_rows, 2 * scale.field_rows)
    volume, cube = (scale.volume_side,) * 3, (scale.crop_side,) * 3
    shard = (scale.per_shard, *thumbnail)
    each = [
        Dataset("images", (scale.images, *image), "u1", (1, *image), "lz4"),
        Dataset("shards", (scale.thumbnails, *thumbnail), "u1", (1, *thumbnail), "zstd", shard),
        Dataset("fields", (scale.fields, *field), "f4", (16, *field), "zstd"),
        Dataset("volume", volume, "u2", cube, "blosc-zstd"),
    ]
    return {data.name: data for data in each}


def smooth(rng: Any, shape: tuple[int, ...], cells: int) -> Any:
    """Random values in 0..1 on a coarse grid, enlarged linearly; an axis of at most 3 is left alone."""
    values = rng.random([cells + 1 if n > 3 else n for n in shape], dtype="f4")
    for axis, n in enumerate(shape):
        if n > 3:
            at = np.linspace(0, cells, n, endpoint=False, dtype="f4")
            low = at.astype(int)
            part = (at - low).reshape([-1 if i == axis else 1 for i in range(len(shape))])
            values = np.take(values, low, axis) * (1 - part) + np.take(values, low + 1, axis) * part
    return values


def picture(rng: Any, shape: tuple[int, ...]) -> Any:
    """A picture: steps of 8, noise in a tenth of the pixels."""
    steps = np.round(smooth(rng, shape, 4) * 25) * 8
    return (steps + rng.integers(0, 16, shape) * (rng.random(shape, dtype="f4") < 0.1)).astype("u1")


def field(rng: Any, shape: tuple[int, ...]) -> Any:
    """A field as of temperatures: noise of 0.1, rounded to 1/64."""
    values = smooth(rng, shape, 6) * 40 + 270 + 0.1 * rng.standard_normal(shape, dtype="f4")
    return (np.round(values * 64) / 64).astype("f4")


def staging_buffer(rng: Any, shape: tuple[int, ...]) -> Any:
    """A part of a volume: noise of 8."""
    return (smooth(rng, shape, 8) * 4000 + 100 + 8 * rng.standard_normal(shape, dtype="f4")).astype("u2")


def values(data: Dataset) -> Iterator[tuple[slice, Any]]:
    """The values in runs along the first axis, whole chunks or shards each."""
    rng = np.random.default_rng(7)
    step = (data.shards or data.chunks)[0] if data.chunks[0] > 1 or data.shards else 100
    for low in range(0, data.shape[0], step):
        shape = (min(step, data.shape[0] - low), *data.shape[1:])
        if data.dtype == "u2":
            yield slice(low, low + shape[0]), staging_buffer(rng, shape)
        else:
            one = picture if data.dtype == "u1" else field
            yield slice(low, low + shape[0]), np.stack([one(rng, shape[1:]) for _ in range(shape[0])])


@dataclass(frozen=True)
class Cache:
    """The folder of the arrays, and of their values as .npy."""

    root: Path
    scale: Scale

    @property
    def folder(self) -> Path:
        """The folder of this scale."""
        return self.root / self.scale.name

    def path(self, name: str) -> Path:
        """The Zarr array, a member of the group that the folder is."""
        return self.folder / "group" / name

    def source(self, name: str) -> Any:
        """The values, mapped into memory."""
        return np.load(self.folder / f"{name}.npy", mmap_mode="r")

    def make(self, data: Dataset) -> None:
        """Write an array with gzarr and its values as .npy, unless both exist."""
        import gzarr

        done = self.folder / f"{data.name}.ready"
        if done.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.path(data.name), ignore_errors=True)
        gzarr.open_group(self.folder / "group", mode="a", device="cpu")
        kinds = {"chunks": data.chunks, "shards": data.shards, "compressors": codec(gzarr, data)}
        path = self.path(data.name)
        array = gzarr.create_array(path, shape=data.shape, dtype=data.dtype, fill_value=0, device="cpu", **kinds)
        source = np.lib.format.open_memmap(self.folder / f"{data.name}.npy", "w+", data.dtype, data.shape)
        for part, run in values(data):
            source[part] = run
            array[part] = run
        source.flush()
        done.write_text(json.dumps(asdict(data)))


def codec(gzarr: Any, data: Dataset) -> Any:
    """The compressor of an array."""
    if data.codec == "zstd":
        return gzarr.codecs.ZstdCodec(3)
    name = data.codec.removeprefix("blosc-")
    return gzarr.codecs.BloscCodec(name, 5 if name == "lz4" else 3, "shuffle")
