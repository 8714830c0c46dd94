"""The block format of N5 as one codec of Zarr v2 metadata: header, big-endian elements, one compressor.

zarr 2 gives it the id "n5_wrapper", and so do the documents that `gzarr.storage.n5` shows of an N5 data set.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from gzarr.codecs.fields import check_fields, check_integers, need_bytes
from gzarr.codecs.spec import BytesRepr, CodecSpec, Kind, Repr
from gzarr.errors import MetadataError


@dataclass(frozen=True, slots=True)
class N5Codec(CodecSpec):
    """Blocks of N5.

    Attributes:
        dtype: NumPy name of the elements' type, in the byte order in which the array has them.
        chunk_shape: shape of a whole block, in the order of the array's axes (N5 writes it reversed).
        compressor_config: numcodecs configuration of the compressor, as JSON text; an object is accepted. "null" is
            none.

    Source: https://github.com/saalfeldlab/n5#file-system-specification
    """

    dtype: str
    chunk_shape: tuple[int, ...]
    compressor_config: str = field(default="null")

    name = "n5_wrapper"
    kind: ClassVar[Kind] = "bytes_bytes"

    def __post_init__(self) -> None:
        config: Any = self.compressor_config
        if not isinstance(config, str):
            if config is not None and not isinstance(config, Mapping):
                raise MetadataError(f"codec {self.name!r}: compressor_config must be an object or null, got {config!r}")
            config = json.dumps(None if config is None else dict(config), sort_keys=True)
        object.__setattr__(self, "compressor_config", config)
        object.__setattr__(self, "chunk_shape", check_integers(self.name, "chunk_shape", self.chunk_shape, 1))
        try:
            np.dtype(self.dtype)
        except TypeError as error:
            raise MetadataError(f"codec {self.name!r}: dtype {self.dtype!r} is not a NumPy data type") from error

    @property
    def compressor(self) -> dict[str, Any] | None:
        """The numcodecs configuration of the compressor."""
        found: dict[str, Any] | None = json.loads(self.compressor_config)
        return found

    @classmethod
    def from_json(cls, configuration: Mapping[str, Any]) -> Self:
        """Parse; ``compressor_config`` may be missing."""
        check_fields(cls.name, configuration, ("dtype", "chunk_shape", "compressor_config"), ("dtype", "chunk_shape"))
        config: Any = configuration.get("compressor_config")
        return cls(configuration["dtype"], configuration["chunk_shape"], config)

    def configuration(self) -> dict[str, Any]:
        """``{"compressor_config": ..., "dtype": ..., "chunk_shape": ...}``."""
        return {
            "compressor_config": self.compressor,
            "dtype": self.dtype,
            "chunk_shape": list(self.chunk_shape),
        }

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Nothing is open; bytes of unknown size come out."""
        need_bytes(self.name, decoded)
        return self, BytesRepr()
