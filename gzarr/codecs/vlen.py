"""The ``vlen-utf8`` and ``vlen-bytes`` codecs: strings of varying length, each after its length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from gzarr.codecs.fields import check_fields, need_array
from gzarr.codecs.spec import BytesRepr, CodecSpec, Kind, Repr
from gzarr.errors import MetadataError


class _VLenCodec(CodecSpec):
    """A codec without fields, for elements of some kinds of dtype."""

    kind: ClassVar[Kind] = "array_bytes"
    dtype_kinds: ClassVar[str]

    __slots__ = ()

    @classmethod
    def from_json(cls, configuration: Mapping[str, Any]) -> Self:
        """Parse; there are no fields."""
        spec = cls()
        check_fields(spec.name, configuration, ())
        return spec

    def configuration(self) -> dict[str, Any]:
        """Empty."""
        return {}

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Bytes of unknown size come out."""
        dtype = need_array(self.name, decoded).dtype
        if dtype.kind not in self.dtype_kinds:
            raise MetadataError(f"codec {self.name!r} encodes strings of varying length, not data type {dtype}")
        return self, BytesRepr()


@dataclass(frozen=True, slots=True)
class VLenUTF8Codec(_VLenCodec):
    """Text of varying length as UTF-8.

    Source: Zarr v3 extensions, "vlen-utf8 codec"; numcodecs.VLenUTF8.
    """

    name = "vlen-utf8"
    dtype_kinds: ClassVar[str] = "OTU"


@dataclass(frozen=True, slots=True)
class VLenBytesCodec(_VLenCodec):
    """Byte strings of varying length.

    Source: Zarr v3 extensions, "vlen-bytes codec"; numcodecs.VLenBytes.
    """

    name = "vlen-bytes"
    dtype_kinds: ClassVar[str] = "OS"
