"""Plans in which blocks a large array is computed, in bars and layers: pure integers, no I/O.

Theory of operation. The array is cut into *bars*, across all axes but the *sweep axis*. A bar is gone through layer by
layer. A *window* holds a layer with its halo; what the next layer needs of it is moved, so that a chunk is decoded once
within a bar. What is decoded or computed more than once:

- chunks at the sides of bars, once for each bar that needs them;
- elements in the halo of *blocks*, into which a layer is cut: the function is called for each.

A *group* is what is handed over at once: a block, or several that make up a unit of the output (a shard, say).
`gzarr.images.halo.choosing` chooses the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, NamedTuple

from gzarr.images.halo.boundary import Depth
from gzarr.indexing.grid import Axis

#: A box of the output: first elements, and those behind the last ones.
Bounds = tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """What is gone through.

    Attributes
    ----------
    shape : tuple of int
        Of the inputs.
    depth : tuple of Depth
        The halo of every axis.
    modes : tuple of str
        How every axis is continued.
    factors : tuple of int
        Elements of the inputs for one of the output, along every axis.
    unit : tuple of int
        Smallest block of the output that may be handed over.
    cval : scalar
        Value of a constant boundary.
    """

    shape: tuple[int, ...]
    depth: tuple[Depth, ...]
    modes: tuple[str, ...]
    factors: tuple[int, ...]
    unit: tuple[int, ...]
    cval: Any = 0

    @cached_property
    def out_shape(self) -> tuple[int, ...]:
        """Of the output."""
        return tuple(-(-n // f) for n, f in zip(self.shape, self.factors, strict=True))

    def core(self, axis: int, start: int, stop: int) -> tuple[int, int]:
        """The elements of the inputs for elements of the output, along an axis."""
        factor = self.factors[axis]
        return start * factor, min(stop * factor, self.shape[axis])


class Costs(NamedTuple):
    """What memory is needed for.

    Attributes
    ----------
    itemsizes : tuple of int
        Of the inputs.
    out_itemsize : int
        Of the output.
    block_nbytes : int
        Bytes that the function needs for each element of a block with its halo, its result included.
    workers : int
        Blocks that are computed at once.
    windows : int
        2 if a layer is read while another one is computed.
    max_nbytes : int
        The budget.
    grows : bool
        Whether the budget is a default, which becomes what the smallest plan takes if none fits.
    """

    itemsizes: tuple[int, ...]
    out_itemsize: int
    block_nbytes: int
    workers: int
    windows: int
    max_nbytes: int
    grows: bool = False


@dataclass(frozen=True, kw_only=True)
class BlockwisePlan:
    """How an output is made. All lengths are in elements of the output, and multiples of its unit, but those of blocks.

    Attributes
    ----------
    axis : int
        The sweep axis.
    bar : tuple of int
        Shape of a bar; along the sweep axis the height of a layer.
    block, group : tuple of int
        Shapes of a block, and of what is handed over at once.
    whole : bool
        Whether the window reaches to the ends of chunks along the sweep axis, so that they are decoded once.
    nbytes : int
        Memory of everything.
    windows_nbytes, block_nbytes : int
        Memory of all windows, and of one block that is computed.
    cost : float
        As the model counts it.
    """

    axis: int
    bar: tuple[int, ...]
    block: tuple[int, ...]
    group: tuple[int, ...]
    whole: bool
    nbytes: int
    windows_nbytes: int
    block_nbytes: int
    cost: float

    def to_json(self) -> dict[str, Any]:
        """What `plan_again` needs."""
        lengths = {"bar": self.bar, "block": self.block, "group": self.group}
        return {"axis": self.axis, "whole": self.whole} | {name: list(value) for name, value in lengths.items()}

    def bars(self, shape: tuple[int, ...]) -> Iterator[list[Bounds]]:
        """The layers of every bar."""
        cuts = [_cut(0, n, width) for n, width in zip(shape, self.bar, strict=True)]
        layers, cuts[self.axis] = cuts[self.axis], [(0, 0)]
        for bar in product(*cuts):
            yield [(*bar[: self.axis], layer, *bar[self.axis + 1 :]) for layer in layers]

    def groups(self, layer: Bounds) -> Iterator[Bounds]:
        """The groups of a layer."""
        return _boxes(layer, self.group)

    def all_groups(self, shape: tuple[int, ...]) -> list[Bounds]:
        """The groups of all layers, in order."""
        return [group for bar in self.bars(shape) for layer in bar for group in self.groups(layer)]

    def n_blocks(self, group: Bounds) -> int:
        """The number of blocks of a group."""
        return count_blocks([stop - start for start, stop in group], self.block)

    def blocks(self, group: Bounds) -> Iterator[Bounds]:
        """The blocks of a group."""
        return _boxes(group, self.block)


def _boxes(bounds: Bounds, size: tuple[int, ...]) -> Iterator[Bounds]:
    return product(*[_cut(start, stop, n) for (start, stop), n in zip(bounds, size, strict=True)])


def _cut(start: int, stop: int, n: int) -> list[tuple[int, int]]:
    return [(at, min(at + n, stop)) for at in range(start, stop, n)]


def frontier(axis: Axis, stop: int, *, whole: bool) -> int:
    """How far a window reaches along the sweep axis: to the end of a chunk, if it is read whole."""
    return min(axis.bounds(axis.locate(stop - 1))[1], axis.extent) if whole and stop else stop


def count_blocks(outer: Sequence[int], inner: Sequence[int]) -> int:
    """How many blocks of a shape another one is cut into."""
    return prod(-(-n // m) for n, m in zip(outer, inner, strict=True))
