"""zarr-python's names for the values of configuration fields. Each is the string itself, which may be given instead."""

from enum import StrEnum
from typing import Literal, TypeAlias


class BloscCname(StrEnum):
    """Compressors of Blosc.

    Examples
    --------
    >>> import gzarr
    >>> gzarr.codecs.BloscCodec(cname=gzarr.codecs.BloscCname.lz4, shuffle=gzarr.codecs.BloscShuffle.shuffle)
    BloscCodec(cname='lz4', clevel=5, shuffle='shuffle', typesize=None, blocksize=0)
    """

    lz4 = "lz4"
    lz4hc = "lz4hc"
    blosclz = "blosclz"
    snappy = "snappy"
    zlib = "zlib"
    zstd = "zstd"


class BloscShuffle(StrEnum):
    """What Blosc shuffles: nothing, bytes or bits."""

    noshuffle = "noshuffle"
    shuffle = "shuffle"
    bitshuffle = "bitshuffle"

    @classmethod
    def from_int(cls, number: int) -> "BloscShuffle":
        """Return the shuffle that numcodecs and Zarr v2 give a number: 0, 1 or 2. Raises ValueError."""
        if number not in range(3):
            raise ValueError(f"a shuffle of Blosc is 0, 1 or 2, got {number!r}")
        return tuple(cls)[number]


class Endian(StrEnum):
    """Byte orders."""

    little = "little"
    big = "big"


class ShardingCodecIndexLocation(StrEnum):
    """Where the index of a shard is."""

    start = "start"
    end = "end"


#: zarr-python's orders of the chunks in a shard that it writes.
SubchunkWriteOrder: TypeAlias = Literal["morton", "unordered", "lexicographic", "colexicographic"]
