"""The compressors and the checksum of Zarr v3: gzip, zstd, Blosc and crc32c."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from gzarr.codecs.fields import check_boolean, check_choice, check_integer
from gzarr.codecs.spec import BytesRepr, CodecSpec, CompressorSpec, Kind, Repr, need_bytes

CNAMES = ("lz4", "lz4hc", "blosclz", "snappy", "zlib", "zstd")
#: Position is the number that blosc and Zarr v2 give the shuffle.
SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
#: numcodecs' number for a shuffle that depends on the element size.
AUTO_SHUFFLE = -1


def _shuffle(value: Any) -> str | None:
    if value is None or value == "auto":
        return None
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        number = check_integer("blosc", "shuffle", value, AUTO_SHUFFLE, 2)
        return None if number == AUTO_SHUFFLE else SHUFFLES[number]
    return check_choice("blosc", "shuffle", value, SHUFFLES)


@dataclass(frozen=True, slots=True)
class BloscCodec(CompressorSpec):
    """Compress with Blosc: shuffle the bytes or bits of the elements, then compress them in blocks.

    Parameters
    ----------
    cname : {"zstd", "lz4", "lz4hc", "blosclz", "snappy", "zlib"}
        Compressor of the blocks.
    clevel : int, default 5
        From 0 (stored) to 9 (smallest).
    shuffle : {"noshuffle", "shuffle", "bitshuffle"} or int, optional
        What is shuffled: nothing, bytes or bits; also as numcodecs' 0, 1, 2. None, "auto" and -1 shuffle bits if
        elements are single bytes, else bytes.
    typesize : int, optional
        Size of an element in bytes; by default that of the array's dtype.
    blocksize : int, default 0
        Size of a block in bytes; 0 lets Blosc choose.

    Raises
    ------
    MetadataError
        If a field has a bad value.

    Notes
    -----
    The name is ``blosc`` in Zarr v2 and v3. Runs on the CPU; runs on a GPU with every compressor but ``blosclz``.

    Source: Zarr v3 specification, "blosc codec".

    Examples
    --------
    >>> import gzarr
    >>> array = gzarr.create_array(shape=1000, dtype="i4", compressors=gzarr.codecs.BloscCodec(cname="lz4"))
    >>> array.compressors
    (BloscCodec(cname='lz4', clevel=5, shuffle='shuffle', typesize=4, blocksize=0),)
    """

    cname: str = "zstd"
    clevel: int = 5
    shuffle: str | None = None
    typesize: int | None = None
    blocksize: int = 0

    name = v2_id = "blosc"
    v2_fields: ClassVar[Mapping[str, Any]] = {"cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}

    def __post_init__(self) -> None:
        object.__setattr__(self, "cname", check_choice(self.name, "cname", self.cname, CNAMES))
        object.__setattr__(self, "clevel", check_integer(self.name, "clevel", self.clevel, 0, 9))
        object.__setattr__(self, "shuffle", _shuffle(self.shuffle))
        if self.typesize is not None:
            object.__setattr__(self, "typesize", check_integer(self.name, "typesize", self.typesize, 1))
        # blosc keeps sizes in signed 32-bit fields
        object.__setattr__(self, "blocksize", check_integer(self.name, "blocksize", self.blocksize, 0, 2**31 - 1))

    def configuration(self) -> dict[str, Any]:
        """Give the fields in zarr-python's order, without those left open. See `CodecSpec.configuration`."""
        fields = {name: getattr(self, name) for name in ("typesize", "cname", "clevel", "shuffle", "blocksize")}
        return {name: value for name, value in fields.items() if value is not None}

    def to_v2(self) -> dict[str, Any]:
        """Give the shuffle as a number, and no element size. See `CodecSpec.to_v2`."""
        shuffle = AUTO_SHUFFLE if self.shuffle is None else SHUFFLES.index(self.shuffle)
        return {
            "id": self.v2_id,
            "cname": self.cname,
            "clevel": self.clevel,
            "shuffle": shuffle,
            "blocksize": self.blocksize,
        }

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Choose the element size and the shuffle if they were left open. See `CodecSpec.resolve`."""
        itemsize = need_bytes(self.name, decoded).itemsize
        typesize = self.typesize or itemsize
        shuffle = self.shuffle or ("bitshuffle" if itemsize == 1 else "shuffle")
        return replace(self, typesize=typesize, shuffle=shuffle), BytesRepr()


@dataclass(frozen=True, slots=True)
class GzipCodec(CompressorSpec):
    """Compress with gzip.

    Parameters
    ----------
    level : int, default 5
        From 0 (stored) to 9 (smallest).

    Raises
    ------
    MetadataError
        If the level is not an integer from 0 to 9.

    Notes
    -----
    The name is ``gzip`` in Zarr v2 and v3. Runs on the CPU, and on a GPU unless a chunk has several members.

    Source: Zarr v3 specification, "gzip codec"; RFC 1952.

    Examples
    --------
    >>> import gzarr
    >>> array = gzarr.create_array(shape=1000, dtype="i4", compressors=gzarr.codecs.GzipCodec(level=1))
    >>> array.compressors
    (GzipCodec(level=1),)
    """

    level: int = 5

    name = v2_id = "gzip"
    v2_fields: ClassVar[Mapping[str, Any]] = {"level": 1}

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", check_integer(self.name, "level", self.level, 0, 9))


#: Levels that libzstd accepts (ZSTD_minCLevel, ZSTD_maxCLevel).
MIN_LEVEL, MAX_LEVEL = -131072, 22


@dataclass(frozen=True, slots=True)
class ZstdCodec(CompressorSpec):
    """Compress with Zstandard.

    Parameters
    ----------
    level : int, default 0
        From 1 (fastest) to 22 (smallest). 0 is the library's default; negative levels are faster still.
    checksum : bool, default False
        Whether frames carry a checksum of their content.

    Raises
    ------
    MetadataError
        If a field has a bad value.

    Notes
    -----
    The name is ``zstd`` in Zarr v2 and v3. Runs on the CPU, and on a GPU unless a frame omits its size or needs a
    dictionary, or a chunk has several frames.

    Source: Zarr v3 extensions, "zstd codec"; RFC 8878.

    Examples
    --------
    >>> import gzarr
    >>> array = gzarr.create_array(shape=1000, dtype="i4", compressors=gzarr.codecs.ZstdCodec(level=3))
    >>> array.compressors
    (ZstdCodec(level=3, checksum=False),)
    """

    level: int = 0
    checksum: bool = False

    name = v2_id = "zstd"

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", check_integer(self.name, "level", self.level, MIN_LEVEL, MAX_LEVEL))
        object.__setattr__(self, "checksum", check_boolean(self.name, "checksum", self.checksum))

    def to_v2(self) -> dict[str, Any]:
        """Leave out a checksum of False: older readers refuse the field. See `CodecSpec.to_v2`."""
        return {"id": self.v2_id, "level": self.level, **({"checksum": True} if self.checksum else {})}


@dataclass(frozen=True, slots=True)
class Crc32cCodec(CodecSpec):
    """Append the CRC-32C (Castagnoli) of the data, in little-endian order, and verify it on reading.

    Notes
    -----
    The name is ``crc32c`` in Zarr v2 and v3. Runs on the CPU and on a GPU.

    Source: Zarr v3 specification, "crc32c codec"; RFC 3720, appendix B.4.

    Examples
    --------
    >>> import gzarr
    >>> chain = [gzarr.codecs.ZstdCodec(), gzarr.codecs.Crc32cCodec()]
    >>> gzarr.create_array(shape=1000, dtype="i4", compressors=chain).compressors
    (ZstdCodec(level=0, checksum=False), Crc32cCodec())
    """

    name = v2_id = "crc32c"
    kind: ClassVar[Kind] = "bytes_bytes"

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Check that bytes go in; four more come out. See `CodecSpec.resolve`."""
        size = need_bytes(self.name, decoded).nbytes
        return self, BytesRepr(None if size is None else size + 4)
