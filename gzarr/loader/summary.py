"""`gzarr.Loader.summary`: what an epoch costs and how good its shuffling is, before anything is read; and advice."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Any, Literal, NamedTuple

from gzarr.display.info import Report, size_text
from gzarr.indexing.grid import nchunks
from gzarr.loader.arrays import chunk_nbytes_of
from gzarr.loader.forecast import Planning, count_mates, count_opened, first_step, variance_factor
from gzarr.loader.setup import Setup
from gzarr.loader.state import Begun

#: Decodes a chunk, and variance factors, above which there is advice.
_MANY_DECODES, _HIGH_VARIANCE = 1.5, 1.5


class Epochs(NamedTuple):
    """How samples are ordered in the epochs of a loader, and what it has for them.

    Attributes
    ----------
    kind : {"exact", "blocks", "in order", "random", "sampler"}
        What orders them; "random" are crops at random places.
    n : int
        Number of samples, of all ranks.
    per_chunk : float
        Samples that lie in one chunk.
    block_chunks : int
        Chunks of a block.
    batch_size, batch_nbytes : int
        Samples and bytes of a batch.
    memory : int
        The most memory for samples that wait, in bytes.
    world_size : int
        Number of ranks.
    correlation : float
        That of two samples of one chunk.
    """

    kind: Literal["exact", "blocks", "in order", "random", "sampler"]
    n: int
    per_chunk: float
    block_chunks: int
    batch_size: int
    batch_nbytes: int
    memory: int
    world_size: int
    correlation: float

    @property
    def span(self) -> float:
        """Samples that are shuffled together."""
        spans = {"blocks": self.block_chunks * self.per_chunk, "in order": self.per_chunk}
        return min(spans.get(self.kind, self.n), self.n)

    @property
    def factor(self) -> float:
        """Variance of a batch's mean over that of independent draws."""
        mates, of_all = (count_mates(self.batch_size, self.per_chunk, span) for span in (self.span, self.n))
        return variance_factor(mates, of_all, self.correlation)

    def decodes(self, planning: Planning, opened: float) -> float:
        """How often all ranks decode each chunk of an array, of which one opens so many."""
        return opened * self.world_size / max(nchunks(planning.epoch.grid), 1)

    def share_of_block(self, planning: Planning, span: float) -> float:
        """What share of the memory that blocks of so many samples take there is."""
        return planning.slots / (span + 2 * self.batch_size)


@dataclass(frozen=True, slots=True)
class Summary:
    """What an epoch costs one rank, estimated before anything is read. It prints as a table.

    Attributes
    ----------
    samples, batches : int
        That an epoch hands out.
    nbytes : int
        Size of its batches.
    decodes : dict of str to float
        For each array that is read, how often each of its chunks is decoded in an epoch, by all ranks together. The
        name is "" for a single array.
    decoded_nbytes : int
        Size of what is decoded.
    memory : int
        The most memory for samples that wait, in bytes. Three batches come on top.
    variance_factor : float or None
        Variance of a batch's mean over that of independent draws: 1.0 is perfect. It assumes ``correlation`` between
        two samples of one chunk. None for a sampler, whose order is not known.
    correlation : float
        The correlation.
    first_chunks, first_nbytes : int
        Chunks that are decoded for the first batch, and their size.
    advice : tuple of str
        What would make it cheaper or better.
    """

    samples: int
    batches: int
    nbytes: int
    decodes: dict[str, float]
    decoded_nbytes: int
    memory: int
    variance_factor: float | None
    correlation: float
    first_chunks: int
    first_nbytes: int
    advice: tuple[str, ...]

    def _report(self) -> Report:
        decodes = ", ".join(f"{name}: {n:.2f}".removeprefix(": ") for name, n in self.decodes.items())
        factor = "not known" if self.variance_factor is None else f"{self.variance_factor:.2f}"
        return Report(
            [
                ("Epoch", f"{self.samples:,} samples in {self.batches:,} batches, {size_text(self.nbytes)}"),
                ("Decodes a chunk", f"{decodes or 'none'} ({size_text(self.decoded_nbytes)} decoded)"),
                ("Memory", f"{size_text(self.memory)}, and three batches"),
                ("Variance factor", f"{factor} (1.0: independent draws; correlation {self.correlation:g} in a chunk)"),
                ("First batch", f"{self.first_chunks:,} chunks, {size_text(self.first_nbytes)} decoded"),
                *[("Advice", line) for line in self.advice],
            ]
        )

    def __str__(self) -> str:
        return repr(self._report())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self._report()._repr_html_()


def summarize(plannings: Sequence[Planning], epochs: Epochs, n: int) -> Summary:
    """Make a summary. plannings: of the arrays that are read. n: samples of this rank in an epoch."""
    opened = [count_opened(planning) for planning in plannings]
    decodes = {p.name: epochs.decodes(p, chunks) for p, chunks in zip(plannings, opened, strict=True)}
    first = [first_step(planning).opened for planning in plannings]
    sizes = [planning.chunk_nbytes for planning in plannings]
    return Summary(
        samples=n,
        batches=-(-n // epochs.batch_size),
        nbytes=n * epochs.batch_nbytes // epochs.batch_size,
        decodes=decodes,
        decoded_nbytes=round(sum(chunks * nbytes for chunks, nbytes in zip(opened, sizes, strict=True))),
        memory=epochs.memory,
        variance_factor=None if epochs.kind == "sampler" else epochs.factor,
        correlation=epochs.correlation,
        first_chunks=sum(first),
        first_nbytes=sum(chunks * nbytes for chunks, nbytes in zip(first, sizes, strict=True)),
        advice=tuple(_advise(plannings, decodes, epochs)),
    )


def _advise(plannings: Sequence[Planning], decodes: dict[str, float], epochs: Epochs) -> list[str]:
    advice = []
    stored = {p.name: nchunks(p.epoch.grid) * p.chunk_nbytes for p in plannings}
    decoded = {name: nbytes * decodes[name] for name, nbytes in stored.items()}
    if sum(decoded.values()) > _MANY_DECODES * sum(stored.values()):  # a small array does not matter
        worst = max(plannings, key=lambda planning: decoded[planning.name] - stored[planning.name])
        advice += _advise_on_decodes(worst, decodes[worst.name], epochs)
    if epochs.kind in {"blocks", "in order"} and epochs.factor > _HIGH_VARIANCE:
        advice.append(_advise_on_variance(plannings, epochs))
    return advice


def _advise_on_decodes(planning: Planning, decodes: float, epochs: Epochs) -> list[str]:
    """What lowers the number of decodes: more memory, blocks, or other chunks."""
    name, block = planning.name or "the array", epochs.block_chunks
    if epochs.kind == "blocks" and (planning.epoch.span or epochs.n) >= epochs.n > epochs.span:
        why = f"chunks of {name} lie across the blocks, which are whole chunks of another array"
        return [f"{why}: they are decoded {decodes:.1f} times; store both in chunks of equal length"]
    if epochs.kind == "blocks":
        share = epochs.share_of_block(planning, epochs.span)
        if share >= 1:
            why = f"samples that reach into the next chunk decode it for their own block too: {decodes:.1f} times each"
            return [f"{why} of {name}; a stride with which none crosses a border of chunks avoids it"]
        why = f"a block of {block} chunks does not fit into memory: chunks of {name} are decoded {decodes:.1f} times"
        remedy = f"give memory={size_text(ceil(epochs.memory / share))!r} or block_chunks={max(int(block * share), 1)}"
        return [f"{why}; {remedy}"]
    double = planning._replace(slots=2 * planning.slots)
    then = epochs.decodes(double, count_opened(double))
    share = planning.slots / max(planning.epoch.n, 1)
    held = f"memory for {share:.{0 if share > 0.01 else 2}%} of the samples"
    more = f"with memory={size_text(2 * epochs.memory)!r}, {then:.1f} times"
    lines = [f"with {held}, each chunk of {name} is decoded {decodes:.1f} times; {more}"]
    if epochs.kind == "exact" and planning.mode == "pool":
        factor = epochs._replace(kind="blocks").factor
        once = f'shuffle="blocks" with block_chunks={block} would decode each chunk once'
        lines.append(f"{once}, with a variance factor of {factor:.1f}; or store {name} in chunks of one sample")
    return lines


def _advise_on_variance(plannings: Sequence[Planning], epochs: Epochs) -> str:
    """What makes batches vary less: larger blocks, or an exact shuffle."""
    factor = epochs.factor
    if epochs.kind == "in order":
        return f'batches vary {factor:.1f} times as much as independent draws: shuffle="blocks" or "exact" to train'
    mates = (_HIGH_VARIANCE - 1) / epochs.correlation
    block = ceil(((epochs.batch_size - 1) * (epochs.per_chunk - 1) / mates + 1) / epochs.per_chunk)
    share = min([epochs.share_of_block(planning, block * epochs.per_chunk) for planning in plannings], default=1)
    memory = f" with memory={size_text(ceil(epochs.memory / share))!r}" if share < 1 else ""
    return (
        f"batches vary {factor:.1f} times as much as independent draws: block_chunks={block}{memory} makes it "
        f'{_HIGH_VARIANCE:g}, shuffle="exact" 1.0'
    )


def summary_of(setup: Setup, begun: Begun, correlation: float) -> Summary:
    """What an epoch of a loader costs, before anything is read."""
    plannings = []
    for name, room in setup.rooms.items():
        shown, nbytes = "" if setup.names is None else name, chunk_nbytes_of(setup.arrays[name])
        epoch = setup.epoch_of(name, begun, 0)
        plannings.append(Planning(shown, epoch, room.mode, room.slots, room.ahead, nbytes, setup.n_local))
    kind: Any = "sampler" if setup.sampler is not None else setup.shuffle or "in order"
    kind = "random" if kind != "sampler" and setup.samples.draws else kind
    n, size, arrays = setup.samples.n, setup.batch_size, setup.arrays
    sample = sum(prod(setup.samples.box(tuple(a.shape))) * setup.dtypes[name].itemsize for name, a in arrays.items())
    per_chunk, world_size = n / max(setup.axis.nchunks, 1), setup.world_size
    epochs = Epochs(kind, n, per_chunk, setup.block_chunks, size, size * sample, setup.memory, world_size, correlation)
    return summarize(plannings, epochs, begun.share.n)
