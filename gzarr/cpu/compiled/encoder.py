"""How the compiled loop compresses a chunk, and the Blosc frames that it makes itself (`loop/blosc.c`).

They are byte by byte those of Blosc, so equal chunks have equal bytes however they are written.
"""

import struct
from functools import lru_cache
from typing import NamedTuple

from gzarr.cpu.compiled import library

#: Bytes of the loop's field for the name of Blosc's compressor (MAX_CNAME), one of them the end.
CNAME_NBYTES = 16

#: Compressors of Blosc whose frames the loop makes, by codecs that use the same functions; and at which levels.
_FRAMED, _LEVELS = {"lz4": "numcodecs.lz4", "zstd": "zstd"}, range(1, 10)
#: Flags of frames that the loop does not make: copies, and shuffled bits.
_COPIED, _BITS = 2, 4


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
    """

    level: int = 0
    shuffle: int = 0
    typesize: int = 1
    blocksize: int = 0
    checksum: bool = False
    cname: str = ""
    frame: int = 0
    block: int = 1

    def table(self, extent: tuple[int, ...], *, keep_empty: bool, keep_beyond: bool) -> bytes:
        """The loop's struct Encoder.

        extent: of the array. keep_empty: whether chunks of the fill value are stored. keep_beyond: whether chunks keep
        what is stored beyond the array.
        """
        *numbers, cname, frame, block = self
        form = f"{9 + len(extent)}q{CNAME_NBYTES}s"
        return struct.pack(form, keep_empty, *numbers, keep_beyond, frame, block, *extent, cname.encode())


@lru_cache(1024)
def with_frames(encoder: Encoder, nbytes: int) -> Encoder:
    """Add how Blosc frames chunks of ``nbytes`` bytes, as it says itself, if the loop makes such frames."""
    level, shuffle, typesize, blocksize, _, cname, *_ = encoder
    if cname not in _FRAMED or level not in _LEVELS or not nbytes:
        return encoder
    if library.codec_number(_FRAMED[cname], checksum=False, encodes=True) is None:
        return encoder
    head = library.blosc_header((level, shuffle, typesize, nbytes), cname, blocksize)
    frame, size, block = struct.unpack_from("<3I", head)
    flags = frame >> 16 & 255
    known = size == nbytes and frame >> 24 == typesize and not flags & (_COPIED | _BITS)
    return encoder._replace(frame=frame, block=block) if known else encoder
