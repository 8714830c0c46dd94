"""Writes many chunks on the device by tables, without an object for each chunk.

Theory of operation. A write covers some objects (chunks that are files, or shards) whole: these are the product of some
rows of every axis, and a wave is a run of them. Their values are gathered into rows and encoded, one copy brings the
results to the host, and the loop stores all files or shards in one call. Shards that are covered in part are merged
(`gzarr.gpu.pipeline.merged_shards`). The reference path does the rest: files that are covered in part, and shards of
which hardly a chunk is covered.

Rules: what cannot be encoded or stored is left to the reference path, so its errors are the only ones there are. The
lane is returned before anything is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from math import prod
from typing import Any, TypeAlias

import numpy as np

from gzarr.backend import Work
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.fetch import spans_of
from gzarr.cpu.compiled.put import EMPTY, LEFT, Put
from gzarr.cpu.compiled.tables import Boxes
from gzarr.errors import CodecError, DeviceError
from gzarr.gpu.pipeline.covering import find_covered
from gzarr.gpu.pipeline.encoding import ChunkEncoder, Packed, find_values
from gzarr.gpu.pipeline.merged_shards import merge_shards
from gzarr.gpu.pipeline.placing import box_columns
from gzarr.gpu.pipeline.resources import Resources
from gzarr.gpu.pipeline.sizing import wave_nchunks, write_cost
from gzarr.gpu.pipeline.writable import Writable, Write
from gzarr.indexing.keys import Coords, join_path
from gzarr.indexing.plan import BoxPlan, Groups, Part
from gzarr.indexing.selection import Indices
from gzarr.profiling.recorder import stage
from gzarr.storage.base import Buffer, host_view

#: Numbers of whole objects, the first and one past the last; shards to be merged; or parts for the reference path.
Piece: TypeAlias = "tuple[int, int] | Shards | Groups"

#: The tables do not pay for fewer whole chunks, of all objects or of a shard that is merged.
MIN_NCHUNKS = 4


class Shards:
    """Shards that are covered in part, by their numbers."""

    __slots__ = ("numbers",)

    def __init__(self, numbers: Indices) -> None:
        self.numbers = numbers


@dataclass(frozen=True, slots=True, eq=False)
class DeviceWrite:
    """A write in batches.

    Attributes
    ----------
    job : Write
        What is written.
    size : int
        Most chunks of a piece.
    work : Work
        How much there is to do.
    """

    job: Write
    size: int
    work: Work
    stage = "build"

    @property
    def batches(self) -> Iterator[Piece]:
        """The whole objects, the shards that are merged, then the rest."""
        wholes, shards = self.job.covered.wholes, self.job.covered.shards
        n, size = prod(wholes.shape), max(self.size // len(wholes.inner), 1)
        for first in range(0, n, size):
            yield first, min(first + size, n)
        merged = self.job.covered.nfull >= MIN_NCHUNKS
        most = min(size, self.job.array.store.max_locked or size)
        for first in range(0, int(merged.sum()), most):
            yield Shards(shards[merged][first : first + most])
        groups = chain.from_iterable(plan.groups(self.job.array.layout.objects) for plan in self.job.covered.rest)
        groups = chain(groups, map(self.shard, shards[~merged].tolist()))
        while some := list(islice(groups, size)):
            yield some

    def objects(self, piece: Piece) -> tuple[list[str], list[str]]:
        """The objects of a batch, of which the shards are merged; none for the rest, which the reference path locks."""
        if isinstance(piece, list):
            return [], []
        layout = self.job.array.layout
        if isinstance(piece, Shards):
            keys = [layout.key(tuple(row)) for row in self.job.windows.shards(piece.numbers).tolist()]
            return keys, keys
        names = layout.names
        prefix = f"{join_path(names.path, '_')[:-1]}{names.keys.prefix}"
        return self.job.covered.wholes.names(prefix, names.keys.separator, *piece), []

    def write(self, piece: Piece, keys: Sequence[str], merged: Sequence[str]) -> Groups:
        """Write a batch, all but the parts that are returned. Raises: StoreError."""
        if isinstance(piece, list):
            return piece
        try:
            if isinstance(piece, Shards):
                merge_shards(self.job, piece.numbers, keys)
                return []
            encoded = self.job.encoder.encode(self.job.covered.wholes.spans(*piece))
        except (CodecError, DeviceError):  # the reference path says what is wrong
            if isinstance(piece, Shards):
                return list(map(self.shard, piece.numbers.tolist()))
            return self._left(piece, range(piece[1] - piece[0]))
        into = self.job.array.into
        with stage("store") as noted:
            left = self._store(keys, encoded) if into is None else self._put(into, piece, keys, encoded)
            nbytes = sum(int(some.sizes.sum()) for some in encoded)
            noted.count(0, nbytes, nbytes)
        return self._left(piece, left)

    def shard(self, number: int) -> tuple[Coords, list[Part]]:
        """A shard and its parts, for the reference path."""
        windows = self.job.windows
        coords = tuple(windows.shards(np.array([number]))[0].tolist())
        runs = windows.runs(int(windows.ends[number]), int(windows.ends[number + 1]))
        return coords, list(map(self.job.box.part, spans_of(windows, runs).tolist()))

    def _store(self, keys: Sequence[str], encoded: Sequence[Packed]) -> tuple[int, ...]:
        """Give the store the chunks. Returns: nothing, as nothing is left."""
        items: list[tuple[str, Buffer]] = []
        emptied = np.ones(len(keys), np.bool_)
        for numbers, host, starts, sizes in encoded:
            view = host_view(host)
            cuts = map(slice, starts.tolist(), (starts + sizes).tolist())
            items += zip(map(keys.__getitem__, numbers.tolist()), map(view.__getitem__, cuts), strict=True)
            emptied[numbers] = False
        if items:
            self.job.array.store.set_many(items)
        if emptied.any():
            self.job.array.store.delete_many([keys[number] for number in np.flatnonzero(emptied).tolist()])
        return ()

    def _put(self, into: Put, piece: tuple[int, int], keys: Sequence[str], encoded: Sequence[Packed]) -> list[int]:
        """Store files or shards. Returns: those that are left."""
        n = len(keys) * len(self.job.covered.wholes.inner)
        addresses, sizes = np.zeros(n, np.int64), np.full(n, -1, np.int64)
        for some in encoded:
            addresses[some.numbers] = some.addresses
            sizes[some.numbers] = some.sizes
        status = into.put(self.job.covered.wholes.coords(*piece), addresses, sizes)
        emptied = np.flatnonzero(status == EMPTY).tolist()
        if emptied:
            into.target.tidy([keys[number] for number in emptied])
        left: list[int] = np.flatnonzero(status == LEFT).tolist()
        return left

    def _left(self, piece: tuple[int, int], numbers: Sequence[int]) -> Groups:
        """The parts of some objects of a piece."""
        if not numbers:
            return []
        wholes, part = self.job.covered.wholes, self.job.box.part
        coords, spans, n = wholes.coords(*piece).tolist(), wholes.spans(*piece), len(wholes.inner)
        return [(tuple(coords[i]), list(map(part, spans[i * n : (i + 1) * n].tolist()))) for i in numbers]


def make_write(
    resources: Resources, array: Writable, box: BoxPlan, value: Any, *, keep_empty: bool
) -> DeviceWrite | str:
    """Prepare a write that the device encodes, or say why the reference path has to do it. value: as `take_write`."""
    plan, layout = array.plan, array.layout
    if (off := library.obstacle()) is not None:
        return off
    boxes = Boxes(box)
    windows = boxes.windows(layout)
    values = find_values(resources, plan, (boxes, windows), value)
    if isinstance(values, str):
        return values
    covered = find_covered(box, layout, windows, array.steps)
    n_whole = prod(covered.wholes.shape) * len(covered.wholes.inner)
    if max(n_whole, int(covered.nfull.max(initial=0))) < MIN_NCHUNKS:
        return "too few chunks are covered whole"
    nbytes = plan.chunk.nbytes or 1
    cost = write_cost(plan, nbytes)
    fitting, drops = max(resources.lanes.limit // cost.memory, 1), not keep_empty and plan.chunk.fill_value is not None
    encoder = ChunkEncoder(resources, plan, box, box_columns(box), values, drops, fitting)
    size = wave_nchunks(box.nparts, cost, resources.lanes.limit)
    work = Work(box.nparts, nbytes, size, unlocked=True, waits=array.store.concurrency > 1)
    return DeviceWrite(Write(array, box, windows, covered, value, encoder, keep_empty), size, work)
