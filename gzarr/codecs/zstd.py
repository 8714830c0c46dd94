"""The ``zstd`` codec: Zstandard frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from gzarr.codecs.fields import check_boolean, check_fields, check_integer, field_names, need_bytes
from gzarr.codecs.spec import BytesRepr, CodecSpec, Kind, Repr

#: Levels that libzstd accepts (ZSTD_minCLevel, ZSTD_maxCLevel).
MIN_LEVEL, MAX_LEVEL = -131072, 22


@dataclass(frozen=True, slots=True)
class ZstdCodec(CodecSpec):
    """Zstandard compression.

    Attributes:
        level: 1 (fastest) to 22 (smallest); 0 is the library's default; negative levels are faster still.
        checksum: store a checksum of the content in the frame.

    Source: Zarr v3 extensions, "zstd codec".
    """

    level: int = 0
    checksum: bool = False

    name = "zstd"
    kind: ClassVar[Kind] = "bytes_bytes"

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", check_integer(self.name, "level", self.level, MIN_LEVEL, MAX_LEVEL))
        object.__setattr__(self, "checksum", check_boolean(self.name, "checksum", self.checksum))

    @classmethod
    def from_json(cls, configuration: Mapping[str, Any]) -> Self:
        """Parse; every field may be missing."""
        check_fields(cls.name, configuration, field_names(cls))
        return cls(**configuration)

    def configuration(self) -> dict[str, Any]:
        """``{"level": ..., "checksum": ...}``."""
        return {"level": self.level, "checksum": self.checksum}

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Nothing is open; bytes of unknown size come out."""
        need_bytes(self.name, decoded)
        return self, BytesRepr()
