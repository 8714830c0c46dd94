"""Computes large arrays block by block with halos, in bars and layers.

Theory of operation. `gzarr.images.halo.planning` says how. Layer by layer, windows (`gzarr.images.halo.window`) are
read by all threads; then the blocks of the layer are computed and handed over, each by one thread. Blocks are views of
the windows. Where reading waits for a server, or on a device, a second set of windows is read meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import prod
from typing import Any, NamedTuple

import numpy as np

from gzarr.api.many import read_many
from gzarr.backend import Array as AnyArray
from gzarr.backend import run_ahead
from gzarr.concurrency import Pool
from gzarr.hierarchy.array import Array
from gzarr.images.gathered import GatheredBlock
from gzarr.images.halo.planning import BlockwisePlan, Bounds, Costs, Geometry
from gzarr.images.halo.window import HaloWindow
from gzarr.images.pyramid.resuming import UnitsDone
from gzarr.images.tasks import run_tasks


@dataclass(frozen=True, kw_only=True)
class BlockwiseJob:
    """What is computed of what.

    Attributes
    ----------
    sources : sequence of Array
        The inputs, of one shape and on one device.
    compute : callable
        Called with the bounds of a block of the output and, for each input, its elements with their halo. Returns the
        block. The elements are parts of the windows and must not be changed.
    put : callable
        Called with the start of a group of blocks, and the group: from any thread, each once.
    geometry, costs, plan
        In which blocks. Of the costs, ``workers`` and ``windows`` are what the plan was made for.
    dtype : dtype
        Of the output.
    max_nbytes : int
        What windows, blocks and groups may take.
    pending : callable
        Bytes that `put` has kept.
    marks : UnitsDone or None
        Which groups, in the order of the plan, need not be computed; takes note of those that have been put.
    first : int
        Number of the first group among these.
    tell : callable
        Called with the bounds of a group that has been put.
    """

    sources: Sequence[Array]
    compute: Callable[[Bounds, list[AnyArray]], AnyArray]
    put: Callable[[tuple[int, ...], AnyArray], object]
    geometry: Geometry
    costs: Costs
    plan: BlockwisePlan
    dtype: np.dtype[Any]
    max_nbytes: int
    pending: Callable[[], int] = int
    marks: UnitsDone | None = None
    first: int = 0
    tell: Callable[[Bounds], object] = lambda _group: None

    @property
    def ahead(self) -> bool:
        """Whether the next layer is read while one is computed."""
        return self.costs.windows == 2

    def is_done(self, number: int) -> bool:
        """Whether a group was put by an earlier run."""
        return self.marks is not None and self.marks.is_done(self.first + number)

    def finished(self, number: int, group: Bounds) -> None:
        """Note that a group has been put."""
        if self.marks is not None:
            self.marks.note(self.first + number)
        self.tell(group)


class _Layer(NamedTuple):
    """A layer of which something is to be computed.

    Attributes
    ----------
    bounds : Bounds
        Of the output.
    groups : list[tuple[int, Bounds]]
        What is to be computed, with numbers.
    follows : bool
        Whether it follows the layer before in the same bar.
    """

    bounds: Bounds
    groups: list[tuple[int, Bounds]]
    follows: bool


def run_blockwise(job: BlockwiseJob) -> None:
    """Compute everything. Raises: what `BlockwiseJob.compute` and `BlockwiseJob.put` raise, ChunkError, StoreError."""
    layers = _layers(job)
    layer = next(layers, None)
    if layer is None:
        return
    here, other = _windows(job), _windows(job) if job.ahead else []
    _read(layer, here, [])
    readers = Pool()
    while layer is not None:
        after = next(layers, None)
        if after is None or not job.ahead:
            _compute(job, layer, here)
            if after is not None:
                _read(after, here, here)
        else:
            # The blocks before have been computed in the windows that are read into.
            wait = run_ahead(job.sources[0].backend, readers, 1, partial(_read, after, other, here))
            try:
                _compute(job, layer, here)
            finally:
                wait()
            here, other = other, here
        layer = after


def done_groups(job: BlockwiseJob) -> list[Bounds]:
    """The groups that need not be computed."""
    groups = enumerate(job.plan.all_groups(job.geometry.out_shape))
    return [group for number, group in groups if job.is_done(number)]


def _windows(job: BlockwiseJob) -> list[HaloWindow]:
    return [HaloWindow(source, job.geometry, job.plan) for source in job.sources]


def _layers(job: BlockwiseJob) -> Iterator[_Layer]:
    numbers = count()
    for layers in job.plan.bars(job.geometry.out_shape):
        follows = False
        for bounds in layers:
            every = [(next(numbers), group) for group in job.plan.groups(bounds)]
            groups = [(number, group) for number, group in every if not job.is_done(number)]
            if groups:
                yield _Layer(bounds, groups, follows)
            follows = bool(groups)


def _read(layer: _Layer, windows: list[HaloWindow], before: list[HaloWindow]) -> None:
    """Read a layer. before: the windows of the layer before."""
    jobs: list[Any] = []
    for number, window in enumerate(windows):
        jobs += window.begin(layer.bounds, before[number] if layer.follows else None)
    read_many(jobs)
    for window in windows:
        window.complete()


class _OutputGroup:
    """A group that is put together of blocks."""

    def __init__(self, job: BlockwiseJob, number: int, bounds: Bounds) -> None:
        self._job, self._number, self._bounds = job, number, bounds
        self.blocks = list(job.plan.blocks(bounds))
        shape = tuple(stop - start for start, stop in bounds)
        self._gathered = GatheredBlock(job.sources[0].backend, shape, job.dtype)

    def add(self, block: Bounds, result: AnyArray) -> None:
        """Take a block; the last one puts the group."""
        if len(self.blocks) == 1:
            self._put(result)
            return
        place = tuple(slice(a - low, b - low) for (a, b), (low, _) in zip(block, self._bounds, strict=True))
        if self._gathered.add(place, result) == prod(self._gathered.shape):
            self._put(self._gathered.take())
            self._gathered.free()

    def _put(self, values: AnyArray) -> None:
        self._job.put(tuple(start for start, _ in self._bounds), values)
        self._job.finished(self._number, self._bounds)


def _compute(job: BlockwiseJob, layer: _Layer, windows: list[HaloWindow]) -> None:
    """Compute the blocks of a layer, and put its groups."""
    shared = any(map(any, job.geometry.depth))

    def compute(item: tuple[_OutputGroup, Bounds]) -> None:
        group, block = item
        views = [window.view(block) for window in windows]
        if shared and isinstance(views[0], np.ndarray):
            for view in views:
                view.flags.writeable = False  # its neighbours see it too
        group.add(block, job.compute(block, views))

    groups = (_OutputGroup(job, *numbered) for numbered in layer.groups)
    items = ((group, block) for group in groups for block in group.blocks)
    run_tasks(
        job.sources[0].backend,
        compute,
        items,
        n_items=sum(job.plan.n_blocks(group) for _, group in layer.groups),
        cost_nbytes=job.plan.block_nbytes,
        max_nbytes=job.max_nbytes - job.plan.windows_nbytes,
        workers=job.costs.workers,
        pending=job.pending,
    )
