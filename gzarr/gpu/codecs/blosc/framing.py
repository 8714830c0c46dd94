"""Makes Blosc frames on the device: shuffles, compresses and lays out all chunks of a batch at once.

All chunks have one size, so all frames have the same blocks and streams; only the sizes of the streams differ. These
are downloaded once, the host makes headers and tables of all frames with NumPy, and one launch copies everything into
place. A stream that does not become smaller is stored, and so is a frame.

The configuration may set the size of blocks. Otherwise streams have about 64 KiB, with which nvCOMP is fastest (c-blosc
chooses blocks for a CPU's caches), and blocks divide the chunk evenly except for a short last one: only whole blocks
are split, so a long last block would be one long stream. Compression levels have no effect, except 0, which stores.
Source: c-blosc 1.21, blosc.c (split_block, write_compression_header); the reader's rules in
`gzarr.gpu.codecs.blosc.parsing`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from gzarr.codecs.compressors import AUTO_SHUFFLE, SHUFFLES, BloscCodec
from gzarr.codecs.numcodecs import NumcodecsCodec
from gzarr.codecs.spec import BytesRepr, Step
from gzarr.cpu.codecs.compressors import MAX_TYPESIZE
from gzarr.gpu.codecs import checksums, transfers
from gzarr.gpu.codecs.batch import BatchContext, Chunks, Encoded
from gzarr.gpu.codecs.blosc import parsing
from gzarr.gpu.codecs.envelopes import ZLIB_HEAD, ZLIB_HEADER, ZLIB_TRAILER
from gzarr.gpu.codecs.refusing import decoded_nbytes
from gzarr.gpu.device.nvcomp_tables import CODECS
from gzarr.gpu.device.protocol import Table
from gzarr.gpu.kernels import BIT_SHUFFLED, BYTE_SHUFFLED, PLAIN

#: Compressor -> (blosc's number for it, the device's encoder).
_COMPRESSORS = {
    "lz4": (parsing.LZ4, "lz4"),
    "lz4hc": (parsing.LZ4, "lz4"),
    "zlib": (parsing.DEFLATE, "deflate"),
    "zstd": (parsing.ZSTD, "zstd"),
}
#: Decoded bytes of a stream if the configuration does not set them: what nvCOMP's headers recommend.
STREAM_NBYTES = 1 << 16
#: The host encodes chunks of more streams than this that are also shorter than this many bytes: compressors take up to
#: 64 KiB of scratch for each stream, however short; for blocks of 128 bytes that is some hundred times the chunk.
_MANY_STREAMS, _SHORT_STREAM_NBYTES = 512, 1 << 12
#: Largest chunk that a frame can hold (BLOSC_MAX_BUFFERSIZE: INT_MAX less the header).
_MOST_NBYTES = (1 << 31) - 1 - parsing.HEADER_NBYTES


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """The layout of all frames of a step.

    Attributes
    ----------
    nbytes : int
        Decoded bytes.
    typesize : int
        Bytes of an element, for the header.
    shuffle : int
        PLAIN, BYTE_SHUFFLED or BIT_SHUFFLED.
    compressor : int
        Blosc's number.
    encoder : str
        The device's encoder; empty if the frames are stored.
    blocksize : int
        Bytes of a block; the last one may be shorter.
    splits : int
        Streams of a whole block.
    block : Table
        int64[m], block of each stream.
    start : Table
        int64[m], position of its decoded bytes in the chunk.
    size : Table
        int64[m], its decoded bytes.
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
        """Whether there are too many short streams for a device."""
        return self.size.size > max(_MANY_STREAMS, self.nbytes // _SHORT_STREAM_NBYTES)

    @property
    def around(self) -> int:
        """Bytes of zlib's envelope around a stream."""
        return ZLIB_HEADER + ZLIB_TRAILER if self.compressor == parsing.DEFLATE else 0

    @property
    def flags(self) -> int:
        """The flags of headers, for frames that are not stored."""
        shuffle = (0, parsing.FLAG_SHUFFLE, parsing.FLAG_BITSHUFFLE)[self.shuffle]
        return shuffle | (parsing.FLAG_WHOLE if self.splits == 1 else 0) | self.compressor << 5


def frame_of(step: Step) -> Frame | None:
    """The layout of a step's frames; None if a device cannot make them."""
    nbytes = decoded_nbytes(step)
    config = _configuration(step)
    compressor = _COMPRESSORS.get(config["cname"])
    if nbytes is None or nbytes > _MOST_NBYTES or compressor is None:
        return None
    typesize = config["typesize"]
    if typesize > MAX_TYPESIZE or nbytes % typesize:
        typesize = 1
    shuffle = config["shuffle"]
    if shuffle == AUTO_SHUFFLE:
        shuffle = BIT_SHUFFLED if typesize == 1 else BYTE_SHUFFLED
    if shuffle == BYTE_SHUFFLED and typesize == 1:
        shuffle = PLAIN
    number, encoder = compressor
    may_split = number != parsing.ZSTD and typesize <= parsing.MOST_SPLITS
    blocksize = _blocksize(nbytes, typesize, config["blocksize"], may_split=may_split)
    splits = typesize if may_split and blocksize // typesize >= parsing.LEAST_SPLIT else 1
    block, start, size = _streams(nbytes, blocksize, splits)
    if int(size.max()) > CODECS[encoder].max_compress_nbytes:
        return None
    encoder = encoder if config["clevel"] else ""
    return Frame(nbytes, typesize, shuffle, number, encoder, blocksize, splits, block, start, size)


def _configuration(step: Step) -> dict[str, Any]:
    """The configuration of either Blosc codec, with the host's defaults and element size."""
    if isinstance(step.spec, BloscCodec):
        spec = step.spec
        shuffle = SHUFFLES.index(spec.shuffle or SHUFFLES[0])
        fields = {"cname": spec.cname, "clevel": spec.clevel, "shuffle": shuffle, "blocksize": spec.blocksize}
        return {**fields, "typesize": spec.typesize or 1}
    config = step.spec.configuration() if isinstance(step.spec, NumcodecsCodec) else {}
    defaults = {"cname": "lz4", "clevel": 5, "shuffle": BYTE_SHUFFLED, "blocksize": 0}
    itemsize = step.decoded.itemsize if isinstance(step.decoded, BytesRepr) else 1
    return {**defaults, **config, "typesize": itemsize}


#: Elements of blocks from which on each bit row has whole words.
_LEAST_WORDS = 1 << 12
#: Limits by which c-blosc adjusts configured block sizes if blocks are split: bytes of a block, and of a stream.
_LEAST_ENLARGED, _MOST_ENLARGED, _MOST_STREAM = 1 << 16, 1 << 20, 1 << 18


def _blocksize(nbytes: int, typesize: int, wanted: int, *, may_split: bool) -> int:
    """Bytes of a block: whole elements, at most the chunk. Configured sizes are adjusted as in c-blosc 1.21."""
    if wanted:
        size = max(wanted, parsing.LEAST_SPLIT)
        if may_split and size // typesize >= parsing.LEAST_SPLIT:
            size = min(max(size * typesize, _LEAST_ENLARGED), _MOST_ENLARGED)
            size = min(size, _MOST_STREAM * typesize)
        return max(min(size, nbytes) // typesize, 1) * typesize
    count = -(-nbytes // (STREAM_NBYTES * (typesize if may_split else 1)))
    # Bits are shuffled by eight elements; rows of whole words, by 32, are stored faster, and the rest is small enough.
    unit = (32 if nbytes // count >= _LEAST_WORDS * typesize else 8) * typesize
    return nbytes // count // unit * unit or nbytes


def _streams(nbytes: int, blocksize: int, splits: int) -> tuple[Table, Table, Table]:
    """Block, start and size of each stream."""
    whole, rest = divmod(nbytes, blocksize)
    size = blocksize // splits
    number = np.arange(whole * splits, dtype=np.int64)
    block, start, sizes = number // splits, number * size, np.full(number.size, size, np.int64)
    if rest:
        block, start, sizes = np.append(block, whole), np.append(start, whole * blocksize), np.append(sizes, rest)
    return block, start, sizes


@dataclass(frozen=True, slots=True, eq=False)
class _Streams:
    """The compressed streams of n chunks.

    Attributes
    ----------
    source : Chunks
        The chunks that were compressed, shuffled if the frames are.
    slots : Slots or None
        The streams, chunk after chunk; None if there are none.
    sizes : Table
        int64 (n, m), their sizes.
    sums : Table or None
        int64 (n, m), addresses of the checksums of zlib streams; None for other compressors.
    """

    source: Chunks
    slots: transfers.Slots | None
    sizes: Table
    sums: Table | None


def framed(context: BatchContext, name: str, frame: Frame, plain: Chunks) -> Encoded:
    """Encode chunks into frames. name: of the codec, for errors. plain: the chunks, which are not shuffled."""
    if not frame.encoder:
        return _assemble(context, frame, plain, _Streams(plain, None, np.zeros((len(plain), 0), np.int64), None))
    return _assemble(context, frame, plain, _compressed(context, name, frame, plain))


def _compressed(context: BatchContext, name: str, frame: Frame, plain: Chunks) -> _Streams:
    n, m = len(plain), frame.size.size
    source = plain
    if frame.shuffle != PLAIN:
        source = transfers.shuffled(context, plain, frame.shuffle, frame.typesize, frame.blocksize)
    ranges = (source.addresses[:, None] + frame.start).reshape(-1), np.tile(frame.size, n)
    slots = transfers.new_slots(context, frame.encoder, n * m, int(frame.size.max()))
    pending = checksums.queue(context, "adler32", *ranges) if frame.around else None
    items = np.repeat(np.arange(n), m)
    wanted = list if pending is None else lambda: [pending.raw]
    sizes, downloaded = transfers.compress(context, name, frame.encoder, items, ranges, slots, wanted=wanted)
    sums = None if pending is None else checksums.store(context, pending, downloaded[0], ">u4").reshape(n, m)
    return _Streams(source, slots, sizes.reshape(n, m), sums)


def _assemble(context: BatchContext, frame: Frame, plain: Chunks, streams: _Streams) -> Encoded:
    """Lay out the frames, and copy headers, tables and streams into place."""
    n, tables = len(plain), parsing.HEADER_NBYTES + 4 * frame.nblocks
    size = frame.size[: streams.sizes.shape[1]]
    packed = streams.sizes + frame.around
    raw = packed >= size
    lengths = 4 + np.where(raw, size, packed)
    ends = np.cumsum(lengths, axis=1)
    starts = tables + ends - lengths
    whole = parsing.HEADER_NBYTES + frame.nbytes
    cbytes = tables + lengths.sum(axis=1)
    stored = (cbytes >= whole) | (frame.encoder == "")
    cbytes[stored] = whole
    memory, addresses = transfers.new_places(context, cbytes + transfers.ROOM)
    heads = _heads(frame, cbytes, stored, starts)
    (at,) = transfers.upload_tables(context, heads)
    head_sizes = np.where(stored, parsing.HEADER_NBYTES, tables)
    pieces: list[transfers.Piece] = [(at + np.arange(n) * tables, addresses, head_sizes)]
    pieces.append((plain.addresses[stored], addresses[stored] + parsing.HEADER_NBYTES, _full(stored, frame.nbytes)))
    pieces += _stream_pieces(context, frame, streams, raw, addresses[:, None] + starts, ~stored)
    transfers.copy_pieces(context, pieces)
    return Encoded(memory, addresses, cbytes, transfers.ROOM)


def _full(mask: Any, nbytes: int) -> Table:
    return np.full(int(mask.sum()), nbytes, np.int64)


def _heads(frame: Frame, cbytes: Table, stored: Any, starts: Table) -> Any:
    """Headers and tables of block starts: uint8 (n, bytes of both)."""
    n = cbytes.size
    heads = np.zeros((n, parsing.HEADER_NBYTES + 4 * frame.nblocks), np.uint8)
    header = np.zeros(n, parsing.HEADER)
    header["version"], header["version_lz"] = parsing.VERSION, parsing.VERSION_LZ
    header["flags"] = frame.flags | np.where(stored, parsing.FLAG_MEMCPY, 0)
    header["typesize"], header["nbytes"], header["blocksize"] = frame.typesize, frame.nbytes, frame.blocksize
    header["cbytes"] = cbytes
    heads[:, : parsing.HEADER_NBYTES] = header.view(np.uint8).reshape(n, -1)
    if starts.shape[1]:
        first = np.ascontiguousarray(starts[:, np.searchsorted(frame.block, np.arange(frame.nblocks))], "<i4")
        heads[:, parsing.HEADER_NBYTES :] = first.view(np.uint8).reshape(n, -1)
    return heads


def _stream_pieces(
    context: BatchContext, frame: Frame, streams: _Streams, raw: Any, at: Table, framed: Any
) -> list[transfers.Piece]:
    """Pieces of the streams of some frames: sizes and bytes. at: int64 (n, m), their targets. framed: which frames."""
    slots = streams.slots
    if slots is None or not framed.any():
        return []
    zlib = frame.around > 0
    raw, packed = raw & framed[:, None], ~raw & framed[:, None]
    before = ZLIB_HEADER if zlib else 0
    size = np.broadcast_to(frame.size, streams.sizes.shape)
    prefix = np.zeros(streams.sizes.shape, [("size", "<i4"), ("zlib", "S2")])
    prefix["size"], prefix["zlib"] = np.where(raw, size, streams.sizes + frame.around), ZLIB_HEAD
    (prefix_at,) = transfers.upload_tables(context, prefix)
    prefixes = prefix_at + prefix.itemsize * np.arange(prefix.size).reshape(prefix.shape)
    source = streams.source.addresses[:, None] + frame.start
    target = slots.addresses.reshape(streams.sizes.shape)
    pieces: list[transfers.Piece] = [
        (prefixes[raw], at[raw], _full(raw, 4)),
        (prefixes[packed], at[packed], _full(packed, 4 + before)),
        (source[raw], at[raw] + 4, size[raw]),
        (target[packed], at[packed] + 4 + before, streams.sizes[packed]),
    ]
    if streams.sums is not None:
        behind = at[packed] + 4 + before + streams.sizes[packed]
        pieces.append((streams.sums[packed], behind, _full(packed, ZLIB_TRAILER)))
    return pieces
