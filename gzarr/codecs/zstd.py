"""The ``zstd`` codec: Zstandard frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gzarr.codecs.fields import check_boolean, check_integer
from gzarr.codecs.spec import CompressorSpec

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
