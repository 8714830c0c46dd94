"""Arrays and groups, in one immutable description for both formats of documents."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from gzarr.codecs.sharding import ShardingCodec
from gzarr.codecs.spec import CodecSpec
from gzarr.codecs.transpose import TransposeCodec
from gzarr.dtypes import DataType
from gzarr.indexing.grid import Grid, chunk_shape
from gzarr.indexing.keys import KeyEncoding

ZarrFormat: TypeAlias = Literal[2, 3]


@dataclass(frozen=True, slots=True)
class ArrayMeta:
    """An array's metadata.

    Attributes
    ----------
    shape : tuple[int, ...]
        Extents.
    data_type : DataType
        Element type.
    grid : Grid
        The grid of stored objects: chunks, or shards.
    keys : KeyEncoding
        How their coordinates become keys.
    fill_value : object
        Scalar of the data type; None if undefined (Zarr v2 only).
    codecs : tuple[CodecSpec, ...]
        The complete chain, in encoding order.
    attributes : mapping
        User attributes, JSON values.
    dimension_names : tuple[str | None, ...] or None
        A name or None for every axis, or None.
    zarr_format : ZarrFormat
        2 or 3.
    extra : mapping
        Fields of the document that gzarr does not know and may ignore; written back as they were.
    """

    shape: tuple[int, ...]
    data_type: DataType
    grid: Grid
    keys: KeyEncoding
    fill_value: Any
    codecs: tuple[CodecSpec, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    dimension_names: tuple[str | None, ...] | None = None
    zarr_format: ZarrFormat = 3
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def object_shape(self) -> tuple[int, ...]:
        """Shape of the first stored object (of every one, unless the grid is rectilinear)."""
        return chunk_shape(self.grid, (0,) * len(self.grid))

    @property
    def sharding(self) -> ShardingCodec | None:
        """The outermost sharding codec, if there is one."""
        return next((c for c in self.codecs if isinstance(c, ShardingCodec)), None)

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of the chunks: of those within a shard, if the array is sharded."""
        sharding = self.sharding
        if sharding is None:
            return self.object_shape
        shape = list(sharding.chunk_shape)
        for codec in reversed(self.codecs[: self.codecs.index(sharding)]):
            if isinstance(codec, TransposeCodec):
                order = codec.permutation(len(shape))
                shape = [shape[order.index(axis)] for axis in range(len(order))]
        return tuple(shape)

    @property
    def nbytes(self) -> int:
        """Decoded bytes of all elements."""
        return prod(self.shape) * self.data_type.dtype.itemsize

    @property
    def chunk_grid(self) -> Grid:
        """The grid of `chunks`."""
        if self.sharding is None:
            return self.grid
        return tuple(axis.subdivided(n) for axis, n in zip(self.grid, self.chunks, strict=True))

    @property
    def order(self) -> Literal["C", "F"]:
        """Memory order of the elements in a chunk."""
        ndim = len(self.shape)
        order = next((c.permutation(ndim) for c in self.codecs if isinstance(c, TransposeCodec)), None)
        return "F" if order is not None and order == tuple(reversed(range(ndim))) else "C"

    def resized(self, shape: tuple[int, ...]) -> Self:
        """The metadata of the array with another shape."""
        whole = self.chunks if self.sharding is not None else (1,) * len(shape)
        grid = tuple(axis.resized(extent, n) for axis, extent, n in zip(self.grid, shape, whole, strict=True))
        return replace(self, shape=shape, grid=grid)

    def holding(self, attributes: Mapping[str, Any], extra: Mapping[str, Any]) -> "ArrayMeta":
        """The metadata with other attributes and unknown fields: `dataclasses.replace` takes three times as long."""
        fixed = self.shape, self.data_type, self.grid, self.keys, self.fill_value, self.codecs
        return ArrayMeta(*fixed, attributes, self.dimension_names, self.zarr_format, extra)

    if TYPE_CHECKING:  # `gzarr.metadata.documents` adds it

        def to_dict(self) -> dict[str, Any]:
            """The document of the node; in v2 with its attributes."""


@dataclass(frozen=True, slots=True)
class GroupMeta:
    """A group's metadata.

    Attributes
    ----------
    attributes : mapping
        User attributes, JSON values.
    zarr_format : ZarrFormat
        2 or 3.
    extra : mapping
        Fields of the document that gzarr does not know and may ignore; written back as they were.
    consolidated_metadata : mapping, optional
        The documents of the group and all below it, by key, if it was opened from consolidated metadata.
    """

    attributes: Mapping[str, Any] = field(default_factory=dict)
    zarr_format: ZarrFormat = 3
    extra: Mapping[str, Any] = field(default_factory=dict)
    consolidated_metadata: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    def holding(self, attributes: Mapping[str, Any], extra: Mapping[str, Any]) -> "GroupMeta":
        """The metadata with other attributes and unknown fields."""
        return GroupMeta(attributes, self.zarr_format, extra)

    if TYPE_CHECKING:  # `gzarr.metadata.documents` adds it

        def to_dict(self) -> dict[str, Any]:
            """The document of the node; in v2 with its attributes."""


NodeMeta: TypeAlias = ArrayMeta | GroupMeta
