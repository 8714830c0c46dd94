"""The images, made once, and the levels and filtered values that are right for them.

All are smooth, A with noise of 3 counts of 256, B and C of 8 counts of 4,096: Zstandard makes them half as large.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.images.cases import SIGMA, Source
from benchmarks.loader.data import smooth, staging_buffer

DATA_VERSION = 1  # raise it when values or layouts change: it names the folder in the cache


@dataclass(frozen=True)
class Cache:
    """The folder of the images, of what is right, and of what is being written."""

    root: Path

    @property
    def folder(self) -> Path:
        """The folder of this version of the data."""
        return self.root / f"images-v{DATA_VERSION}"

    def group(self, source: Source) -> Path:
        """A group of Zarr format 3 with the image as its only array, which has names of dimensions."""
        return self.folder / f"{source.name}.zarr"

    def image(self, source: Source) -> Path:
        """The array in that group."""
        return self.group(source) / "image"

    def right(self, source: Source, what: str) -> Path:
        """The file of right values: "level-1-of-0", "gaussian", ..."""
        return self.folder / f"{source.name}-{what}.npy"

    def values(self, source: Source, what: str, make: Callable[[Cache, Source, Path], None]) -> Any:
        """Right values, mapped into memory; made unless they exist."""
        path = self.right(source, what)
        if not path.exists():
            part = path.with_suffix(".part")
            make(self, source, part)
            part.rename(path)
        return np.load(path, mmap_mode="r")

    def make(self, source: Source) -> None:
        """Write the image with gzarr and its values as .npy, unless both exist."""
        import gzarr

        if self.right(source, "level-0").exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.group(source), ignore_errors=True)
        gzarr.open_group(self.group(source), mode="a", device="cpu")
        layout = {"chunks": source.chunks, "compressors": gzarr.codecs.ZstdCodec(3), "fill_value": 0}
        layout |= {"dimension_names": tuple(source.axes), "dtype": source.dtype, "shape": source.shape}
        array = gzarr.create_array(self.image(source), device="cpu", **layout)

        def fill(_: Cache, source: Source, path: Path) -> None:
            values = np.lib.format.open_memmap(path, "w+", source.dtype, source.shape)
            for part, block in strips(source):
                values[part] = block
                array[part] = block
            values.flush()

        self.values(source, "level-0", fill)


def strips(source: Source) -> Iterator[tuple[slice, Any]]:
    """The values in runs along the first axis, whole chunks each."""
    rng = np.random.default_rng(7)
    for low in range(0, source.shape[0], source.chunks[0]):
        shape = (min(source.chunks[0], source.shape[0] - low), *source.shape[1:])
        yield slice(low, low + shape[0]), MAKERS[source.dtype](rng, shape)


def picture(rng: Any, shape: tuple[int, ...]) -> Any:
    """A part of a picture: noise of 3."""
    values = smooth(rng, shape, 32) * 200 + 25 + 3 * rng.standard_normal(shape, dtype="f4")
    return values.clip(0, 255).astype("u1")


def mask(rng: Any, shape: tuple[int, ...]) -> Any:
    """Balls of 5 to 9 elements across, one in each cube of 16, none of which touch."""
    counts = [n // 16 for n in shape]
    radius = rng.uniform(2, 4.5, [m for n in counts for m in (n, 1)])
    apart = sum(
        (np.arange(16).reshape([16 if i == 2 * axis + 1 else 1 for i in range(6)]) - rng.uniform(5, 10, radius.shape))
        ** 2
        for axis in range(3)
    )
    return (apart <= radius**2).reshape(shape)


MAKERS = {"u1": picture, "u2": staging_buffer, "bool": mask}


def level(cache: Cache, source: Source, number: int, base: int) -> Any:
    """The mean of integers rounded half to even: of windows of the level ``base``, which was made in the same way.

    A pyramid is made level by level (``base`` is ``number - 1``) or each level from the image (``base`` is 0).
    """

    def make(cache: Cache, source: Source, path: Path) -> None:
        below = np.load(cache.right(source, "level-0"), mmap_mode="r") if not base else level_below
        factors = tuple(f ** (number - base) for f in source.factors)
        out = np.lib.format.open_memmap(path, "w+", source.dtype, source.shape_of(number))
        step = max(1, source.chunks[0] // factors[0])
        for low in range(0, out.shape[0], step):
            out[low : low + step] = means(below[low * factors[0] : (low + step) * factors[0]], factors)
        out.flush()

    level_below = level(cache, source, base, base - 1) if base else None
    if number == 0:
        return np.load(cache.right(source, "level-0"), mmap_mode="r")
    return cache.values(source, f"level-{number}-of-{base}", make)


def means(block: Any, factors: tuple[int, ...]) -> Any:
    """The mean of whole windows: exact sums, one rounding, half to even."""
    sums, count = block, int(np.prod(factors))
    for axis, f in enumerate(factors):
        shape = (*sums.shape[:axis], sums.shape[axis] // f, f, *sums.shape[axis + 1 :])
        sums = sums.reshape(shape).sum(axis + 1, dtype="u8")
    whole, rest = np.divmod(sums, np.uint64(count))
    up = (2 * rest > count) | ((2 * rest == count) & (whole % 2 == 1))
    return (whole + up).astype(block.dtype)


def filtered(cache: Cache, source: Source) -> Any:
    """What scipy.ndimage makes of the whole image."""
    from scipy import ndimage

    def make(cache: Cache, source: Source, path: Path) -> None:
        values = np.load(cache.right(source, "level-0"), mmap_mode="r")
        with path.open("wb") as file:
            np.save(file, ndimage.gaussian_filter(values, SIGMA))

    return cache.values(source, "gaussian", make)
