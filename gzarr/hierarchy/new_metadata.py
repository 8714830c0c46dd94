"""Turns the keywords of both zarr call styles into the metadata of a new array.

The keywords of zarr 2 (``compressor filters object_codec dimension_separator``) and of zarr-python 3 (``compressors
filters serializer codecs chunk_key_encoding shards``) are accepted together, for both formats: codecs are translated.
"""

import json
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gzarr import storage
from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.chain import complete, prepare
from gzarr.codecs.compressors import BloscCodec, ZstdCodec
from gzarr.codecs.registry import from_v2, parse_codec
from gzarr.codecs.sharding import ShardingCodec
from gzarr.codecs.spec import ArrayRepr, CodecSpec
from gzarr.codecs.transpose import TransposeCodec
from gzarr.codecs.vlen import VLenBytesCodec, VLenUTF8Codec
from gzarr.config import config
from gzarr.dtypes import DataType, cast_fill, default_fill, fill_from_json, fill_to_json, from_v3, parse_dtype, to_v3
from gzarr.errors import MetadataError
from gzarr.hierarchy.options import UNSET, ArrayOptions, as_list, is_default
from gzarr.hierarchy.presets import apply_layout
from gzarr.indexing.chunking import parse_grid, parse_shape
from gzarr.indexing.keys import KeyEncoding
from gzarr.metadata.model import ArrayMeta, ZarrFormat
from gzarr.metadata.v2 import chain as v2_chain
from gzarr.metadata.v2 import is_compressor


def checked_format(zarr_format: Any) -> ZarrFormat:
    """Return a Zarr format: 2, 3, or the configured default for None. Raises MetadataError."""
    chosen = config.get("default_zarr_format") if zarr_format is None else zarr_format
    if chosen not in (2, 3):
        raise MetadataError(f"zarr_format must be 2 or 3, got {chosen!r}")
    return 2 if chosen == 2 else 3


def array_meta(options: ArrayOptions) -> ArrayMeta:
    """Return the metadata of a new array. Raises MetadataError naming the keyword."""
    options = _without_subarray(_without_shorthand(options))
    zarr_format = checked_format(options.zarr_format)
    shape = parse_shape(options.shape)
    asked = parse_dtype("float64" if options.dtype is None else options.dtype)
    if zarr_format == 3 and asked.variable == "object":
        asked = _text_or_bytes(options) or asked
        if asked.variable == "object" and options.zarr_format is None:
            zarr_format = 2  # only this format has arrays of Python objects
    data_type = asked if zarr_format == 2 else _native(asked)
    options = apply_layout(options, shape, data_type.dtype, sharded=zarr_format == 3)
    grid, inner = parse_grid(options.chunks, options.shards, shape, asked.dtype.itemsize)
    fill_value = _fill_value(options.fill_value, data_type, zarr_format)
    if zarr_format == 3:
        to_v3(data_type)
    elif inner is not None or any(not hasattr(axis, "length") for axis in grid):
        raise MetadataError("shards and chunks of varying length need zarr_format=3")
    elif options.dimension_names is not None:
        raise MetadataError("dimension_names need zarr_format=3")
    meta = ArrayMeta(
        shape=shape,
        data_type=data_type,
        grid=grid,
        keys=_keys(options, zarr_format),
        fill_value=fill_value,
        codecs=(),
        attributes=dict(options.attributes or {}),
        dimension_names=_names(options.dimension_names, len(shape)),
        zarr_format=zarr_format,
    )
    order = options.order or config.get("array.order")
    if order not in ("C", "F"):
        raise MetadataError(f"order must be 'C' or 'F', got {order!r}")
    if zarr_format == 2:
        return replace(meta, codecs=_v2_codecs(options, meta, order))
    return replace(meta, codecs=_v3_codecs(options, meta, asked, order, inner))


def _without_shorthand(options: ArrayOptions) -> ArrayOptions:
    """Write out zarr 2's ``dtype="array:i4"``, whose elements are arrays of a type. Raises MetadataError."""
    name = options.dtype
    if not isinstance(name, str) or not name.startswith("array:"):
        return options
    try:
        item = np.dtype(name.removeprefix("array:"))
    except TypeError as error:
        raise MetadataError(f"dtype={name!r}: expected a NumPy data type after 'array:', as in 'array:i4'") from error
    codec = {"id": "vlen-array", "dtype": item.str} if options.object_codec is None else options.object_codec
    return replace(options, dtype=object, object_codec=codec)


def _without_subarray(options: ArrayOptions) -> ArrayOptions:
    """Write out a data type whose elements are arrays of one shape: the shape is appended to that of the array."""
    given = options.dtype
    if not isinstance(given, (np.dtype, tuple)) and not (isinstance(given, str) and given.startswith("(")):
        return options
    dtype = np.dtype(given)
    if dtype.subdtype is None:
        return options
    shape = parse_shape(options.shape)
    chunks = options.chunks
    if isinstance(chunks, (tuple, list)) and len(chunks) == len(shape):
        chunks = (*chunks, *dtype.shape)
    return replace(options, dtype=dtype.base, shape=(*shape, *dtype.shape), chunks=chunks)


def _text_or_bytes(options: ArrayOptions) -> DataType | None:
    """Return the data types of v3 that zarr 2 users mean by objects with one of two codecs."""
    spec = None if options.object_codec is None else parse_codec(options.object_codec)
    if isinstance(spec, VLenUTF8Codec):
        return parse_dtype(str)
    return parse_dtype(bytes) if isinstance(spec, VLenBytesCodec) else None


def _native(data_type: DataType) -> DataType:
    """Return a data type without byte order, which v3 leaves to the bytes codec; structures lose their padding too."""
    if data_type.variable or (data_type.dtype.isnative and data_type.dtype.names is None):
        return data_type
    return from_v3(to_v3(data_type))


def _fill_value(value: Any, data_type: DataType, zarr_format: ZarrFormat) -> Any:
    if value is None and zarr_format == 2:
        return None
    fill = default_fill(data_type) if value is None or value is UNSET else cast_fill(value, data_type)
    if zarr_format == 3 or data_type.variable:
        return fill
    # Zarr v2 has only one NaN, so take what its document gives back: chunks of another NaN are not chunks of fill.
    return fill_from_json(fill_to_json(fill, data_type, 2), data_type, 2)


def _keys(options: ArrayOptions, zarr_format: ZarrFormat) -> KeyEncoding:
    separator = options.dimension_separator
    encoding = options.chunk_key_encoding
    name = "v2" if zarr_format == 2 else "default"
    if isinstance(encoding, str):
        name = encoding
    elif isinstance(encoding, Mapping):
        name = encoding.get("name", name)
        separator = encoding.get("separator", encoding.get("configuration", {}).get("separator", separator))
    elif encoding is not None:
        name, separator = encoding.name, getattr(encoding, "separator", separator)
    if name not in ("default", "v2") or separator not in (None, "/", "."):
        raise MetadataError(
            f"chunk keys are 'default' or 'v2' with the separator '/' or '.', got {name!r} with {separator!r}"
        )
    if zarr_format == 2 and name != "v2":
        raise MetadataError(f"chunk_key_encoding {name!r} needs zarr_format=3; Zarr v2 has 'v2' keys")
    default = "/" if name == "default" else "."
    return KeyEncoding("default" if name == "default" else "v2", "/" if (separator or default) == "/" else ".")


def _names(names: Any, ndim: int) -> tuple[str | None, ...] | None:
    if names is None:
        return None
    if isinstance(names, str) or len(names) != ndim or not all(n is None or isinstance(n, str) for n in names):
        raise MetadataError(f"dimension_names must be {ndim} names or None, got {names!r}")
    return tuple(names)


def _compressors(options: ArrayOptions, default: CodecSpec) -> list[CodecSpec]:
    """Return the compressors asked for, or the default one (`gzarr.storage.default_compressor` if it was set)."""
    given = [v for v in (options.compressor, options.compressors) if not is_default(v)]
    if len(given) > 1:
        raise MetadataError("pass compressor or compressors, not both")
    if given:
        return [parse_codec(c) for c in as_list(given[0]) if c != "none"]
    chosen = storage.default_compressor
    return [default] if is_default(chosen) else [parse_codec(c) for c in as_list(chosen)]


def _filters(options: ArrayOptions) -> list[CodecSpec]:
    return [] if is_default(options.filters) else [parse_codec(f) for f in as_list(options.filters)]


def _object_codec(options: ArrayOptions, data_type: DataType) -> CodecSpec | None:
    """Return the codec from Python objects to bytes. Raises MetadataError if plain objects have none."""
    if options.object_codec is not None:
        return parse_codec(options.object_codec)
    if data_type.variable == "object":
        raise MetadataError(
            "missing object_codec for object array: pass dtype=str or bytes for text, or object_codec=numcodecs.JSON()"
        )
    return None


def _v2_codecs(options: ArrayOptions, meta: ArrayMeta, order: str) -> tuple[CodecSpec, ...]:
    if not is_default(options.serializer) or not is_default(options.codecs):
        raise MetadataError("serializer and codecs need zarr_format=3; v2 has filters and one compressor")
    filters = _filters(options)
    if options.object_codec is not None and not meta.data_type.variable:
        warnings.warn(
            f"object_codec={options.object_codec!r} is ignored: it is for dtype=object, not {meta.data_type.dtype}",
            UserWarning,
            stacklevel=2,
        )
    if meta.data_type.variable and not any(f.kind == "array_bytes" or "categorize" in f.name for f in filters):
        vlen = {"string": {"id": "vlen-utf8"}, "bytes": {"id": "vlen-bytes"}}.get(meta.data_type.variable)
        filters = [_object_codec(options, meta.data_type) or from_v2(vlen or {}), *filters]
    default = BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")
    compressors = _compressors(options, default) if meta.shape else []  # as zarr 2: one value is not compressed
    if len(compressors) > 1:
        rest = f"got {len(compressors)}; give all but the last in filters=, or zarr_format=3"
        raise MetadataError(f"Zarr v2 arrays have one compressor, {rest}")
    if compressors and not is_compressor(compressors[0]):
        raise MetadataError(f"{compressors[0]!r} is a filter, not a compressor: pass it in filters=")
    return v2_chain(tuple(map(_as_stored, (*filters, *compressors))), meta.data_type, meta.object_shape, order)


def _as_stored(spec: CodecSpec) -> CodecSpec:
    """Return the codec that a v2 document, whose fields are sorted, gives back: a reopened array says the same."""
    return from_v2(json.loads(json.dumps(spec.to_v2(), sort_keys=True)))


def _v3_codecs(
    options: ArrayOptions, meta: ArrayMeta, asked: DataType, order: str, inner: tuple[int, ...] | None
) -> tuple[CodecSpec, ...]:
    chunk = ArrayRepr(meta.data_type.dtype, inner or meta.object_shape, meta.fill_value)
    if is_default(options.codecs):
        serializer = [] if is_default(options.serializer) else [parse_codec(c) for c in as_list(options.serializer)]
        specs = [*_filters(options), *serializer, *_compressors(options, ZstdCodec(level=0))]
    else:
        specs = [parse_codec(c) for c in as_list(options.codecs)]
    if order == "F" and not any(isinstance(s, TransposeCodec) for s in specs):
        specs = [TransposeCodec(tuple(reversed(range(len(chunk.shape))))), *specs]
    codecs = complete(tuple(specs), chunk, default_serializer=_serializer(options, meta.data_type, asked))
    prepare(codecs, chunk)
    if inner is None:
        return codecs
    location: Any = options.shards.get("index_location", "end") if isinstance(options.shards, dict) else "end"
    return (ShardingCodec(chunk_shape=inner, codecs=codecs, index_location=location),)


def _serializer(options: ArrayOptions, data_type: DataType, asked: DataType) -> CodecSpec:
    if data_type.variable == "string":
        return VLenUTF8Codec()
    if data_type.variable == "bytes":
        return VLenBytesCodec()
    custom = _object_codec(options, data_type)
    if custom is not None:
        return custom
    return BytesCodec("big" if asked.dtype.byteorder == ">" else "little")
