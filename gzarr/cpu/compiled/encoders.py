"""The parameters with which numcodecs compresses chunks, for the compiled loop, which calls the same functions."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from numcodecs.blosc import Blosc
from numcodecs.lz4 import LZ4
from numcodecs.zstd import Zstd

from gzarr.codecs.blosc import AUTO_SHUFFLE, BloscCodec
from gzarr.codecs.spec import Step
from gzarr.codecs.v2 import to_numcodecs
from gzarr.cpu.codecs.compressors import MAX_TYPESIZE
from gzarr.cpu.compiled.library import codec_number

#: Bytes of the loop's field for the name of Blosc's compressor (MAX_CNAME), one of them the end.
_CNAME_NBYTES = 16


class Encoder(NamedTuple):
    """How the loop compresses a chunk.

    Attributes:
        level: compression level; the acceleration for LZ4.
        shuffle: Blosc's number of the shuffle.
        typesize: size of an element for Blosc, in bytes.
        blocksize: Blosc's block size in bytes; 0 lets it choose.
        checksum: whether a Zstandard frame gets one.
        cname: Blosc's compressor.
    """

    level: int = 0
    shuffle: int = 0
    typesize: int = 1
    blocksize: int = 0
    checksum: bool = False
    cname: str = ""

    def table(self, extent: tuple[int, ...], *, keep_empty: bool) -> bytes:
        """The loop's struct Encoder. extent: of the array. keep_empty: whether chunks of the fill value are stored."""
        *numbers, cname = self
        form = f"{6 + len(extent)}q{_CNAME_NBYTES}s"
        return struct.pack(form, keep_empty, *numbers, *extent, cname.encode())


def make_encoder(step: Step | None, *, checksum: bool) -> Encoder | None:
    """Return parameters with which the loop encodes as the CPU's codec does; None if it cannot.

    step: of the compressor, None for none. checksum: whether a crc32c follows.
    """
    encoder = _encoder(step, checksum=checksum)
    return encoder if encoder is not None and _is_known(encoder) else None


def _is_known(encoder: Encoder) -> bool:
    """Return whether the loop's fields can hold the parameters. Codecs check the others, and may refuse them."""
    numbers = encoder.level, encoder.shuffle, encoder.typesize, encoder.blocksize
    if not all(type(number) is int for number in numbers) or type(encoder.cname) is not str:
        return False
    small = abs(encoder.level) < 1 << 31 and encoder.shuffle in range(3) and encoder.blocksize in range(1 << 31)
    return small and encoder.cname.isascii() and len(encoder.cname) < _CNAME_NBYTES


def _encoder(step: Step | None, *, checksum: bool) -> Encoder | None:
    if codec_number("bytes" if step is None else step.spec.name, checksum=checksum, encodes=True) is None:
        return None
    if step is None:
        return Encoder()
    codec: Any = to_numcodecs(step.spec)
    if type(codec) is Blosc and getattr(codec, "_typesize", None) is None:
        decoded: Any = step.decoded
        typesize: Any = step.spec.typesize if isinstance(step.spec, BloscCodec) else decoded.itemsize
        if typesize > MAX_TYPESIZE or decoded.nbytes % typesize:
            typesize = 1
        shuffle = (2 if typesize == 1 else 1) if codec.shuffle == AUTO_SHUFFLE else codec.shuffle
        return Encoder(codec.clevel, shuffle, typesize, codec.blocksize, cname=codec.cname)
    if type(codec) is Zstd:
        return Encoder(codec.level, checksum=bool(codec.checksum))
    return Encoder(codec.acceleration) if type(codec) is LZ4 else None
