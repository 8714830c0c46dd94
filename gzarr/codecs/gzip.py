"""The ``gzip`` codec: gzip members (deflate)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from gzarr.codecs.fields import check_fields, check_integer, field_names, need_bytes
from gzarr.codecs.spec import BytesRepr, CodecSpec, Kind, Repr


@dataclass(frozen=True, slots=True)
class GzipCodec(CodecSpec):
    """Gzip compression.

    Attributes:
        level: 0 (stored) to 9 (smallest).

    Source: Zarr v3 specification, "gzip codec".
    """

    level: int = 5

    name = "gzip"
    kind: ClassVar[Kind] = "bytes_bytes"

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", check_integer(self.name, "level", self.level, 0, 9))

    @classmethod
    def from_json(cls, configuration: Mapping[str, Any]) -> Self:
        """Parse; ``level`` may be missing."""
        check_fields(cls.name, configuration, field_names(cls))
        return cls(**configuration)

    def configuration(self) -> dict[str, Any]:
        """``{"level": ...}``."""
        return {"level": self.level}

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Nothing is open; bytes of unknown size come out."""
        need_bytes(self.name, decoded)
        return self, BytesRepr()
