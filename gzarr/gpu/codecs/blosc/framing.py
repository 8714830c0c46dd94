"""Blosc frames made on the device: shuffle, compress, and lay out, for all chunks of a wave at once.

All chunks have one size, so all frames have the same blocks and streams; only the streams' sizes differ. Those are
downloaded once, headers and tables of all frames are made on the host with NumPy, and one launch puts everything in its
place. A stream that did not become smaller is stored as it is, a frame that did not is its plain bytes.

Blocks are as large as the configuration says. Where it leaves that open their streams are about 64 KiB, which nvCOMP is
fastest with (c-blosc makes blocks for a CPU's caches), and blocks divide the chunk evenly up to a short last one: only
whole blocks are split, so a long last one would be one long stream. Compression levels mean nothing, but for 0: stored.
Source: c-blosc 1.21, blosc.c (split_block, write_compression_header); the reader's rules in
`gzarr.gpu.codecs.blosc.parsing`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gzarr.codecs.blosc import AUTO_SHUFFLE, SHUFFLES, BloscCodec
from gzarr.codecs.numcodecs import NumcodecsCodec
from gzarr.codecs.spec import BytesRepr, Step
from gzarr.cpu.codecs.compressors import MAX_TYPESIZE
from gzarr.gpu.codecs import checksums
from gzarr.gpu.codecs.batch import PLAIN, Chunks, Encoded, Wave
from gzarr.gpu.codecs.blosc import headers
from gzarr.gpu.codecs.compressing import ROOM, Piece, Slots, compress, copy_pieces, new_slots
from gzarr.gpu.codecs.deflate import ZLIB_HEAD, ZLIB_HEADER, ZLIB_TRAILER
from gzarr.gpu.codecs.entry import decoded_nbytes
from gzarr.gpu.codecs.transfers import ALIGNMENT, shuffled, upload_tables
from gzarr.gpu.device.nvcomp_tables import CODECS
from gzarr.gpu.device.protocol import Table
from gzarr.gpu.kernels import prefix_sums

#: Compressor -> (blosc's number for it, the device's encoder).
_COMPRESSORS = {
    "lz4": (headers.LZ4, "lz4"),
    "lz4hc": (headers.LZ4, "lz4"),
    "zlib": (headers.DEFLATE, "deflate"),
    "zstd": (headers.ZSTD, "zstd"),
}
#: Decoded bytes of a stream where the configuration leaves it open: what nvCOMP's headers recommend.
STREAM_NBYTES = 1 << 16
#: Chunks of more streams than this, and of more than one for so many bytes, are the host's: compressors take up to 64
#: KiB of scratch for each stream, however short, which for blocks of 128 bytes would be some hundred times the chunk.
_MANY_STREAMS, _SHORT_STREAM_NBYTES = 512, 1 << 12
#: Largest chunk that a frame can hold (BLOSC_MAX_BUFFERSIZE: INT_MAX less the header).
_MOST_NBYTES = (1 << 31) - 1 - headers.HEADER_NBYTES


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """What all frames of a step have in common.

    Attributes:
        nbytes: decoded bytes.
        typesize: bytes of an element, as the frame says it.
        shuffle: PLAIN, BYTE_SHUFFLE or BIT_SHUFFLE.
        compressor: blosc's number.
        encoder: the device's name; empty: nothing is compressed.
        blocksize: bytes of a block but the last.
        splits: streams of a whole block.
        block: int64[m], block of each stream.
        start: int64[m], where its decoded bytes begin in the chunk.
        size: int64[m], how many they are.
    """

    nbytes: int
    typesize: int
    shuffle: int
    compressor: int
    encoder: str
    blocksize: int
    splits: int
    block: Table
    start: Table
    size: Table

    @property
    def nblocks(self) -> int:
        """Number of blocks."""
        return -(-self.nbytes // self.blocksize)

    @property
    def is_chopped(self) -> bool:
        """Whether the streams are too many and too short for a device."""
        return self.size.size > max(_MANY_STREAMS, self.nbytes // _SHORT_STREAM_NBYTES)

    @property
    def around(self) -> int:
        """Bytes of zlib's envelope around a stream."""
        return ZLIB_HEADER + ZLIB_TRAILER if self.compressor == headers.DEFLATE else 0

    @property
    def flags(self) -> int:
        """The header's flags, for frames that are not stored."""
        shuffle = (0, headers.FLAG_SHUFFLE, headers.FLAG_BITSHUFFLE)[self.shuffle]
        return shuffle | (headers.FLAG_WHOLE if self.splits == 1 else 0) | self.compressor << 5


def frame_of(step: Step) -> Frame | None:
    """What the frames of a step look like; None if they cannot be made on a device."""
    nbytes = decoded_nbytes(step)
    config = _configuration(step)
    found = _COMPRESSORS.get(config["cname"])
    if nbytes is None or nbytes > _MOST_NBYTES or found is None:
        return None
    typesize = config["typesize"]
    if typesize > MAX_TYPESIZE or nbytes % typesize:
        typesize = 1
    shuffle = config["shuffle"]
    if shuffle == AUTO_SHUFFLE:
        shuffle = headers.BIT_SHUFFLE if typesize == 1 else headers.BYTE_SHUFFLE
    if shuffle == headers.BYTE_SHUFFLE and typesize == 1:
        shuffle = PLAIN
    number, encoder = found
    may_split = number != headers.ZSTD and typesize <= headers.MOST_SPLITS
    blocksize = _blocksize(nbytes, typesize, config["blocksize"], may_split=may_split)
    splits = typesize if may_split and blocksize // typesize >= headers.LEAST_SPLIT else 1
    block, start, size = _streams(nbytes, blocksize, splits)
    if int(size.max()) > CODECS[encoder].max_compress_nbytes:
        return None
    encoder = encoder if config["clevel"] else ""
    return Frame(nbytes, typesize, shuffle, number, encoder, blocksize, splits, block, start, size)


def _configuration(step: Step) -> dict[str, Any]:
    """The fields of either codec that is called blosc, with the defaults and the element size that the host takes."""
    if isinstance(step.spec, BloscCodec):
        spec = step.spec
        shuffle = SHUFFLES.index(spec.shuffle or SHUFFLES[0])
        fields = {"cname": spec.cname, "clevel": spec.clevel, "shuffle": shuffle, "blocksize": spec.blocksize}
        return {**fields, "typesize": spec.typesize or 1}
    config = step.spec.configuration() if isinstance(step.spec, NumcodecsCodec) else {}
    defaults = {"cname": "lz4", "clevel": 5, "shuffle": headers.BYTE_SHUFFLE, "blocksize": 0}
    itemsize = step.decoded.itemsize if isinstance(step.decoded, BytesRepr) else 1
    return {**defaults, **config, "typesize": itemsize}


#: What c-blosc makes of block sizes that are asked for, where blocks are split: bytes of a block, and of a stream.
_LEAST_ENLARGED, _MOST_ENLARGED, _MOST_STREAM = 1 << 16, 1 << 20, 1 << 18


def _blocksize(nbytes: int, typesize: int, wanted: int, *, may_split: bool) -> int:
    """Bytes of a block: whole elements, and at most the chunk. Those asked for are made as c-blosc 1.21 does."""
    if wanted:
        size = max(wanted, headers.LEAST_SPLIT)
        if may_split and size // typesize >= headers.LEAST_SPLIT:
            size = min(max(size * typesize, _LEAST_ENLARGED), _MOST_ENLARGED)
            size = min(size, _MOST_STREAM * typesize)
        return max(min(size, nbytes) // typesize, 1) * typesize
    count = -(-nbytes // (STREAM_NBYTES * (typesize if may_split else 1)))
    unit = 8 * typesize  # bits are shuffled by eight elements
    return nbytes // count // unit * unit or nbytes


def _streams(nbytes: int, blocksize: int, splits: int) -> tuple[Table, Table, Table]:
    """(block, start, size) of each stream."""
    whole, rest = divmod(nbytes, blocksize)
    size = blocksize // splits
    number = np.arange(whole * splits, dtype=np.int64)
    block, start, sizes = number // splits, number * size, np.full(number.size, size, np.int64)
    if rest:
        block, start, sizes = np.append(block, whole), np.append(start, whole * blocksize), np.append(sizes, rest)
    return block, start, sizes


@dataclass(frozen=True, slots=True, eq=False)
class _Streams:
    """The streams of n chunks, compressed.

    Attributes:
        source: the chunks that were compressed, shuffled as the frames say.
        slots: where the streams are, chunk after chunk; None if there are none.
        sizes: int64 (n, m), their sizes.
        sums: int64 (n, m), where the checksums of zlib streams lie on the device; None for other compressors.
    """

    source: Chunks
    slots: Slots | None
    sizes: Table
    sums: Table | None


def framed(wave: Wave, name: str, frame: Frame, plain: Chunks) -> Encoded:
    """Chunks as frames. name: of the codec, for errors. plain: the chunks, one behind the other."""
    if not frame.encoder:
        return _assemble(wave, frame, plain, _Streams(plain, None, np.zeros((len(plain), 0), np.int64), None))
    return _assemble(wave, frame, plain, _compressed(wave, name, frame, plain))


def _compressed(wave: Wave, name: str, frame: Frame, plain: Chunks) -> _Streams:
    n, m = len(plain), frame.size.size
    source = plain
    if frame.shuffle != PLAIN:
        source = shuffled(wave, plain, frame.shuffle, frame.typesize, frame.blocksize)
    ranges = (source.addresses[:, None] + frame.start).reshape(-1), np.tile(frame.size, n)
    slots = new_slots(wave, frame.encoder, n * m, int(frame.size.max()))
    pending = checksums.queue(wave, "adler32", *ranges) if frame.around else None
    items = np.repeat(np.arange(n), m)
    wanted = list if pending is None else lambda: [pending.raw]
    sizes, found = compress(wave, name, frame.encoder, items, ranges, slots, wanted=wanted)
    sums = None if pending is None else checksums.store(wave, pending, found[0], ">u4").reshape(n, m)
    return _Streams(source, slots, sizes.reshape(n, m), sums)


def _assemble(wave: Wave, frame: Frame, plain: Chunks, streams: _Streams) -> Encoded:
    """Lay out the frames, and copy headers, tables and streams to their places."""
    n, tables = len(plain), headers.HEADER_NBYTES + 4 * frame.nblocks
    size = frame.size[: streams.sizes.shape[1]]
    packed = streams.sizes + frame.around
    raw = packed >= size
    lengths = 4 + np.where(raw, size, packed)
    ends = np.cumsum(lengths, axis=1)
    starts = tables + ends - lengths
    whole = headers.HEADER_NBYTES + frame.nbytes
    cbytes = tables + lengths.sum(axis=1)
    stored = (cbytes >= whole) | (frame.encoder == "")
    cbytes[stored] = whole
    places = prefix_sums(-(-(cbytes + ROOM) // ALIGNMENT) * ALIGNMENT)
    memory = wave.device.empty(int(places[-1]))
    wave.held.append(memory)
    addresses = wave.device.address(memory) + places[:-1]
    heads = _heads(frame, cbytes, stored, starts)
    (at,) = upload_tables(wave, heads)
    head_sizes = np.where(stored, headers.HEADER_NBYTES, tables)
    pieces: list[Piece] = [(at + np.arange(n) * tables, addresses, head_sizes)]
    pieces.append((plain.addresses[stored], addresses[stored] + headers.HEADER_NBYTES, _full(stored, frame.nbytes)))
    pieces += _stream_pieces(wave, frame, streams, raw, addresses[:, None] + starts, ~stored)
    copy_pieces(wave, pieces)
    return Encoded(memory, addresses, cbytes, ROOM)


def _full(mask: Any, nbytes: int) -> Table:
    return np.full(int(mask.sum()), nbytes, np.int64)


def _heads(frame: Frame, cbytes: Table, stored: Any, starts: Table) -> Any:
    """Headers and tables of block starts: uint8 (n, bytes of both)."""
    n = cbytes.size
    heads = np.zeros((n, headers.HEADER_NBYTES + 4 * frame.nblocks), np.uint8)
    header = np.zeros(n, headers.HEADER)
    header["version"], header["version_lz"] = headers.VERSION, headers.VERSION_LZ
    header["flags"] = frame.flags | np.where(stored, headers.FLAG_MEMCPY, 0)
    header["typesize"], header["nbytes"], header["blocksize"] = frame.typesize, frame.nbytes, frame.blocksize
    header["cbytes"] = cbytes
    heads[:, : headers.HEADER_NBYTES] = header.view(np.uint8).reshape(n, -1)
    if starts.shape[1]:
        first = np.ascontiguousarray(starts[:, np.searchsorted(frame.block, np.arange(frame.nblocks))], "<i4")
        heads[:, headers.HEADER_NBYTES :] = first.view(np.uint8).reshape(n, -1)
    return heads


def _stream_pieces(wave: Wave, frame: Frame, streams: _Streams, raw: Any, at: Table, framed: Any) -> list[Piece]:
    """Sizes and bytes of the streams of some frames. at: int64 (n, m), where they go. framed: which frames."""
    slots = streams.slots
    if slots is None or not framed.any():
        return []
    zlib = frame.around > 0
    raw, packed = raw & framed[:, None], ~raw & framed[:, None]
    before = ZLIB_HEADER if zlib else 0
    size = np.broadcast_to(frame.size, streams.sizes.shape)
    prefix = np.zeros(streams.sizes.shape, [("size", "<i4"), ("zlib", "S2")])
    prefix["size"], prefix["zlib"] = np.where(raw, size, streams.sizes + frame.around), ZLIB_HEAD
    (prefix_at,) = upload_tables(wave, prefix)
    prefixes = prefix_at + prefix.itemsize * np.arange(prefix.size).reshape(prefix.shape)
    source = streams.source.addresses[:, None] + frame.start
    target = slots.addresses.reshape(streams.sizes.shape)
    pieces: list[Piece] = [
        (prefixes[raw], at[raw], _full(raw, 4)),
        (prefixes[packed], at[packed], _full(packed, 4 + before)),
        (source[raw], at[raw] + 4, size[raw]),
        (target[packed], at[packed] + 4 + before, streams.sizes[packed]),
    ]
    if streams.sums is not None:
        behind = at[packed] + 4 + before + streams.sizes[packed]
        pieces.append((streams.sums[packed], behind, _full(packed, ZLIB_TRAILER)))
    return pieces
