"""Writes many whole chunks on the device by tables, without an object for each chunk.

Theory of operation. A write is cut in two: the chunks (or shards) that it covers whole, which are the product of some
rows of every axis, and the rest, which the reference path merges with old contents. A piece is a run of whole ones: a
wave. Its values are gathered into rows, by the device or, if they are on the host, by the compiled loop; rows are
encoded; one copy brings the results to the host; the loop stores all files, or shards, in one call.

Rules: what cannot be encoded or stored is left to the reference path, so its errors are the only ones there are. The
lane is returned before anything is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array, Work
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.put import EMPTY, LEFT, MAX_NBYTES, Gather, Put, make_gather, make_put
from gzarr.cpu.compiled.source import swapped
from gzarr.cpu.compiled.tables import Boxes, Windows
from gzarr.cpu.decode_into import PLAIN_ARRAYS
from gzarr.errors import CodecError, DeviceError
from gzarr.gpu.codecs.batch import Wave
from gzarr.gpu.codecs.floats import why_not_cast
from gzarr.gpu.codecs.transfers import new_rows
from gzarr.gpu.device.lanes import Lane
from gzarr.gpu.pipeline.gathering import Source, Target
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.gpu.pipeline.placing import BoxColumns, box_columns
from gzarr.gpu.pipeline.resources import Resources
from gzarr.gpu.pipeline.sizing import wave_nchunks, write_cost
from gzarr.gpu.pipeline.waves import in_waves
from gzarr.gpu.pipeline.write import downloaded, encoded_rows, find_written, merged_rows
from gzarr.indexing.grid import RegularAxis
from gzarr.indexing.keys import Coords, join_path
from gzarr.indexing.plan import BoxPlan, Part, RangeSpans
from gzarr.indexing.selection import Indices
from gzarr.layout.chunk_layout import Layout
from gzarr.layout.sharded import Sharded
from gzarr.profiling.recorder import stage
from gzarr.storage.base import Buffer, Store, host_view

#: Stored objects, by their coordinates, with the parts of each.
Left: TypeAlias = list[tuple[Coords, list[Part]]]
#: Numbers of whole objects, the first and one past the last; or parts for the reference path.
Piece: TypeAlias = "tuple[int, int] | Left"

#: The tables do not pay for fewer whole chunks.
MIN_NCHUNKS = 4
#: How often a value must be repeated on broadcast axes to be repeated by the device.
_MIN_REPEATED = 64


@dataclass(frozen=True, slots=True, eq=False)
class Wholes:
    """The objects, chunks or shards, that a write covers whole: the product of some rows of every axis.

    Attributes
    ----------
    objects : tuple[Indices, ...]
        Coordinates of the objects on every axis.
    firsts : tuple[Indices, ...]
        The first span of each in the plan.
    inner : NDArray[np.int32]
        int32 (chunks of an object, ndim): spans of its chunks behind the first ones, in the order of its index.
    """

    objects: tuple[Indices, ...]
    firsts: tuple[Indices, ...]
    inner: NDArray[np.int32]

    @property
    def shape(self) -> tuple[int, ...]:
        """Objects on every axis."""
        return tuple(axis.size for axis in self.objects)

    def coords(self, first: int, last: int) -> Indices:
        """Coordinates (n, ndim) of some objects."""
        return self._picked(self.objects, first, last)

    def spans(self, first: int, last: int) -> NDArray[np.int32]:
        """The spans (n, ndim) of the chunks of some objects, one object after the other."""
        starts = self._picked(self.firsts, first, last).astype(np.int32)
        return (starts[:, None] + self.inner).reshape(-1, len(self.objects))

    def names(self, prefix: str, separator: str, first: int, last: int) -> list[str]:
        """The keys of some objects. prefix: of the keys."""
        at = np.unravel_index(np.arange(first, last), self.shape)
        columns = []
        for axis, rows in zip(self.objects, at, strict=True):
            low, high = int(rows.min()), int(rows.max()) + 1
            texts = [f"{prefix}{number}" for number in axis[low:high].tolist()]
            columns.append([texts[row] for row in (rows - low).tolist()])
            prefix = ""
        return columns[0] if len(columns) == 1 else list(map(separator.join, zip(*columns, strict=True)))

    def _picked(self, columns: Sequence[Indices], first: int, last: int) -> Indices:
        at = np.unravel_index(np.arange(first, last), self.shape)
        return np.stack([column[rows] for column, rows in zip(columns, at, strict=True)], axis=1)


def find_wholes(box: BoxPlan, layout: Layout, windows: Windows, steps: Sequence[int]) -> tuple[Wholes, list[Indices]]:
    """Find the objects that a write covers whole.

    windows: of the plan. steps: entries of a shard's index from one chunk to the next on every axis.
    Returns: them, and the spans on every axis that are theirs.
    """
    chunk_cut, object_cut = layout.cut or layout.find_cut()
    objects, firsts, counts, spans = [], [], [], []
    for a, axis in enumerate(box.axes):
        full = _is_full(axis) & (windows.chunks[a] != chunk_cut[a])
        if layout.objects is layout.grid:
            rows = np.flatnonzero(full)
            objects.append(windows.chunks[a][rows])
            firsts.append(rows)
            counts.append(1)
            spans.append(rows)
            continue
        n = _ratio(layout, a)
        first = int(windows.axes[a, 2])
        table = windows.table[first : first + windows.shape[a]]
        n_full = np.add.reduceat(full.astype(np.int64), table[:, 1])
        whole = table[(n_full == n) & (table[:, 2] == n) & (table[:, 0] != object_cut[a])]
        objects.append(whole[:, 0].copy())
        firsts.append(whole[:, 1].copy())
        counts.append(n)
        spans.append((whole[:, 1:2] + np.arange(n)).reshape(-1))
    inner = np.indices(counts, np.int32).reshape(len(counts), -1).T
    inner = inner[np.argsort(inner @ np.asarray(steps, np.int64), kind="stable")]
    return Wholes(tuple(objects), tuple(firsts), np.ascontiguousarray(inner)), spans


def _ratio(layout: Layout, a: int) -> int:
    """Chunks of a shard on an axis."""
    length: int = getattr(layout.objects[a], "length", 0)
    return length // max(int(getattr(layout.grid[a], "length", 1)), 1)


def _is_full(spans: Sequence[Any]) -> NDArray[np.bool_]:
    """Which spans of an axis take all of their chunk, in its order."""
    if isinstance(spans, RangeSpans):
        full = np.full(len(spans), spans.wanted.step == 1)
        full[[0, -1]] &= spans[0].full, spans[-1].full
        return full
    found = [
        span.full and type(span.inside) is type(span.out) is slice and span.inside.step in (None, 1) for span in spans
    ]
    return np.array(found, np.bool_)


class Values(NamedTuple):
    """Where the values come from.

    Attributes
    ----------
    array : Array
        An array on the device; or on the host, without its broadcast axes, to be uploaded with every wave.
    strides : tuple[int, ...]
        Of the value, in bytes: 0 on broadcast axes.
    gather : Gather or None
        How the loop gathers an array on the host into chunks, which are uploaded then.
    """

    array: Array
    strides: tuple[int, ...]
    gather: Gather | None = None


class Packed(NamedTuple):
    """Encoded chunks in the host's memory.

    Attributes
    ----------
    numbers : Indices
        int64 (n,): which of the piece they are.
    host : NDArray[np.uint8]
        uint8, their bytes.
    starts, sizes : Indices
        int64 (n,): where each begins, and how long it is.
    """

    numbers: Indices
    host: NDArray[np.uint8]
    starts: Indices
    sizes: Indices


@dataclass(slots=True, eq=False)
class DeviceWrite:
    """A write in pieces.

    Attributes
    ----------
    resources
        What it is done with.
    store, layout, plan
        The array: where its chunks are, and how they are encoded.
    box : BoxPlan
        The plan.
    columns : BoxColumns
        Its spans as tables.
    wholes : Wholes
        The objects that are written by tables.
    rest : tuple of BoxPlan
        What the reference path writes.
    values : Values
        The values.
    into : Put or None
        How files are stored; None if the store is given the chunks.
    drops : bool
        Whether chunks equal to the fill value are not stored.
    fitting : int
        How many chunks should fit into a lane.
    size : int
        Most objects of a piece.
    work : Work
        How much there is to do.
    """

    resources: Resources
    store: Store
    layout: Layout
    plan: DevicePlan
    box: BoxPlan
    columns: BoxColumns
    wholes: Wholes
    rest: tuple[BoxPlan, ...]
    values: Values
    into: Put | None
    drops: bool
    fitting: int
    size: int
    work: Work
    stage = "build"

    @property
    def pieces(self) -> Iterator[Piece]:
        """The waves, then the rest."""
        n = prod(self.wholes.shape)
        for first in range(0, n, self.size):
            yield first, min(first + self.size, n)
        groups = chain.from_iterable(plan.groups(self.layout.objects) for plan in self.rest)
        while some := list(islice(groups, self.size)):
            yield some

    def keys(self, piece: Piece) -> list[str]:
        """The objects of a wave; none for the rest, which the reference path locks."""
        if isinstance(piece, list):
            return []
        names = self.layout.names
        prefix = f"{join_path(names.path, '_')[:-1]}{names.keys.prefix}"
        return self.wholes.names(prefix, names.keys.separator, *piece)

    def merged(self, piece: Piece, keys: Sequence[str]) -> tuple[str, ...]:
        """Nothing: objects are replaced whole."""
        return ()

    def again(self) -> None:
        """Nothing: the reference path does the rest at once."""

    def do(self, piece: Piece, keys: Sequence[str]) -> Left:
        """Write a piece, all but the parts that are returned."""
        if isinstance(piece, list):
            return piece
        coords, spans = self.wholes.coords(*piece), self.wholes.spans(*piece)
        try:
            encoded = self._encode(spans)
        except (CodecError, DeviceError):  # the reference path says what is wrong
            return self._left(coords, spans, range(len(coords)))
        with stage("store") as noted:
            left = self._store(keys, encoded) if self.into is None else self._put(self.into, coords, keys, encoded)
            nbytes = sum(int(some.sizes.sum()) for some in encoded)
            noted.count(0, nbytes, nbytes)
        return self._left(coords, spans, left)

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
            self.store.set_many(items)
        if emptied.any():
            self.store.delete_many([keys[number] for number in np.flatnonzero(emptied).tolist()])
        return ()

    def _put(self, into: Put, coords: Indices, keys: Sequence[str], encoded: Sequence[Packed]) -> list[int]:
        """Store files or shards. Returns: those that are left."""
        n = len(coords) * len(self.wholes.inner)
        addresses, sizes = np.zeros(n, np.int64), np.full(n, -1, np.int64)
        for some in encoded:
            addresses[some.numbers] = some.host.__array_interface__["data"][0] + some.starts
            sizes[some.numbers] = some.sizes
        status = into.put(coords, addresses, sizes)
        emptied = np.flatnonzero(status == EMPTY).tolist()
        if emptied:
            into.target.tidy([keys[number] for number in emptied])
        left: list[int] = np.flatnonzero(status == LEFT).tolist()
        return left

    def _left(self, coords: Indices, spans: NDArray[np.int32], numbers: Sequence[int]) -> Left:
        """The parts of some objects of a piece."""
        n = len(self.wholes.inner)
        return [
            (
                tuple(coords[number].tolist()),
                [self.box.part(row) for row in spans[number * n : (number + 1) * n].tolist()],
            )
            for number in numbers
        ]

    def _encode(self, spans: NDArray[np.int32]) -> list[Packed]:
        """Encode chunks; those that are not among the result are not stored. Raises: CodecError, DeviceError."""
        encoded: list[Packed] = []
        with self.resources.lanes.borrow_to_write() as lane:

            def wave(some: slice) -> None:
                found = self._encode_wave(lane, np.ascontiguousarray(spans[some]))
                if found is not None:
                    encoded.append(found._replace(numbers=found.numbers + some.start))

            def too_large(number: int) -> DeviceError:
                return self.resources.too_large(self.box.part(spans[number].tolist()).coords, self.plan)

            in_waves(lane, len(spans), self.fitting, wave, too_large)
        return encoded

    def _encode_wave(self, lane: Lane, spans: NDArray[np.int32]) -> Packed | None:
        """Encode chunks of a wave; None if all of them equal the fill value. Raises: CodecError, OverLimitError."""
        wave, found = Wave(lane.device, lane=lane), None
        rows: Any = None
        try:
            with stage("gather", timed=True):
                rows = self._rows(wave, lane, spans)
                which = find_written(wave, self.plan, rows) if self.drops else np.arange(len(spans))
            with stage("encode", timed=True):
                if which.size:
                    found = Packed(which, *downloaded(wave, encoded_rows(wave, self.plan, rows, which)))
            with stage("check"):
                wave.finish()
        finally:
            rows = None  # the error's traceback would hold them
            wave.drop()
        return found

    def _rows(self, wave: Wave, lane: Lane, part_spans: NDArray[np.int32]) -> Array:
        """The values as decoded chunks on the device: uint8 (n, bytes)."""
        n, nbytes, (array, given, gather) = len(part_spans), self.plan.chunk.nbytes or 0, self.values
        if gather is not None:
            staging = lane.slab(n * nbytes)
            gather.into(staging, part_spans)
            return wave.upload(staging).reshape(n, nbytes)
        if not lane.device.owns(array):
            array = wave.upload(array)
        strides = np.broadcast_to(np.array(given, np.int64), (n, len(given)))
        source = Source(array, array.dtype, wave.device.address(array), np.zeros(n, np.int64), strides, "value")
        order = tuple(sorted(range(len(given)), key=lambda axis: -self.plan.strides[axis]))
        columns = BoxColumns(tuple([self.columns.axes[axis] for axis in order]), self.columns.pool)
        tables = columns.tables(np.ascontiguousarray(part_spans[:, order]))
        target = Target((), order, "value", tables, np.full(n, self.plan.chunk.nelements))
        rows, _ = new_rows(wave, n, nbytes)
        return merged_rows(wave, self.plan, source, target, rows)


def rest_of(box: BoxPlan, spans: Sequence[Indices]) -> tuple[BoxPlan, ...]:
    """What of a plan is not in the product of some spans of its axes: plans that have no chunk in common."""
    rest, before = [], list[Any]()
    for a, (axis, some) in enumerate(zip(box.axes, spans, strict=True)):
        others = np.setdiff1d(np.arange(len(axis)), some).tolist()
        if others:
            picked = tuple([axis[number] for number in others])
            rest.append(box._replace(axes=(*before, picked, *box.axes[a + 1 :])))
        before.append(axis if not others else tuple([axis[number] for number in some.tolist()]))
        if not len(some):
            break
    return tuple(rest)


class Writable(NamedTuple):
    """An array whose whole chunks are written by tables.

    Attributes
    ----------
    store, layout, plan
        Where its chunks are, and how they are encoded.
    into : Put or None
        As in `DeviceWrite`.
    """

    store: Store
    layout: Layout
    plan: DevicePlan
    into: Put | None


def make_writable(store: Store, layout: Layout, plan: DevicePlan | None) -> Writable | str:
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
    return Writable(store, layout, plan, None if isinstance(into, str) else into)


def make_write(
    resources: Resources, array: Writable, box: BoxPlan, value: Any, *, keep_empty: bool
) -> DeviceWrite | str:
    """Prepare a write that the device encodes, or say why the reference path has to do it. value: as `take_write`."""
    store, layout, plan, into = array
    if (off := library.obstacle()) is not None:
        return off
    boxes = Boxes(box)
    windows = boxes.windows(layout)
    values = _values_of(resources, plan, (boxes, windows), value)
    if isinstance(values, str):
        return values
    steps = layout.blank_index((0,) * len(layout.grid))[1].steps if isinstance(layout, Sharded) else (1,) * value.ndim
    wholes, spans = find_wholes(box, layout, windows, steps)
    nparts, nbytes = box.nparts, plan.chunk.nbytes or 1
    if prod(wholes.shape) * len(wholes.inner) < MIN_NCHUNKS:
        return "too few chunks are covered whole"
    cost = write_cost(plan, nbytes)
    size = wave_nchunks(nparts, cost, resources.lanes.limit)
    return DeviceWrite(
        resources=resources,
        store=store,
        layout=layout,
        plan=plan,
        box=box,
        columns=box_columns(box),
        wholes=wholes,
        rest=rest_of(box, spans),
        values=values,
        into=into,
        fitting=max(resources.lanes.limit // cost.memory, 1),
        drops=not keep_empty and plan.chunk.fill_value is not None,
        size=max(size // len(wholes.inner), 1),
        work=Work(nparts, nbytes, size, unlocked=True, waits=store.concurrency > 1),
    )


def _values_of(resources: Resources, plan: DevicePlan, parts: tuple[Boxes, Windows], value: Any) -> Values | str:
    if resources.device.owns(value):
        why = why_not_cast(value.dtype, plan.chunk.dtype)
        return why or Values(value, value.strides)
    if type(value) not in PLAIN_ARRAYS or value.dtype.hasobject:
        return "values of this kind are read by the reference path"
    broadcast = [axis for axis, step in enumerate(value.strides) if step == 0]
    if broadcast and value.nbytes >= _MIN_REPEATED * (single := _without(value, broadcast)).nbytes:
        native = plan.stored.newbyteorder("=")
        array = np.asarray(single, native, order="C")
        steps = np.cumprod([native.itemsize, *array.shape[:0:-1]])[::-1].tolist()
        return Values(array, tuple([0 if axis in broadcast else step for axis, step in enumerate(steps)]))
    swap = swapped(plan.stored, value.dtype)
    if swap is None or (plan.chunk.nbytes or 0) > MAX_NBYTES:
        return f"values of dtype {value.dtype} are cast by the reference path"
    strides = [n * value.itemsize for n in plan.strides]
    gather = make_gather(*parts, value, (plan.chunk.shape, strides), swap)
    return Values(value, value.strides, gather)


def _without(value: NDArray[Any], broadcast: Sequence[int]) -> NDArray[Any]:
    """A value with a single element on some axes."""
    return value[tuple([slice(0, 1) if axis in broadcast else slice(None) for axis in range(value.ndim)])]
