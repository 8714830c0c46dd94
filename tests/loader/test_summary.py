"""Summaries of orders and memories, and what they advise."""

from typing import Any

from gzarr.loader.forecast import Planning
from gzarr.loader.summary import Epochs, Summary, summarize
from tests.loader.planners import shuffled, windows

N, BATCH, SAMPLE = 5008, 64, 1000


def epochs_of(kind: Any, n: int, per_chunk: int, block_chunks: int, memory: int) -> Epochs:
    return Epochs(kind, n, per_chunk, block_chunks, BATCH, BATCH * SAMPLE, memory, 1, 0.5)


def summary_of(kind: Any, share: float, block_chunks: int = 16, per_chunk: int = 16, mode: Any = "pool") -> Summary:
    block = block_chunks if kind == "blocks" else 0
    n = N if not block else N // (block * per_chunk) * block * per_chunk
    epoch = shuffled(n, per_chunk, BATCH, block)._replace(span=block * per_chunk or None)
    plannings = [Planning("image", epoch, mode, int(n * share), 2, per_chunk * SAMPLE)]
    return summarize(plannings, epochs_of(kind, n, per_chunk, block_chunks, int(n * share) * SAMPLE), n)


def test_an_exact_shuffle_with_little_memory() -> None:
    summary = summary_of("exact", 0.35)
    assert (summary.samples, summary.batches, summary.nbytes) == (5008, 79, 5008 * SAMPLE)
    assert 1.7 < summary.decodes["image"] < 2.1
    assert summary.decoded_nbytes == round(summary.decodes["image"] * 313) * 16 * SAMPLE
    assert summary.variance_factor == 1.0
    assert summary.first_chunks <= BATCH
    assert summary.first_nbytes == summary.first_chunks * 16 * SAMPLE
    memory, blocks = summary.advice
    assert memory.startswith("with memory for 35% of the samples, each chunk of image is decoded 1.")
    assert "memory='3.3 MiB'" in memory
    assert "variance factor of 2.8" in blocks


def test_nothing_is_advised_where_all_is_well() -> None:
    assert summary_of("exact", 0.7).advice == ()
    assert summary_of("exact", 0.01, per_chunk=1, mode="direct").advice == ()


def test_blocks_that_are_too_small() -> None:
    summary = summary_of("blocks", 0.35, block_chunks=4, mode="direct")
    assert summary.decodes["image"] == 1.0
    assert summary.variance_factor is not None
    assert round(summary.variance_factor, 1) == 8.4
    (advice,) = summary.advice
    assert "block_chunks=60 makes it 1.5" in advice


def test_blocks_that_do_not_fit() -> None:
    summary = summary_of("blocks", 0.05, block_chunks=64)
    assert summary.decodes["image"] > 1.5
    assert "does not fit into memory" in summary.advice[0]


def test_advice_is_about_what_costs_most() -> None:
    """A small array whose only chunk is decoded often costs little."""
    epoch = shuffled(N, 16, BATCH)
    image = Planning("image", epoch, "pool", N // 10, 2, 16 * SAMPLE)
    name = Planning("name", shuffled(N, N, BATCH), "pool", N // 10, 2, N * 8)
    summary = summarize([image, name], epochs_of("exact", N, 16, 16, 10**6), N)
    assert summary.decodes["name"] > summary.decodes["image"] > 3
    assert "each chunk of image is decoded" in summary.advice[0]
    assert "store image in chunks" in summary.advice[1]


def test_random_crops_need_no_shuffling() -> None:
    summary = summary_of("random", 0.5, mode="direct")
    assert summary.variance_factor == 1.0
    assert not any("shuffle" in line for line in summary.advice)


def test_blocks_that_are_better_have_to_fit_too() -> None:
    (advice,) = summary_of("blocks", 0.1, block_chunks=4).advice
    assert "block_chunks=60 with memory='1.0 MiB' makes it 1.5" in advice


def test_samples_that_reach_into_the_next_chunk() -> None:
    planning = Planning("video", windows(N, 4, 16, BATCH), "direct", 256, 2, 16 * SAMPLE)
    summary = summarize([planning], epochs_of("blocks", N, 16, 4, 10**9), N)
    assert summary.decodes["video"] > 1.5
    assert summary.advice[0].startswith("samples that reach into the next chunk")


def test_batches_in_order() -> None:
    assert "batches vary" in summary_of("in order", 0.5, mode="direct").advice[-1]


def test_the_variance_of_a_sampler_is_not_known() -> None:
    summary = summary_of("sampler", 0.7)
    assert summary.variance_factor is None
    assert "not known" in str(summary)


def test_it_prints_as_a_table() -> None:
    summary = summary_of("exact", 0.35)
    assert "Decodes a chunk : image: 1." in str(summary)
    assert "Advice" in repr(summary)
    assert summary._repr_html_().startswith("<table>")
