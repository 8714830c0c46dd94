"""The ``bytes`` codec: the elements of an array as bytes, in C order and a chosen byte order."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from gzarr.codecs.fields import check_choice, check_fields
from gzarr.codecs.spec import BytesRepr, CodecSpec, Kind, Repr, need_array
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
    """Store elements as their bytes, in C order.

    Parameters
    ----------
    endian : {"little", "big"}, optional
        Byte order; None keeps that of the array's dtype, or those of its fields.

    Raises
    ------
    MetadataError
        If ``endian`` is something else.

    Notes
    -----
    The name is ``bytes`` in Zarr v3. In Zarr v2, the dtype has the byte order. Runs on the CPU and on a GPU.

    Source: Zarr v3 specification, "bytes codec".

    Examples
    --------
    >>> import gzarr
    >>> array = gzarr.create_array(shape=1000, dtype="i4", serializer=gzarr.codecs.BytesCodec("big"))
    >>> array.serializer
    BytesCodec(endian='big')
    """

    endian: str | None = "little"

    name = "bytes"
    kind: ClassVar[Kind] = "array_bytes"

    def __post_init__(self) -> None:
        if self.endian is not None:
            object.__setattr__(self, "endian", check_choice(self.name, "endian", self.endian, ENDIAN))

    @classmethod
    def from_json(cls, configuration: Mapping[str, Any]) -> Self:
        """Make a spec from Zarr v3 metadata; a missing ``endian`` is None. See `CodecSpec.from_json`."""
        check_fields(cls.name, configuration, ("endian",))
        return cls(configuration.get("endian"))

    def configuration(self) -> dict[str, Any]:
        """Give the byte order, if there is one. See `CodecSpec.configuration`."""
        return {} if self.endian is None else {"endian": self.endian}

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Take the dtype's byte order if none was given; drop it if the dtype has none. See `CodecSpec.resolve`."""
        array = need_array(self.name, decoded)
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
