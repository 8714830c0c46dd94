"""The ``blosc`` codec: a shuffle and one of six compressors, in blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from gzarr.codecs.fields import check_choice, check_fields, check_integer, field_names, need_bytes
from gzarr.codecs.spec import BytesRepr, CodecSpec, Kind, Repr

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
class BloscCodec(CodecSpec):
    """Blosc compression.

    Attributes:
        cname: compressor: "lz4", "lz4hc", "blosclz", "snappy", "zlib" or "zstd".
        clevel: 0 (stored) to 9 (smallest).
        shuffle: "noshuffle", "shuffle", "bitshuffle", or numcodecs' 0, 1, 2. None, "auto" and -1 leave it open:
            bits are shuffled where elements are single bytes, else bytes.
        typesize: size of an element in bytes; None takes that of the array's dtype.
        blocksize: in bytes; 0 lets blosc choose.

    Source: Zarr v3 specification, "blosc codec".
    """

    cname: str = "zstd"
    clevel: int = 5
    shuffle: str | None = None
    typesize: int | None = None
    blocksize: int = 0

    name = "blosc"
    kind: ClassVar[Kind] = "bytes_bytes"

    def __post_init__(self) -> None:
        check_choice(self.name, "cname", self.cname, CNAMES)
        object.__setattr__(self, "clevel", check_integer(self.name, "clevel", self.clevel, 0, 9))
        object.__setattr__(self, "shuffle", _shuffle(self.shuffle))
        if self.typesize is not None:
            object.__setattr__(self, "typesize", check_integer(self.name, "typesize", self.typesize, 1))
        # blosc keeps sizes in signed 32-bit fields
        object.__setattr__(self, "blocksize", check_integer(self.name, "blocksize", self.blocksize, 0, 2**31 - 1))

    @classmethod
    def from_json(cls, configuration: Mapping[str, Any]) -> Self:
        """Parse; every field may be missing."""
        check_fields(cls.name, configuration, field_names(cls))
        return cls(**configuration)

    def configuration(self) -> dict[str, Any]:
        """All five fields, in the order in which zarr-python writes them; those left open are absent."""
        fields = {name: getattr(self, name) for name in ("typesize", "cname", "clevel", "shuffle", "blocksize")}
        return {name: value for name, value in fields.items() if value is not None}

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Choose the element size and the shuffle if they were left open."""
        itemsize = need_bytes(self.name, decoded).itemsize
        typesize = self.typesize or itemsize
        shuffle = self.shuffle or ("bitshuffle" if itemsize == 1 else "shuffle")
        return replace(self, typesize=typesize, shuffle=shuffle), BytesRepr()
