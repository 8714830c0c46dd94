"""Describes an array that is written by tables, and one write of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from gzarr.backend import Array
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.put import Put, make_put
from gzarr.cpu.compiled.tables import Windows
from gzarr.gpu.pipeline.covering import Covered
from gzarr.gpu.pipeline.encoding import ChunkEncoder
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.indexing.grid import RegularAxis
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import BoxPlan, Part
from gzarr.layout.chunk_layout import Layout
from gzarr.layout.sharded import Sharded
from gzarr.storage.base import Buffer, Store

#: Merges and encodes parts: (old contents, value, parts, whether chunks equal to the fill value are stored).
Merge: TypeAlias = Callable[[Sequence[Buffer | None], Any, Sequence[Part], bool], Sequence[Buffer | None]]


class Writable(NamedTuple):
    """An array whose chunks are written by tables.

    Attributes
    ----------
    store, layout, plan
        Where its chunks are, and how they are encoded.
    into : Put or None
        How files are stored; None if the store is given the chunks.
    steps : tuple[int, ...]
        Entries of a shard's index from one chunk to the next on every axis.
    merge : Merge
        Merges and encodes parts on the reference path.
    """

    store: Store
    layout: Layout
    plan: DevicePlan
    into: Put | None
    steps: Coords
    merge: Merge


def make_writable(store: Store, layout: Layout, plan: DevicePlan | None, merge: Merge) -> Writable | str:
    """Check the conditions on the array alone."""
    if (problem := library.problem()) is not None:
        return problem
    if plan is None or not all(isinstance(axis, RegularAxis) for axis in (*layout.grid, *layout.objects)):
        return "chunks differ in shape"
    if not layout.grid:
        return "the array has no axes"
    if plan.encoding.host or not plan.encoding.device:
        return f"codecs run on the host: {plan.encoding.obstacle or 'all of them'}"
    into = make_put(store, layout)
    if isinstance(into, str) and layout.objects is not layout.grid:
        return into
    first = (0,) * len(layout.grid)
    steps = layout.blank_index(first)[1].steps if isinstance(layout, Sharded) else first
    return Writable(store, layout, plan, None if isinstance(into, str) else into, steps, merge)


class Write(NamedTuple):
    """A write.

    Attributes
    ----------
    array : Writable
        The array.
    box : BoxPlan
        The plan.
    windows : Windows
        Its parts by shard.
    covered : Covered
        What it covers.
    value : Array
        The values, of the plan's shape.
    encoder : ChunkEncoder
        Encodes whole chunks.
    keep_empty : bool
        Whether chunks equal to the fill value are stored.
    """

    array: Writable
    box: BoxPlan
    windows: Windows
    covered: Covered
    value: Array
    encoder: ChunkEncoder
    keep_empty: bool
