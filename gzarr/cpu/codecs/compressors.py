"""CPU functions of the compressors and of crc32c. The size that data claims is checked before memory is allocated."""

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numcodecs.blosc import Blosc
from numcodecs.blosc import decompress as blosc_decompress
from numcodecs.lz4 import decompress as lz4_decompress
from numcodecs.zstd import Zstd
from numcodecs.zstd import decompress as zstd_decompress

from gzarr.codecs.compressors import SHUFFLES
from gzarr.codecs.spec import BytesRepr, Codec, Step
from gzarr.cpu.codecs.frames import content_size_or_none, decode_frames, size_bounds
from gzarr.cpu.codecs.per_chunk import Bytes, Function, check_most, per_chunk, wrong_size
from gzarr.errors import CodecError
from gzarr.storage.extras import require

#: Blosc stores the element size in one byte and takes larger ones as 1 (BLOSC_MAX_TYPESIZE).
MAX_TYPESIZE = 255
#: The highest ratio of LZ4: a length byte stands for at most 255 bytes (LZ4 block format).
LZ4_RATIO = 255
#: Decoded memory that a Zstandard frame without a size may take for each encoded byte, if blocks were full.
_BLOCK_RATIO = 64

#: Window bits that select the container (zlib's manual, inflateInit2): 15 zlib, 16 more gzip.
ZLIB, GZIP = 15, 31

#: Levels of gzip and zlib; -1 is 6.
DEFLATE_LEVELS = range(-1, 10)

#: The highest ratio of Deflate (zlib's technical details).
_DEFLATE_RATIO = 1032

_BLOSC_SIZES = struct.Struct("<4x3I").unpack_from


def blosc_decoder(expected: int | None, most: int | None = None) -> Function:
    """Decodes one Blosc buffer of a known or unknown decoded size, of ``most`` bytes."""

    def decode(data: Bytes) -> Bytes:
        try:
            nbytes, _, cbytes = _BLOSC_SIZES(data)
        except struct.error as error:
            raise ValueError(f"truncated: {len(data)} bytes are too few for a blosc header of 16") from error
        # Blosc itself takes the length of its input from the header
        if cbytes != len(data):
            what = "truncated" if cbytes > len(data) else "too long"
            raise ValueError(f"{what}: expected {cbytes} encoded bytes, got {len(data)}")
        if nbytes != expected and expected is not None:
            raise wrong_size("blosc", expected, nbytes)
        check_most("blosc", most, nbytes)
        return blosc_decompress(data) if nbytes else b""

    return decode


def most_decoded(step: Step) -> int | None:
    """Most bytes that a step can decode to if their number is unknown; None if there is no bound."""
    return step.decoded.max_nbytes if isinstance(step.decoded, BytesRepr) else None


def blosc_encoder(codec: Blosc, typesize: int) -> Function:
    """Encodes bytes with a given element size; numcodecs takes it from the buffer's dtype."""
    if typesize > MAX_TYPESIZE:
        typesize = 1
    dtype = np.dtype(f"V{typesize}")

    def encode(data: Bytes) -> Bytes:
        if typesize == 1 or len(data) % typesize or not len(data):
            return codec.encode(np.frombuffer(data, np.uint8) if len(data) else b"")
        return codec.encode(np.frombuffer(data, dtype))

    return encode


def blosc_codec(step: Step) -> Codec:
    """Blosc. It uses its own threads only in the main thread."""
    spec: Any = step.spec
    codec = Blosc(spec.cname, spec.clevel, SHUFFLES.index(spec.shuffle), spec.blocksize)
    decode = blosc_decoder(step.decoded.nbytes, most_decoded(step))
    return per_chunk("blosc", decode, blosc_encoder(codec, spec.typesize))


def zstd_decoder(expected: int | None, most: int | None = None) -> Function:
    """Decodes Zstandard frames of a known or unknown decoded size."""
    return partial(_decode_unknown_zstd, most) if expected is None else partial(decode_frames, expected)


def _decode_unknown_zstd(most: int | None, data: Bytes) -> Bytes:
    if content_size_or_none(data) == 0:  # numcodecs takes an empty frame for damage
        return b""
    if most is not None:
        least, largest = size_bounds(data)
        check_most("zstd", most, least)
        check_most("zstd", max(most, _BLOCK_RATIO * len(data)), largest)  # many small blocks need not hold much
    decoded = zstd_decompress(data)
    check_most("zstd", most, len(decoded))
    return decoded


def zstd_codec(step: Step) -> Codec:
    """Zstandard."""
    spec: Any = step.spec
    codec = Zstd(spec.level, spec.checksum)
    return per_chunk("zstd", zstd_decoder(step.decoded.nbytes, most_decoded(step)), codec.encode)


def stream_decoder(
    codec: str, make: Callable[[], Any], expected: int | None, magic: bytes | None, most: int | None = None
) -> Function:
    """Decodes streams with decompressor objects like the standard library's, no further than the expected size.

    ``codec`` is the name in errors, ``make`` makes the decompressor of one stream, and ``magic`` begins every further
    stream; None allows only one.
    """
    unlimited = 0 if codec in ("gzip", "zlib") else -1
    end = most if expected is None else expected

    def decode(data: Bytes) -> Bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            stream = make()
            # one byte more than expected tells a stream that is too long from one that ends there
            part = stream.decompress(data, unlimited if end is None else end - size + 1)
            parts.append(part)
            size += len(part)
            if expected is not None and size > expected:
                raise wrong_size(codec, expected, f"{size} or more")
            check_most(codec, end, size)
            if not stream.eof:
                raise ValueError(f"truncated: the stream does not end after {len(data)} encoded bytes")
            data = stream.unused_data
            if not data or not data.strip(b"\0"):
                break
            if magic is None or not data.startswith(magic):
                raise ValueError(f"{len(data)} bytes follow the last stream and are not a stream")
        if expected is not None and size != expected:
            raise wrong_size(codec, expected, size)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    return decode


def deflate_decoder(wbits: int, expected: int | None, most: int | None = None) -> Function:
    """Decodes a zlib stream, or gzip members.

    One stream of a known size is decoded with libdeflate, in half of the time; zlib takes all others.
    """
    name, magic = ("gzip", b"\x1f\x8b") if wbits == GZIP else ("zlib", None)
    rest = stream_decoder(name, lambda: zlib.decompressobj(wbits), expected, magic, most)
    deflate = _libdeflate()
    if deflate is None or not expected:
        return rest
    decompress, checksum = deflate.gzip_decompress, deflate.crc32
    if wbits == ZLIB:
        decompress, checksum = deflate.zlib_decompress, deflate.adler32

    def decode(data: Bytes) -> Bytes:
        if expected > _DEFLATE_RATIO * len(data):
            return rest(data)
        try:
            decoded = decompress(data, expected)
        except deflate.DeflateError:
            return rest(data)
        # libdeflate does not say where the stream ends: its checksum is the end of a chunk with nothing behind it
        end = int.from_bytes(data[-8:-4], "little") if wbits == GZIP else int.from_bytes(data[-4:], "big")
        if len(decoded) != expected or checksum(decoded) != end:
            return rest(data)
        return decoded

    return decode


def _libdeflate() -> Any:
    """The package deflate; None without it."""
    try:
        return import_module("deflate")
    except ImportError:
        return None


def deflate_encoder(wbits: int, level: int) -> Function:
    """Encodes with libdeflate, as the compiled loop does: equal chunks have equal bytes whatever writes them.

    The header has no time stamp. Without the package deflate, zlib encodes, to other bytes.
    """
    deflate = _libdeflate()
    if deflate is None:
        return lambda data: zlib.compress(data, level, wbits=wbits)
    compress = deflate.gzip_compress if wbits == GZIP else deflate.zlib_compress
    return lambda data: compress(data, level)


def lzma_decoder(expected: int | None, config: Mapping[str, Any], most: int | None = None) -> Function:
    """Decodes LZMA streams. Only raw ones need filters; containers record theirs."""
    container = config.get("format", lzma.FORMAT_XZ)
    filters, magic = (config.get("filters"), None) if container == lzma.FORMAT_RAW else (None, b"\xfd7zXZ\0")
    return stream_decoder("lzma", partial(lzma.LZMADecompressor, container, filters=filters), expected, magic, most)


def lz4_decoder(expected: int | None, most: int | None = None) -> Function:
    """Decodes an LZ4 block that follows its size in four bytes, as in numcodecs."""

    def decode(data: Bytes) -> Bytes:
        if len(data) < 4:
            raise ValueError(f"truncated: {len(data)} bytes are too few for the size, which takes 4")
        size = int.from_bytes(data[:4], "little")
        if expected is not None and size != expected:
            raise wrong_size("lz4", expected, size)
        check_most("lz4", most, size)
        if size > LZ4_RATIO * len(data):
            raise ValueError(f"{len(data)} encoded bytes claim {size} decoded bytes, which is impossible")
        return lz4_decompress(data) if size else b""

    return decode


def gzip_codec(step: Step) -> Codec:
    """Gzip."""
    spec: Any = step.spec
    decode = deflate_decoder(GZIP, step.decoded.nbytes, most_decoded(step))
    return per_chunk("gzip", decode, deflate_encoder(GZIP, spec.level))


def crc32c_codec(step: Step) -> Codec:
    """CRC-32C after the data. Decoding verifies it and returns a view."""
    expected = step.decoded.nbytes
    value = require("google_crc32c", "", "codec 'crc32c'").value

    def decode(data: Bytes) -> Bytes:
        size = len(data) - 4
        if size < 0 or (expected is not None and size != expected):
            raise wrong_size("crc32c", expected or 0, size)
        # google_crc32c takes bytes and arrays, but neither memoryviews nor bytearrays
        array = np.frombuffer(data, np.uint8)
        payload = array[:size]
        stored, computed = int.from_bytes(array[size:], "little"), value(payload)
        if stored != computed:
            raise CodecError(f"crc32c: stored checksum {stored:#010x}, computed {computed:#010x}: the data is damaged")
        return payload

    def encode(data: Bytes) -> Bytes:
        array = np.frombuffer(data, np.uint8) if len(data) else b""
        return b"".join((data, value(array).to_bytes(4, "little")))

    return per_chunk("crc32c", decode, encode)


#: Decoders of compressors by the names of the numcodecs registry; LZMA needs its configuration.
DECODERS: Mapping[str, Callable[[int | None, int | None], Function]] = {
    "blosc": blosc_decoder,
    "zstd": zstd_decoder,
    "gzip": partial(deflate_decoder, GZIP),
    "zlib": partial(deflate_decoder, ZLIB),
    "bz2": lambda expected, most: stream_decoder("bz2", bz2.BZ2Decompressor, expected, b"BZh", most),
    "lz4": lz4_decoder,
}
CODECS = {"blosc": blosc_codec, "crc32c": crc32c_codec, "gzip": gzip_codec, "zstd": zstd_codec}
