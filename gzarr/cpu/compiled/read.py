"""Reads many chunks by the compiled loop (`loop/read.c`), which is given tables instead of parts.

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
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gzarr.backend import Array, Chain, Work
from gzarr.codecs.spec import fill_of
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.encoders import Encoder, make_encoder
from gzarr.cpu.compiled.tables import MAX_EXTENT, MAX_NDIM, Boxes, Piece, Rows, Tables, make_window
from gzarr.cpu.decode_into import PLAIN_ARRAYS, DecodeInto, lent_scratch
from gzarr.errors import CodecError
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import BoxPlan, Part, PointPlan
from gzarr.layout.chunk_layout import Layout, Names, Sharded, ShardIndex
from gzarr.profiling.recorder import here
from gzarr.storage.base import Store

#: Fewer chunks are not worth the tables, which take 25 us (measured with lz4 chunks of 40 kB, which take the loop 12).
MIN_NCHUNKS = 2
#: Nor are fewer small chunks of a shard, whose version is checked.
MIN_NCHUNKS_OF_SHARD = 6
#: Chunks of one piece at most, and decoded bytes: a signal waits until the piece is done.
PIECE_NCHUNKS, PIECE_NBYTES = 256, 1 << 22
#: Pieces that each thread should get, so that one that is slow does not hold up the others; but no smaller ones than
#: these: a piece costs 5 us besides its chunks, one of a shard, whose version is checked, 40.
PIECES_PER_THREAD, _MIN_PIECE, _MIN_PIECE_OF_SHARD = 4, 8, 32
#: Larger chunks are not for the loop: a thread keeps scratch memory for two of them.
MAX_NBYTES = 1 << 24
#: Encoded chunks are hardly ever larger than decoded ones; one that is by an eighth and this is left.
MAX_GROWTH_NBYTES = 1 << 12

#: Stored objects, by their coordinates, with the parts wanted of each.
Left: TypeAlias = list[tuple[Coords, list[Part]]]


class Fixed(NamedTuple):
    """What the loop is told of every chunk of a chain, whatever is read or written.

    Attributes:
        lengths, strides: of a decoded chunk, in elements and bytes, along the array's axes.
        max_encoded: bytes that an encoded chunk may have.
        fill: an element of a missing chunk.
        encoder: how chunks are compressed; None if the loop cannot do that.
    """

    lengths: tuple[int, ...]
    strides: tuple[int, ...]
    max_encoded: int
    fill: bytes
    encoder: Encoder | None


class Bulk(NamedTuple):
    """A read that the loop can do.

    Attributes:
        store, layout: where the chunks are.
        names: how their keys are made.
        prefix: what the paths of the array's files begin with.
        parts: what is wanted of them.
        queue: the pieces, once.
        work: how much there is to do.
        out: the result: it must live as long as its address is used.
        job, tables, fill: what the loop is told for all pieces.
        scratch_nbytes: memory that the loop needs besides.
        window: of chunks that are files.
        versions: the token of every shard that is read in several pieces: all must be of one version.
        given_up: shards that the loop has left, by a piece of each. When no piece is under way any more, the usual path
            does all that is wanted of them, knowing nothing: how it reads a shard depends on how much is wanted and on
            whether the index is at hand.
    """

    store: Store
    layout: Layout
    names: Names
    prefix: str
    parts: Boxes | Rows
    queue: Iterator[Piece]
    work: Work
    out: Array
    job: bytes
    tables: Tables
    fill: bytes
    scratch_nbytes: int
    window: bytes
    versions: dict[Coords, object]
    given_up: dict[Coords, Piece]

    def pieces(self) -> Iterator[Piece]:
        """All there is to do, once."""
        return self.queue

    def read(self, piece: Piece) -> Left:
        """Read a piece into the result, all but the parts that are returned. Raises: StoreError."""
        if piece.shard is None or not isinstance(self.layout, Sharded):
            left = self._do(piece, self.prefix + self.names.keys.prefix, None, self.window)
            parts = [self.parts.part(piece, piece.first + number) for number in left]
            return [(part.coords, [part]) for part in parts]
        if piece.shard in self.given_up:
            return []
        key = self.layout.key(piece.shard)
        before = self.store.generation(key)
        is_cut = piece.n < piece.whole[1]
        # Ranges and the index they came from must be of one version of the shard, and so must its pieces.
        if not is_cut or self.versions.setdefault(piece.shard, before) == before:
            done = self._read_shard(self.layout, piece, before)
            if done and self.store.generation(key) == before:
                return []
        self.given_up[piece.shard] = piece
        self.layout.forget(key)
        return []

    def again(self) -> Iterator[tuple[Coords, list[Part]]] | None:
        """All that is wanted of the shards that were given up; None if none was."""
        return map(self._all_of, self.given_up.values()) if self.given_up else None

    def _read_shard(self, layout: Sharded, piece: Piece, generation: object | None) -> bool:
        """Read a piece of a shard. Returns: whether nothing is left of it."""
        shard = piece.shard or ()
        try:
            index = layout.index(self.store, shard, generation)
        except CodecError:  # the usual path says what is wrong
            return False
        places = self.parts.places(piece)
        if index is None:
            return not self._do(piece, "", b"", make_window(*places))
        if generation is None:  # it has just come
            return False
        path = self.prefix + self.names.keys.encode(shard)
        return not self._do(piece, path, index, make_window(*places, index.origin, index.steps))

    def _do(self, piece: Piece, path: str, index: ShardIndex | bytes | None, window: bytes) -> Sequence[int]:
        """Let the loop do a piece.

        index: of the shard, nothing (bytes) if it is missing; None for chunks that are files.
        Returns: numbers of the parts that it has left.
        """
        loop = library.loop()
        if loop is None:  # switched off meanwhile
            return range(piece.n)
        entries = index.entries if isinstance(index, ShardIndex) else index
        where = (os.fsencode(path), entries, self.fill, piece.first)
        status = bytearray(piece.n)
        with lent_scratch() as scratch:
            room = scratch.room(self.scratch_nbytes)
            n_left, taken, placed = loop.read(self.job, window, *self.tables, *where, room, status)
        if doing := here():
            doing.count(piece.n - n_left, taken, placed)
        return [i for i, left in enumerate(status) if left] if n_left else []

    def _all_of(self, piece: Piece) -> tuple[Coords, list[Part]]:
        """All that is wanted of a shard."""
        first, n = piece.whole
        return piece.shard or (), [self.parts.part(piece, number) for number in range(first, first + n)]


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
    into: DecodeInto | None = chain.prepared
    if into is None or into.number is None:
        return None
    large = into.cut is not None
    least = MIN_NCHUNKS_OF_SHARD if isinstance(layout, Sharded) and not large else MIN_NCHUNKS
    if plan.nparts < least or library.loop() is None:
        return None
    swap = swapped(into.dtype, chain.chunk.dtype)
    names, prefix = _files(store, layout)
    if swap is None or names is None or not _suits(into, chain, plan, out):
        return None
    parts = Boxes(plan) if isinstance(plan, BoxPlan) else Rows(plan, layout)
    shards, n, smallest = None, 1, _MIN_PIECE
    if isinstance(layout, Sharded):
        (shards, n), smallest = parts.by_shard(layout, n_threads), _MIN_PIECE_OF_SHARD
        if not large and parts.nparts < n * MIN_NCHUNKS_OF_SHARD:
            return None
    share = max(-(-parts.nparts // (n_threads * PIECES_PER_THREAD)), smallest)
    size = max(min(PIECE_NCHUNKS, PIECE_NBYTES // into.nbytes, share), 1)
    if shards is None:
        queue = parts.whole().cut(size, n_threads)
    else:
        queue = (piece for shard in shards for piece in shard.cut(size))
    fixed = fixed_of(into, chain)
    return Bulk(
        store=store,
        layout=layout,
        names=names,
        prefix=prefix,
        parts=parts,
        queue=queue,
        work=Work(parts.nparts, out.nbytes // parts.nparts, min(size, -(-parts.nparts // n)), unlocked=True),
        out=out,
        job=make_job(into, fixed, (swap, ord(names.keys.separator)), out, parts.npoints),
        tables=parts.tables(),
        fill=fixed.fill,
        scratch_nbytes=fixed.max_encoded + into.nbytes,
        window=make_window(*parts.places(parts.whole())),
        versions={},
        given_up={},
    )


def _files(store: Store, layout: Layout) -> tuple[Names | None, str]:
    """How chunks are named, and what the paths of their files begin with; None if the loop cannot find them."""
    names: Names | None = getattr(layout, "names", None)
    if names is None or (isinstance(layout, Sharded) and not layout.is_flat):
        return None, ""
    prefix = store.local_prefix(names.path)
    return (None, "") if prefix is None or "\0" in prefix else (names, prefix)


def _suits(into: DecodeInto, chain: Chain, plan: BoxPlan | PointPlan, out: Any) -> bool:
    if type(out) not in PLAIN_ARRAYS or out.dtype != chain.chunk.dtype or out.shape != plan.shape:
        return False
    if not 0 < len(into.shape) <= MAX_NDIM or into.nbytes > MAX_NBYTES or any(a.extent > MAX_EXTENT for a in plan.grid):
        return False
    # Of large chunks the loop takes the blocks of a box; the usual path, those of points.
    return into.cut is None or isinstance(plan, BoxPlan)


def fixed_of(into: DecodeInto, chain: Chain) -> Fixed:
    """What is the same for all reads and writes; made once for a chain."""
    found: Fixed | None = into.kept.get("loop")
    if found is None:
        lengths, strides = [0] * len(into.shape), [0] * len(into.shape)
        stride = into.dtype.itemsize
        for axis, n in zip(reversed(into.order), reversed(into.shape), strict=True):
            lengths[axis], strides[axis] = n, stride
            stride *= n
        found = into.kept["loop"] = Fixed(
            lengths=tuple(lengths),
            strides=tuple(strides),
            max_encoded=into.nbytes + into.nbytes // 8 + MAX_GROWTH_NBYTES,
            fill=np.asarray(fill_of(chain.chunk), chain.chunk.dtype).tobytes(),
            encoder=make_encoder(into.compressor, checksum=bool(into.outer)),
        )
    return found


def make_job(into: DecodeInto, fixed: Fixed, how: tuple[int, int], out: Any, npoints: int) -> bytes:
    """The loop's struct Job. how: bytes to swap, separator of keys. out: the result, or what is written."""
    ndim, padding = len(fixed.lengths), (0,) * (len(fixed.lengths) - out.ndim)
    head = ndim, into.dtype.itemsize, into.nbytes, fixed.max_encoded, into.number, how[0], bool(into.outer)
    address = out.__array_interface__["data"][0]
    axes = *fixed.lengths, *fixed.strides, *out.shape, *padding, *out.strides, *padding
    return struct.pack(f"{10 + 4 * ndim}q", *head, how[1], address, npoints, *axes)


def swapped(stored: np.dtype[Any], wanted: np.dtype[Any]) -> int | None:
    """How many bytes are to be swapped at a time to give elements another byte order, 0 for none; None if unknown."""
    if stored == wanted:
        return 0
    if wanted.kind not in "iufcmM" or stored.newbyteorder() != wanted:
        return None
    return wanted.itemsize // 2 if wanted.kind == "c" else wanted.itemsize
