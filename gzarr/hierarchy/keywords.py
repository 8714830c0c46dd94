"""The keywords of the functions that open and create, typed, so that editors complete them and type checkers know them.

Each class lists what a function takes besides its named parameters. The fields are documented once, in
`gzarr.create_array`, `gzarr.hierarchy.options.OpenOptions` and `gzarr.devices.backend_for`. At run time
`gzarr.hierarchy.options.check_keywords` checks keywords against them.
"""

from collections.abc import Mapping
from os import PathLike
from typing import Any, Literal, TypeAlias, TypedDict

from gzarr.chunk_io.chunk_cache import ChunkCache

#: What ``layout=`` takes besides None.
Layout: TypeAlias = Literal["gpu", "gpu:batch", "gpu:plane", "gpu:volume", "gpu:random"]
#: What ``mode=`` of the functions that open takes besides None.
OpenMode: TypeAlias = Literal["r", "r+", "a", "w", "w-", "x"]


class DeviceKeywords(TypedDict, total=False):
    """Options of a device."""

    stream: Any
    max_device_nbytes: int | None
    strict: bool | None
    reader: Literal["auto", "host", "kvikio"] | None


class ReachKeywords(TypedDict, total=False):
    """How a node is reached."""

    cache: str | PathLike[str] | None
    cache_nbytes: int | None
    synchronizer: Any
    meta_array: Any
    chunk_cache: ChunkCache | int | None
    allow_pickle: bool
    cache_attrs: bool | None


class ConstructorKeywords(ReachKeywords, total=False):
    """Of `gzarr.Array` and `gzarr.Group`, called as in zarr 2."""

    cache_metadata: bool
    partial_decompress: bool
    zarr_version: int | None


class StoreKeywords(DeviceKeywords, total=False):
    """What goes with a store that is named in the call: options of its URL, and of the device."""

    storage_options: Mapping[str, Any] | None


class ElsewhereKeywords(StoreKeywords, total=False):
    """What goes with what is read in place: where references may lead, and which version of a repository is meant."""

    virtual_containers: Any
    branch: str | None
    tag: str | None
    snapshot: str | None


class GroupKeywords(ReachKeywords, ElsewhereKeywords, total=False):
    """Of `gzarr.open_group`, `gzarr.group`, `gzarr.create_group` and `gzarr.open_consolidated`."""

    zarr_version: int | None


class DatasetKeywords(TypedDict, total=False):
    """Of h5py's ``create_dataset``, which zarr 2 takes: see `gzarr.hierarchy.new_nodes`."""

    compression: Any
    compression_opts: Any
    fillvalue: Any
    shuffle: bool | None
    fletcher32: bool | None
    scaleoffset: int | None
    track_times: bool | None
    track_order: bool | None


class RareLayoutKeywords(TypedDict, total=False):
    """How few arrays are cut and encoded."""

    layout: Layout | None
    object_codec: Any
    dimension_separator: Literal[".", "/"] | None


class ChainKeywords(RareLayoutKeywords, total=False):
    """How chunks are encoded and named."""

    shards: Any
    compressors: Any
    filters: Any
    serializer: Any
    codecs: Any
    dimension_names: Any
    chunk_key_encoding: Any


class RareArrayKeywords(RareLayoutKeywords, ReachKeywords, DatasetKeywords, total=False):
    """Keywords that few arrays need, and those of zarr that change nothing."""

    chunk_shape: Any
    config: Any
    read_missing_chunks: bool | None
    write_data: bool
    cache_metadata: bool
    cachesize: Any
    cache_type: Any
    partial_decompress: bool
    read_only: bool
    zarr_version: int | None


class CreateArrayKeywords(RareArrayKeywords, StoreKeywords, total=False):
    """Of `gzarr.create_array`, which names all others."""

    mode: OpenMode | None
    write_empty_chunks: bool | None


class MadeKeywords(TypedDict, total=False):
    """How a new array is stored and used, of functions that do not name this."""

    zarr_format: int | None
    write_empty_chunks: bool | None
    device: str | None


class NamedKeywords(StoreKeywords, total=False):
    """Where in a store an array is created."""

    name: str | None
    path: str | None
    mode: OpenMode | None


class CodecKeywords(RareArrayKeywords, ChainKeywords, total=False):
    """How chunks are encoded and named, and attributes."""

    attributes: Mapping[str, Any] | None


class CreateKeywords(CodecKeywords, MadeKeywords, NamedKeywords, total=False):
    """Of `gzarr.create`, which names what zarr 2 has as positional arguments."""

    data: Any
    overwrite: bool


class ChunkKeywords(CodecKeywords, total=False):
    """How an array is cut and encoded."""

    chunks: Any
    compressor: Any
    order: Literal["C", "F"] | None


class OpenArrayKeywords(ChunkKeywords, ElsewhereKeywords, total=False):
    """Of `gzarr.open_array`, used where it creates."""

    overwrite: bool
    shape: Any
    dtype: Any
    data: Any
    fill_value: Any


class MemberKeywords(ChunkKeywords, MadeKeywords, total=False):
    """Of ``Group.create_array``."""

    overwrite: bool


class FilledMemberKeywords(MemberKeywords, total=False):
    """Of ``Group.empty``, ``zeros``, ``ones`` and ``full``, which name a shape."""

    dtype: Any


class LikeMemberKeywords(FilledMemberKeywords, total=False):
    """Of ``Group.empty_like``, ``zeros_like``, ``ones_like`` and ``full_like``."""

    shape: Any


class NewMemberKeywords(LikeMemberKeywords, total=False):
    """Of ``Group.array``."""

    fill_value: Any


class FromZarrKeywords(ReachKeywords, DeviceKeywords, total=False):
    """Of `gzarr.interop.dask.from_zarr`, which opens an array for reading unless told otherwise."""

    mode: OpenMode | None
    zarr_format: int | None


class ToZarrKeywords(ChunkKeywords, MadeKeywords, DeviceKeywords, total=False):
    """Of `gzarr.interop.dask.to_zarr`, used where it creates an array."""

    dtype: Any
    fill_value: Any


class SaveArrayKeywords(NewMemberKeywords, StoreKeywords, total=False):
    """Of `gzarr.save_array`."""

    mode: OpenMode | None


class LoadKeywords(GroupKeywords, total=False):
    """Of `gzarr.load`."""

    zarr_format: int | None
    use_consolidated: bool | str | None


class PlaceKeywords(NamedKeywords, total=False):
    """Where an array is created."""

    store: Any


class FilledKeywords(FilledMemberKeywords, PlaceKeywords, total=False):
    """Of `gzarr.empty`, `zeros`, `ones` and `full`, which name a shape."""


class LikeKeywords(LikeMemberKeywords, PlaceKeywords, total=False):
    """Of `gzarr.empty_like`, `zeros_like` and `ones_like`."""


class NewArrayKeywords(NewMemberKeywords, PlaceKeywords, total=False):
    """Of `gzarr.array` and `gzarr.full_like`."""


class FromArrayKeywords(NewMemberKeywords, NamedKeywords, total=False):
    """Of `gzarr.from_array`, which names the store."""


class OpenKeywords(NewMemberKeywords, ElsewhereKeywords, total=False):
    """Of `gzarr.open`: what it takes if there is an array, a group, or nothing yet."""

    data: Any
    use_consolidated: bool | str | None


class OpenLikeKeywords(NewMemberKeywords, StoreKeywords, total=False):
    """Of `gzarr.open_like`."""

    mode: OpenMode | None
