"""Decompressors of deflate streams with the interface of zlib: Intel's ISA-L if isal is installed, else zlib.

ISA-L takes half the time of zlib and verifies the same checksums. Only zlib encodes, so that equal chunks have equal
bytes wherever they are written.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

#: Window bits that select the container (zlib's manual, inflateInit2): 15 zlib, 16 more gzip.
ZLIB, GZIP = 15, 31


def _load() -> Callable[[int], Any]:
    try:
        module: Any = import_module("isal.isal_zlib")
    except ImportError:
        return zlib.decompressobj
    return cast("Callable[[int], Any]", module.decompressobj)


#: Makes the decompressor of one stream; takes the window bits.
decompressor = _load()
