"""The ``sharding_indexed`` codec: many inner chunks and an index in one object."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np

from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.chain import complete, prepare
from gzarr.codecs.compressors import Crc32cCodec
from gzarr.codecs.fields import check_choice, check_integers
from gzarr.codecs.registry import parse_codec
from gzarr.codecs.spec import ArrayRepr, BytesRepr, CodecSpec, Kind, Repr, Step, need_array
from gzarr.errors import MetadataError

INDEX_LOCATIONS = ("start", "end")
#: In which order inner chunks are put into a shard, in the words of zarr-python.
WriteOrder: TypeAlias = Literal["lexicographic", "morton", "colexicographic"]
WRITE_ORDERS = ("lexicographic", "morton", "colexicographic")


@dataclass(frozen=True, slots=True)
class ShardingCodec(CodecSpec):
    """Store many inner chunks, each encoded by itself, and an index of where they lie, in one object.

    Parameters
    ----------
    chunk_shape : sequence of int
        Shape of the inner chunks; it divides the shape of the shard.
    codecs : sequence of codecs, default ``(BytesCodec(),)``
        Chain of the inner chunks: specs, JSON objects or numcodecs objects.
    index_codecs : sequence of codecs, default ``(BytesCodec("little"), Crc32cCodec())``
        Chain of the index; its output must have a fixed size.
    index_location : {"end", "start"}
        Where in the shard the index lies.
    subchunk_write_order : {"lexicographic", "morton", "colexicographic"}
        In which order the host puts inner chunks into a shard. It is not stored: the index says where each lies.

    Raises
    ------
    MetadataError
        If a field has a bad value.

    Notes
    -----
    The name is ``sharding_indexed`` in Zarr v3; Zarr v2 has no shards. The host reads the index on every device; inner
    chunks run wherever their codecs run.

    Source: Zarr v3 specification, "sharding codec".

    Examples
    --------
    ``chunks=`` and ``shards=`` of `gzarr.create_array` make this codec:

    >>> import gzarr
    >>> array = gzarr.create_array(shape=(8, 8), chunks=(2, 2), shards=(4, 4), dtype="i4")
    >>> array.metadata.codecs[0].chunk_shape
    (2, 2)
    """

    chunk_shape: tuple[int, ...]
    codecs: tuple[CodecSpec, ...] = (BytesCodec(),)
    index_codecs: tuple[CodecSpec, ...] = (BytesCodec("little"), Crc32cCodec())
    index_location: Literal["start", "end"] = "end"
    subchunk_write_order: WriteOrder = "lexicographic"

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
            object.__setattr__(self, field, tuple(map(parse_codec, value)))
        for field, choices in (("index_location", INDEX_LOCATIONS), ("subchunk_write_order", WRITE_ORDERS)):
            object.__setattr__(self, field, check_choice(self.name, field, getattr(self, field), choices))

    def configuration(self) -> dict[str, Any]:
        """Give all fields that are stored. See `CodecSpec.configuration`."""
        return {
            "chunk_shape": list(self.chunk_shape),
            "codecs": [codec.to_json() for codec in self.codecs],
            "index_codecs": [codec.to_json() for codec in self.index_codecs],
            "index_location": self.index_location,
        }

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Complete both inner chains. See `CodecSpec.resolve`."""
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
        made = replace(self, codecs=complete(self.codecs, inner), index_codecs=complete(self.index_codecs, index))
        prepare_index(made, index)
        return made, BytesRepr()

    def index_repr(self, shard_shape: tuple[int, ...]) -> ArrayRepr:
        """Describe the index of a shard as an array.

        Parameters
        ----------
        shard_shape : tuple of int
            Shape of the shard.

        Returns
        -------
        ArrayRepr
            uint64 (..., 2): offset and size in bytes of every inner chunk, both 2**64 - 1 if it is missing.
        """
        grid = tuple(length // inner for length, inner in zip(shard_shape, self.chunk_shape, strict=True))
        return ArrayRepr(np.dtype("<u8"), (*grid, 2), np.uint64(2**64 - 1))


def prepare_index(spec: ShardingCodec, index: ArrayRepr) -> tuple[Step, ...]:
    """Prepare the codecs of an index. Raises: MetadataError if they do not give it a fixed size."""
    steps = prepare(spec.index_codecs, index)
    if steps[-1].encoded.nbytes is None:
        names = [step.spec.name for step in steps]
        raise MetadataError(f"codec {spec.name!r}: index_codecs {names} make an index whose size is not fixed")
    return steps
