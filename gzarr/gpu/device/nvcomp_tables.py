"""nvCOMP 6 as data: alignments, limits, scratch and options of each codec. Needs neither nvCOMP nor a GPU.

Batches are planned with these tables, and by them the emulated device refuses what nvCOMP refuses. Values come from the
library's query functions, or else from its headers (release 6.0.0.12). Tests compare them with the library if it is
installed.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gzarr.errors import DeviceError

#: The decoder that runs as CUDA kernels (nvcompDecompressBackend_t). The hardware engine, which the default may choose,
#: reports success for damaged input.
CUDA_BACKEND = 2
#: nvcompType_t: any type, for decoders that read the type from the stream; and unsigned integers, by their bytes.
TYPE_BITS = 0xFF
_UNSIGNED = {1: 1, 2: 3, 4: 5, 8: 7}
#: Bytes of an option struct, which is passed by value. Unused bytes must be zero.
OPTIONS_NBYTES = 64
#: Decompressed bytes of a piece, by which Zstandard's scratch is counted.
PIECE_NBYTES = 1 << 16
#: Bytes of the pieces that nvCOMP's Gzip compresses separately; a stream and its scratch grow by pieces.
_GZIP_PIECE = 1 << 15
#: Most scratch of a call besides that of its chunks.
_SCRATCH_OF_A_CALL = 64
#: nvcompStatus_t in words.
STATUS_TEXT: Mapping[int, str] = {
    0: "success",
    10: "invalid argument (a null pointer, an empty batch, or a value out of range)",
    11: "not supported (an unknown option, or one that this codec lacks)",
    12: "cannot decompress: the data are damaged, not of this format, or larger than the output",
    13: "wrong checksum: the data are damaged",
    14: "the checksum cannot be verified",
    15: "output buffer too small",
    16: "wrong header length",
    17: "a buffer is not aligned as the codec needs",
    18: "chunk larger than the codec allows",
    19: "cannot compress with these options",
    20: "wrong input length",
    21: "too many chunks in the batch",
    22: "too many sub-chunks in a chunk",
    23: "too few sub-chunks in a chunk",
    24: "output alignment too small for the data type",
    1000: "CUDA error: no usable device or driver, or work queued earlier has failed",
    10000: "internal error of nvCOMP",
}


def status_text(status: int) -> str:
    """A status of nvCOMP in words, with its number."""
    return f"{STATUS_TEXT.get(status, 'a status that is not documented')} (nvCOMP status {status})"


def codec_of(name: str) -> "NvcompCodec":
    """The entry of a codec. Raises: DeviceError for a name that nvCOMP does not have."""
    try:
        return CODECS[name]
    except KeyError:
        raise DeviceError(f"nvCOMP has no codec {name!r}; it has {', '.join(sorted(CODECS))}") from None


def decompress_temp_nbytes(codec: str, n: int, max_chunk: int, total: int) -> int:
    """Scratch of the decompression of a batch, in bytes.

    n: streams. max_chunk: decompressed bytes of the largest. total: decompressed bytes of all.
    Raises: DeviceError for a batch that is empty or beyond the codec's limits.
    """
    table = codec_of(codec)
    check_batch(codec, n, max_chunk)
    pieces = max(table.temp_min_pieces * n, total // PIECE_NBYTES)
    return table.temp_fixed + table.temp_per_byte * total + table.temp_per_piece * pieces


def compress_alignment(codec: str, typesize: int = 1) -> "Alignment":
    """The alignment that compression needs, in bytes. typesize: see `compress_options`."""
    table = codec_of(codec)
    _, output, temp = table.compress_alignment
    return Alignment(typesize, output, temp) if table.typed_options else table.compress_alignment


def compress_options(codec: str, typesize: int = 1) -> bytes:
    """The 64 bytes passed to compression.

    typesize: bytes (1, 2, 4 or 8) of the unsigned integers that Bitcomp and Cascaded count in; chunks must be whole
        numbers of them. Other codecs do not look at it.
    """
    table = codec_of(codec)
    if not table.typed_options:
        return table.compress_options
    try:
        return table.typed_options[typesize]
    except KeyError:
        raise DeviceError(f"nvCOMP {codec}: numbers of {typesize} bytes; it has those of 1, 2, 4 and 8") from None


def bound_compress_temp_nbytes(codec: str, n: int, max_chunk: int) -> int:
    """Most scratch of compression, in bytes. An estimate for Zstd, which the library sizes on a device only.

    n: chunks. max_chunk: bytes of the largest.
    """
    return n * codec_of(codec).compress_scratch(max_chunk) + _SCRATCH_OF_A_CALL


def check_capacity(codec: str, max_chunk: int, capacity: int) -> None:
    """Refuse outputs that are too small, as nvCOMP does not know their size. Raises: DeviceError."""
    needed = codec_of(codec).compress_bound(max_chunk)
    if capacity < needed:
        raise DeviceError(
            f"nvCOMP {codec}: outputs of {capacity} bytes for chunks of {max_chunk}, which may take {needed}"
        )


def check_compression(codec: str, n: int, max_chunk: int) -> None:
    """Refuse a batch that nvCOMP cannot compress. Raises: DeviceError."""
    check_batch(codec, n)
    limit = codec_of(codec).max_compress_nbytes
    if max_chunk > limit:
        raise DeviceError(f"nvCOMP {codec}: cannot compress a chunk of {max_chunk} bytes; the limit is {limit}")


def check_batch(codec: str, n: int, max_chunk: int = 0) -> None:
    """Refuse a batch for which nvCOMP fails or returns wrong results. Raises: DeviceError."""
    table = codec_of(codec)
    if not 1 <= n <= table.max_batch:
        raise DeviceError(
            f"nvCOMP {codec}: a batch of {n} streams; it takes 1 to {table.max_batch}: "
            "skip empty batches, split large ones"
        )
    if max_chunk > table.max_decompressed_nbytes:
        raise DeviceError(
            f"nvCOMP {codec}: a chunk of {max_chunk} decompressed bytes; the limit is {table.max_decompressed_nbytes}: "
            "decode it on the host"
        )


def _up(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def _pieces(n: int, unit: int) -> int:
    return max(-(-n // unit), 1)


def _zstd_bound(n: int) -> int:
    """A frame with a window and blocks of 64 KiB; its content size is left out below 256 bytes (RFC 8878, 3.1.1)."""
    content_size = 0 if n < 256 else 2 if n < 65536 + 256 else 4
    return n + 6 + content_size + 3 * _pieces(n, PIECE_NBYTES)


def _no_scratch(n: int) -> int:
    return 0


def _options(layout: str = "", *values: float) -> bytes:
    """An option struct: little-endian fields, then zeros."""
    return struct.pack("<" + layout, *values).ljust(OPTIONS_NBYTES, b"\0")


class Alignment(NamedTuple):
    """Alignment of device addresses, in bytes.

    Attributes
    ----------
    input : int
        Of every stream read.
    output : int
        Of every stream written.
    temp : int
        Of the scratch.
    """

    input: int
    output: int
    temp: int


_ANY = Alignment(1, 1, 1)


@dataclass(frozen=True, slots=True)
class NvcompCodec:
    """One batched codec of nvCOMP.

    Attributes
    ----------
    symbol : str
        The codec's part of the C names: "LZ4" of nvcompBatchedLZ4DecompressAsync.
    compress_bound : callable
        Bytes of a chunk -> bytes of its stream at most.
    alignment : Alignment
        What decompression needs.
    compress_alignment : Alignment
        What compression needs with the default options.
    max_decompressed_nbytes : int
        Largest chunk that can be decompressed.
    max_compress_nbytes : int
        Largest chunk that can be compressed.
    decompress_options : bytes
        The 64 bytes passed to decompression: which decoder; the library's defaults behind it, unless they are named.
    compress_options : bytes
        The 64 bytes passed to compression by default: the library's defaults.
    typed_options : mapping
        Passed to compression instead, by the size of the numbers.
    max_batch : int
        Most streams in one call.
    temp_fixed : int
        Scratch for decompression, in bytes: once per call.
    temp_per_byte : int
        Scratch for each decompressed byte, in addition.
    temp_per_piece : int
        Scratch for each 64 KiB of decompressed bytes, in addition.
    temp_min_pieces : int
        Least pieces of a stream, however short.
    compress_scratch : callable
        Bytes of the largest chunk -> scratch for compression, for each chunk.
    """

    symbol: str
    compress_bound: Callable[[int], int]
    alignment: Alignment = _ANY
    compress_alignment: Alignment = _ANY
    max_decompressed_nbytes: int = (1 << 32) - 1
    max_compress_nbytes: int = 1 << 24
    decompress_options: bytes = _options("i", CUDA_BACKEND)
    compress_options: bytes = _options()
    typed_options: Mapping[int, bytes] = field(default_factory=dict)
    max_batch: int = (1 << 31) - 1
    temp_fixed: int = 0
    temp_per_byte: int = 0
    temp_per_piece: int = 0
    temp_min_pieces: int = 0
    compress_scratch: Callable[[int], int] = _no_scratch


#: By gzarr's names. Deflate is the raw stream, without the envelope of zlib or gzip; LZ4 the raw block.
CODECS: Mapping[str, NvcompCodec] = {
    "lz4": NvcompCodec(
        "LZ4",
        lambda n: _up(n + n // 255 + 2, 8),
        compress_alignment=Alignment(1, 1, 2),
        compress_scratch=lambda n: 1 << 15,
    ),
    "snappy": NvcompCodec("Snappy", lambda n: n + n // 6 + 32, max_decompressed_nbytes=(1 << 31) - 1),
    "zstd": NvcompCodec(
        "Zstd",
        _zstd_bound,
        Alignment(1, 1, 8),
        Alignment(4, 1, 1),
        max_decompressed_nbytes=(1 << 31) - 1,
        # max_compress_nbytes: the constant says 2 GiB, the function that compresses 16 MB
        max_batch=(1 << 30) - 1,  # beyond, its scratch query overflows and still reports success
        temp_per_byte=3,
        temp_per_piece=3468,
        temp_min_pieces=2,
        compress_scratch=lambda n: 4 * n + (1 << 16),
    ),
    "deflate": NvcompCodec(
        "Deflate",
        lambda n: max(_up(n * 579 // 256 + 32, 8), 64),
        Alignment(4, 1, 1),
        Alignment(1, 8, 8),
        max_compress_nbytes=1 << 16,  # the constant says 2 GiB, the function that compresses 64 KiB
        compress_options=_options("i", 1),  # algorithm
        compress_scratch=lambda n: 5 * n + 32800,
    ),
    "gdeflate": NvcompCodec(
        "Gdeflate",
        lambda n: 2 * n + 288,
        Alignment(4, 1, 1),
        Alignment(1, 4, 8),
        max_decompressed_nbytes=(1 << 32) + 288,
        max_compress_nbytes=1 << 16,  # as for Deflate
        compress_options=_options("i", 1),  # algorithm
        compress_scratch=lambda n: 5 * n + 32800,
    ),
    "gzip": NvcompCodec(
        "Gzip",
        lambda n: 24 + 74152 * _pieces(n, _GZIP_PIECE),
        compress_alignment=Alignment(1, 8, 8),
        # The second field of the options for decompression, the algorithm, is 0: it decodes each stream by itself. 1
        # needs a device to size its scratch.
        max_compress_nbytes=((1 << 31) - 1) << 15,
        compress_options=_options("i", 1),  # algorithm
        compress_scratch=lambda n: 196760 * _pieces(n, _GZIP_PIECE),
    ),
    "bitcomp": NvcompCodec(
        "Bitcomp",
        lambda n: 32 + 8200 * -(-n // 8192),
        Alignment(8, 8, 4),
        Alignment(1, 8, 1),
        max_decompressed_nbytes=1 << 25,
        compress_options=_options("2idi", 0, 1, 0.0, 0),  # algorithm, type (uint8), delta, lossless
        typed_options={size: _options("2idi", 0, kind, 0.0, 0) for size, kind in _UNSIGNED.items()},
        temp_fixed=20,
    ),
    "ans": NvcompCodec(
        "ANS",
        lambda n: 4096 + n * 7 // 4,
        Alignment(16, 16, 1),
        Alignment(16, 16, 1),
        max_decompressed_nbytes=1 << 25,
        decompress_options=_options("2i", CUDA_BACKEND, TYPE_BITS),
    ),
    "cascaded": NvcompCodec(
        "Cascaded",
        lambda n: _up(n, 4) + 8,
        Alignment(4, 8, 1),
        Alignment(4, 4, 1),
        max_decompressed_nbytes=(1 << 24) + 8,
        # backend, padding, type, mode (0: whatever the stream says)
        decompress_options=_options("i4x2i", CUDA_BACKEND, TYPE_BITS, 0),
        # type (uint32), mode (asymmetric), terminal codec, coarse and fine encodings, level
        compress_options=_options("2i3QB", 5, 1, 1, 0, 7, 3),
        typed_options={size: _options("2i3QB", kind, 1, 1, 0, 7, 3) for size, kind in _UNSIGNED.items()},
    ),
}

#: What a device encodes. nvCOMP's gzip takes chunks of any size, its Deflate those of 64 KiB.
ENCODERS = frozenset(CODECS)
#: What a device decodes. Parsers take gzip's envelope off, which leaves Deflate.
DECODERS = ENCODERS - {"gzip"}
