"""Zarr v3 documents (``zarr.json``) to metadata and back.

Source: Zarr v3 core 3.1, "array metadata" and "group metadata"; zarr-extensions, chunk grid "rectilinear".
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from itertools import groupby
from typing import Any

from gzarr.codecs.registry import parse_codec, registry_state
from gzarr.codecs.spec import CodecSpec
from gzarr.dtypes import DataType, fill_from_json, fill_to_json, from_v3, to_v3
from gzarr.errors import MetadataError
from gzarr.indexing.grid import Axis, Grid, RegularAxis, VaryingAxis
from gzarr.indexing.keys import KeyEncoding
from gzarr.metadata.fields import attributes_of, expect, integers, no_others, parsed_once, regular_grid, require
from gzarr.metadata.model import ArrayMeta, GroupMeta, NodeMeta

_ARRAY_FIELDS = frozenset(
    {"zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs"}
    | {"attributes", "dimension_names", "storage_transformers"}
)
_GROUP_FIELDS = frozenset({"zarr_format", "node_type", "attributes"})
#: Inline consolidated metadata: written by zarr-python, some versions without "must_understand": false.
_IGNORABLE = frozenset({"consolidated_metadata"})
#: Chunks that a rectilinear axis may have: a short run-length code can stand for more than any memory holds.
_MAX_VARYING_CHUNKS = 1_000_000
#: Longer data types, fill values and codecs are not kept.
_MAX_TEXT = 1 << 12


def parse(document: Mapping[str, Any], what: str) -> NodeMeta:
    """Parse a ``zarr.json``. ``what`` names the document in errors. Raises: MetadataError."""
    expect(require(document, "zarr_format", what), (3,), "zarr_format", what)
    if expect(require(document, "node_type", what), ("array", "group"), "node_type", what) == "array":
        return _parse_array(document, what)
    extra = _extra_fields(document, _GROUP_FIELDS, what)
    return GroupMeta(attributes_of(document.get("attributes", {}), what), 3, extra)


#: Parses a stored ``zarr.json``. Arrays with equal documents, or opened again, are parsed once.
parse_bytes = parsed_once(parse)


def to_json(meta: NodeMeta) -> dict[str, Any]:
    """The ``zarr.json`` of an array or group."""
    head: dict[str, Any] = {"zarr_format": 3, "node_type": "group" if isinstance(meta, GroupMeta) else "array"}
    if isinstance(meta, GroupMeta):
        # Consolidated metadata are of the moment when they were read: `gzarr.metadata.consolidated` alone writes them.
        extra = {name: value for name, value in meta.extra.items() if name not in _IGNORABLE}
        return {**head, "attributes": dict(meta.attributes), **extra}
    document = {
        **head,
        "shape": list(meta.shape),
        "data_type": to_v3(meta.data_type),
        "chunk_grid": _grid_to_json(meta.grid),
        "chunk_key_encoding": {"name": meta.keys.name, "configuration": {"separator": meta.keys.separator}},
        "fill_value": fill_to_json(meta.fill_value, meta.data_type, 3),
        "codecs": [codec.to_json() for codec in meta.codecs],
        "attributes": dict(meta.attributes),
    }
    if meta.dimension_names is not None:
        document["dimension_names"] = list(meta.dimension_names)
    return {**document, **meta.extra}


def _parse_array(document: Mapping[str, Any], what: str) -> ArrayMeta:
    shape = integers(require(document, "shape", what), "shape", what, low=0)
    transformers = document.get("storage_transformers")
    if transformers is not None and not isinstance(transformers, list):
        raise MetadataError(f"{what}: field 'storage_transformers' must be a list or null, got {transformers!r}")
    if transformers:
        names = ", ".join(repr(t.get("name", t) if isinstance(t, dict) else t) for t in transformers)
        raise MetadataError(f"{what}: storage transformer {names} is not supported; gzarr cannot read this array")
    types, fill, chain = (require(document, field, what) for field in ("data_type", "fill_value", "codecs"))
    try:
        data_type, fill_value, codecs = _elements_once(types, fill, chain)
    except MetadataError as error:
        raise type(error)(f"{what}: {error}") from error
    return ArrayMeta(
        shape=shape,
        data_type=data_type,
        grid=_grid_from_json(require(document, "chunk_grid", what), shape, what),
        keys=_keys_from_json(require(document, "chunk_key_encoding", what), what),
        fill_value=fill_value,
        codecs=codecs,
        attributes=attributes_of(document.get("attributes", {}), what),
        dimension_names=_dimension_names(document.get("dimension_names"), len(shape), what),
        zarr_format=3,
        extra=_extra_fields(document, _ARRAY_FIELDS, what),
    )


def _elements_once(types: Any, fill: Any, chain: Any) -> tuple[DataType, Any, tuple[CodecSpec, ...]]:
    """Data type, fill value and codecs: the same objects for arrays that differ in shape only."""
    try:
        text = json.dumps((types, fill, chain))
    except (RecursionError, TypeError, ValueError):
        return _elements(types, fill, chain)
    return _elements_of(text, registry_state()) if len(text) < _MAX_TEXT else _elements(types, fill, chain)


@lru_cache(maxsize=64)
def _elements_of(text: str, registry: int) -> tuple[DataType, Any, tuple[CodecSpec, ...]]:
    return _elements(*json.loads(text))


def _elements(types: Any, fill: Any, chain: Any) -> tuple[DataType, Any, tuple[CodecSpec, ...]]:
    data_type = from_v3(types)
    return data_type, fill_from_json(fill, data_type, 3), _codecs(chain)


def _codecs(value: Any) -> tuple[CodecSpec, ...]:
    if not isinstance(value, list) or not value:
        raise MetadataError(f"field 'codecs' must be a list of at least one codec, got {value!r}")
    specs = []
    for i, item in enumerate(value):
        try:
            specs.append(parse_codec(item))
        except MetadataError as error:
            raise type(error)(f"codecs[{i}]: {error}") from error
        except RecursionError as error:
            raise MetadataError("field 'codecs' is nested too deep") from error
    return tuple(specs)


def _extra_fields(document: Mapping[str, Any], known: frozenset[str], what: str) -> dict[str, Any]:
    extra = {}
    for field, value in document.items():
        if field in known:
            continue
        if field not in _IGNORABLE and not (isinstance(value, dict) and value.get("must_understand") is False):
            raise MetadataError(
                f"{what}: field {field!r} is not known and must be understood; a newer gzarr may read this node"
            )
        extra[field] = value
    return extra


def _named(value: Any, field: str, what: str) -> tuple[str, Mapping[str, Any]]:
    """An extension point: {"name", "configuration"}, or a bare name."""
    if isinstance(value, str):
        return value, {}
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise MetadataError(f"{what}: field {field!r} must be an object with a 'name', got {value!r}")
    no_others(value, ("name", "configuration", "must_understand"), field, what)
    configuration = value.get("configuration", {})
    if not isinstance(configuration, dict):
        raise MetadataError(f"{what}: field '{field}.configuration' must be an object, got {configuration!r}")
    return value["name"], configuration


def _keys_from_json(value: Any, what: str) -> KeyEncoding:
    name, configuration = _named(value, "chunk_key_encoding", what)
    expect(name, ("default", "v2"), "chunk_key_encoding.name", what)
    no_others(configuration, ("separator",), "chunk_key_encoding.configuration", what)
    separator = configuration.get("separator", "/" if name == "default" else ".")
    expect(separator, ("/", "."), "chunk_key_encoding.configuration.separator", what)
    return KeyEncoding("default" if name == "default" else "v2", separator)


def _dimension_names(value: Any, ndim: int, what: str) -> tuple[str | None, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != ndim or not all(n is None or isinstance(n, str) for n in value):
        raise MetadataError(f"{what}: field 'dimension_names' must be a list of {ndim} names or nulls, got {value!r}")
    return tuple(value)


def _grid_from_json(value: Any, shape: tuple[int, ...], what: str) -> Grid:
    name, configuration = _named(value, "chunk_grid", what)
    if name == "regular":
        field = "chunk_grid.configuration.chunk_shape"
        no_others(configuration, ("chunk_shape",), "chunk_grid.configuration", what)
        return regular_grid(require(configuration, "chunk_shape", what), shape, field, what)
    if name != "rectilinear":
        raise MetadataError(f"{what}: chunk grid {name!r} is not supported; gzarr knows 'regular' and 'rectilinear'")
    no_others(configuration, ("kind", "chunk_shapes"), "chunk_grid.configuration", what)
    expect(configuration.get("kind", "inline"), ("inline",), "chunk_grid.configuration.kind", what)
    field = "chunk_grid.configuration.chunk_shapes"
    axes = require(configuration, "chunk_shapes", what)
    if not isinstance(axes, list) or len(axes) != len(shape):
        raise MetadataError(f"{what}: field {field!r} must list {len(shape)} axes, got {axes!r}")
    return tuple(_axis(extent, lengths, field, what) for extent, lengths in zip(shape, axes, strict=True))


def _axis(extent: int, lengths: Any, field: str, what: str) -> Axis:
    if type(lengths) is int and lengths > 0:
        return RegularAxis(extent, lengths)
    expanded: list[int] = []
    for item in lengths if isinstance(lengths, list) else [None]:
        length, count = item if isinstance(item, list) and len(item) == 2 else (item, 1)
        if type(length) is not int or type(count) is not int or length < 1 or count < 1:
            raise MetadataError(f"{what}: field {field!r} must hold lengths >= 1 or [length, count], got {item!r}")
        if len(expanded) + count > _MAX_VARYING_CHUNKS:
            raise MetadataError(f"{what}: field {field!r} lists more than {_MAX_VARYING_CHUNKS} chunks on an axis")
        expanded += [length] * count
    if not expanded and not extent:
        raise MetadataError(f"{what}: field {field!r} must hold at least one length for every axis")
    if sum(expanded) < extent:
        raise MetadataError(f"{what}: field {field!r}: chunks cover {sum(expanded)} of {extent} elements of an axis")
    return VaryingAxis(extent, tuple(expanded))


def _grid_to_json(grid: Grid) -> dict[str, Any]:
    regular = [axis.length for axis in grid if isinstance(axis, RegularAxis)]
    if len(regular) == len(grid):
        return {"name": "regular", "configuration": {"chunk_shape": regular}}
    shapes = [axis.length if isinstance(axis, RegularAxis) else _run_lengths(axis.lengths) for axis in grid]
    return {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": shapes}}


def _run_lengths(lengths: tuple[int, ...]) -> list[Any]:
    runs = [(length, sum(1 for _ in run)) for length, run in groupby(lengths)]
    return [length if count == 1 else [length, count] for length, count in runs]
