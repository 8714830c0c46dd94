"""Reads many chunks by the compiled loop (`loop/read.c`), which is given tables instead of parts.

Theory of operation. A plan is cut into pieces: runs of chunks that are files, or the chunks wanted of one shard. The
loop does a whole piece, without the interpreter's lock, and reports the parts that it has left: damaged ones, odd ones,
files that cannot be read. The reference path reads those, so its answers and its errors are the only ones there are.

Rules: `gzarr.cpu.compiled.eligibility` decides which reads come here; no state outlives a read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import NamedTuple, TypeAlias

from gzarr.backend import Array, Work
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.elements import Element
from gzarr.cpu.compiled.points import Rows
from gzarr.cpu.compiled.source import Source, swapped
from gzarr.cpu.compiled.tables import Boxes, Piece, Shards, Tables, piece_tables
from gzarr.cpu.decode_into import lent_scratch
from gzarr.errors import CodecError
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import Part
from gzarr.layout.sharded import Sharded, ShardIndex
from gzarr.profiling.recorder import here
from gzarr.storage.base import token_of
from gzarr.storage.local_files import WRITTEN, FileVersion

#: Chunks of one piece at most, and decoded bytes: a signal waits until the piece is done.
PIECE_NCHUNKS, PIECE_NBYTES = 256, 1 << 22
#: Pieces that each thread should get, so that one that is slow does not hold up the others; but no smaller ones than
#: these: a piece costs 5 us besides its chunks, one of a shard, whose index is looked up, 25.
PIECES_PER_THREAD, MIN_PIECE, _MIN_PIECE_OF_SHARD = 4, 8, 32
#: Decoded bytes that take long beside a piece: no piece needs more, so that a few large chunks are shared by threads.
_LARGE_NBYTES, _LARGE_NBYTES_OF_SHARD = 1 << 18, 1 << 20
#: A piece that takes so many seconds tells how long its chunks take, however few they are.
_TELLING_S = 100e-6

#: Stored objects, by their coordinates, with the parts wanted of each.
Left: TypeAlias = list[tuple[Coords, list[Part]]]


class CompiledRead(NamedTuple):
    """A read that the loop can do.

    Attributes
    ----------
    source : Source
        Where the chunks are, and what they are.
    parts : Boxes or Rows
        The parts that are read.
    pieces : iterator of Piece
        The pieces, once.
    work : Work
        How much there is to do.
    out : Array
        The result: it must live as long as its address is used.
    job : bytes
        An argument of the loop that is the same for all pieces.
    tables : Tables or None
        Others; None if each piece has its own.
    versions : dict
        The token of every shard that is read in several pieces: all must be of one version.
    given_up : dict
        Shards that the loop has left, by a piece of each. Once all pieces are done, the reference path reads all
        parts of them from scratch: how it reads a shard depends on how much is wanted and on whether the index is
        cached.
    element : Element
        What is taken of every element.
    stage : str
        The stage of a profile that a piece begins with.
    """

    source: Source
    parts: Boxes | Rows
    pieces: Iterator[Piece]
    work: Work
    out: Array
    job: bytes
    tables: Tables | None
    versions: dict[Coords, object]
    given_up: dict[Coords, Piece]
    element: Element
    stage: str = "loop"

    def keys(self, piece: Piece) -> tuple[str, ...]:
        """Nothing: reads lock no objects."""
        return ()

    def merged(self, piece: Piece, keys: Sequence[str]) -> tuple[str, ...]:
        """Nothing: reads merge nothing."""
        return ()

    def do(self, piece: Piece, keys: Sequence[str]) -> Left:
        """Read a piece into the result, all but the parts that are returned. Raises: StoreError."""
        store, layout, _, encoding, prefix, *_ = self.source
        if piece.shard is None or not isinstance(layout, Sharded):
            left = self._do(piece, prefix + encoding.prefix, None)
            parts = [self.parts.part(piece, piece.first + number) for number in left]
            return [(part.coords, [part]) for part in parts]
        if piece.shard in self.given_up:
            return []
        key = layout.key(piece.shard)
        cached = layout.cached_entries(key)
        # The loop sees whether a shard is the version of a file that it should be.
        before = cached[0] if cached and isinstance(cached[0], FileVersion) else token_of(store, key)
        is_cut = piece.n < piece.whole[1]
        # Ranges and the index they came from must be of one version of the shard, and so must its pieces.
        if not is_cut or self.versions.setdefault(piece.shard, before) == before:
            done = self._read_shard(layout, piece, before)
            if done and (isinstance(before, FileVersion) or token_of(store, key) == before):
                return []
        self.given_up[piece.shard] = piece
        layout.forget(key)
        return []

    def again(self) -> Iterator[tuple[Coords, list[Part]]] | None:
        """All parts of the shards that were given up; None if none was."""
        return map(self._all_of, self.given_up.values()) if self.given_up else None

    def _read_shard(self, layout: Sharded, piece: Piece, token: object | None) -> bool:
        """Read a piece of a shard. Returns: whether nothing is left of it."""
        shard = piece.shard or ()
        try:
            index = layout.index(self.source.store, shard, token)
        except CodecError:  # the reference path says what is wrong
            return False
        if index is None:
            return token is None and not self._do(piece, "", b"")
        if token is None:  # it has just come
            return False
        path = self.source.prefix + self.source.keys.encode(shard)
        return not self._do(piece, path, index, token)

    def _do(
        self, piece: Piece, path: str, index: ShardIndex | bytes | None, token: object | None = None
    ) -> Sequence[int]:
        """Let the loop do a piece.

        index: of the shard, nothing (bytes) if it is missing; None for chunks that are files. token: of the shard.
        Returns: numbers of the parts that it has left.
        """
        loop = library.loop()
        if loop is None:  # switched off meanwhile
            return range(piece.n)
        entries = index.entries if isinstance(index, ShardIndex) else index
        chain = self.source.chain
        shard = (index.origin, index.steps) if isinstance(index, ShardIndex) else ()
        tables, window, first = piece_tables(self.parts, self.tables, piece, shard)
        where = (os.fsencode(path), entries, self.element.fill, first)
        status = bytearray(piece.n)
        with lent_scratch() as scratch:
            room = scratch.room(chain.max_encoded + chain.nbytes)
            version = token.packed() if isinstance(token, FileVersion) else None
            started = perf_counter()
            held = room, version, WRITTEN, self.element.table, status
            n_left, taken, placed = loop.read(self.job, window, *tables, *where, *held)
            seconds = perf_counter() - started
            if piece.n >= MIN_PIECE or seconds >= _TELLING_S:
                self.source.pace.note(seconds, piece.n)
        if doing := here():
            doing.count(piece.n - n_left, taken, placed)
        return [i for i, left in enumerate(status) if left] if n_left else []

    def _all_of(self, piece: Piece) -> tuple[Coords, list[Part]]:
        """All parts of a shard."""
        first, n = piece.whole
        return piece.shard or (), [self.parts.part(piece, number) for number in range(first, first + n)]


def make_read(
    source: Source, parts: Boxes | Rows, shards: Shards | None, into: tuple[Array, Element], n_threads: int
) -> CompiledRead:
    """Prepare a read for the loop.

    Parameters
    ----------
    source : Source
        Where the chunks are, and what they are.
    parts : Boxes or Rows
        The parts that are read.
    shards : Shards, optional
        The same by shard, and how many shards; None for chunks that are files.
    into : tuple[Array, Element]
        Where to, of the plan's shape; what is taken of every element.
    n_threads : int
        How many threads will share the work.
    """
    chain, (out, element) = source.chain, into
    size, work = make_work(source, parts, shards, out, n_threads)
    if shards is None:
        pieces = parts.whole().cut(size, n_threads)
    else:
        pieces = (piece for shard in shards[0] for piece in shard.cut(size))
    swap = swapped(chain.dtype, chain.chunk.dtype) or 0
    return CompiledRead(
        source=source,
        parts=parts,
        pieces=pieces,
        work=work,
        out=out,
        job=chain.job(swap, source.keys.separator, out, parts.npoints),
        tables=None if parts.are_many else parts.tables(),
        versions={},
        given_up={},
        element=element,
    )


def make_work(
    source: Source, parts: Boxes | Rows, shards: Shards | None, out: Array, n_threads: int
) -> tuple[int, Work]:
    """How many chunks a piece of a read should have, and how much there is to do. Arguments: as of `make_read`."""
    nbytes, nshards = source.chain.nbytes, 1 if shards is None else shards[1]
    smallest = smallest_piece(nbytes, of_shard=shards is not None)
    share = max(-(-parts.nparts // (n_threads * PIECES_PER_THREAD)), smallest)
    size = max(min(PIECE_NCHUNKS, PIECE_NBYTES // nbytes, share), 1)
    return size, Work(
        nchunks=parts.nparts,
        part_nbytes=out.nbytes // parts.nparts,
        wave_nchunks=min(size, -(-parts.nparts // nshards)),
        unlocked=True,
        chunk_s=source.pace.chunk_s,
    )


def smallest_piece(nbytes: int, *, of_shard: bool = False) -> int:
    """Number of chunks of so many bytes that a piece has at least, so that it costs little beside them."""
    if of_shard:
        return min(_MIN_PIECE_OF_SHARD, -(-_LARGE_NBYTES_OF_SHARD // nbytes))
    return min(MIN_PIECE, -(-_LARGE_NBYTES // nbytes))
