"""Zarr v2 documents (``.zarray``, ``.zgroup``, ``.zattrs``) to metadata and back.

``order="F"`` is a transpose codec, filters and compressor are codecs like any other: v2 chunks are decoded by the same
chain as v3 chunks.
Source: Zarr v2 specification.
"""

from collections.abc import Mapping
from typing import Any

from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.chain import complete
from gzarr.codecs.registry import from_v2 as codec_from_v2
from gzarr.codecs.spec import ArrayRepr, CodecSpec
from gzarr.codecs.transpose import TransposeCodec
from gzarr.dtypes import DataType, fill_from_json, fill_to_json, from_v2, to_v2
from gzarr.errors import MetadataError
from gzarr.indexing.grid import largest_chunk
from gzarr.indexing.keys import KeyEncoding
from gzarr.metadata.fields import expect, integers, parsed_once, regular_grid, require
from gzarr.metadata.model import ArrayMeta, GroupMeta, NodeMeta

_ARRAY_FIELDS = frozenset(
    {"zarr_format", "shape", "chunks", "dtype", "compressor", "fill_value", "order", "filters", "dimension_separator"}
)


def parse_array(document: Mapping[str, Any], attributes: Mapping[str, Any], what: str) -> ArrayMeta:
    """Parse a ``.zarray``. ``what`` names the document in errors. Raises: MetadataError."""
    expect(require(document, "zarr_format", what), (2,), "zarr_format", what)
    shape = integers(require(document, "shape", what), "shape", what, low=0)
    grid = regular_grid(require(document, "chunks", what), shape, "chunks", what)
    order = expect(document.get("order", "C"), ("C", "F"), "order", what)
    separator: Any = document.get("dimension_separator")
    separator = "." if separator is None else expect(separator, (".", "/"), "dimension_separator", what)
    filters = document.get("filters")
    if filters is None:
        filters = []
    if not isinstance(filters, list):
        raise MetadataError(f"{what}: field 'filters' must be a list or null, got {filters!r}")
    dtype = require(document, "dtype", what)
    compressor = document.get("compressor")
    try:
        specs = tuple(_codec(f, f"filters[{i}]") for i, f in enumerate(filters))
        specs += () if compressor is None else (_codec(compressor, "compressor"),)
        object_codec = next((f["id"] for f in [*filters, compressor] if isinstance(f, dict)), None)
        data_type = from_v2(dtype, object_codec)
        fill_value = fill_from_json(document.get("fill_value"), data_type, 2)
        codecs = chain(specs, data_type, largest_chunk(grid), order)
    except MetadataError as error:
        raise type(error)(f"{what}: {error}") from error
    return ArrayMeta(
        shape=shape,
        data_type=data_type,
        grid=grid,
        keys=KeyEncoding("v2", separator),
        fill_value=fill_value,
        codecs=codecs,
        attributes=attributes,
        zarr_format=2,
        extra={k: v for k, v in document.items() if k not in _ARRAY_FIELDS},
    )


#: Parses a stored ``.zarray``. Arrays with equal documents, or opened again, are parsed once. Raises: MetadataError.
parse_array_bytes = parsed_once(lambda document, what: parse_array(document, {}, what))


def _codec(config: Any, field: str) -> CodecSpec:
    try:
        return codec_from_v2(config)
    except MetadataError as error:
        raise type(error)(f"{field}: {error}") from error


def parse_group(document: Mapping[str, Any], attributes: Mapping[str, Any], what: str) -> GroupMeta:
    """Parse a ``.zgroup``. Raises: MetadataError."""
    expect(require(document, "zarr_format", what), (2,), "zarr_format", what)
    return GroupMeta(attributes, 2, {k: v for k, v in document.items() if k != "zarr_format"})


def chain(
    specs: tuple[CodecSpec, ...], data_type: DataType, chunks: tuple[int, ...], order: str
) -> tuple[CodecSpec, ...]:
    """The complete chain of an array: a transpose for order "F", filters, compressor, and what joins them."""
    if order == "F":
        specs = (TransposeCodec(tuple(reversed(range(len(chunks))))), *specs)
    resolved = complete(specs, ArrayRepr(data_type.dtype, chunks, None), default_serializer=BytesCodec(None))
    # Only the serializer is taken over: the others stay as they are written (blosc's automatic shuffle, say).
    given = list(specs)
    return tuple(given.pop(0) if given and given[0].name == spec.name else spec for spec in resolved)


def to_json(meta: NodeMeta) -> dict[str, Any]:
    """The ``.zarray`` or ``.zgroup`` of an array or group."""
    if isinstance(meta, GroupMeta):
        return {"zarr_format": 2, **meta.extra}
    filters, compressor = split_chain(meta.codecs)
    document = {
        "zarr_format": 2,
        "shape": list(meta.shape),
        "chunks": list(meta.object_shape),
        "dtype": to_v2(meta.data_type),
        "compressor": None if compressor is None else compressor.to_v2(),
        "fill_value": fill_to_json(meta.fill_value, meta.data_type, 2),
        "order": "F" if meta.codecs and isinstance(meta.codecs[0], TransposeCodec) else "C",
        "filters": [f.to_v2() for f in filters] or None,
        **meta.extra,
    }
    if meta.keys.separator != ".":
        document["dimension_separator"] = meta.keys.separator
    return document


def split_chain(codecs: tuple[CodecSpec, ...]) -> tuple[tuple[CodecSpec, ...], CodecSpec | None]:
    """(filters, compressor) of a v2 chain: the compressor is what turns the chunk's bytes into fewer.

    A chain that ends in a filter has no compressor.
    """
    specs = tuple(c for c in codecs if not isinstance(c, (TransposeCodec, BytesCodec)))
    if specs and is_compressor(specs[-1]):
        return specs[:-1], specs[-1]
    return specs, None


def is_compressor(spec: CodecSpec) -> bool:
    """Whether a codec of v2 metadata belongs in the field "compressor"."""
    return spec.kind in ("bytes_bytes", "any") or spec.name in ("numcodecs.zfpy", "numcodecs.pcodec")
