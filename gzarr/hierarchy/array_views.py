"""The same stored chunks under other metadata: for `gzarr.Array.astype` and `gzarr.Array.view`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gzarr.dtypes import cast_fill, parse_dtype
from gzarr.errors import MetadataError
from gzarr.hierarchy.node import GzarrArray
from gzarr.indexing.chunking import parse_shape
from gzarr.metadata.model import ArrayMeta


def casting_dtype(array: GzarrArray, dtype: Any) -> np.dtype[Any]:
    """Return the data type that reads of a view are cast to. Raises MetadataError if they cannot be."""
    wanted = parse_dtype(dtype)
    if wanted.variable != array.metadata.data_type.variable:
        raise MetadataError(f"{array.store_path}: cannot cast {array.dtype} to {dtype!r}; give a dtype of fixed size")
    return wanted.dtype


def view_metadata(
    array: GzarrArray,
    shape: tuple[int, ...] | None,
    chunks: tuple[int, ...] | None,
    dtype: Any,
    fill_value: Any,
    *,
    read_only: bool | None,
) -> ArrayMeta:
    """Return the metadata of a view. Raises MetadataError if the chunks cannot be seen that way."""
    meta: ArrayMeta = array.metadata
    if shape is not None and read_only is False:
        raise MetadataError(
            f"{array.store_path}: a view with another shape is read-only; resize the array, or leave shape out"
        )
    if chunks is not None and tuple(chunks) != array.chunks:
        raise MetadataError(
            f"{array.store_path}: a view cannot have chunks {tuple(chunks)} instead of {array.chunks}; copy the array"
        )
    if shape is not None:
        meta = meta.resized(parse_shape(shape, array.ndim))
    if dtype is not None:
        data_type = parse_dtype(dtype)
        if data_type.dtype.itemsize != array.itemsize or data_type.dtype.hasobject != array.dtype.hasobject:
            raise MetadataError(
                f"{array.store_path}: a view needs a dtype of {array.itemsize} bytes, got {data_type.dtype}"
            )
        if data_type.dtype.isnative != array.dtype.isnative and array.itemsize > 1:
            raise MetadataError(
                f"{array.store_path}: a view needs the byte order of {array.dtype}, got {data_type.dtype}"
            )
        fill = fill_value
        if fill is None and meta.fill_value is not None:
            fill = np.asarray(meta.fill_value, meta.data_type.dtype).view(data_type.dtype)[()]
        meta = replace(meta, data_type=data_type, fill_value=fill)
    if fill_value is not None:
        meta = replace(meta, fill_value=cast_fill(fill_value, meta.data_type))
    return meta
