"""Decompressors of deflate streams, with the interface of zlib's: Intel's ISA-L where isal is installed, else zlib.

ISA-L needs half of zlib's time. It verifies the same checksums. Encoding stays with zlib, so that equal chunks have
equal bytes wherever they are written.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

#: Window bits that select the container (zlib's manual, inflateInit2): 15 zlib, 16 more gzip.
ZLIB, GZIP = 15, 31


def _find() -> Callable[[int], Any]:
    try:
        module: Any = import_module("isal.isal_zlib")
    except ImportError:
        return zlib.decompressobj
    found: Callable[[int], Any] = module.decompressobj
    return found


#: Makes the decompressor of one stream with some window bits.
decompressor = _find()
