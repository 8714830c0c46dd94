"""The ``sharding_indexed`` codec: many inner chunks and an index in one object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.chain import complete, prepare
from gzarr.codecs.crc32c import Crc32cCodec
from gzarr.codecs.fields import check_choice, check_fields, check_integers, field_names, need_array
from gzarr.codecs.registry import parse_codecs
from gzarr.codecs.spec import ArrayRepr, BytesRepr, CodecSpec, Kind, Repr
from gzarr.errors import MetadataError

INDEX_LOCATIONS = ("start", "end")


@dataclass(frozen=True, slots=True)
class ShardingCodec(CodecSpec):
    """A shard: inner chunks, each encoded alone, and an index of where they lie.

    Attributes:
        chunk_shape: shape of the inner chunks; it divides the shape of the shard.
        codecs: codecs of the inner chunks. Specs, JSON objects and numcodecs objects are accepted.
        index_codecs: codecs of the index; their output has a fixed size.
        index_location: "start" or "end" of the shard.

    Source: Zarr v3 specification, "sharding codec".
    """

    chunk_shape: tuple[int, ...]
    codecs: tuple[CodecSpec, ...] = (BytesCodec(),)
    index_codecs: tuple[CodecSpec, ...] = (BytesCodec("little"), Crc32cCodec())
    index_location: Literal["start", "end"] = "end"

    name = "sharding_indexed"
    kind: ClassVar[Kind] = "array_bytes"

    def __post_init__(self) -> None:
        shape: Any = self.chunk_shape
        if isinstance(shape, int | np.integer):
            shape = (shape,)
        object.__setattr__(self, "chunk_shape", check_integers(self.name, "chunk_shape", shape, 1))
        for field in ("codecs", "index_codecs"):
            value = getattr(self, field)
            if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
                raise MetadataError(f"codec {self.name!r}: {field} must be a list of codecs, got {value!r}")
            object.__setattr__(self, field, parse_codecs(value))
        check_choice(self.name, "index_location", self.index_location, INDEX_LOCATIONS)

    @classmethod
    def from_json(cls, configuration: Mapping[str, Any]) -> Self:
        """Parse; all but ``chunk_shape`` may be missing."""
        check_fields(cls.name, configuration, field_names(cls), ("chunk_shape",))
        return cls(**configuration)

    def configuration(self) -> dict[str, Any]:
        """All four fields."""
        return {
            "chunk_shape": list(self.chunk_shape),
            "codecs": [codec.to_json() for codec in self.codecs],
            "index_codecs": [codec.to_json() for codec in self.index_codecs],
            "index_location": self.index_location,
        }

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Complete both inner chains."""
        shard = need_array(self.name, decoded)
        if len(shard.shape) != len(self.chunk_shape):
            raise MetadataError(
                f"codec {self.name!r}: chunk_shape {self.chunk_shape} has {len(self.chunk_shape)} dimensions, "
                f"the shard {shard.shape} has {len(shard.shape)}"
            )
        if any(length % inner for length, inner in zip(shard.shape, self.chunk_shape, strict=True)):
            raise MetadataError(
                f"codec {self.name!r}: chunk_shape {self.chunk_shape} does not divide the shard shape {shard.shape}"
            )
        inner = ArrayRepr(shard.dtype, self.chunk_shape, shard.fill_value)
        index = self.index_repr(shard.shape)
        index_codecs = complete(self.index_codecs, index)
        encoded = prepare(index_codecs, index)[-1].encoded
        if encoded.nbytes is None:
            names = [codec.name for codec in index_codecs]
            raise MetadataError(f"codec {self.name!r}: index_codecs {names} make an index whose size is not fixed")
        return replace(self, codecs=complete(self.codecs, inner), index_codecs=index_codecs), BytesRepr()

    def index_repr(self, shard_shape: tuple[int, ...]) -> ArrayRepr:
        """The index of a shard as an array: (offset, nbytes) of every inner chunk, 2**64 - 1 where there is none."""
        grid = tuple(length // inner for length, inner in zip(shard_shape, self.chunk_shape, strict=True))
        return ArrayRepr(np.dtype("<u8"), (*grid, 2), np.uint64(2**64 - 1))
