"""The cases: what is stored, in what order it is asked for, how much memory there is, and what gzarr is to reach."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from benchmarks.loader.data import Dataset, Scale

SEED = 5


@dataclass(frozen=True)
class Goal:
    """Samples/s over the best peer, CPU over the bare work (`benchmarks.loader.bare`), decodes of a chunk."""

    speed: float
    cpu: float | None = None
    decodes: float | None = None


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes
    ----------
    order : str
        "exact": every sample anywhere. "blocks": within blocks of ``block_chunks`` chunks. "crops": random boxes.
    share : float
        Memory over the size of the decoded data.
    """

    name: str
    title: str
    dataset: str
    batch: int
    order: str
    share: float
    goal: Goal
    block_chunks: int = 16


CASES = {
    case.name: case
    for case in (
        Case("A", "an image a chunk, LZ4", "images", 64, "exact", 0.35, Goal(1.4, 1.2)),
        Case("B", "small images, 500 a shard, Zstandard", "shards", 256, "exact", 0.35, Goal(1.5, 1.5)),
        Case("Cx", "16 fields a chunk, exact", "fields", 64, "exact", 0.35, Goal(2.5, None, 3.1)),
        Case("Cb", "16 fields a chunk, blocks of 16 chunks", "fields", 64, "blocks", 0.35, Goal(1.2, 1.2)),
        Case("D", "crops of a volume", "volume", 8, "crops", 0.48, Goal(1.2, None, 2.3)),
    )
}
FIRST_GOAL = 1.5  # first batch over a bare read of it


@dataclass(frozen=True)
class Task:
    """A case on its data: what a contestant is given."""

    case: Case
    data: Dataset
    scale: Scale

    @property
    def n(self) -> int:
        """Samples of an epoch."""
        return self.scale.crops if self.case.order == "crops" else self.data.shape[0]

    @property
    def batch(self) -> int:
        """Samples of a batch."""
        return self.case.batch // self.scale.batches

    @property
    def memory(self) -> int:
        """Bytes that a contestant may hold beside the batches under way."""
        return int(self.case.share * self.data.nbytes)

    @property
    def crop(self) -> tuple[int, ...]:
        """The extents of a crop."""
        return (self.scale.crop_side,) * 3

    @property
    def batch_nbytes(self) -> int:
        """Bytes of a batch."""
        inner = self.crop if self.case.order == "crops" else self.data.shape[1:]
        return int(self.batch * np.prod(inner) * np.dtype(self.data.dtype).itemsize)

    @cached_property
    def crops(self) -> Any:
        """Where the crops of the peers begin: (n, 3)."""
        ends = np.array(self.data.shape) - self.crop + 1
        return np.random.default_rng(SEED).integers(0, ends, (self.scale.crops, 3))

    def ids(self, epoch: int) -> Any:
        """The samples of an epoch in the order of the peers that take one."""
        rng = np.random.default_rng((SEED, epoch))
        if self.case.order != "blocks":
            return rng.permutation(self.n)
        per_chunk = self.data.chunks[0]
        chunks = rng.permutation(-(-self.n // per_chunk))
        blocks = [chunks[i : i + self.case.block_chunks] for i in range(0, len(chunks), self.case.block_chunks)]
        within = np.arange(per_chunk)
        ids = np.concatenate([rng.permutation((block[:, None] * per_chunk + within).ravel()) for block in blocks])
        return ids[ids < self.n]

    def batches(self, epoch: int) -> list[Any]:
        """The same, cut into batches."""
        ids = self.ids(epoch)
        return [ids[i : i + self.batch] for i in range(0, self.n, self.batch)]

    def wanted(self, source: Any, ids: Any, starts: Any = None) -> Any:
        """The values of these samples. starts: where each of these crops begins."""
        if self.case.order != "crops":
            return source[ids]
        return np.stack([source[self.box(start)] for start in (self.crops[ids] if starts is None else starts)])

    def box(self, start: Any) -> tuple[slice, ...]:
        """The selection of a crop."""
        return tuple(slice(int(s), int(s) + n) for s, n in zip(start, self.crop, strict=True))
