"""The ``bytes`` codec: an array as the bytes of its elements in C order, with a byte order of choice."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from gzarr.codecs.fields import check_choice, check_fields, need_array
from gzarr.codecs.spec import ArrayRepr, BytesRepr, CodecSpec, Kind, Repr
from gzarr.errors import MetadataError

ENDIAN = ("little", "big")


def byte_orders(dtype: np.dtype[Any]) -> frozenset[str]:
    """Byte orders in a dtype: empty for single bytes, more than one only for a structured dtype of mixed fields."""
    if dtype.fields is not None:
        return frozenset().union(*(byte_orders(field[0]) for field in dtype.fields.values()))
    if dtype.subdtype is not None:
        return byte_orders(dtype.subdtype[0])
    if dtype.itemsize == 1 or dtype.byteorder == "|":
        return frozenset()
    return frozenset(({"<": "little", ">": "big"}.get(dtype.byteorder, sys.byteorder),))


@dataclass(frozen=True, slots=True)
class BytesCodec(CodecSpec):
    """Elements as bytes.

    Attributes:
        endian: "little" or "big"; None keeps the byte order of the array's dtype, or those of its fields.

    Source: Zarr v3 specification, "bytes codec".
    """

    endian: str | None = "little"

    name = "bytes"
    kind: ClassVar[Kind] = "array_bytes"

    def __post_init__(self) -> None:
        if self.endian is not None:
            check_choice(self.name, "endian", self.endian, ENDIAN)

    @classmethod
    def from_json(cls, configuration: Mapping[str, Any]) -> Self:
        """Parse; a missing ``endian`` is None."""
        check_fields(cls.name, configuration, ("endian",))
        return cls(configuration.get("endian"))

    def configuration(self) -> dict[str, Any]:
        """``{"endian": ...}``, empty if there is none."""
        return {} if self.endian is None else {"endian": self.endian}

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Take the byte order of the dtype if none was asked for; drop it where the dtype has none."""
        array: ArrayRepr = need_array(self.name, decoded)
        if array.dtype.hasobject:
            raise MetadataError(
                f"codec {self.name!r} cannot encode data type {array.dtype}, whose elements have no fixed size; "
                f"give an object codec instead (VLenUTF8Codec, VLenBytesCodec, or a numcodecs object codec)"
            )
        orders = byte_orders(array.dtype)
        endian = self.endian if orders else None
        if endian is None and len(orders) == 1:
            (endian,) = orders
        return replace(self, endian=endian), BytesRepr(array.nbytes, max(array.dtype.itemsize, 1))
