"""Reads chunks and copies boxes of them to slots by the compiled loop (`loop/copies.c`): a `CopyPlan` as tables.

Theory of operation. A piece is a run of chunks, of as many shards as there are. The loop is given the cached index of
each shard and the version that the index belongs to. It compares that with the file that it has opened, before the
first chunk and after the last one, so nobody looks at the shard besides. Versions of other stores are compared here.

Rules: as in `gzarr.cpu.compiled.read`. A shard of which anything is left is read from scratch by the reference path.
All pieces of a shard are read with the same index, so they are of one version.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from gzarr.backend import Array, Work
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.casts import cast_numbers
from gzarr.cpu.compiled.read import MIN_PIECE, PIECE_NBYTES, PIECE_NCHUNKS, PIECES_PER_THREAD, Left
from gzarr.cpu.compiled.source import Source, swapped
from gzarr.cpu.compiled.tables import spread
from gzarr.cpu.decode_into import lent_scratch
from gzarr.errors import CodecError
from gzarr.indexing.copies import CopyPlan
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import Part
from gzarr.indexing.selection import Indices
from gzarr.layout.sharded import Sharded, ShardIndex
from gzarr.profiling.recorder import here
from gzarr.storage.base import token_of
from gzarr.storage.local_files import WRITTEN, FileVersion


class Run(NamedTuple):
    """A piece: so many chunks, from number `first` on."""

    first: int
    n: int


class _Shards(NamedTuple):
    """The shards of a plan, in its order.

    Attributes
    ----------
    coords : list of Coords
        Their coordinates.
    bounds : Indices
        int64 (n + 1,): the number of the first chunk of each, and how many chunks there are.
    found : dict
        By number: the token and the index of each shard that was looked at, None if it must be left.
    given_up : set of int
        Shards that are left to the reference path.
    """

    coords: list[Coords]
    bounds: Indices
    found: dict[int, tuple[object | None, ShardIndex | None] | None]
    given_up: set[int]

    def within(self, piece: Run) -> list[tuple[int, int, int]]:
        """The shards of a piece: number, first chunk among those of the piece, number of chunks."""
        low, high = np.searchsorted(self.bounds, [piece.first, piece.first + piece.n - 1], side="right").tolist()
        inner = self.bounds[low:high].tolist()
        cuts = pairwise([0, *[bound - piece.first for bound in inner], piece.n])
        return [(number, first, end - first) for number, (first, end) in enumerate(cuts, low - 1)]


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
    stage: str = "loop"

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
        status = self._call(piece, None)
        parts = [self.plan.part(piece.first + number) for number, left in enumerate(status) if left]
        return [(part.coords, [part]) for part in parts]

    def again(self) -> Iterator[tuple[Coords, list[Part]]] | None:
        """All chunks of the shards that were given up; None if none was."""
        shards = self.shards
        if shards is None or not shards.given_up:
            return None
        numbers = sorted(shards.given_up)
        rows = [range(*shards.bounds[number : number + 2].tolist()) for number in numbers]
        return (
            (shards.coords[number], list(map(self.plan.part, some))) for number, some in zip(numbers, rows, strict=True)
        )

    def _do_shards(self, shards: _Shards, piece: Run) -> None:
        within = shards.within(piece)
        for number, _, _ in within:
            if number not in shards.found:
                shards.found.setdefault(number, self._find(shards.coords[number]))
        found = [shards.found[number] for number, _, _ in within]
        table = [self._row(shards, of_piece, where) for of_piece, where in zip(within, found, strict=True)]
        status = self._call(piece, b"".join(table))
        for (number, first, n), where in zip(within, found, strict=True):
            key = self._key(shards.coords[number])
            if any(status[first : first + n]) or not self._still_holds(key, where):
                shards.given_up.add(number)
                self._layout.forget(key)

    def _find(self, shard: Coords) -> tuple[object | None, ShardIndex | None] | None:
        """The token and the index of a shard, None and None if it is missing; None if it must be left."""
        cached = self._layout.cached_index(shard)
        if cached is not None and isinstance(cached[0], FileVersion):  # the loop will see whether it holds
            return cached
        token = token_of(self.source.store, self._key(shard))
        try:
            index = self._layout.index(self.source.store, shard, token)
        except CodecError:  # the reference path says what is wrong
            return None
        return None if index is not None and token is None else (token, index)

    def _still_holds(self, key: str, where: tuple[object | None, ShardIndex | None] | None) -> bool:
        """Whether a shard is the version that its index was of, as far as the loop has not seen to that."""
        if where is None or isinstance(where[0], FileVersion):
            return True
        return token_of(self.source.store, key) == where[0]

    def _row(
        self,
        shards: _Shards,
        of_piece: tuple[int, int, int],
        where: tuple[object | None, ShardIndex | None] | None,
    ) -> bytes:
        """The loop's table of a shard. of_piece: one of `_Shards.within`."""
        number, first, n = of_piece
        shard = shards.coords[number]
        nothing = (0,) * len(shard)
        index = version = None
        if where is None or number in shards.given_up:
            shard = (-1,) * len(shard)  # a shard that is never there: the loop leaves its chunks
        else:
            version, index = where
        checked = isinstance(version, FileVersion)
        place = (0, 0) if index is None else (index.entries.ctypes.data, index.entries.size // 2)
        steps = (*nothing, *nothing) if index is None else (*index.origin, *index.steps)
        numbers = first, n, *place, checked, *(version if isinstance(version, FileVersion) else (0,) * 5)
        return struct.pack(f"5qQ3qQ{3 * len(shard)}q", *numbers, *shard, *steps)

    def _call(self, piece: Run, shards: bytes | None) -> bytearray:
        """Let the loop do a piece. shards: its table. Returns: for every chunk whether it was left."""
        status, loop = bytearray(piece.n), library.loop()
        if loop is None:  # switched off meanwhile
            return bytearray(b"\1" * piece.n)
        chain = self.source.chain
        path = os.fsencode(self.source.prefix + self.source.keys.prefix)
        with lent_scratch() as scratch:
            room = scratch.room(chain.max_encoded + chain.nbytes)
            where = shards, WRITTEN, path, self.fill, piece.first
            started = perf_counter()
            n_left, taken, placed = loop.read_copies(*self.tables, *where, room, status)
            self.source.pace.note(perf_counter() - started, piece.n)
        if doing := here():
            doing.count(piece.n - n_left, taken, placed)
        return status

    def _key(self, shard: Coords) -> str:
        return self.source.layout.key(shard)

    @property
    def _layout(self) -> Sharded:
        layout = self.source.layout
        if not isinstance(layout, Sharded):
            raise TypeError("chunks are files")
        return layout


def make_copies_read(source: Source, plan: CopyPlan, blocks: tuple[Any, ...], n_threads: int) -> CompiledCopies | str:
    """Prepare copies for the loop, or say why it cannot make them. n_threads: how many will share the work."""
    chain, first = source.chain, blocks[0]
    cast = cast_numbers(chain.chunk.dtype, first.dtype)
    if cast is None:
        return f"the loop does not cast {chain.chunk.dtype} to {first.dtype}"
    if not all(_fits(block, plan, first.dtype) for block in blocks):
        return "blocks of this shape or order in memory are filled by the reference path"
    n = plan.nparts
    share = max(-(-n // (n_threads * PIECES_PER_THREAD)), MIN_PIECE)
    size = max(min(PIECE_NCHUNKS, PIECE_NBYTES // chain.nbytes, share), 1)
    numbers = np.array([plan.rows, first.itemsize, *cast], np.int64)
    places = [(block.__array_interface__["data"][0], block.strides[0]) for block in blocks]
    columns = plan.coords, plan.firsts, plan.inside, plan.counts, plan.place, plan.slots, np.array(places, np.int64)
    job = chain.slot_job(swapped(chain.dtype, chain.chunk.dtype) or 0, source.keys.separator, first)
    with np.errstate(all="ignore"):  # as in chunks that are there
        fill = np.frombuffer(chain.fill, chain.chunk.dtype).astype(first.dtype).tobytes()
    return CompiledCopies(
        source=source,
        plan=plan,
        blocks=blocks,
        pieces=(Run(i * size, min(size, n - i * size)) for i in spread(-(-n // size), n_threads)),
        work=Work(n, first[:1].nbytes * len(plan.slots) // n, size, unlocked=True, chunk_s=source.pace.chunk_s),
        tables=(job, numbers, *[np.ascontiguousarray(column, np.int64) for column in columns]),
        fill=fill,
        shards=_shards(plan, source.layout) if isinstance(source.layout, Sharded) else None,
    )


def _fits(block: Any, plan: CopyPlan, dtype: np.dtype[Any]) -> bool:
    """Whether a block is as the plan says, and its slots are contiguous."""
    is_of_plan = block.shape == (plan.rows, *plan.shape[1:]) and block.dtype == dtype
    return bool(is_of_plan and block.flags.writeable and block[:1].flags.c_contiguous)


def _shards(plan: CopyPlan, layout: Sharded) -> _Shards:
    owners = plan.owners(layout.objects)
    firsts = np.flatnonzero((owners[1:] != owners[:-1]).any(axis=1)) + 1
    bounds = np.concatenate([[0], firsts, [len(owners)]])
    return _Shards(list(map(tuple, owners[bounds[:-1]].tolist())), bounds, {}, set())
