"""Creates arrays, by themselves or in a group, from keywords, completed by those of data or of another array.

Keywords are the fields of `gzarr.hierarchy.options.ArrayOptions`, in the style of zarr 2, zarr-python 3 or h5py.
"""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numcodecs
import numpy as np

from gzarr.chunk_io.prepare import find_shardings
from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.registry import parse_codec, standard
from gzarr.codecs.transpose import TransposeCodec
from gzarr.codecs.vlen import VLenBytesCodec, VLenUTF8Codec
from gzarr.dtypes import cast_fill, parse_dtype
from gzarr.errors import ArrayNotFoundError, ContainsNodeError, GzarrError, MetadataError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.create import found_or_created, new_array
from gzarr.hierarchy.new_metadata import checked_format
from gzarr.hierarchy.node import Node
from gzarr.hierarchy.options import (
    HARMLESS,
    UNSET,
    ArrayOptions,
    OpenedWith,
    given_config,
    given_usage,
    is_default,
    take_open_options,
)
from gzarr.hierarchy.presets import LAYOUT_KEYWORDS, layout_applies
from gzarr.hierarchy.reaching import take_format
from gzarr.hierarchy.values import axis_names
from gzarr.indexing.chunking import parse_shape
from gzarr.indexing.keys import join_path, normalize_path
from gzarr.metadata.conventions import ATTRIBUTE
from gzarr.metadata.documents import split_codecs
from gzarr.metadata.model import ArrayMeta, GroupMeta
from gzarr.storage.base import Store
from gzarr.tensors import from_tensor, is_on_device, numpy_dtype

#: Keywords that give compressors.
_COMPRESSORS = frozenset({"compressor", "compressors"})


def options_from(keywords: Mapping[str, Any]) -> ArrayOptions:
    """Turn keywords, which `gzarr.hierarchy.options.check_keywords` has checked, into `ArrayOptions`."""
    known: dict[str, Any] = {}
    for name, value in keywords.items():
        if name == "chunk_shape":
            if value is not None and known.get("chunks") in (None, True):
                known["chunks"] = value
        elif name == "config":
            known |= given_config(value) | {name: known[name] for name in ("order",) if known.get(name) is not None}
        elif name not in HARMLESS:
            known[name] = value
    if known.get("attributes") is None:
        known.pop("attributes", None)
    return ArrayOptions(**known)


def make(
    store: Store, path: str, opened_with: OpenedWith, *, data: Any = None, overwrite: bool = False, **keywords: Any
) -> Array:
    """Create an array, filled with ``data`` if they are given, which then lend shape, dtype and names of axes.

    With ``write_data=False`` data lend these only. Raises MetadataError, ContainsArrayError,
    ContainsGroupError, ReadOnlyError.
    """
    keywords = without_h5py(keywords)
    options = take_open_options(keywords)
    store, opened_with = options.store(store), options.opened_with(opened_with)
    if data is not None:
        data = from_tensor(data)
        if not hasattr(data, "shape") or not hasattr(data, "dtype"):
            data = _from_python(data, keywords)
        elif not isinstance(data.dtype, np.dtype) and not is_on_device(data):
            data = np.asarray(data)  # of TensorStore or pandas, which have data types of their own
        if keywords.get("shape") is None:
            keywords["shape"] = data.shape
        if keywords.get("dtype") is None:
            keywords["dtype"] = dtype_of(data, keywords)
    filling, names = data if keywords.pop("write_data", True) else None, _text_names(data)
    read_only = bool(keywords.pop("read_only", False))
    array = new_array(store, path, options_from(keywords), opened_with, data=filling, names=names, overwrite=overwrite)
    if not read_only:
        return array
    empty_too = array.write_empty_chunks
    return Array(store, path, array.metadata, opened_with, read_only=True, write_empty_chunks=empty_too)


def like(template: Any, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords that make an array like another; keywords that are given take precedence.

    ``template`` is a gzarr array, anything with shape and dtype, or a sequence.
    """
    if not hasattr(template, "shape") or not hasattr(template, "dtype"):
        template = np.asarray(template)
    defaults: dict[str, Any] = {"shape": template.shape, "dtype": template.dtype}
    names = _text_names(template) if keywords.get("shape") is None else ()
    if names and checked_format(keywords.get("zarr_format")) == 3:
        defaults["dimension_names"] = names
    elif names and None not in names:
        defaults["attributes"] = {ATTRIBUTE: list(names)}
    has_layout = layout_applies(keywords, template.dtype)
    if isinstance(template, Array):
        defaults |= _of_array(template, keywords, has_layout=has_layout)
        defaults = _without_overridden(defaults, keywords)
    elif getattr(template, "chunks", None) is not None:
        defaults["chunks"] = template.chunks
    if has_layout:
        defaults = {k: v for k, v in defaults.items() if k not in LAYOUT_KEYWORDS}
    given = {k: v for k, v in keywords.items() if v is not UNSET and (k, v) != ("zarr_format", None)}
    return {**defaults, **given}


def _of_array(array: Array, keywords: Mapping[str, Any], *, has_layout: bool) -> dict[str, Any]:
    """Return keywords that make an array with the chunks, codecs and data type of another, in its format."""
    meta = array.metadata
    made: dict[str, Any] = {
        "chunks": list(array.chunk_sizes) if any(hasattr(a, "lengths") for a in meta.grid) else array.chunks,
        "fill_value": meta.fill_value,
        "order": array.order,
        "zarr_format": meta.zarr_format,
        "dimension_names": meta.dimension_names,
        "dtype": "string" if meta.data_type.variable == "string" else array.dtype,
        "write_empty_chunks": array.write_empty_chunks,
    }
    if meta.sharding is not None:
        made["shards"] = {"shape": meta.object_shape, "index_location": meta.sharding.index_location}
    if meta.data_type.variable == "bytes":
        made["dtype"] = "variable_length_bytes"
    if keywords.get("zarr_format") not in (None, meta.zarr_format):
        made |= _codecs_of_other_format(meta, recompressed=has_layout or not keywords.keys().isdisjoint(_COMPRESSORS))
    elif meta.zarr_format == 2:
        made |= {"filters": array.filters, "compressor": array.compressor}
        made["dimension_separator"] = meta.keys.separator
    else:
        if {"compressor", "compressors", "filters"} & keywords.keys() or has_layout:
            innermost = replace(meta, codecs=find_shardings(meta.codecs, len(meta.shape))[1])
            filters, serializer, compressors = split_codecs(innermost)
            made |= {"filters": filters, "serializer": serializer, "compressors": compressors}
        else:
            made["codecs"] = meta.codecs if meta.sharding is None else meta.sharding.codecs
        made["chunk_key_encoding"] = {"name": meta.keys.name, "separator": meta.keys.separator}
    return made


def _text_names(data: Any) -> tuple[str | None, ...]:
    """Return the names of the axes of data, None for those without. Raises MetadataError for names that are no text."""
    names = axis_names(data) or getattr(data, "dimension_names", None) or ()  # of xarray, or of arrays and views
    if all(isinstance(name, str | None) for name in names):
        return tuple(names) if any(names) else ()
    raise MetadataError(f"dimension_names: the data's axes have names that are no text, {names}; rename them")


def _without_overridden(defaults: dict[str, Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Drop what does not fit the keywords given: codecs of another dtype, format or shape."""
    drop: set[str] = set()
    if {"serializer", "codecs", "dtype"} & keywords.keys():
        drop |= {"codecs", "filters", "serializer", "compressor", "compressors"}
    if not keywords.keys().isdisjoint(_COMPRESSORS):
        drop |= _COMPRESSORS
    if keywords.get("zarr_format") not in (None, defaults["zarr_format"]):
        drop |= {"shards", "dimension_names"}
    if "shape" in keywords and len(np.atleast_1d(keywords["shape"])) != len(defaults["shape"]):
        drop |= {"dimension_names", "chunks", "shards"}
    if "dtype" in keywords and not _is_fill_of(defaults["fill_value"], keywords["dtype"]):
        drop.add("fill_value")
    if "chunks" in keywords and "shards" not in keywords:
        drop.add("shards")
    return {k: v for k, v in defaults.items() if k not in drop}


def _is_fill_of(value: Any, dtype: Any) -> bool:
    """Return whether a data type has a fill value, so that an array of that type can keep it."""
    try:
        kept = cast_fill(value, parse_dtype(dtype))
        return value is not None and bool(kept == value or kept != kept)  # noqa: PLR0124 - NaN
    except (GzarrError, TypeError, ValueError):
        return False


def _codecs_of_other_format(meta: ArrayMeta, *, recompressed: bool) -> dict[str, Any]:
    """Return filters, compressors and what v2 has in the data type, byte order, as keywords for the other format.

    In v2, all compressors but the last are filters, unless others are given (``recompressed``). Nothing is returned,
    which means its defaults, where the other format cannot have them.
    """
    filters, serializer, compressors = split_codecs(meta)
    others = [spec for spec in filters if not isinstance(spec, TransposeCodec)]  # the keyword "order" stands for it
    if serializer is not None and not isinstance(serializer, BytesCodec | VLenUTF8Codec | VLenBytesCodec):
        compressors = (serializer, *compressors)
    if meta.zarr_format == 3:
        try:
            for spec in (*others, *compressors):
                spec.to_v2()
        except MetadataError:
            return {}
        others += () if recompressed else compressors[:-1]
        compressors = compressors[-1:]
    else:
        others, compressors = list(map(standard, others)), tuple(map(standard, compressors))
    order = getattr(serializer, "endian", None) if meta.data_type.dtype.isbuiltin == 1 else None
    dtype = {"dtype": meta.data_type.dtype.newbyteorder(order)} if order == "big" else {}
    return {"filters": others or None, "compressors": list(compressors), **dtype}


def _from_python(data: Any, keywords: Mapping[str, Any]) -> Any:
    """Turn lists and scalars into an array, of the dtype asked for if NumPy has it."""
    dtype = keywords.get("dtype")
    if getattr(keywords.get("object_codec"), "codec_id", "") == "vlen-array" or str(dtype).startswith("array:"):
        return _ragged(data)
    if dtype in (str, bytes) or keywords.get("object_codec") is not None:
        dtype = object
    try:
        return np.asarray(data, dtype)
    except TypeError:  # a Zarr data type name that NumPy does not know
        return np.asarray(data)


def _ragged(data: Any) -> np.ndarray[Any, Any]:
    """Turn a sequence of sequences into an array of arrays, even if all have one length."""
    rows = np.empty(len(data), object)
    for i, row in enumerate(data):
        rows[i] = np.asarray(row)
    return rows


def dtype_of(data: Any, keywords: Mapping[str, Any]) -> Any:
    """Return the dtype of an array made from data: text and bytes are recognized in arrays of objects."""
    dtype = numpy_dtype(data.dtype)
    if dtype.kind == "O" and isinstance(data, Array):
        return {"string": str, "bytes": bytes}.get(data.metadata.data_type.variable, object)
    if dtype.kind == "O" and keywords.get("object_codec") is None and isinstance(data, np.ndarray):
        sample = data.reshape(-1)[:1000].tolist()
        for kind in (str, bytes):
            if sample and all(isinstance(item, kind) for item in sample):
                return kind
    return dtype


#: Keywords that say how HDF5 stores a dataset, and mean nothing for Zarr.
_IGNORED = ("shuffle", "fletcher32", "scaleoffset", "track_times", "track_order")
NAMES = frozenset({"compression", "compression_opts", "fillvalue", *_IGNORED})


def without_h5py(keywords: dict[str, Any]) -> dict[str, Any]:
    """Return keywords of a new array, those of h5py replaced by those of gzarr.

    Warns of what is ignored, as zarr 2 does. Raises MetadataError for a compressor that is not known.
    """
    if NAMES.isdisjoint(keywords):
        return keywords
    known = {name: value for name, value in keywords.items() if name not in NAMES}
    if "fillvalue" in keywords:
        known["fill_value"] = keywords["fillvalue"]
    ignored = [name for name in _IGNORED if keywords.get(name)]
    if all(is_default(known.get(name, "default")) for name in ("compressor", "compressors", "codecs")):
        if "compression" in keywords:
            known["compressor"] = _compressor(keywords["compression"], keywords.get("compression_opts"))
        elif keywords.get("compression_opts") is not None:
            raise MetadataError("compression_opts goes with compression=, which was not given")
    else:
        ignored += [name for name in ("compression", "compression_opts") if name in keywords]
    for name in ignored:
        warnings.warn(f"ignoring keyword argument {name!r}", UserWarning, stacklevel=2)
    return known


def _compressor(compression: Any, opts: Any) -> Any:
    """Return the codec that h5py's ``compression`` and ``compression_opts`` mean."""
    if compression is None or compression in ("none", "default"):
        return None if compression != "default" else compression
    if isinstance(compression, int):
        compression, opts = "gzip", int(compression)  # h5py: the level of gzip
    if not isinstance(compression, str):
        return compression
    if isinstance(opts, dict):
        return parse_codec({"id": compression, **opts})
    if isinstance(opts, tuple):  # the arguments of the codec's class
        return type(numcodecs.get_codec({"id": compression}))(*opts)
    return parse_codec(compression if opts is None else f"{compression}:{opts}")


def new_member(group: Node[GroupMeta], name: str, data: Any, keywords: dict[str, Any]) -> Array:
    """Create an array in a group, which has its format and device."""
    group.check_metadata_writable()
    given = {**keywords}
    given.pop("device", None)
    asked, zarr_format = take_format(given.pop("zarr_format", None), given), group.metadata.zarr_format
    if asked not in (None, zarr_format):
        raise MetadataError(
            f"{group.store_path} has format {zarr_format} and cannot contain zarr_format={asked!r}; leave it out"
        )
    path = member_path(group, name)
    return make(group.store, path, group.opened_with, data=data, zarr_format=zarr_format, **given)


def require_member(
    group: Node[GroupMeta], name: str, shape: Any, dtype: Any, keywords: dict[str, Any], *, exact: bool
) -> Array:
    """Open the array with a name, creating it if it is missing. Raises TypeError if it has another shape or type."""
    path, given = member_path(group, name), {"shape": shape, "dtype": dtype, **keywords}
    create = partial(new_member, group, name, None, given)
    found = found_or_created(group.store, path, group.metadata.zarr_format, ArrayNotFoundError, create)
    if isinstance(found, Array):
        return found
    if isinstance(found, GroupMeta):
        raise ContainsNodeError(f"a group, not an array, is stored at {join_path(str(group.store), path)!r}")
    usage = given_usage(keywords)
    array = Array(group.store, path, found, group.opened_with, read_only=group._read_only, **usage)
    wanted = parse_shape(shape)
    if array.shape != wanted:
        raise TypeError(f"the existing array has shape {array.shape}, not {wanted}")
    asked = np.dtype(dtype or "f8")
    if asked != array.dtype and (exact or not np.can_cast(asked, array.dtype)):
        cast = "differ exactly" if exact else "cannot be safely cast"
        raise TypeError(f"dtypes ({asked}, {array.dtype}) {cast}: existing array {array.store_path}")
    return array


def like_member(group: Node[GroupMeta], template: Any, keywords: dict[str, Any]) -> dict[str, Any]:
    """Return keywords that make a member like another array, in the format of the group."""
    return like(template, {"zarr_format": group.metadata.zarr_format, **keywords})


def path_from(group: Node[GroupMeta], name: str) -> str:
    """Return the path of what has a name, or a path from a group."""
    if not isinstance(name, str):
        raise TypeError(f"names of members are strings, got {name!r}")
    path = normalize_path(name)
    if name.startswith("/") and group.metadata.zarr_format == 2:  # as zarr 2 and h5py have it; zarr-python 3 has not
        return path
    return join_path(group.path, path)


def member_path(group: Node[GroupMeta], name: str) -> str:
    """Return the path of a member of a group. Raises KeyError for what names the group itself."""
    path = path_from(group, name)
    if not path or path == group.path:
        raise KeyError(f"{name!r} is not a name for a member of {group.store_path}")
    return path
