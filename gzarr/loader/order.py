"""The order of an epoch: from position to sample, for any position at any time.

An order is a function, not a table: a keyed bijection of ``range(n)`` takes positions to samples. So 10^9 samples cost
no memory, ranks and resumed runs compute their own part, and a position says all about progress. The bijection is a
Feistel network: positions are numbers of the cells of a nearly square table, and a hash of the row is added to the
column, then one of the column to the row, in turn. A cell outside of ``range(n)`` goes through it again until it falls
inside (cycle walking). It is made of 64-bit integer arithmetic alone: the same seed gives the same order on every
platform.

Source: Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002, cycle walking and generalized Feistel
networks; Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, the hash.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import isqrt
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Words: TypeAlias = NDArray[np.uint64]
Floats: TypeAlias = NDArray[np.float64]
Shuffle: TypeAlias = Literal[False, "exact", "blocks"]
#: What samples lie together in a chunk, by number of sample: so many in a run (the last may be shorter), or the edges
#: of the runs, from 0 to the number of samples.
Runs: TypeAlias = int | Ints

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # the step of splitmix64
HALF = np.uint64(32)
#: From the positions of an epoch to samples: ``n`` positions, called with any of them.
Order: TypeAlias = "SequentialOrder | Permutation | EqualBlocks | VaryingBlocks | Sampled"
#: Values of a function of ranges that are kept for arrays that ask later, and that are computed at once, at least.
_RECENT, _AT_ONCE = 1 << 15, 1 << 12
ROUNDS, TINY_ROUNDS = 8, 16


def word_of(*key: int | str) -> int:
    """A word of 64 bits that depends on every part of a key."""
    return int.from_bytes(blake2b(repr(key).encode(), digest_size=8).digest(), "little")


def mix(words: Words) -> Words:
    """A hash of each word, in place: the finisher of splitmix64."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


class Permutation:
    """A keyed bijection of ``range(n)`` in O(1) memory.

    Called with positions, and optionally a tweak for each of them: every tweak is a bijection of its own.
    """

    def __init__(self, n: int, *key: int | str) -> None:
        self.n = n
        columns = isqrt(max(n - 1, 0)) + 1
        rows = max(-(-n // columns), 1)
        rows += rows % 2  # with odd numbers of both, every turn is an even permutation
        self._columns, self._rows = np.uint64(columns), np.uint64(rows)
        # Few columns need more rounds until every order is equally likely.
        rounds = np.arange(ROUNDS if columns > 16 else TINY_ROUNDS, dtype=np.uint64)
        self._keys = mix(np.uint64(word_of(*key)) + rounds * GOLDEN)

    def __call__(self, positions: Ints, tweaks: Ints | None = None) -> Ints:
        """Where each position goes."""
        words = positions.astype(np.uint64)  # all below n: others may never come inside
        tweak = None if tweaks is None else mix(tweaks.astype(np.uint64) * GOLDEN)
        words = self._once(words, tweak)
        out = np.flatnonzero(words >= self.n)
        while len(out):
            words[out] = self._once(words[out], None if tweak is None else tweak[out])
            out = out[words[out] >= self.n]
        return words.astype(np.int64)

    def _once(self, words: Words, tweak: Words | None) -> Words:
        row = words // self._columns
        column = words - row * self._columns
        for number, key in enumerate(self._keys):
            if number % 2:
                turn(row, self._rows, column + key, tweak)
            else:
                turn(column, self._columns, row + key, tweak)
        return row * self._columns + column


def turn(half: Words, size: np.uint64, other: Words, tweak: Words | None) -> None:
    """Add a hash of the other half to one half, in place, modulo its size, which is below 2**32."""
    if tweak is not None:
        other ^= tweak
    mix(other)
    other >>= HALF  # the upper bits times the size, shifted down, are a number below the size
    other *= size
    other >>= HALF
    half += other
    half -= size * (half >= size)


@dataclass(frozen=True, slots=True)
class SequentialOrder:
    """Every sample at its own position."""

    n: int

    def __call__(self, positions: Ints) -> Ints:
        """The samples at these positions."""
        return positions


class EqualBlocks:
    """Runs of ``length`` samples in random order, and the samples shuffled within blocks of ``size`` runs.

    The last run may be shorter. It stands at a random place among the others, which shifts the positions behind it by
    what it lacks, so that nothing need be tabulated.
    """

    def __init__(self, n: int, length: int, size: int, *key: int | str) -> None:
        self.n, self._length, self._size, self._key = n, length, size, key
        self._nruns = -(-n // length)
        self._gap = self._nruns * length - n  # what the last run lacks
        self._short = word_of(*key, "short") % self._nruns if self._gap else self._nruns
        self._runs = Permutation(self._nruns - bool(self._gap), *key, "runs")

    def __call__(self, positions: Ints) -> Ints:
        """The samples at these positions."""
        whole, last = self._length * self._size, self._short // self._size
        shifted = positions + self._gap * (positions + self._gap >= (last + 1) * whole)
        blocks = shifted // whole
        inner = shifted - blocks * whole
        nruns = np.minimum(self._nruns - blocks * self._size, self._size)
        sizes = nruns * self._length - self._gap * (blocks == last)
        inner = shuffle_within(inner, blocks, sizes, *self._key)
        start = (self._short % self._size) * self._length
        inner += self._gap * ((blocks == last) & (inner >= start + self._length - self._gap))
        ordinals = blocks * self._size + inner // self._length
        short = ordinals == self._short
        runs = self._runs(np.where(short, 0, ordinals - (ordinals > self._short))) if self._runs.n else ordinals
        runs[short] = self._nruns - 1
        return runs * self._length + inner % self._length


class VaryingBlocks:
    """The same for runs between ``edges``, with a table of as many entries."""

    def __init__(self, edges: Ints, size: int, *key: int | str) -> None:
        self.n, self._key = int(edges[-1]), key
        order = Permutation(len(edges) - 1, *key, "runs")(np.arange(len(edges) - 1))
        self._starts = edges[:-1][order]
        self._firsts = np.concatenate([[0], np.cumsum(np.diff(edges)[order])])
        self._blocks = np.append(self._firsts[:-1:size], self.n)

    def __call__(self, positions: Ints) -> Ints:
        """The samples at these positions."""
        blocks = np.searchsorted(self._blocks, positions, side="right") - 1
        begin = self._blocks[blocks]
        inner = shuffle_within(positions - begin, blocks, self._blocks[blocks + 1] - begin, *self._key)
        runs = np.searchsorted(self._firsts, begin + inner, side="right") - 1
        found: Ints = self._starts[runs] + begin + inner - self._firsts[runs]
        return found


def shuffle_within(inner: Ints, blocks: Ints, sizes: Ints, *key: int | str) -> Ints:
    """Places in blocks of the given sizes, each block shuffled by itself."""
    shuffled = np.empty_like(inner)
    for size in np.unique(sizes):
        here = np.flatnonzero(sizes == size)
        shuffled[here] = Permutation(int(size), *key, "within")(inner[here], blocks[here])
    return shuffled


def chances(odds: Floats) -> Floats:
    """The terms of sums."""
    return np.diff(odds, prepend=0.0)


def draw(odds: Floats, words: Words) -> Ints:
    """What words choose: numbers as likely as the terms of which ``odds`` has the sums, with those of zero never."""
    found = np.searchsorted(odds, (words >> np.uint64(11)) * (odds[-1] / (1 << 53)), side="right")
    last = np.searchsorted(odds, odds[-1])  # the last that is not zero, should rounding reach the end
    numbers: Ints = np.minimum(found, last).astype(np.int64)
    return numbers


def parse_weights(weights: Any, n_arrays: int, n: int) -> Floats:
    """Weights, of arrays or of samples. Raises: TypeError, ValueError."""
    found = np.asarray(weights)
    if found.ndim != 1 or found.dtype.kind not in "iuf" or len(found) not in (n_arrays, n):
        arrays = f"{n_arrays} arrays, or of " if n_arrays > 1 else ""
        raise ValueError(f"weights must be numbers, those of {arrays}{n} samples, got {found.dtype} {found.shape}")
    found = found.astype(np.float64)
    if not (np.isfinite(found).all() and (found >= 0).all() and found.sum() > 0):
        raise ValueError("weights must be finite, not negative, and not all zero")
    return found


class Weighted:
    """A sampler that draws with replacement: as many samples as there are, likely in proportion to weights.

    Parameters
    ----------
    weights : array of float
        Of runs of samples: a sample is one of its run, all equally likely.
    firsts : array of int64
        Number of samples before each run, and of all.
    seed : int
        What the draws depend on, besides the epoch.
    """

    def __init__(self, weights: Floats, firsts: Ints, seed: int) -> None:
        self._odds, self._firsts, self._seed = np.cumsum(weights), firsts, seed

    def __len__(self) -> int:
        return int(self._firsts[-1])

    @property
    def digest(self) -> int:
        """What tells the weights from others."""
        return word_of(self._odds.astype("<f8").tobytes().hex())

    def __call__(self, positions: Ints, epoch: int) -> Ints:
        """The samples at these positions of an epoch."""
        keys = [np.uint64(word_of(self._seed, epoch, what)) for what in ("run", "sample")]
        run_words, words = [mix(positions.astype(np.uint64) * GOLDEN + key) for key in keys]
        runs = draw(self._odds, run_words)
        counts = np.diff(self._firsts)[runs].astype(np.uint64)
        return self._firsts[runs] + (words % counts).astype(np.int64)


SamplerFunction: TypeAlias = Callable[[Ints, int], Any]


@dataclass(frozen=True, slots=True)
class Sampled:
    """The samples that a user's function gives for positions; what it gives is checked.

    Attributes
    ----------
    n : int
        Number of positions in an epoch.
    nsamples : int
        Number of samples there are.
    epoch : int
        What the function is called with beside positions.
    function : callable
        From positions and epoch to numbers of samples.
    """

    n: int
    nsamples: int
    epoch: int
    function: SamplerFunction = field(repr=False)

    def __call__(self, positions: Ints) -> Ints:
        """The samples at these positions."""
        found = np.asarray(self.function(positions, self.epoch))
        if found.dtype.kind not in "iu" or found.shape != positions.shape:
            raise ValueError(
                f"the sampler gave {found.dtype} {found.shape} for {len(positions)} positions; "
                f"expected an integer for each position"
            )
        bad = np.flatnonzero((found < 0) | (found >= self.nsamples))
        if len(bad):
            raise IndexError(
                f"the sampler gave sample {found[bad[0]]} at position {positions[bad[0]]} of epoch {self.epoch}; "
                f"expected 0 to {self.nsamples - 1}: {len(bad)} of {len(found)} are out of range"
            )
        return found.astype(np.int64)


def make_order(
    n: int, shuffle: Shuffle, *, seed: int = 0, epoch: int = 0, runs: Runs = 1, block_chunks: int = 16
) -> Order:
    """The order of ``n`` samples in one epoch.

    Parameters
    ----------
    n : int
        Number of samples.
    shuffle : False, "exact" or "blocks"
        In order; every order equally likely; or runs in random order, and samples shuffled within blocks of them.
    seed, epoch : int
        What the order depends on.
    runs : int or array
        What samples lie together in a chunk; only blocks ask.
    block_chunks : int
        Number of runs in a block.
    """
    if not shuffle or n == 0:
        return SequentialOrder(n)
    if shuffle == "exact":
        return Permutation(n, seed, epoch)
    if isinstance(runs, int):
        return EqualBlocks(n, runs, block_chunks, seed, epoch)
    return VaryingBlocks(runs, block_chunks, seed, epoch)


def parse_shuffle(shuffle: Any) -> Shuffle:
    """The order that a user asked for; True is the exact one."""
    if shuffle is True:
        return "exact"
    if shuffle is None or shuffle is False:
        return False
    if shuffle in ("exact", "blocks"):
        return shuffle
    raise ValueError(f"shuffle must be 'exact' (or True), 'blocks' or False, got {shuffle!r}")


def check_kind(sampler: Any) -> None:
    """Refuse what is no sampler. Raises: TypeError."""
    if not callable(sampler) and (isinstance(sampler, str) or not isinstance(sampler, Iterable)):
        raise TypeError(
            f"sampler must be a function of positions and epoch, an array of samples or an iterable, got {sampler!r}"
        )


def is_repeatable(sampler: Any) -> bool:
    """Whether a sampler gives the same samples again: what is only iterated over may not."""
    return callable(sampler) or hasattr(sampler, "__getitem__")


def make_sampled(sampler: SamplerFunction | Sequence[int] | Iterable[int], n: int, epoch: int) -> Sampled:
    """The order that a user's sampler gives in one epoch.

    Parameters
    ----------
    sampler : callable, sequence or iterable
        A function of positions and epoch (of ``len(sampler)`` positions, if it says so, else of as many as there are
        samples), an array of samples, the same in every epoch, or what is iterated over once an epoch, such as a
        sampler of torch. The last is not resumable: what it gives another time is not known.
    n : int
        Number of samples.
    epoch : int
        Number of the epoch.
    """
    if callable(sampler):
        return Sampled(len(sampler) if hasattr(sampler, "__len__") else n, n, epoch, sampler)
    if is_repeatable(sampler):
        table = np.asarray(sampler)
    else:
        getattr(sampler, "set_epoch", lambda epoch: None)(epoch)
        table = np.asarray(list(sampler))
    if not table.size:
        table = table.astype(np.int64)
    if table.ndim != 1 or table.dtype.kind not in "iu":
        raise TypeError(f"sampler must give integers, one for each sample; got {table.dtype} {table.shape}")
    return Sampled(len(table), n, epoch, lambda positions, _: table[positions])


class Recent:
    """A function of ranges, as are the samples at positions: several arrays ask for what it has computed lately."""

    def __init__(self, compute: Callable[[int, int], Ints], n: int) -> None:
        self._compute, self._n, self._first, self._known = compute, n, 0, np.empty(0, np.int64)

    def __call__(self, lo: int, hi: int) -> Ints:
        """The values from ``lo`` to ``hi``."""
        end = self._first + len(self._known)
        if not self._first <= lo <= end:
            return self._compute(lo, hi)
        if hi > end:
            more = self._compute(end, max(hi, min(end + _AT_ONCE, self._n)))
            drop = max(len(self._known) - _RECENT, 0)
            self._known, self._first = np.concatenate([self._known[drop:], more]), self._first + drop
            if lo < self._first:
                return self._compute(lo, hi)
        return self._known[lo - self._first : hi - self._first]
