"""Epochs for tests of planners."""

import numpy as np

from gzarr.indexing.grid import Grid, RegularAxis, nchunks
from gzarr.indexing.selection import Indices
from gzarr.loader.look_ahead import EpochPlan, Planner


def rows_epoch(ids: Indices, batch_size: int, grid: Grid) -> EpochPlan:
    """Rows of axis 0, in a given order."""
    size = (1, *(axis.extent for axis in grid[1:]))

    def boxes(ids: Indices) -> Indices:
        return np.concatenate([ids[:, None], np.zeros((len(ids), len(grid) - 1), np.int64)], axis=1)

    return EpochPlan(len(ids), batch_size, lambda lo, hi: ids[lo:hi], boxes, size, grid)


def boxes_epoch(starts: Indices, size: tuple[int, ...], batch_size: int, grid: Grid) -> EpochPlan:
    """Boxes in a given order."""
    return EpochPlan(len(starts), batch_size, np.arange, starts.__getitem__, size, grid)


def shuffled(n: int, per_chunk: int, batch_size: int, block: int = 0) -> EpochPlan:
    """Rows in random order, of the whole epoch or within blocks of chunks that are shuffled."""
    rng = np.random.default_rng(0)
    ids = rng.permutation(n)
    if block:
        chunks = rng.permutation(n // per_chunk)
        ids = (chunks[:, None] * per_chunk + np.arange(per_chunk)).reshape(-1, block * per_chunk)
        ids = np.concatenate([rng.permutation(some) for some in ids])
    return rows_epoch(ids, batch_size, (RegularAxis(n, per_chunk),))


def windows(n: int, length: int, per_chunk: int, batch_size: int) -> EpochPlan:
    """Windows of rows: all that begin in a chunk, then those of another chunk."""
    n_chunks = n // per_chunk
    first = (np.random.default_rng(0).permutation(n_chunks)[:, None] * per_chunk + np.arange(per_chunk)).ravel()
    starts = np.minimum(first, n - length)[:, None]
    return boxes_epoch(starts, (length,), batch_size, (RegularAxis(n, per_chunk),))._replace(span=2 * per_chunk)


def decodes(planner: Planner, n_batches: int = 1) -> float:
    """Decodes a chunk in an epoch. n_batches: those of a step, which are freed before the next one is planned."""
    opened = planned = 0
    while planned < planner.epoch.n:
        step = planner.step(n_batches)
        planner.free(len(step.batches))
        opened += step.opened
        planned += sum(map(len, step.batches))
    return opened / nchunks(planner.epoch.grid)
