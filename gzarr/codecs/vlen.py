"""The ``vlen-utf8`` and ``vlen-bytes`` codecs: strings of varying length, each after its length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from gzarr.codecs.fields import check_fields, need_array
from gzarr.codecs.spec import BytesRepr, CodecSpec, Kind, Repr
from gzarr.errors import MetadataError


def _check_dtype(codec: str, decoded: Repr, kinds: str) -> None:
    dtype = need_array(codec, decoded).dtype
    if dtype.kind not in kinds:
        raise MetadataError(f"codec {codec!r} encodes strings of varying length, not data type {dtype}")


@dataclass(frozen=True, slots=True)
class VLenUTF8Codec(CodecSpec):
    """Text of varying length as UTF-8.

    Source: Zarr v3 extensions, "vlen-utf8 codec"; numcodecs.VLenUTF8.
    """

    name = "vlen-utf8"
    kind: ClassVar[Kind] = "array_bytes"

    @classmethod
    def from_json(cls, configuration: Mapping[str, Any]) -> Self:
        """Parse; there are no fields."""
        check_fields(cls.name, configuration, ())
        return cls()

    def configuration(self) -> dict[str, Any]:
        """Empty."""
        return {}

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Bytes of unknown size come out."""
        _check_dtype(self.name, decoded, "OTU")
        return self, BytesRepr()


@dataclass(frozen=True, slots=True)
class VLenBytesCodec(CodecSpec):
    """Byte strings of varying length.

    Source: Zarr v3 extensions, "vlen-bytes codec"; numcodecs.VLenBytes.
    """

    name = "vlen-bytes"
    kind: ClassVar[Kind] = "array_bytes"

    @classmethod
    def from_json(cls, configuration: Mapping[str, Any]) -> Self:
        """Parse; there are no fields."""
        check_fields(cls.name, configuration, ())
        return cls()

    def configuration(self) -> dict[str, Any]:
        """Empty."""
        return {}

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Bytes of unknown size come out."""
        _check_dtype(self.name, decoded, "OS")
        return self, BytesRepr()
