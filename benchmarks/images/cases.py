"""The cases: which image, what is done with it, how it is stored, and what gzarr is to reach."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

SIGMA, DEPTH = 2, 8  # of the Gaussian: scipy.ndimage cuts it off at four sigma


@dataclass(frozen=True)
class Source:
    """A stored image. levels: above level 0, each ``factors`` times smaller. small: what `shrunk` divides by."""

    name: str
    title: str
    shape: tuple[int, ...]
    dtype: str
    chunks: tuple[int, ...]
    shards: tuple[int, ...]
    factors: tuple[int, ...]
    levels: int
    small: tuple[int, ...]

    @property
    def axes(self) -> str:
        """The names of the axes."""
        return "zyx"[-len(self.shape) :]

    def shape_of(self, level: int) -> tuple[int, ...]:
        """The extents of a level."""
        return tuple(-(-n // f**level) for n, f in zip(self.shape, self.factors, strict=True))

    def factors_of(self, level: int) -> dict[str, int]:
        """The factors of a level to level 0, by axis."""
        return {axis: f**level for axis, f in zip(self.axes, self.factors, strict=True)}

    def shrunk(self) -> Source:
        """The same image, tiny: at most 4 small chunks along every axis."""
        shape, chunks, shards = (
            tuple(n // f for n, f in zip(sizes, self.small, strict=True))
            for sizes in (self.shape, self.chunks, self.shards)
        )
        shape = tuple(min(n, 4 * c) for n, c in zip(shape, chunks, strict=True))
        return replace(self, shape=shape, chunks=chunks, shards=shards, name=f"{self.name}-small")


A = Source("A", "16,384² u1", (16384,) * 2, "u1", (1024,) * 2, (4096,) * 2, (2, 2), 6, (64, 64))
B = Source("B", "128 x 2,048² u2", (128, 2048, 2048), "u2", (8, 256, 256), (32, 1024, 1024), (1, 2, 2), 4, (8, 16, 16))
C = Source("C", "128 x 1,024² u2", (128, 1024, 1024), "u2", (64,) * 3, (128, 256, 256), (2, 2, 2), 4, (8, 8, 8))
D = Source("D", "64 x 512² u2", (64, 512, 512), "u2", (64,) * 3, (64, 256, 256), (2, 2, 2), 2, (4, 4, 4))
L = Source("L", "64 x 512², 4,096 balls", (64, 512, 512), "bool", (64,) * 3, (64, 256, 256), (2, 2, 2), 2, (4, 4, 4))
T = Source("T", "1,000 tiles of 256² u2", (5632, 8992), "u2", (120,) * 2, (480,) * 2, (2, 2), 2, (1, 1))


@dataclass(frozen=True)
class Case:
    """One row of the tables.

    Attributes
    ----------
    work : str
        "pyramid": level 0 is copied, and the levels above are made. "gaussian": level 0 is filtered.
        "halo": level 0 is read with halos, beside a plain read.
        "project", "affine", "label" and "segment" make an array of level 0, "fuse" a scene of the tiles cut from it.
        "regions" or "planes": random boxes of ``box`` are read.
    version : str
        Of OME-NGFF: "0.4" is Zarr format 2 with Blosc (LZ4), "0.5" is Zarr format 3 with Zstandard.
    rounds : int
        At most; a case that takes long has few.
    """

    name: str
    work: str
    source: Source
    version: str = "0.5"
    sharded: bool = False
    rounds: int = 3
    box: tuple[int, ...] = ()

    @property
    def title(self) -> str:
        """The case in words."""
        where = f", {self.version}{', sharded' if self.sharded else ''}" if self.work == "pyramid" else ""
        box = f", {' x '.join(map(str, self.box))}" if self.box else ""
        return f"{self.name}: {self.source.title}{where}{box}"

    @property
    def shards(self) -> tuple[int, ...] | None:
        """The extents of a shard; None without."""
        return self.source.shards if self.sharded else None

    @property
    def zarr_format(self) -> int:
        """2 or 3."""
        return 2 if self.version == "0.4" else 3

    def small(self) -> Case:
        """The same on a tiny image."""
        source = self.source.shrunk()
        return replace(
            self, source=source, box=tuple(min(b, n // 2) for b, n in zip(self.box, source.shape, strict=False))
        )


CASES = {
    case.name: case
    for case in (
        Case("A", "pyramid", A),
        Case("B", "pyramid", B, rounds=1),
        Case("C", "pyramid", C),
        Case("C 0.4", "pyramid", C, version="0.4", rounds=2),
        Case("C sharded", "pyramid", C, sharded=True, rounds=2),
        Case("gaussian A", "gaussian", A),
        Case("gaussian C", "gaussian", C, rounds=2),
        Case("halo C", "halo", C),
        Case("project D", "project", D),
        Case("affine D", "affine", D),
        Case("label L", "label", L),
        Case("segment L", "segment", L),
        Case("fuse T", "fuse", T),
        Case("regions A", "regions", A, rounds=15, box=(1024, 1024)),
        Case("planes C", "planes", C, rounds=15, box=(1, 512, 512)),
    )
}

# What gzarr is to reach, of work: CPU and wall time over those of the best peer, CPU over the bare work, and bytes of
# memory above what was there after the imports.
GOALS: dict[str, dict[str, Any]] = {
    "pyramid": {"cpu_over_best": 0.85, "wall_over_best": 1.0, "cpu_over_bare": 1.15, "peak_bytes": 256 << 20},
    "gaussian": {"wall_over_best": 1.0, "cpu_over_bare": 1.1, "peak_bytes": 256 << 20},
    **{
        work: {"wall_over_best": 1.0, "peak_bytes": 256 << 20}
        for work in ("project", "affine", "label", "segment", "fuse")
    },
    "halo": {"cpu_over_bare": 2.0},
    "regions": {"wall_over_best": 1.0},
    "planes": {"wall_over_best": 1.0},
}
