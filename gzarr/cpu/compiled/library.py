"""The compiled loop: whether it is there, and with which codecs. Nothing else knows the extension.

It decodes and encodes with the very functions that numcodecs, google-crc32c and deflate use. They are looked up by name
in the libraries of these packages, so both paths write the same bytes, one copy of each library is loaded, and its
maintainers mend it. The price is that a release may hide a function. The reference path then takes the chunks of its
codecs, `status` names these, and a weekly workflow tries the newest releases.
"""

import ctypes
import importlib
import struct
import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from gzarr.config import config
from gzarr.storage.local_files import WRITTEN

#: Functions that the loop calls, in the order of its struct Library (`loop/loop.h`).
_CALLED = (
    "blosc_decompress_ctx ZSTD_createDCtx ZSTD_freeDCtx ZSTD_decompressDCtx ZSTD_getFrameContentSize "
    "ZSTD_findFrameCompressedSize LZ4_decompress_safe crc32c_value blosc_compress_ctx ZSTD_createCCtx ZSTD_freeCCtx "
    "ZSTD_CCtx_setParameter ZSTD_compress2 ZSTD_isError LZ4_compress_fast ZSTD_decompressBegin "
    "ZSTD_nextSrcSizeToDecompress ZSTD_decompressContinue libdeflate_alloc_decompressor libdeflate_free_decompressor "
    "libdeflate_gzip_decompress_ex libdeflate_zlib_decompress_ex libdeflate_alloc_compressor "
    "libdeflate_free_compressor libdeflate_gzip_compress libdeflate_zlib_compress"
)
#: The modules that have them, by how their names begin.
_MODULES = {"blosc": "numcodecs.blosc", "ZSTD": "numcodecs.zstd", "LZ4": "numcodecs.lz4"}
_MODULES |= {"crc32c": "google_crc32c._crc32c", "libdeflate": "deflate._deflate"}
_FUNCTIONS = {name: _MODULES[name.partition("_")[0]] for name in _CALLED.split()}
_NAMES = tuple(_FUNCTIONS)
_INFLATE = "libdeflate_alloc_decompressor", "libdeflate_free_decompressor"
_DEFLATE = "libdeflate_alloc_compressor", "libdeflate_free_compressor"
#: Version of the interface to the extension (`loop/module.c`).
_VERSION = 29
#: Compressors by the name of their codec: the loop's number, and the functions that decoding and encoding need.
_CODECS: Mapping[str, tuple[int, tuple[str, ...], tuple[str, ...]]] = {
    "bytes": (0, (), ()),
    "blosc": (1, ("blosc_decompress_ctx",), ("blosc_compress_ctx",)),
    "numcodecs.blosc": (1, ("blosc_decompress_ctx",), ("blosc_compress_ctx",)),
    "zstd": (2, _NAMES[1:6], _NAMES[9:14]),
    "numcodecs.zstd": (2, _NAMES[1:6], _NAMES[9:14]),
    "numcodecs.lz4": (3, ("LZ4_decompress_safe",), ("LZ4_compress_fast",)),
    "gzip": (4, (*_INFLATE, "libdeflate_gzip_decompress_ex"), (*_DEFLATE, "libdeflate_gzip_compress")),
    "numcodecs.gzip": (4, (*_INFLATE, "libdeflate_gzip_decompress_ex"), (*_DEFLATE, "libdeflate_gzip_compress")),
    "numcodecs.zlib": (5, (*_INFLATE, "libdeflate_zlib_decompress_ex"), (*_DEFLATE, "libdeflate_zlib_compress")),
}

#: Checksums by the name of their codec: the loop's number.
CHECKSUMS: Mapping[str, int] = {"crc32c": 1, "numcodecs.fletcher32": 2}

_BLOSC_HEADER_NBYTES = 16

#: Codecs that the loop may find between the bytes and a checksum.
COMPRESSORS = frozenset(_CODECS) - {"bytes"}


def status() -> str:
    """Whether the compiled loop is used, in words: "on", which codecs it lacks, or why it is off."""
    reason = obstacle()
    if reason is not None:
        return f"off: {reason}"
    lacks = {
        name: lacking(name, checksum=True, encodes=encodes)
        for name, encodes in product(_CODECS, (False, True))
        if codec_number(name, checksum=True, encodes=encodes) is None
    }
    return f"on, except for {', '.join(lacks)}: {next(iter(lacks.values()))}" if lacks else "on"


def obstacle() -> str | None:
    """Why the compiled loop is not used; None if it is."""
    return problem() if config.get("cpu.native") else "disabled by the setting cpu.native"


def problem() -> str | None:
    """Why the extension cannot be used; None if it can, whatever the settings say."""
    module, reason = _loaded()
    return reason if module is None else None


def loop() -> Any:
    """The extension, or None if it is not there or not wanted."""
    return extension() if config.get("cpu.native") else None


def extension() -> Any:
    """The extension, whatever the settings say; None if it is not there."""
    return _loaded()[0]


def codec_number(codec: str, *, checksum: int, encodes: bool = False) -> int | None:
    """The loop's number of a compressor ("bytes" for none), or None if it cannot decode (or encode) that.

    checksum: that follows the encoded bytes, by its number in `CHECKSUMS`; 0 for none.
    """
    module, addresses = _loaded()
    known = _CODECS.get(codec)
    if module is None or known is None:
        return None
    number, *needed = known
    names = (*needed[encodes], "crc32c_value") if checksum == 1 else needed[encodes]
    return number if all(addresses[name] for name in names) else None


def lacking(codec: str, *, checksum: int, encodes: bool = False) -> str:
    """Say which package lacks what the loop needs to decode (or encode) a compressor."""
    _, decoding, encoding = _CODECS[codec]
    needed = (*(encoding if encodes else decoding), *(("crc32c_value",) if checksum == 1 else ()))
    owner = next((_FUNCTIONS[name] for name in needed if not _loaded()[1][name]), "").partition(".")[0]
    if find_spec(owner) is None:
        return f"codec {codec!r} needs the package {owner!r}: pip install {owner}"
    return f"the installed package {owner!r} lacks functions that the loop calls for codec {codec!r}"


def blosc_header(numbers: tuple[int, int, int, int], cname: str, blocksize: int) -> bytes:
    """The header of Blosc's frames for chunks of one size, all but its last number; zeros if Blosc is not there.

    c-blosc writes it first, and gives up where there is no room for more: nothing is compressed, and no thread begins.

    numbers: level, shuffle, size of an element, bytes of a chunk.
    """
    module, addresses = _loaded()
    head = ctypes.create_string_buffer(2 * _BLOSC_HEADER_NBYTES)
    if module is not None and (address := addresses["blosc_compress_ctx"]):
        size, memory, name = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
        types = ctypes.c_int, ctypes.c_int, size, size, memory, memory, size, name, size, ctypes.c_int
        zeros = np.zeros(numbers[3], np.uint8)
        where = zeros.ctypes.data, ctypes.addressof(head), _BLOSC_HEADER_NBYTES
        ctypes.CFUNCTYPE(ctypes.c_int, *types)(address)(*numbers, *where, cname.encode(), blocksize, 1)
    return head.raw[: _BLOSC_HEADER_NBYTES - 4]


@cache
def _loaded() -> tuple[Any, Any]:
    """The extension and the addresses of its functions; None and the reason if it is not there."""
    if sys.platform == "win32":
        return None, "there is none for Windows"
    try:
        from gzarr.cpu import _loop
    except ImportError as error:
        sources = Path(__file__).parents[3]
        if find_spec("gzarr.cpu._loop") is not None:
            reason = f"the extension cannot be loaded ({error})"
        elif (sources / "setup.py").is_file():
            where = f"gzarr was imported from {sources}, where no extension was built"
            return None, f"{where}; install a C compiler if there is none, then run pip install -e {sources}"
        else:
            reason = "the extension was not built"
        return None, f"{reason}; install a C compiler, then gzarr again"
    if getattr(_loop, "VERSION", None) != _VERSION:
        return None, "the extension was built for another version of gzarr; install gzarr again"
    addresses = {name: _address(owner, name) for name, owner in _FUNCTIONS.items()}
    # Never given back: threads may be writing in the loop when the interpreter ends.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(WRITTEN))
    _loop.bind(struct.pack(f"{len(addresses) + 2}P", *addresses.values(), *WRITTEN.buffer_info()))
    return _loop, addresses


def _address(owner: str, name: str) -> int:
    """Return the address of a function in a module's library or those linked with it; 0 if it is not there."""
    try:
        path = importlib.import_module(owner).__file__
        function = getattr(ctypes.CDLL(path), name)
    except (ImportError, OSError, AttributeError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0
