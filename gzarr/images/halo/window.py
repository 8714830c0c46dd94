"""A window: a layer of one input with its halo, in memory that all layers share.

Theory of operation. A window holds a box of the input, pads included. The next layer of a bar moves what it needs of
the one before to the front, and reads the rest. Along the sweep axis, it reads to the end of a chunk, so that the next
layer need not decode that chunk again. Pads are copied within the window; where the elements they are made of are not
in it, they are read as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.hierarchy.array import Array
from gzarr.images.halo.boundary import Pad, pads_of, span_of
from gzarr.images.halo.choosing import window_shape
from gzarr.images.halo.planning import BlockwisePlan, Bounds, Geometry, frontier
from gzarr.indexing.regions import Region


class _AxisPart(NamedTuple):
    """Elements that are read: where they begin in the window and in the array, and how many there are."""

    at: int
    start: int
    n: int


class WindowPlace(NamedTuple):
    """Where a window lies along an axis.

    Attributes
    ----------
    low : int
        Coordinate of its first element, perhaps below 0.
    first, last : int
        Of the array, the elements that it holds.
    pads : list[Pad]
        What it holds besides.
    """

    low: int
    first: int
    last: int
    pads: list[Pad]

    def holds(self, pad: Pad) -> bool:
        """Whether a pad is made of elements that the window holds."""
        return pad.source is None or self.first <= pad.source.start <= pad.source.stop <= self.last

    def parts(self) -> list[_AxisPart]:
        """What is read."""
        inner = _AxisPart(self.first - self.low, self.first, self.last - self.first)
        return [inner, *self.outer()]

    def outer(self) -> list[_AxisPart]:
        """The pads that are read."""
        return [
            _AxisPart(pad.start - self.low, pad.source.start, pad.stop - pad.start)
            for pad in self.pads
            if pad.source is not None and not self.holds(pad)
        ]


class HaloWindow:
    """A layer of one input with its halo.

    Parameters
    ----------
    source : Array
        The input.
    geometry, plan
        In which blocks it is computed.

    Attributes
    ----------
    memory : array
        Of the largest layer.
    places : tuple
        Where the window lies along every axis.
    """

    def __init__(self, source: Array, geometry: Geometry, plan: BlockwisePlan) -> None:
        self.source = source
        self._geometry, self._plan = geometry, plan
        shape = window_shape(geometry, source.metadata.chunk_grid, plan)
        self.memory = source.backend.empty(shape, source.dtype)
        self.places: tuple[WindowPlace, ...] = ()
        self._fresh: list[_AxisPart] = []

    def view(self, block: Bounds) -> AnyArray:
        """A block of the output in this layer, as elements of the input with its halo."""
        return self.memory[
            tuple(
                slice(start - depth.before - place.low, stop + depth.after - place.low)
                for (start, stop), depth, place in zip(
                    self._cores(block), self._geometry.depth, self.places, strict=True
                )
            )
        ]

    def begin(self, layer: Bounds, before: HaloWindow | None) -> Iterator[tuple[Array, Region, AnyArray]]:
        """Move to a layer. before: the window of the layer before, perhaps this one; None at the begin of a bar.

        Returns: what has to be read, for `gzarr.read_many`. Then `complete` has to be called.
        """
        sweep = self._plan.axis
        old = before.places[sweep] if before is not None else None
        places = self._locate(layer)
        place = places[sweep]
        parts = place.parts()
        if before is not None and old is not None and old.low <= place.low and old.last > place.low:
            self._keep(before, place.low - old.low, old.last - place.low)
            parts = [_AxisPart(old.last - place.low, old.last, place.last - old.last), *place.outer()]
            # Pads at the begin are moved with the rest.
            parts = [part for part in parts if part.at >= old.last - place.low]
            place = place._replace(pads=[pad for pad in place.pads if pad.start >= self._geometry.shape[sweep]])
        self.places = (*places[:sweep], place, *places[sweep + 1 :])
        self._fresh = [part for part in parts if part.n > 0]
        each = [self._fresh if axis == sweep else other.parts() for axis, other in enumerate(self.places)]
        for box in product(*each):
            region = tuple(slice(part.start, part.start + part.n) for part in box)
            yield self.source, region, self.memory[tuple(slice(part.at, part.at + part.n) for part in box)]

    def complete(self) -> None:
        """Fill the pads, once everything is read."""
        sweep = self._plan.axis
        for part in self._fresh:
            fresh = self.memory[(slice(None),) * sweep + (slice(part.at, part.at + part.n),)]
            for axis, place in enumerate(self.places):
                if axis != sweep:
                    self._fill(fresh, axis, place)
        self._fill(self.memory, sweep, self.places[sweep])

    def _cores(self, block: Bounds) -> list[tuple[int, int]]:
        return [self._geometry.core(axis, *bounds) for axis, bounds in enumerate(block)]

    def _locate(self, layer: Bounds) -> list[WindowPlace]:
        geometry, places = self._geometry, []
        for axis, (start, stop) in enumerate(self._cores(layer)):
            depth, size = geometry.depth[axis], geometry.shape[axis]
            first, last = span_of(start, stop, depth, size)
            if axis == self._plan.axis:
                last = frontier(self.source.metadata.chunk_grid[axis], last, whole=self._plan.whole)
            pads = pads_of(start, stop, depth, size, geometry.modes[axis])
            places.append(WindowPlace(start - depth.before, first, last, pads))
        return places

    def _keep(self, before: HaloWindow, start: int, n: int) -> None:
        """Take over the elements of the window before, from a number on along the sweep axis."""
        sweep, old, new = self._plan.axis, before.memory, self.memory
        if old is not new:
            lead = (slice(None),) * sweep
            new[(*lead, slice(n))] = old[(*lead, slice(start, start + n))]
        elif start:
            # In parts that do not overlap: a copy onto itself would need as much memory again.
            for lead_index in np.ndindex(*new.shape[:sweep]):
                part = new[lead_index]
                for at in range(0, n, start):
                    stop = min(at + start, n)
                    part[at:stop] = part[at + start : stop + start]

    def _fill(self, memory: AnyArray, axis: int, place: WindowPlace) -> None:
        """Fill the pads of an axis."""
        lead = (slice(None),) * axis
        for pad in place.pads:
            to = (*lead, slice(pad.start - place.low, pad.stop - place.low))
            if pad.source is None:
                memory[to] = self._geometry.cval
            elif place.holds(pad):
                values = memory[(*lead, slice(pad.source.start - place.low, pad.source.stop - place.low))]
                memory[to] = _turned(values, axis) if pad.reverse else values
            elif pad.reverse:
                memory[to] = _turned(memory[to], axis).copy()


def _turned(values: AnyArray, axis: int) -> AnyArray:
    return values[(slice(None),) * axis + (slice(None, None, -1),)]
