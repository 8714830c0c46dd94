"""What an epoch will cost, computed before anything is read: decodes a chunk, and the variance of batches.

Decodes are those of the planners themselves (`gzarr.loader.look_ahead`), run on the epoch. If it is long, a pool is run
on a short epoch with samples, chunks and slots in the same proportions; for samples that go straight into batches, a
part of the epoch is run, or the openings of a chunk are counted as a renewal process.

The variance factor is the variance of a batch's mean, over the orders of one data set, over that of as many independent
draws. Samples of one chunk resemble each other: with a correlation ``c`` between them it is ``1 + c (m - m_exact)``,
where ``m`` is the mean number of other samples of the same chunk in a batch, and ``m_exact`` that in an exact shuffle.
Source: the design effect of cluster sampling, Kish, Survey Sampling, 1965, section 5.4.
"""

from math import prod
from typing import Literal, NamedTuple

import numpy as np

from gzarr.indexing.grid import RegularAxis, nchunks
from gzarr.indexing.selection import Indices
from gzarr.loader.look_ahead import DirectPlanner, EpochPlan, Planner, PlanStep, PoolPlanner

#: The most samples and steps that are planned for a forecast: about 0.1 s.
_MAX_SAMPLES, _MAX_STEPS = 32_768, 512
#: Samples and batches of the short epoch that stands for a long one.
_SHORT, _SHORT_BATCHES = 8192, 256
#: Openings of a chunk on top of those of whole cycles: an epoch ends within one. Found by simulation.
_LAST_CYCLE = 0.3


class Planning(NamedTuple):
    """How an array is read in an epoch.

    Attributes
    ----------
    name : str
        The name of the array; "" for a single one.
    epoch : Epoch
        What is wanted of it.
    mode : {"pool", "direct"}
        Which planner serves it (`gzarr.loader.look_ahead.mode_of`).
    slots : int
        Samples that it has memory for.
    ahead : int
        Batches that are planned and not yet gathered.
    chunk_nbytes : int
        Size of a decoded chunk.
    sharers : int
        How many ranks the epoch is that of, which share the memory.
    """

    name: str
    epoch: EpochPlan
    mode: Literal["pool", "direct"]
    slots: int
    ahead: int
    chunk_nbytes: int
    sharers: int = 1

    def planner(self) -> Planner:
        """A planner that stands at the start of the epoch."""
        if self.mode == "pool":
            return PoolPlanner(self.epoch, self.slots, self.ahead)
        return DirectPlanner(self.epoch, max(self.slots // self.epoch.batch_size, 1))


def count_opened(planning: Planning) -> float:
    """Estimate how many chunks a rank opens in an epoch."""
    return _count_opened(planning) / planning.sharers


def _count_opened(planning: Planning) -> float:
    epoch = planning.epoch
    if epoch.n <= _MAX_SAMPLES and epoch.n <= _MAX_STEPS * epoch.batch_size:
        return _run(planning.planner(), epoch.n)[0]
    if planning.mode == "pool":
        return _short_epoch(planning)
    is_uniform = not epoch.span or epoch.span >= epoch.n
    if is_uniform and 4 * planning.slots > _MAX_SAMPLES:  # too short a part: all chunks are opened at first
        return _renewals(planning)
    opened, planned = _run(planning.planner(), _MAX_SAMPLES)
    return opened * epoch.n / planned


def first_step(planning: Planning) -> PlanStep:
    """What is read for the first batch."""
    return planning.planner().step(1)


def count_mates(batch_size: int, per_chunk: float, span: float) -> float:
    """How many other samples of its own chunk a sample has in its batch, on average.

    batch_size, per_chunk: samples of a batch and of a chunk. span: samples that are shuffled together.
    """
    if per_chunk <= 1 or span <= 1:
        return 0.0
    return min((batch_size - 1) * (per_chunk - 1) / (span - 1), per_chunk - 1.0, batch_size - 1.0)


def variance_factor(mates: float, mates_of_all: float, correlation: float) -> float:
    """Variance of a batch's mean over that of independent draws.

    mates: `count_mates` of the order. mates_of_all: that of an exact shuffle of everything. correlation: that of two
    samples of one chunk.
    """
    return 1 + correlation * (mates - mates_of_all)


def _run(planner: Planner, most: int) -> tuple[int, int]:
    """Plan an epoch up to a number of samples. Returns: chunks opened, samples planned."""
    opened = planned = 0
    while planned < min(most, planner.epoch.n):
        step = planner.step(1)
        planner.free(len(step.batches))
        opened += step.opened
        planned += sum(map(len, step.batches))
    return opened, planned


def _short_epoch(planning: Planning) -> float:
    """Run a pool on a short epoch of the same proportions."""
    epoch = planning.epoch
    span = min(epoch.span or epoch.n, epoch.n)
    n = min(_SHORT, span)
    n_rows = max(round(epoch.gap * n / span), 1)
    keep = max((planning.slots - planning.ahead * epoch.batch_size) * n // span, 1)
    batch_size = max(epoch.batch_size * n // span, -(-n // _SHORT_BATCHES))
    rows = np.random.default_rng(0).permutation(np.arange(n) * n_rows // n)

    def ids(lo: int, hi: int) -> Indices:
        return rows[lo:hi]

    def boxes(ids: Indices) -> Indices:
        return ids[:, None]

    short = EpochPlan(n, batch_size, ids, boxes, (1,), (RegularAxis(n_rows, 1),))
    opened, _ = _run(PoolPlanner(short, keep + batch_size, 1), n)
    return opened * (epoch.gap / n_rows) * (epoch.n / span) * nchunks(epoch.grid[1:])


def _renewals(planning: Planning) -> float:
    """Count openings: each serves what is wanted within the batches that are begun, the next comes after a gap.

    Half of the batches on their way are read already, on average, when a chunk is opened.
    """
    epoch = planning.epoch
    sample = epoch.ids(0, min(epoch.n, 4096))
    per_sample = len(epoch.cut(sample).box) / len(sample)
    gap = max(prod([axis.nchunks for axis in epoch.grid]) / per_sample, 1.0)
    served = planning.slots - planning.ahead * epoch.batch_size // 2
    cycles = epoch.n / (served + gap) + _LAST_CYCLE
    return min(max(cycles, 1.0), epoch.n / gap) * nchunks(epoch.grid)
