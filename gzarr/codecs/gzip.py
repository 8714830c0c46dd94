"""The ``gzip`` codec: gzip members (deflate)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gzarr.codecs.fields import check_integer
from gzarr.codecs.spec import CompressorSpec


@dataclass(frozen=True, slots=True)
class GzipCodec(CompressorSpec):
    """Compress with gzip.

    Parameters
    ----------
    level : int, default 5
        From 0 (stored) to 9 (smallest).

    Raises
    ------
    MetadataError
        If the level is not an integer from 0 to 9.

    Notes
    -----
    The name is ``gzip`` in Zarr v2 and v3. Runs on the CPU, and on a GPU unless a chunk has several members.

    Source: Zarr v3 specification, "gzip codec"; RFC 1952.

    Examples
    --------
    >>> import gzarr
    >>> array = gzarr.create_array(shape=1000, dtype="i4", compressors=gzarr.codecs.GzipCodec(level=1))
    >>> array.compressors
    (GzipCodec(level=1),)
    """

    level: int = 5

    name = v2_id = "gzip"
    v2_fields: ClassVar[Mapping[str, Any]] = {"level": 1}

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", check_integer(self.name, "level", self.level, 0, 9))
