"""Reads many small chunks by the compiled loop (`_loop.c`), which is given tables instead of parts.

Theory of operation. A plan is cut into pieces: runs of chunks that are files, or what is wanted of one shard. The loop
takes a piece whole, without the interpreter's lock, and says which parts it has left: damaged ones, odd ones, files
that cannot be read. Those are done again by the usual path, so its answers and its errors are the only ones there are.

Rules: a plan, chain, store and result that the loop does not know are not for it (`make_bulk` returns None); nothing is
kept from one read to the next.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, product
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gzarr.backend import Array, Chain, Work
from gzarr.codecs.spec import fill_of
from gzarr.cpu import native
from gzarr.cpu.direct import PLAIN_ARRAYS, Direct
from gzarr.errors import CodecError
from gzarr.keys import Coords
from gzarr.layout import Layout, Names, Sharded, ShardIndex
from gzarr.plan import BoxPlan, Part, PointPlan, PointTable, RangeSpans, Span
from gzarr.storage.base import Store

#: Fewer chunks are not worth the tables.
MIN_NCHUNKS = 6
#: Chunks of one piece at most, and decoded bytes: a signal waits until the piece is done.
PIECE_NCHUNKS, PIECE_NBYTES = 256, 1 << 22
#: Pieces that each thread should get, so that one that is slow does not hold up the others.
_PIECES_PER_THREAD = 4
#: Larger chunks are not for the loop, which frees its memory after every piece.
_MAX_NBYTES = 1 << 26
#: Encoded chunks are hardly ever larger than decoded ones; one that is by more than this is left.
_MAX_GROWTH_NBYTES = 1 << 12
#: Axes that the loop's tables have (MAX_NDIM).
_MAX_NDIM = 32

#: Stored objects, by their coordinates, with the parts wanted of each.
Left: TypeAlias = list[tuple[Coords, list[Part]]]


class Piece(NamedTuple):
    """What one call does.

    Attributes:
        first, n: its first part among those of the window, and how many it has.
        shard: coordinates of the shard that holds them; None for chunks that are files.
        window: of a box, first span and number of spans for every axis; of points nothing.
    """

    first: int
    n: int
    shard: Coords | None
    window: tuple[tuple[int, int], ...]


class Boxes:
    """The parts of a box for the loop: number i is the i-th of the product of a window's spans."""

    def __init__(self, plan: BoxPlan) -> None:
        self._plan = plan
        self._starts = tuple(accumulate((len(spans) for spans in plan.axes), initial=0))[:-1]
        lists: list[int] = []
        rows = b"".join(_rows(spans, lists) for spans in plan.axes)
        self.nparts, self.npoints = plan.nparts, -1
        self.tables = (rows, np.array(lists, np.int64).tobytes(), b"", b"")
        self.all = tuple((0, len(spans)) for spans in plan.axes)

    def pieces_of_shards(self, layout: Sharded) -> Iterator[Piece]:
        for combo in product(*self._plan.windows(layout.objects)):
            window = tuple((first, n) for _, first, n in combo)
            yield Piece(0, prod(n for _, n in window), tuple(owner for owner, _, _ in combo), window)

    def places(self, piece: Piece) -> tuple[list[int], list[int]]:
        """For every axis, where its spans begin in the table, and how many there are."""
        firsts = [start + first for start, (first, _) in zip(self._starts, piece.window, strict=True)]
        return firsts, [n for _, n in piece.window]

    def part(self, piece: Piece, number: int) -> Part:
        picked = []
        for first, n in reversed(piece.window):
            number, position = divmod(number, n)
            picked.append(first + position)
        return self._plan.part(picked[::-1])


class Rows:
    """The points of a plan for the loop: a part is what is taken of one chunk."""

    def __init__(self, plan: PointPlan, layout: Layout) -> None:
        self._plan = plan
        self._points: PointTable = plan.table(layout.objects)
        self.nparts, self.npoints = len(self._points.rows), plan.shape[0]
        points: list[Any] = [self._points.rows, self._points.starts, self._points.inside, self._points.order]
        rows, starts, inside, order = (np.array(table, np.int64).tobytes() for table in points)
        self.tables = (rows, starts, inside, order)
        self.all = ()

    def pieces_of_shards(self, layout: Sharded) -> Iterator[Piece]:
        first = 0
        for shard, rows in groupby(self._points.owners):
            n = sum(1 for _ in rows)
            yield Piece(first, n, shard, ())
            first += n

    def places(self, piece: Piece) -> tuple[list[int], list[int]]:
        return [], []

    def part(self, piece: Piece, number: int) -> Part:
        return self._plan.part(self._points, number)


@dataclass(frozen=True, slots=True, eq=False)
class Bulk:
    """A read that the loop can do.

    Attributes:
        store, layout: where the chunks are.
        names: how their keys are made.
        prefix: what the paths of the array's files begin with.
        parts: what is wanted of them.
        out: the result: it must live as long as its address is used.
        job, fill: the loop's table of what all pieces have in common, and its fill value.
        window: of pieces that are no shards.
        work: how much there is to do.
    """

    store: Store
    layout: Layout
    names: Names
    prefix: str
    parts: Boxes | Rows
    out: Array
    job: bytes
    fill: bytes
    window: bytes
    work: Work

    def pieces(self) -> Iterator[Piece]:
        """All there is to do."""
        if isinstance(self.layout, Sharded):
            return self.parts.pieces_of_shards(self.layout)
        n, size = self.parts.nparts, self.work.wave_nchunks
        return (Piece(first, min(size, n - first), None, self.parts.all) for first in range(0, n, size))

    def read(self, piece: Piece) -> Left:
        """Read a piece into the result, all but the parts that are returned. Raises: StoreError."""
        if piece.shard is None or not isinstance(self.layout, Sharded):
            return self._do(piece, self.prefix + self.names.keys.prefix)
        key = self.layout.key(piece.shard)
        before = self.store.generation(key)
        kept = self.layout.known_generation(key) == before
        left = self._read_shard(self.layout, piece, before)
        # Ranges and the index they came from must be of one version of the shard. What is left of one depends on its
        # other parts: the usual path may read it in another way if many are wanted.
        if left or self.store.generation(key) != before:
            left = self._all(piece)
        if left and not kept:  # the usual path shall find what it would have found
            self.layout.forget(key)
        return left

    def _read_shard(self, layout: Sharded, piece: Piece, generation: object | None) -> Left:
        shard = piece.shard or ()
        try:
            index = layout.index(self.store, shard, generation)
        except CodecError:  # the usual path says what is wrong
            return self._all(piece)
        if index is not None and generation is None:  # it has just come
            return self._all(piece)
        return self._do(piece, self.prefix + self.names.keys.encode(shard), index, in_shard=True)

    def _do(self, piece: Piece, path: str, index: ShardIndex | None = None, *, in_shard: bool = False) -> Left:
        loop = native.loop()
        if loop is None:  # switched off meanwhile
            return self._all(piece)
        window = self.window
        if in_shard:
            places = self.parts.places(piece)
            window = _window(*places) if index is None else _window(*places, index.origin, index.steps)
        entries = index.entries if index is not None else b"" if in_shard else None
        status = bytearray(piece.n)
        n_left = loop.do(
            self.job, window, *self.parts.tables, os.fsencode(path), entries, self.fill, piece.first, status
        )
        return self._left(piece, [i for i, left in enumerate(status) if left]) if n_left else []

    def _all(self, piece: Piece) -> Left:
        return self._left(piece, range(piece.n))

    def _left(self, piece: Piece, numbers: Sequence[int]) -> Left:
        parts = [self.parts.part(piece, piece.first + number) for number in numbers]
        return [(part.coords, [part]) for part in parts] if piece.shard is None else [(piece.shard, parts)]


def make_bulk(
    store: Store, layout: Layout, chain: Chain, plan: BoxPlan | PointPlan, out: Array, n_threads: int
) -> Bulk | None:
    """Prepare a read for the loop; None if it is not for the loop, or too small to gain.

    Args:
        store, layout: where the chunks are.
        chain: the one of all chunks.
        plan: what to read.
        out: where to, of the plan's shape.
        n_threads: how many threads will share the work.
    """
    direct: Direct | None = chain.direct
    if plan.nparts < MIN_NCHUNKS or direct is None or direct.number is None or native.loop() is None:
        return None
    swap = _swapped(direct.dtype, chain.chunk.dtype)
    fits = type(out) in PLAIN_ARRAYS and out.dtype == chain.chunk.dtype and out.shape == plan.shape
    if swap is None or not fits or len(direct.shape) > _MAX_NDIM or direct.nbytes > _MAX_NBYTES:
        return None
    # Of large chunks that can be cut, the usual path fetches and decodes no more than is wanted.
    if direct.cut is not None and not (isinstance(plan, BoxPlan) and all(map(_all_full, plan.axes))):
        return None
    names: Names | None = getattr(layout, "names", None)
    if names is None or (isinstance(layout, Sharded) and not layout.is_flat):
        return None
    prefix = store.local_prefix(names.path)
    if prefix is None or "\0" in prefix:
        return None
    parts = Boxes(plan) if isinstance(plan, BoxPlan) else Rows(plan, layout)
    size = max(
        1, min(PIECE_NCHUNKS, PIECE_NBYTES // direct.nbytes, -(-parts.nparts // (n_threads * _PIECES_PER_THREAD)))
    )
    work = Work(parts.nparts, out.nbytes // parts.nparts, size, unlocked=True)
    fill = np.asarray(fill_of(chain.chunk), chain.chunk.dtype).tobytes()
    job = _job(direct, direct.number, swap, ord(names.keys.separator), out, parts.npoints)
    window = _window(*parts.places(Piece(0, 0, None, parts.all)))
    return Bulk(store, layout, names, prefix, parts, out, job, fill, window, work)


def _window(*rows: Sequence[int]) -> bytes:
    """The loop's struct Window."""
    padding = [0] * _MAX_NDIM
    values = [value for row in rows for value in (*row, *padding[len(row) :])]
    return struct.pack(f"{4 * _MAX_NDIM}q", *values, *padding * (4 - len(rows)))


def _all_full(spans: Sequence[Span]) -> bool:
    return spans.full if isinstance(spans, RangeSpans) else all(span.full for span in spans)


def _job(direct: Direct, number: int, swap: int, separator: int, out: Any, npoints: int) -> bytes:
    """The loop's struct Job."""
    ndim, checksum = len(direct.shape), int(bool(direct.outer))
    head = (
        ndim,
        direct.dtype.itemsize,
        direct.nbytes,
        direct.nbytes + direct.nbytes // 8 + _MAX_GROWTH_NBYTES,
        number,
        swap,
        checksum,
        separator,
        out.__array_interface__["data"][0],
        npoints,
    )
    axes = np.zeros((4, _MAX_NDIM), np.int64)
    stride = direct.dtype.itemsize
    for axis, n in zip(reversed(direct.order), reversed(direct.shape), strict=True):
        axes[0, axis], axes[1, axis] = n, stride
        stride *= n
    axes[2, : out.ndim], axes[3, : out.ndim] = out.shape, out.strides
    return np.array(head, np.int64).tobytes() + axes.tobytes()


def _rows(spans: Sequence[Span], lists: list[int]) -> bytes:
    """The loop's struct Span of every span. lists: where index lists are added."""
    if not isinstance(spans, RangeSpans):
        return np.array([_row(span, lists) for span in spans], np.int64).tobytes()
    chunk, inside, out, count = spans.columns()
    rows = np.empty((len(spans), 8), np.int64)
    columns: tuple[Any, ...] = (chunk, count, inside, spans.step, -1, out, 1, -1)
    for column, values in enumerate(columns):
        rows[:, column] = values
    return rows.tobytes()


def _row(span: Span, lists: list[int]) -> tuple[int, ...]:
    chunk, inside, out, _ = span
    count = len(range(out.start, out.stop, out.step or 1)) if type(out) is slice else len(out)
    return (chunk, count, *_side(inside, lists), *_side(out, lists))


def _side(index: Any, lists: list[int]) -> tuple[int, int, int]:
    """Start, step and -1; or where the index list is."""
    if type(index) is slice:
        return index.start, index.step or 1, -1
    lists.extend(index.tolist())
    return 0, 0, len(lists) - len(index)


def _swapped(stored: np.dtype[Any], wanted: np.dtype[Any]) -> int | None:
    """How many bytes are to be swapped at a time to give elements another byte order, 0 for none; None if unknown."""
    if stored == wanted:
        return 0
    if wanted.kind not in "iufcmM" or stored.newbyteorder() != wanted:
        return None
    return wanted.itemsize // 2 if wanted.kind == "c" else wanted.itemsize
