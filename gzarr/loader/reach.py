"""Decides how far ahead the samples of an opened row of chunks are taken into the pool.

Theory of operation. Between two openings of a row, its samples wait in the pool, on average for half the time. A sample
that is wanted ``x`` positions ahead costs ``x`` slots times positions; opening the row again costs a decoding. If rows
are opened at different times, the pool is full if each takes what is wanted within ``reach`` positions:

    slots = reach^2 / (2 (reach + gap)),

where ``gap`` is the mean distance of two samples of a row. That fixes the worth of an opening in the same unit. A row
is cut where the samples that wait, the next opening and what follows it cost least, so preferably at a wide gap. The
rest of an epoch is cut into equal reaches, so that no row is opened just before its end.

At the start of an epoch all rows are opened at nearly the same time. Their reaches differ, or all would be opened again
at the same time, and the pool would be too small for it.
"""

from math import exp, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.indexing.selection import Indices

#: Share of the theoretical reach, and by how much it differs at the start of an epoch (nothing with ``_FEW`` samples a
#: row, whose positions differ enough). Found by simulation: 4, 16 and 64 samples a row, a pool of 5 to 70 % of all.
_SHARE, _SPREAD, _FEW = 0.75, 0.4, 4
#: Multiples of the golden ratio, modulo 1, are spread evenly, however many there are.
_GOLDEN = 0.6180339887498949


def reach_of(slots: int, gap: float) -> float:
    """The usual reach, in positions. slots, gap: as in `Prospect`."""
    return _SHARE * (slots + sqrt(slots * (slots + 2 * gap)))


class Prospect(NamedTuple):
    """What is known when some rows are opened.

    Attributes
    ----------
    slots : int
        Slots for samples of later batches.
    gap : float
        Mean distance, in positions, of two samples of a row.
    left : int
        Positions over which the samples of a row may still be spread.
    seen : int
        How many of them are known: those farther ahead are not looked at.
    at : int
        Positions since the start of the epoch.
    opened : int
        Rows that were opened before.
    """

    slots: int
    gap: float
    left: int
    seen: int
    at: int
    opened: int


def within_reach(far: Indices, firsts: Indices, prospect: Prospect) -> NDArray[np.bool_]:
    """Whether each sample is taken now.

    far: (m,), how many positions ahead each is, the samples of a row together and in order. firsts: (r,), where the
    samples of each row begin.
    """
    if not len(far):
        return np.zeros(0, np.bool_)
    x = far.astype(np.float64)
    counts = np.diff(np.append(firsts, len(x)))
    sums = np.cumsum(x)
    waiting = sums - x - np.repeat(sums[firsts] - x[firsts], counts)  # the cost of those before each in its row
    reach = _reaches(len(firsts), prospect)
    opening = reach + reach**2 / (2 * prospect.gap)
    each = np.repeat(opening, counts)
    costs = waiting + each + _rest(prospect.left - x, each, prospect.gap)
    least = np.minimum.reduceat(costs, firsts)
    cuts = np.minimum.reduceat(np.where(costs == np.repeat(least, counts), x, np.inf), firsts)
    lasts = firsts + counts - 1
    uncut = waiting[lasts] + x[lasts]
    if prospect.seen < prospect.left:
        unseen = np.full(len(firsts), float(prospect.left - prospect.seen))
        uncut += opening + _rest(unseen, opening, prospect.gap)
    cuts[uncut <= least] = np.inf
    return x < np.repeat(cuts, counts)


def _reaches(n: int, prospect: Prospect) -> NDArray[np.float64]:
    """The reach of each of the rows that are opened."""
    samples = (prospect.at + prospect.left) / prospect.gap
    spread = _SPREAD * max(1 - _FEW / samples, 0.0) * exp(-prospect.at / prospect.gap)
    turns = (prospect.opened + 1 + np.arange(n, dtype=np.float64)) * _GOLDEN % 1
    return reach_of(prospect.slots, prospect.gap) * (1 - spread * turns)


def _rest(left: NDArray[np.float64], opening: NDArray[np.float64], gap: float) -> NDArray[np.float64]:
    """The cost of the rest of an epoch after a row was opened: that of equal reaches, as many as cost least."""
    n = np.maximum(np.rint(left / np.sqrt(2 * gap * opening)), 1)
    return left**2 / (2 * gap * n) + (n - 1) * opening
