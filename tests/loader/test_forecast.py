"""Forecasts are compared with whole epochs of the planners, and with batches of real values."""

import numpy as np
import pytest

from gzarr.indexing.grid import RegularAxis, nchunks
from gzarr.loader.forecast import Planning, count_mates, count_opened, first_step, variance_factor
from tests.loader.planners import boxes_epoch, decodes, shuffled


def pool(n: int, per_chunk: int, share: float) -> Planning:
    return Planning("x", shuffled(n, per_chunk, 256), "pool", int(n * share), 4, 1000)


def forecast(planning: Planning) -> float:
    return count_opened(planning) / nchunks(planning.epoch.grid)


@pytest.mark.parametrize(("per_chunk", "share"), [(4, 0.2), (16, 0.1), (64, 0.4)])
def test_a_short_epoch_stands_for_a_long_one(per_chunk: int, share: float) -> None:
    planning = pool(100_000, per_chunk, share)
    assert forecast(planning) == pytest.approx(decodes(planning.planner(), 2), rel=0.1)


def test_the_decodes_of_a_short_epoch_are_exact() -> None:
    planning = pool(4000, 16, 0.5)
    assert forecast(planning) == decodes(planning.planner())


@pytest.mark.parametrize("blocks", [20, 100])
def test_direct_batches_of_a_long_epoch(blocks: int) -> None:
    starts = np.random.default_rng(0).integers(0, 50_000 - 8, (50_000, 1))
    epoch = boxes_epoch(starts, (8,), 256, (RegularAxis(50_000, 64),))._replace(span=50_000)
    planning = Planning("x", epoch, "direct", blocks * 256, 4, 1000)
    assert forecast(planning) == pytest.approx(decodes(planning.planner(), 2), rel=0.2)


def test_blocks_that_fit_are_forecast_from_a_part_of_the_epoch() -> None:
    epoch = shuffled(65_536, 16, 256, block=16)._replace(span=256)
    assert forecast(Planning("x", epoch, "direct", 1024, 2, 1000)) == pytest.approx(1.0)


def test_the_first_batch() -> None:
    assert first_step(pool(4000, 16, 0.5)).opened <= 250


@pytest.mark.parametrize(("block_chunks", "expected"), [(16, 2.76), (4, 8.41), (320, 1.0)])
def test_the_variance_factor_is_that_of_real_batches(block_chunks: int, expected: float) -> None:
    """16 samples a chunk, 64 a batch, correlation 0.5."""
    rng, n, per_chunk, batch = np.random.default_rng(0), 5120, 16, 64
    ratios = []
    for _ in range(60):
        chunk = rng.normal(size=n // per_chunk)
        values = np.sqrt(0.5) * (np.repeat(chunk, per_chunk) + rng.normal(size=n))
        order = rng.permutation(n // per_chunk)[:, None] * per_chunk + np.arange(per_chunk)
        blocks = order.reshape(-1, block_chunks * per_chunk)
        means = values[rng.permuted(blocks, axis=1)].reshape(-1, batch).mean(axis=1)
        ratios.append(np.mean((means - values.mean()) ** 2) / (values.var() / batch))
    span = block_chunks * per_chunk
    factor = variance_factor(count_mates(batch, per_chunk, span), count_mates(batch, per_chunk, n), 0.5)
    assert factor == pytest.approx(expected, rel=0.005)
    assert np.mean(ratios) == pytest.approx(factor, rel=0.05)


def test_no_mates_without_chunks_of_several_samples() -> None:
    assert count_mates(64, 1, 1000) == 0
    assert count_mates(64, 16, 16) == 15  # in order
    assert count_mates(8, 500, 500) == 7
