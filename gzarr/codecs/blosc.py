"""The ``blosc`` codec: a shuffle and one of six compressors, in blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from gzarr.codecs.fields import check_choice, check_integer
from gzarr.codecs.spec import BytesRepr, CompressorSpec, Repr, need_bytes

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
