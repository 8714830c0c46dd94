"""How the compiled loop compresses a chunk, and the Blosc frames that it makes itself (`loop/blosc.c`).

With LZ4 these are byte by byte those of Blosc. With Zstandard at middle levels they take less time to make, and in most
cases fewer bytes. The reference path makes the same ones, so equal chunks have equal bytes however they are written.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numcodecs.blosc import Blosc

from gzarr.cpu.compiled import library

#: Bytes of the loop's field for the name of Blosc's compressor (MAX_CNAME), one of them the end.
CNAME_NBYTES = 16

#: Compressors of Blosc whose frames the loop makes, and at which levels: Zstandard itself is quicker at lower ones, and
#: searches deeper at higher ones.
_LEVELS = {"lz4": range(1, 10), "zstd": range(4, 6)}
#: Flags of frames that the loop does not make: copies, and shuffled bits.
_COPIED, _BITS = 2, 4
_SHUFFLED = 1


class Encoder(NamedTuple):
    """How the loop compresses a chunk.

    Attributes
    ----------
    level : int
        Compression level; the acceleration for LZ4.
    shuffle : int
        Blosc's number of the shuffle.
    typesize : int
        Size of an element for Blosc, in bytes.
    blocksize : int
        Blosc's block size in bytes; 0 lets it choose.
    checksum : bool
        Whether a Zstandard frame gets one.
    cname : str
        Blosc's compressor.
    frame : int
        First four bytes of Blosc's frames, as a number, if the loop makes them; 0 if Blosc does.
    block : int
        Bytes of their blocks.
    room : int
        Bytes of scratch memory that making them takes.
    """

    level: int = 0
    shuffle: int = 0
    typesize: int = 1
    blocksize: int = 0
    checksum: bool = False
    cname: str = ""
    frame: int = 0
    block: int = 1
    room: int = 0

    def table(self, extent: tuple[int, ...], *, keep_empty: bool, keep_beyond: bool) -> bytes:
        """The loop's struct Encoder.

        extent: of the array. keep_empty: whether chunks of the fill value are stored. keep_beyond: whether chunks keep
        what is stored beyond the array.
        """
        *numbers, cname, frame, block, _ = self
        form = f"{9 + len(extent)}q{CNAME_NBYTES}s"
        return struct.pack(form, keep_empty, *numbers, keep_beyond, frame, block, *extent, cname.encode())


@lru_cache(1024)
def with_frames(encoder: Encoder, nbytes: int) -> Encoder:
    """Add how Blosc frames chunks of ``nbytes`` bytes, as it says itself, if the loop makes such frames."""
    level, shuffle, typesize, blocksize, _, cname, *_ = encoder
    module = library.extension()
    if module is None or level not in _LEVELS.get(cname, ()) or not nbytes:
        return encoder
    try:
        head = Blosc(cname, level, shuffle, blocksize).encode(np.zeros(nbytes // typesize, f"V{typesize}"))
    except (RuntimeError, ValueError):  # the reference path says what is wrong
        return encoder
    frame, size, block = struct.unpack_from("<3I", head)
    flags = frame >> 16 & 255
    known = size == nbytes and frame >> 24 == typesize and not flags & (_COPIED | _BITS)
    if not known or (cname == "zstd" and not (flags & _SHUFFLED and typesize > 1)):
        return encoder
    framed = encoder._replace(frame=frame, block=block)
    try:
        return framed._replace(room=module.room(framed.table((0,), keep_empty=False, keep_beyond=False), nbytes))
    except (ValueError, struct.error):  # the block is too long, or a function is missing
        return encoder


def make_frame(encoder: Encoder, data: Any, nbytes: int) -> bytes | None:
    """Make a Blosc frame as the loop does; None if Blosc is to make it."""
    framed = with_frames(encoder, nbytes)
    if not framed.frame or framed.cname == "lz4":  # Blosc makes the same
        return None
    table = framed.table((0,), keep_empty=False, keep_beyond=False)
    frame: bytes | None = library.extension().frame(table, data)
    return frame
