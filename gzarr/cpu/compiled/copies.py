"""Reads chunks and copies boxes of them to slots by the compiled loop (`loop/copies.c`): a `CopyPlan` as tables.

Theory of operation. A piece is a run of chunks, of as many shards as there are. The loop is given the cached index of
each shard and the version that the index belongs to. It compares that with the file that it has opened, before the
first chunk and after the last one, so nobody looks at the shard besides. Versions of other stores are compared here.
For a store in memory, the loop gets the chunks, or whole shards.

Rules: as in `gzarr.cpu.compiled.read`. A shard of which anything is left is read from scratch by the reference path.
All pieces of a shard are read with the same index, so they are of one version.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array, Work
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.buffers import BATCH_NBYTES, BATCH_NCHUNKS
from gzarr.cpu.compiled.casts import cast_numbers
from gzarr.cpu.compiled.read import PIECE_NBYTES, PIECE_NCHUNKS, PIECES_PER_THREAD, Left, smallest_piece
from gzarr.cpu.compiled.source import Source, swapped
from gzarr.cpu.compiled.tables import Boxes, spread
from gzarr.cpu.decode_into import lent_scratch
from gzarr.errors import CodecError
from gzarr.indexing.copies import CopyPlan
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import Part
from gzarr.indexing.selection import Indices
from gzarr.layout.sharded import Sharded
from gzarr.profiling.recorder import here, stage, sum_nbytes
from gzarr.storage.base import Buffer, Request, token_of
from gzarr.storage.local_files import WRITTEN, FileVersion

#: Instead of a number of points.
_COPIES = -2
#: A piece should take so many seconds: it costs 30 us besides its chunks.
_PIECE_S = 200e-6


class Run(NamedTuple):
    """A piece: so many chunks, from number `first` on."""

    first: int
    n: int


class _Shard(NamedTuple):
    """What the loop is told of a shard.

    Attributes
    ----------
    token : object or None
        Of the version that the index is of; None if there is no shard, or if it must be left.
    entries : NDArray[np.uint64] or None
        Its index, which must live as long as its address is used.
    table : bytes
        Its columns of the loop's table but for the first two.
    stored : Buffer or None
        Its bytes, if they are in memory.
    """

    token: object | None
    entries: NDArray[np.uint64] | None
    table: bytes
    stored: Buffer | None = None

    @property
    def checked(self) -> bool:
        """Whether the loop sees to it that the version holds."""
        return isinstance(self.token, FileVersion)


class _Shards(NamedTuple):
    """The shards of a plan, in its order.

    Attributes
    ----------
    coords, origins : list of Coords
        Their coordinates, and those of the first chunk of each.
    bounds : Indices
        int64 (n + 1,): the number of the first chunk of each, and how many chunks there are.
    steps : dict
        By the shape of an index, how many entries further the next chunk along each axis is.
    found : dict
        By number, those that were looked at.
    given_up : set of int
        Numbers of those that are left to the reference path.
    """

    coords: list[Coords]
    origins: list[Coords]
    bounds: Indices
    steps: dict[Coords, Coords]
    found: dict[int, _Shard]
    given_up: set[int]

    def within(self, piece: Run) -> list[tuple[int, int, int]]:
        """The shards of a piece: number, first chunk among those of the piece, number of chunks."""
        low, high = np.searchsorted(self.bounds, [piece.first, piece.first + piece.n - 1], side="right").tolist()
        cuts = [0, *(self.bounds[low:high] - piece.first).tolist(), piece.n]
        return [(low - 1 + i, cuts[i], cuts[i + 1] - cuts[i]) for i in range(len(cuts) - 1)]


class CompiledCopies(NamedTuple):
    """A read of copies that the loop can do.

    Attributes
    ----------
    source : Source
        Where the chunks are, and what they are.
    plan : CopyPlan
        What is copied.
    blocks : tuple of Array
        What it is copied to: they must live as long as their addresses are used.
    pieces : iterator of Run
        The pieces, once.
    work : Work
        How much there is to do.
    tables : tuple
        Arguments of the loop that are the same for all pieces.
    fill : bytes
        An element of a missing chunk, as in the blocks.
    shards : _Shards or None
        None if chunks are files.
    part : callable
        Makes the part of a chunk, by its number, for the reference path.
    stage : str
        The stage of a profile that a piece begins with.
    """

    source: Source
    plan: CopyPlan
    blocks: tuple[Array, ...]
    pieces: Iterator[Run]
    work: Work
    tables: tuple[Any, ...]
    fill: bytes
    shards: _Shards | None
    part: Callable[[CopyPlan, int], Part]
    stage: str = "loop"

    @property
    def nshards(self) -> int:
        """Number of shards; 0 if chunks are files."""
        return 0 if self.shards is None else len(self.shards.coords)

    def keys(self, piece: Run) -> tuple[str, ...]:
        """Nothing: reads lock no objects."""
        return ()

    def merged(self, piece: Run, keys: Sequence[str]) -> tuple[str, ...]:
        """Nothing: reads merge nothing."""
        return ()

    def do(self, piece: Run, keys: Sequence[str]) -> Left:
        """Copy what is wanted of a piece, all but the chunks that are returned. Raises: StoreError."""
        if self.shards is not None:
            self._do_shards(self.shards, piece)
            return []
        status = self._call(piece, None, self._chunks(piece) if self.source.in_memory else None)
        parts = [self.part(self.plan, piece.first + number) for number, left in enumerate(status) if left]
        return [(part.coords, [part]) for part in parts]

    def again(self) -> Iterator[tuple[Coords, list[Part]]] | None:
        """All chunks of the shards that were given up; None if none was."""
        shards = self.shards
        if shards is None or not shards.given_up:
            return None
        numbers = sorted(shards.given_up)
        rows = [range(*shards.bounds[number : number + 2].tolist()) for number in numbers]
        parts = ([self.part(self.plan, row) for row in some] for some in rows)
        return zip([shards.coords[number] for number in numbers], parts, strict=True)

    def _chunks(self, piece: Run) -> Sequence[Buffer | None]:
        """What the store has of the chunks of a piece. Raises: StoreError."""
        encode, prefix = self.source.keys.encode, self.source.prefix
        coords = self.plan.coords[piece.first : piece.first + piece.n].tolist()
        with stage("read") as noted:
            items = self.source.store.get_many([Request(prefix + encode(tuple(at))) for at in coords])
            if noted:
                noted.count(len(items), sum_nbytes(items), sum_nbytes(items))
        return items

    def _do_shards(self, shards: _Shards, piece: Run) -> None:
        within = shards.within(piece)
        in_memory = self.source.in_memory
        rows, unchecked, used = [], [], list[_Shard]()  # whose indexes must live
        for number, first, n in within:
            found = shards.found.get(number) or (self._fetch if in_memory else self._find)(shards, number)
            if not in_memory or n < shards.bounds[number + 1] - shards.bounds[number]:
                found = shards.found.setdefault(number, found)  # all pieces see one version
            rows += [_pack_run(first, n), found.table]
            used.append(found)
            if not found.checked and not in_memory:
                unchecked.append(number)
        status = self._call(piece, b"".join(rows), [found.stored for found in used] if in_memory else None)
        for number, first, n in within if any(status) else ():
            if any(status[first : first + n]):
                self._give_up(shards, number)
        for number in unchecked:
            if token_of(self.source.store, self.source.layout.key(shards.coords[number])) != shards.found[number].token:
                self._give_up(shards, number)

    def _give_up(self, shards: _Shards, number: int) -> None:
        shards.given_up.add(number)
        self._layout.forget(self._layout.key(shards.coords[number]))

    def _fetch(self, shards: _Shards, number: int) -> _Shard:
        """Fetch a shard, and say what the loop is told of it. Raises: StoreError."""
        layout, store, coords = self._layout, self.source.store, shards.coords[number]
        with stage("read") as noted:
            stored = store.get_one(Request(layout.key(coords)))
            if noted:
                noted.count(1, sum_nbytes([stored]), sum_nbytes([stored]))
        if stored is None:
            return _Shard(None, None, _pack_shard(coords, shards.origins[number]))
        versions = store.versions
        try:
            index = layout.index_of(coords, stored, None if versions is None else versions.of(stored))
        except CodecError:  # the reference path says what is wrong
            return _left(len(coords))._replace(stored=stored)
        return self._known(shards, number, None, index.entries)._replace(stored=stored)

    def _find(self, shards: _Shards, number: int) -> _Shard:
        """Find what the loop is told of a shard. Raises: StoreError."""
        layout, coords = self._layout, shards.coords[number]
        key = layout.key(coords)
        cached = layout.cached_entries(key, nested=self.source.nested)
        if cached is not None and isinstance(cached[0], FileVersion):  # the loop will see whether it holds
            token, entries = cached
        else:
            token = token_of(self.source.store, key)
            try:
                index = layout.index(self.source.store, coords, token)
            except CodecError:  # the reference path says what is wrong
                return _left(len(coords))
            if index is None:
                return _Shard(None, None, _pack_shard(coords, shards.origins[number]))
            if token is None:  # it has just come
                return _left(len(coords))
            entries = index.entries
        return self._known(shards, number, token, entries)

    def _known(self, shards: _Shards, number: int, token: object | None, entries: NDArray[np.uint64]) -> _Shard:
        layout, coords = self._layout, shards.coords[number]
        entries = np.ascontiguousarray(entries, np.uint64)
        steps = shards.steps.get(entries.shape) or shards.steps.setdefault(entries.shape, layout.steps(entries))
        return _Shard(token, entries, _pack_shard(coords, shards.origins[number], steps, entries, token))

    def _call(self, piece: Run, shards: bytes | None, items: Sequence[Any] | None) -> bytearray:
        """Let the loop do a piece.

        shards: the table of those. items: the chunks, or the shards, if they are in memory.
        Returns: for every chunk whether it was left.
        """
        status, loop = bytearray(piece.n), library.loop()
        if loop is None:  # switched off meanwhile
            return bytearray(b"\1" * piece.n)
        chain = self.source.chain
        path = os.fsencode(self.source.prefix + self.source.keys.prefix)
        with lent_scratch() as scratch:
            room = scratch.room(chain.max_encoded + chain.nbytes)
            where = shards, WRITTEN, path, self.fill, piece.first
            started = perf_counter()
            try:
                n_left, taken, placed = loop.read_copies(*self.tables, *where, room, items, status)
            except (TypeError, BufferError):  # a buffer that lies apart in memory
                return bytearray(b"\1" * piece.n)
            self.source.pace.note(perf_counter() - started, piece.n)
        if doing := here():
            doing.count(piece.n - n_left, taken, placed)
        return status

    @property
    def _layout(self) -> Sharded:
        layout = self.source.layout
        if not isinstance(layout, Sharded):
            raise TypeError("chunks are files")
        return layout


def make_copies_read(
    source: Source,
    plan: CopyPlan,
    blocks: tuple[Any, ...],
    n_threads: int,
    part: Callable[[CopyPlan, int], Part] = CopyPlan.part,
) -> CompiledCopies | str:
    """Prepare copies for the loop, or say why it cannot make them.

    n_threads: how many will share the work. part: as in `CompiledCopies`.
    """
    chain, first = source.chain, blocks[0]
    cast = cast_numbers(chain.chunk.dtype, first.dtype)
    if cast is None:
        return f"the loop does not cast {chain.chunk.dtype} to {first.dtype}"
    if not all(_fits(block, plan, first.dtype) for block in blocks):
        return "blocks of this shape or order in memory are filled by the reference path"
    n = plan.nparts
    pace_s = source.pace.chunk_s
    smallest = smallest_piece(chain.nbytes)
    if pace_s:
        smallest = max(int(_PIECE_S / pace_s), smallest)
    share = max(-(-n // (n_threads * PIECES_PER_THREAD)), smallest)
    size = max(min(PIECE_NCHUNKS, PIECE_NBYTES // chain.nbytes, share), 1)
    if source.in_memory:  # a store may have work to do for every call
        size = max(size, min(BATCH_NBYTES // chain.nbytes, BATCH_NCHUNKS))
    numbers = np.array([plan.rows, first.itemsize, *cast], np.int64)
    places = [(block.__array_interface__["data"][0], block.strides[0]) for block in blocks]
    columns = plan.coords, plan.firsts, plan.inside, plan.counts, plan.place, plan.slots, np.array(places, np.int64)
    job = chain.job(swapped(chain.dtype, chain.chunk.dtype) or 0, source.keys.separator, first[0], _COPIES)
    with np.errstate(all="ignore"):  # as in chunks that are there
        fill = np.frombuffer(chain.fill, chain.chunk.dtype).astype(first.dtype).tobytes()
    return CompiledCopies(
        source=source,
        plan=plan,
        blocks=blocks,
        pieces=(Run(i * size, min(size, n - i * size)) for i in spread(-(-n // size), n_threads)),
        work=Work(n, first[:1].nbytes * len(plan.slots) // n, size, unlocked=True, chunk_s=pace_s),
        tables=(job, numbers, *[np.ascontiguousarray(column, np.int64) for column in columns]),
        fill=fill,
        shards=_shards(plan, source.layout) if isinstance(source.layout, Sharded) else None,
        part=part,
    )


def make_scattered_read(source: Source, parts: Boxes, out: Any, n_threads: int) -> CompiledCopies | str:
    """Prepare a read of few chunks of each of many shards, as copies to the only slot; or say why that cannot be."""
    plan = parts.as_copies(source.layout.objects)
    if plan is None:
        return "some parts take more than a run of every axis"
    return make_copies_read(source, plan, (out[None],), n_threads, _part_of_result)


def _part_of_result(plan: CopyPlan, row: int) -> Part:
    """A chunk of a plan with a single slot and a copy for every chunk, as a part of the slot."""
    inside, counts, place = (column[row] for column in (plan.inside, plan.counts, plan.place))
    taken, put = (tuple(map(slice, at.tolist(), (at + counts).tolist())) for at in (inside, place))
    return Part(tuple(plan.coords[row].tolist()), taken, put, full=False)


def _fits(block: Any, plan: CopyPlan, dtype: np.dtype[Any]) -> bool:
    """Whether a block is as the plan says, and its slots are contiguous."""
    is_of_plan = block.shape == (plan.rows, *plan.shape[1:]) and block.dtype == dtype
    return bool(is_of_plan and block.flags.writeable and block[:1].flags.c_contiguous)


def _shards(plan: CopyPlan, layout: Sharded) -> _Shards:
    owners = plan.owners(layout.objects)
    firsts = np.flatnonzero((owners[1:] != owners[:-1]).any(axis=1)) + 1
    bounds = np.concatenate([[0], firsts, [len(owners)]])
    coords = owners[bounds[:-1]]
    axes = zip(layout.grid, layout.objects, coords.T, strict=True)
    origins = np.stack([axis.locate_all(owner.starts_of(at)) for axis, owner, at in axes], axis=1)
    return _Shards(list(map(tuple, coords.tolist())), list(map(tuple, origins.tolist())), bounds, {}, {}, set())


_pack_run = struct.Struct("2q").pack


def _pack_shard(
    coords: Coords,
    origin: Coords,
    steps: Coords | None = None,
    entries: NDArray[np.uint64] | None = None,
    token: object | None = None,
) -> bytes:
    """The loop's columns of a shard but for the first two. entries: None if the shard is missing."""
    place = (0, 0) if entries is None else (entries.__array_interface__["data"][0], entries.size // 2)
    version = token.packed() if isinstance(token, FileVersion) else bytes(40)
    numbers = *place, isinstance(token, FileVersion), version, *coords, *origin, *(steps or origin)
    return struct.pack(f"3q40s{3 * len(coords)}q", *numbers)


def _left(ndim: int) -> _Shard:
    """A shard with the coordinates of none: the loop leaves its chunks."""
    return _Shard(None, None, _pack_shard((-1,) * ndim, (0,) * ndim))
