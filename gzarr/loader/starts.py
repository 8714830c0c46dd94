"""Where samples may begin along an axis: every so many elements in each of some spans."""

from typing import Any, NamedTuple

import numpy as np

from gzarr.loader.order import Ints


class Starts(NamedTuple):
    """Where boxes may begin along an axis: every ``stride`` elements in each of some spans.

    Attributes
    ----------
    lows, lasts : array of int64
        First and last place in each span.
    firsts : array of int64
        Number of places before each span, and of all places.
    stride : int
        From place to place; the last place of a span may be nearer to the one before it.
    """

    lows: Ints
    lasts: Ints
    firsts: Ints
    stride: int

    @property
    def n(self) -> int:
        """Number of places."""
        return int(self.firsts[-1])

    @property
    def counts(self) -> Ints:
        """Number of places in each span."""
        return np.diff(self.firsts)

    def only(self, spans: Ints) -> "Starts":
        """The places in some of the spans."""
        firsts = np.concatenate([[0], np.cumsum(self.counts[spans])])
        return Starts(self.lows[spans], self.lasts[spans], firsts, self.stride)

    def __call__(self, numbers: Ints) -> Ints:
        """The places with these numbers."""
        span: Any = 0 if len(self.lows) == 1 else np.searchsorted(self.firsts, numbers, side="right") - 1
        found: Ints = np.minimum(self.lows[span] + (numbers - self.firsts[span]) * self.stride, self.lasts[span])
        return found

    def before(self, elements: Ints) -> Ints:
        """How many places are before each of some elements."""
        if not self.n:
            return np.zeros_like(elements)
        span = np.searchsorted(self.lows, elements, side="right") - 1
        steps = -((self.lows[span] - elements) // self.stride)
        found = self.firsts[span] + np.where(elements > self.lasts[span], np.diff(self.firsts)[span], steps)
        return np.where(span < 0, 0, found)


def make_starts(spans: Ints, size: int, stride: int, *, whole: bool, padded: bool = False) -> Starts:
    """Where boxes of a size may begin within spans, the rows of a table; tiles cover the whole of each span.

    padded: whether boxes may reach past the end of a span: of a shorter one, and the last tile of any.
    """
    if not padded:
        spans = spans[spans[:, 1] - spans[:, 0] >= size]
    lows, lasts = spans[:, 0], np.maximum(spans[:, 1] - size, spans[:, 0])
    if padded and whole:
        lasts = lows - (lows - lasts) // stride * stride
    if not whole:
        lasts = lasts - (lasts - lows) % stride
    counts = -((lows - lasts) // stride) + 1
    return Starts(lows, lasts, np.concatenate([[0], np.cumsum(counts)]), stride)


def joined(spans: Ints) -> Ints:
    """Spans with those joined that follow each other without a gap."""
    new = np.append(True, spans[1:, 0] != spans[:-1, 1])[: len(spans)]
    return np.stack([spans[new, 0], spans[np.roll(new, -1), 1]], 1)
