"""The ``crc32c`` codec: four bytes of checksum after the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from gzarr.codecs.fields import check_fields, need_bytes
from gzarr.codecs.spec import BytesRepr, CodecSpec, Kind, Repr


@dataclass(frozen=True, slots=True)
class Crc32cCodec(CodecSpec):
    """CRC-32C (Castagnoli) of the data, appended in little-endian order and verified on reading.

    Source: Zarr v3 specification, "crc32c codec"; RFC 3720, appendix B.4.
    """

    name = "crc32c"
    kind: ClassVar[Kind] = "bytes_bytes"

    @classmethod
    def from_json(cls, configuration: Mapping[str, Any]) -> Self:
        """Parse; there are no fields."""
        check_fields(cls.name, configuration, ())
        return cls()

    def configuration(self) -> dict[str, Any]:
        """Empty."""
        return {}

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Four bytes more come out."""
        size = need_bytes(self.name, decoded).nbytes
        return self, BytesRepr(None if size is None else size + 4)
