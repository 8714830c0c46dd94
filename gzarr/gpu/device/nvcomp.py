"""nvCOMP's batched C functions, called through ctypes: one call decodes all streams of a batch.

Pointers are plain integers: addresses of device memory, which belongs to the caller and must live until the stream has
passed the call. Functions with names in ``_async`` only queue work on a stream (an address, 0 for the default stream)
of the calling thread's current device, and never wait. The first call that needs the library loads it; the tables
(`gzarr.gpu.device.nvcomp_tables`) do not need it.

Rules: option structs have 64 bytes and are passed by value; the decoder is the CUDA one; a batch is never empty.
"""

import ctypes
import importlib.util
import struct
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from gzarr.errors import DeviceError
from gzarr.gpu.detection.driver import install_command
from gzarr.gpu.device.nvcomp_tables import (
    OPTIONS_NBYTES,
    Alignment,
    check_batch,
    check_compression,
    codec_of,
    compress_options,
    status_text,
)

#: The release series of the signatures below. Version 5 has the same names with other arguments.
MAJOR = 6
SONAME = "libnvcomp.so.6"

#: Most checksums in one call: the limit of the codecs. The library does not check it here.
_MAX_CRC_BATCH = (1 << 31) - 1

#: Polynomials of crc32c (RFC 3720, 12.1) and of gzip (RFC 1952, 8), highest power first.
_POLYNOMIALS = {"crc32c": 0x1EDC6F41, "crc32": 0x04C11DB7}

#: nvcompCRC32SegmentKind_t: each range is a whole message.
_ONLY_SEGMENT = 0


class _Options(ctypes.Structure):
    """Options of any codec. The fields are opaque, as structs above 16 bytes are passed in memory."""

    _fields_ = (("words", ctypes.c_uint64 * (OPTIONS_NBYTES // 8)),)


class _CrcOptions(ctypes.Structure):
    """nvcompBatchedCRC32Opts_t: model (32 bytes), kernel configuration (32), zeros (64)."""

    _fields_ = (("words", ctypes.c_uint64 * 16),)


class _Alignments(ctypes.Structure):
    """nvcompAlignmentRequirements_t."""

    _fields_ = (("input", ctypes.c_size_t), ("output", ctypes.c_size_t), ("temp", ctypes.c_size_t))


class _Properties(ctypes.Structure):
    """nvcompProperties_t."""

    _fields_ = (("version", ctypes.c_uint32), ("cudart", ctypes.c_uint32))


_INT, _SIZE, _PTR = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p
_SIZE_OUT = ctypes.POINTER(ctypes.c_size_t)

#: Arguments by kind of function: its name behind "nvcompBatched<codec>", or behind "nvcompBatched".
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    # options, result
    "DecompressGetRequiredAlignments": (_Options, ctypes.POINTER(_Alignments)),
    "CompressGetRequiredAlignments": (_Options, ctypes.POINTER(_Alignments)),
    # n, max chunk, options, result, total, stream
    "DecompressGetTempSize": (_SIZE, _SIZE, _Options, _SIZE_OUT, _SIZE, _PTR),
    "CompressGetTempSize": (_SIZE, _SIZE, _Options, _SIZE_OUT, _SIZE, _PTR),
    # max chunk, options, result
    "CompressGetMaxOutputChunkSize": (_SIZE, _Options, _SIZE_OUT),
    # in, in sizes, out capacities, out sizes, n, temp, temp size, out, options, statuses, stream
    "DecompressAsync": (_PTR, _PTR, _PTR, _PTR, _SIZE, _PTR, _SIZE, _PTR, _Options, _PTR, _PTR),
    # in, in sizes, max chunk, n, temp, temp size, out, out sizes, options, statuses, stream
    "CompressAsync": (_PTR, _PTR, _SIZE, _SIZE, _PTR, _SIZE, _PTR, _PTR, _Options, _PTR, _PTR),
    # in, in sizes, n, out, options, segment kind, statuses, stream
    "CRC32Async": (_PTR, _PTR, _SIZE, _PTR, _CrcOptions, _INT, _PTR, _PTR),
    # in sizes, n, result, max size, stream
    "CRC32GetHeuristicConf": (_PTR, _SIZE, _PTR, _SIZE, _PTR),
}


@cache
def load() -> ctypes.CDLL:
    """Find and load nvCOMP 6: the library of the wheel, or else of the system.

    Raises: DeviceError that names every place that was searched, and the extra that installs it.
    """
    seen: list[str] = []
    for path in _candidates(seen):
        try:
            library = ctypes.CDLL(path)
            release = _version_of(library)
        except (OSError, AttributeError, DeviceError) as error:
            seen.append(f"{path}: {error}")
            continue
        if release[0] == MAJOR:
            return library
        seen.append(f"{path}: version {'.'.join(map(str, release))}")
    raise DeviceError(
        f"nvCOMP {MAJOR} is needed to decode on the GPU and cannot be loaded ({'; '.join(seen)}); install it with: "
        f"{install_command()}"
    )


def version() -> tuple[int, int, int]:
    """Version of the loaded library. Raises: DeviceError if there is none."""
    return _version_of(load())


def cuda() -> int:
    """The major version of CUDA that the loaded library is built for. Raises: DeviceError if there is none."""
    return int(_properties_of(load()).cudart) // 1000


def query_alignment(codec: str, *, compress: bool = False, typesize: int = 1) -> Alignment:
    """Ask the library for the alignments that the tables hold. Needs no device. Raises: DeviceError."""
    answer = _Alignments()
    options = compress_options(codec, typesize) if compress else codec_of(codec).decompress_options
    verb = "Compress" if compress else "Decompress"
    _call(codec, f"{verb}GetRequiredAlignments", _by_value(options), ctypes.byref(answer))
    return Alignment(answer.input, answer.output, answer.temp)


def query_temp_nbytes(codec: str, n: int, max_chunk: int, total: int, stream: int = 0) -> int:
    """Ask the library for the scratch of `decompress_async`, in bytes. This needs no device.

    n: streams. max_chunk: decompressed bytes of the largest. total: decompressed bytes of all.
    Raises: DeviceError for a batch beyond the codec's limits.
    """
    check_batch(codec, n, max_chunk)
    nbytes, options = ctypes.c_size_t(), _by_value(codec_of(codec).decompress_options)
    _call(codec, "DecompressGetTempSize", n, max_chunk, options, ctypes.byref(nbytes), total, stream)
    return nbytes.value


class StreamBatch(NamedTuple):
    """The streams of a call, and where the results go.

    Attributes
    ----------
    in_ptrs, out_ptrs : int
        Device tables of n addresses (uint64), aligned as the codec's ``alignment``, or `compress_alignment`, says.
    in_sizes : int
        Device table of n sizes in bytes (uint64).
    n : int
        Number of streams.
    temp, temp_nbytes : int
        Scratch of at least `query_temp_nbytes`, or `compress_temp_nbytes`; 0 and 0 where none is needed.
    out_sizes : int
        Receives n sizes in bytes (uint64).
    statuses : int
        Receives n statuses (int32).
    stream : int
        Where the call is queued.
    """

    in_ptrs: int
    in_sizes: int
    n: int
    temp: int
    temp_nbytes: int
    out_ptrs: int
    out_sizes: int
    statuses: int
    stream: int = 0


def decompress_async(codec: str, batch: StreamBatch, out_capacities: int) -> None:
    """Queue the decompression of a batch. out_capacities: device table of n sizes in bytes (uint64).

    When the stream is done, check both results, sizes too. Only LZ4 and ANS report damage for sure: other damaged input
    may decode "successfully", or read and write out of bounds. Verify a checksum first if the format has one.
    Raises: DeviceError if the call is refused; damaged streams show only in the results.
    """
    in_ptrs, in_sizes, n, temp, temp_nbytes, out_ptrs, out_sizes, statuses, stream = batch
    check_batch(codec, n)
    before = (in_ptrs, in_sizes, out_capacities, out_sizes, n, temp, temp_nbytes, out_ptrs)
    _call(codec, "DecompressAsync", *before, _by_value(codec_of(codec).decompress_options), statuses, stream)


def compress_max_nbytes(codec: str, max_chunk: int, options: bytes | None = None) -> int:
    """Ask the library for the capacity that every output of `compress_async` needs. Needs no device.

    options: the codec's struct (64 bytes); None for the library's defaults.
    Raises: DeviceError for chunks above the codec's limit, or options that it does not know.
    """
    check_compression(codec, 1, max_chunk)
    nbytes = ctypes.c_size_t()
    _call(codec, "CompressGetMaxOutputChunkSize", max_chunk, _compress_options(codec, options), ctypes.byref(nbytes))
    return nbytes.value


def compress_temp_nbytes(
    codec: str, n: int, max_chunk: int, total: int, options: bytes | None = None, stream: int = 0
) -> int:
    """Scratch of `compress_async`, in bytes. Zstd needs a device to answer. Raises: DeviceError."""
    check_compression(codec, n, max_chunk)
    nbytes, struct_ = ctypes.c_size_t(), _compress_options(codec, options)
    _call(codec, "CompressGetTempSize", n, max_chunk, struct_, ctypes.byref(nbytes), total, stream)
    return nbytes.value


def compress_async(codec: str, batch: StreamBatch, max_chunk: int, options: bytes | None = None) -> None:
    """Queue the compression of a batch. max_chunk: no stream has more bytes. options: as in `compress_max_nbytes`.

    Raises: DeviceError if the call is refused.
    """
    in_ptrs, in_sizes, n, temp, temp_nbytes, *rest, statuses, stream = batch
    check_compression(codec, n, max_chunk)
    before = (in_ptrs, in_sizes, max_chunk, n, temp, temp_nbytes, *rest)
    _call(codec, "CompressAsync", *before, _compress_options(codec, options), statuses, stream)


def crc_async(kind: str, ptrs: int, sizes: int, n: int, max_nbytes: int, out: int, statuses: int, stream: int) -> None:
    """Queue the checksums of many byte ranges.

    kind: "crc32c", or "crc32" (of gzip and zlib).
    ptrs, sizes: device tables of n addresses and n sizes in bytes (uint64); any alignment, empty ranges allowed.
    max_nbytes: size of the largest range, which only tunes the kernel. out: receives n checksums (uint32).
    statuses: receives n statuses (int32), or 0.
    Raises: DeviceError if the call is refused, or the batch is empty.
    """
    if not 1 <= n <= _MAX_CRC_BATCH:
        raise DeviceError(f"nvCOMP {kind}: a batch of {n} ranges; it takes 1 to {_MAX_CRC_BATCH}: skip empty batches")
    configuration = ctypes.create_string_buffer(32)
    # With size 0, the library would find it out itself and wait for the stream.
    arguments = (0, n, ctypes.addressof(configuration), max(max_nbytes, 1), stream)
    function = "nvcompBatchedCRC32GetHeuristicConf"
    _check(_function(function, "CRC32GetHeuristicConf")(*arguments), function)
    options, function = _crc_options(_POLYNOMIALS[kind], configuration.raw), "nvcompBatchedCRC32Async"
    call = _function(function, "CRC32Async")
    _check(call(ptrs, sizes, n, out, options, _ONLY_SEGMENT, statuses, stream), function)


def _candidates(seen: list[str]) -> Iterator[str]:
    """Paths at which the library may be, best first. Other versions are added to ``seen``."""
    folders: dict[str, None] = {}
    try:
        spec = importlib.util.find_spec("nvidia.libnvcomp")
    except (ImportError, ValueError):  # no package "nvidia", or one that is not a namespace
        spec = None
    for place in (spec.submodule_search_locations or ()) if spec else ():
        folders[str(Path(place) / "lib64")] = None
    for place in sys.path:
        folders[str(Path(place).absolute() / "nvidia" / "libnvcomp" / "lib64")] = None
    folders[str(Path(sys.prefix) / "lib")] = None  # of conda
    for folder in map(Path, folders):
        if (folder / SONAME).is_file():
            yield str(folder / SONAME)
        else:
            seen.extend(f"{other}: another version" for other in sorted(folder.glob("libnvcomp.so.*")))
    yield SONAME


def _properties_of(library: ctypes.CDLL) -> _Properties:
    properties = _Properties()
    _check(library.nvcompGetProperties(ctypes.byref(properties)), "nvcompGetProperties")
    return properties


def _version_of(library: ctypes.CDLL) -> tuple[int, int, int]:
    properties = _properties_of(library)
    return properties.version // 1000, properties.version % 1000 // 100, properties.version % 100


@cache
def _function(name: str, kind: str) -> Any:
    """A function of the library with its argument types, by kind."""
    function = load()[name]  # by index, for an object that is not shared with other users of the library
    function.argtypes, function.restype = _SIGNATURES[kind], _INT
    return function


def _call(codec: str, kind: str, *arguments: Any) -> None:
    name = f"nvcompBatched{codec_of(codec).symbol}{kind}"
    _check(_function(name, kind)(*arguments), name)


def _check(status: int, name: str) -> None:
    if status:
        raise DeviceError(f"{name}: {status_text(status)}")


def _compress_options(codec: str, options: bytes | None) -> _Options:
    return _by_value(codec_of(codec).compress_options if options is None else options)


def _by_value(options: bytes) -> _Options:
    return _Options.from_buffer_copy(options)


def _crc_options(polynomial: int, configuration: bytes) -> _CrcOptions:
    """The model of a reflected 32-bit CRC with all bits flipped before and after, then a configuration."""
    model = struct.pack("<2I2?2xI16x", polynomial, 0xFFFFFFFF, True, True, 0xFFFFFFFF)
    return _CrcOptions.from_buffer_copy((model + configuration).ljust(128, b"\0"))
