"""CPU functions of nvCOMP's formats for which a host library exists: Deflate, GDeflate and Snappy.

GDeflate comes from the CPU part of nvCOMP, whose C functions are called through ctypes; Snappy comes from cramjam. A
missing library, or a format without a host library, is an error when a chunk is read or written, not when an array is
opened: a GPU needs none of them.
"""

import ctypes
import sys
import zlib
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from numcodecs.lz4 import compress as lz4_compress
from numcodecs.zstd import compress as zstd_compress

from gzarr.codecs.nvcomp import BY_NAME, PREFIX
from gzarr.codecs.spec import Codec, Step
from gzarr.cpu.codecs.compressors import lz4_decoder, most_decoded, zstd_decoder
from gzarr.cpu.codecs.per_chunk import Bytes, per_chunk, wrong_size
from gzarr.errors import MissingExtraError

#: Decodes a stream to a size: (stream, size) -> bytes. The caller checks the size of the result.
HostDecoder = Callable[[Bytes, int], Bytes]

#: Window bits of zlib that select raw Deflate.
RAW = -15
SONAME = "libnvcomp_cpu.so.6"
#: Decoded bytes of a GDeflate page.
GDEFLATE_PAGE = 1 << 16
#: A page is read in words and begins with one for each of its 32 threads.
GDEFLATE_WORD, GDEFLATE_LEAST = 4, 128

_SIZE, _PTR = ctypes.c_size_t, ctypes.c_void_p


class HostAlgorithm(NamedTuple):
    """An algorithm of nvCOMP that a library for the host has.

    Attributes
    ----------
    decode : callable
        Decodes a stream.
    encode : callable
        Encodes a chunk: (chunk, level) -> bytes.
    load : callable
        Loads the library. Raises MissingExtraError if it is not installed.
    """

    decode: HostDecoder
    encode: Callable[[Bytes, int], Bytes]
    load: Callable[[], object]


class _Page(ctypes.Structure):
    """struct libdeflate_gdeflate_in_page, and out_page."""

    _fields_ = (("data", _PTR), ("nbytes", _SIZE))


def nvcomp_codec(step: Step) -> Codec:
    """A codec of nvCOMP."""
    spec: Any = step.spec
    return _codec(spec.name, spec.algorithm, step.decoded.nbytes or 0, getattr(spec, "level", 6))


def nvcomp_batch_codec(step: Step) -> Codec:
    """The codec that KvikIO registered with numcodecs."""
    spec: Any = step.spec
    algorithm = str(spec.configuration().get("algorithm", "")).lower()
    expected, most = step.decoded.nbytes, most_decoded(step)
    if algorithm == "lz4":
        return per_chunk(spec.name, lz4_decoder(expected, most), lz4_compress)
    if algorithm == "zstd":
        return per_chunk(spec.name, zstd_decoder(expected, most), zstd_compress)
    return _codec(spec.name, algorithm, expected or 0, 6)


def _codec(name: str, algorithm: str, nbytes: int, level: int) -> Codec:
    def decode(data: Bytes) -> Bytes:
        if not nbytes:
            return b""
        decoded = _algorithm(name, algorithm).decode(data, nbytes)
        if len(decoded) != nbytes:
            raise wrong_size(name, nbytes, len(decoded))
        return decoded

    return per_chunk(name, decode, lambda data: _algorithm(name, algorithm).encode(data, level))


def _algorithm(name: str, algorithm: str) -> HostAlgorithm:
    if algorithm in ALGORITHMS:
        return ALGORITHMS[algorithm]
    if f"{PREFIX}{algorithm}" in BY_NAME:
        raise MissingExtraError(
            f"codec {name!r}: only a GPU decodes and encodes {algorithm}; open the array with device='cuda' on a "
            "machine that has one (pip install 'gzarr[cuda13]' or 'gzarr[cuda12]')"
        )
    raise MissingExtraError(f"codec {name!r}: algorithm {algorithm!r} of nvCOMP is unknown to gzarr")


def installed() -> dict[str, HostAlgorithm]:
    """The algorithms whose libraries are installed."""
    usable = dict(ALGORITHMS)
    for name, algorithm in ALGORITHMS.items():
        try:
            algorithm.load()
        except MissingExtraError:
            del usable[name]
    return usable


def deflate_decode(data: Bytes, nbytes: int) -> Bytes:
    """Decode raw Deflate, up to one byte more than the expected size."""
    decoder = zlib.decompressobj(RAW)
    decoded = decoder.decompress(data, nbytes + 1)
    if len(decoded) <= nbytes and not decoder.eof:
        raise ValueError(f"truncated: the stream does not end after {len(data)} encoded bytes")
    if decoder.unused_data:
        raise ValueError(f"{len(decoder.unused_data)} bytes follow the stream")
    return decoded


def deflate_encode(data: Bytes, level: int) -> Bytes:
    """Encode raw Deflate."""
    return zlib.compress(data, level, wbits=RAW)


def snappy_decode(data: Bytes, nbytes: int) -> Bytes:
    """Decode raw Snappy, if the size at its start is the expected one."""
    claimed = _varint(data)
    if claimed != nbytes:
        raise ValueError(f"expected {nbytes} decoded bytes, got {claimed}")
    return bytes(_snappy().decompress_raw(bytes(data)))


def snappy_encode(data: Bytes, level: int) -> Bytes:
    """Encode raw Snappy, which has no levels."""
    return bytes(_snappy().compress_raw(bytes(data)))


def gdeflate_decode(data: Bytes, nbytes: int) -> Bytes:
    """Decode one GDeflate page."""
    if len(data) % GDEFLATE_WORD or len(data) < GDEFLATE_LEAST:
        raise ValueError(f"truncated: {len(data)} bytes are not a page: expected a multiple of 4, at least 128")
    library = _gdeflate()
    # The decoder does not check for the end of a damaged page. A run of ones begins no block, so the decoder must stop
    # within the bits that a block can take for the decoded bytes: at most 48 for each.
    encoded = bytes(data) + b"\xff" * (8 * nbytes + 4096)
    page = _Page(ctypes.cast(ctypes.c_char_p(encoded), _PTR).value, len(data))
    out, written = ctypes.create_string_buffer(max(nbytes, 1)), _SIZE()
    decoder = library.libdeflate_alloc_gdeflate_decompressor()
    try:
        status = library.libdeflate_gdeflate_decompress(
            decoder, ctypes.byref(page), 1, out, nbytes, ctypes.byref(written)
        )
    finally:
        library.libdeflate_free_gdeflate_decompressor(decoder)
    if status:  # enum libdeflate_result
        raise ValueError({1: "damaged data", 2: "fewer bytes", 3: "more bytes than expected"}.get(status, str(status)))
    return out.raw[: written.value]


def gdeflate_encode(data: Bytes, level: int) -> Bytes:
    """Encode one GDeflate page."""
    if len(data) > GDEFLATE_PAGE:
        raise ValueError(
            f"a chunk of {len(data)} bytes is larger than a page of {GDEFLATE_PAGE}; choose smaller chunks, in shards"
        )
    library = _gdeflate()
    encoder = library.libdeflate_alloc_gdeflate_compressor(level)
    try:
        pages = _SIZE()
        bound = library.libdeflate_gdeflate_compress_bound(encoder, len(data), ctypes.byref(pages))
        out = ctypes.create_string_buffer(bound)
        page = _Page(ctypes.addressof(out), bound)
        if not library.libdeflate_gdeflate_compress(encoder, bytes(data), len(data), ctypes.byref(page), 1):
            raise ValueError(f"{len(data)} bytes could not be encoded")
    finally:
        library.libdeflate_free_gdeflate_compressor(encoder)
    return out.raw[: page.nbytes]


def _varint(data: Bytes) -> int:
    """The number at the start of a Snappy stream: seven bits a byte, lowest first."""
    value = 0
    for i, byte in enumerate(bytes(data[:5])):
        value |= (byte & 127) << 7 * i
        if byte < 128:
            return value
    raise ValueError("truncated: the size of a Snappy stream does not end")


def _snappy() -> Any:
    try:
        return import_module("cramjam").snappy
    except ImportError as error:
        raise MissingExtraError("Snappy needs a package that is not installed: pip install 'gzarr[snappy]'") from error


@cache
def _gdeflate() -> Any:
    """The CPU part of nvCOMP, with the argument types of its C functions (libdeflate.h of nVidia's libdeflate)."""
    folders = [Path(entry) / "nvidia" / "libnvcomp" / "lib64" for entry in sys.path]
    for path in (*(str(f / SONAME) for f in folders if (f / SONAME).is_file()), SONAME):
        try:
            library = ctypes.CDLL(path)
            for name, (result, arguments) in _SIGNATURES.items():
                function = getattr(library, f"libdeflate_{name}")
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError):
            continue
        return library
    raise MissingExtraError(
        f"GDeflate on the CPU needs {SONAME}, which is not installed: pip install 'gzarr[gdeflate]' (Linux)"
    )


_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "alloc_gdeflate_compressor": (_PTR, (ctypes.c_int,)),
    "alloc_gdeflate_decompressor": (_PTR, ()),
    "free_gdeflate_compressor": (None, (_PTR,)),
    "free_gdeflate_decompressor": (None, (_PTR,)),
    "gdeflate_compress_bound": (_SIZE, (_PTR, _SIZE, _PTR)),
    "gdeflate_compress": (_SIZE, (_PTR, ctypes.c_char_p, _SIZE, _PTR, _SIZE)),
    "gdeflate_decompress": (ctypes.c_int, (_PTR, _PTR, _SIZE, _PTR, _SIZE, _PTR)),
}


#: By nvCOMP's name, in small letters.
ALGORITHMS = {
    "deflate": HostAlgorithm(deflate_decode, deflate_encode, lambda: zlib),
    "gdeflate": HostAlgorithm(gdeflate_decode, gdeflate_encode, _gdeflate),
    "snappy": HostAlgorithm(snappy_decode, snappy_encode, _snappy),
}
CODECS = {"numcodecs.nvcomp_batch": nvcomp_batch_codec, **dict.fromkeys(BY_NAME, nvcomp_codec)}
