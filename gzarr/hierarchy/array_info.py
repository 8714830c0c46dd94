"""What an array is and occupies: its report, its page in a notebook, its codecs, its digest, its metadata as a view."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from gzarr.codecs.registry import to_numcodecs
from gzarr.display.info import Report, human_size, size_text
from gzarr.dtypes import cast_fill, parse_dtype
from gzarr.errors import ChunkError, CodecError, MetadataError
from gzarr.hierarchy.node import GzarrArray
from gzarr.hierarchy.resizing import objects_stored
from gzarr.indexing.chunking import parse_shape
from gzarr.indexing.grid import Grid, RegularAxis, is_regular, nchunks
from gzarr.metadata.documents import documents, split_codecs
from gzarr.metadata.model import ArrayMeta
from gzarr.storage.wrappers import full_type_name, type_name


def shown_codecs(meta: ArrayMeta) -> tuple[Any, tuple[Any, ...]]:
    """Return filters and compressors as zarr shows them: numcodecs objects in v2, specs in v3."""
    filters, _, compressors = split_codecs(meta)
    if meta.zarr_format == 2:
        return list(map(to_numcodecs, filters)) or None, tuple(map(to_numcodecs, compressors))
    return filters, compressors


def only_compressor(array: GzarrArray) -> Any:
    """Return what `gzarr.Array.compressor` is. Raises TypeError if there are several."""
    _, serializer, compressors = split_codecs(array.metadata)
    if not compressors and serializer is not None and serializer.kind == "any":
        compressors = (serializer,)
    if len(compressors) > 1:
        raise TypeError(f"{array.store_path} has several compressors; use array.compressors")
    return to_numcodecs(compressors[0]) if compressors else None


def n_initialized(array: GzarrArray) -> int:
    """Return the number of chunks that are stored. In a sharded array the index of every shard is read."""
    layout, total = array._io.layout, 0
    for coords in objects_stored(array.metadata, array.store, array.path):
        try:
            total += layout.initialized(array.store, coords)
        except CodecError as error:
            key = layout.key(coords)
            raise ChunkError(str(error), path=str(array.store_path), key=key, codec=error.codec) from error
    return total


def digest_of(array: GzarrArray, hashname: str) -> bytes:
    """Return a hash of the stored chunks and metadata, without decoding them."""
    import hashlib  # few programs ask

    digest = hashlib.new(hashname)
    layout = array._io.layout
    for coords in sorted(objects_stored(array.metadata, array.store, array.path)):
        digest.update(array.store[layout.key(coords)])
    for _, data in sorted(documents(array.metadata, "")):
        digest.update(data)
    return digest.digest()


def array_report(array: GzarrArray) -> Report:
    """Return the report that ``array.info`` shows."""
    meta = array.metadata
    stored = array.nbytes_stored
    return Report(
        [
            *([("Name", f"/{array.path}")] if array.path else []),
            ("Type", "gzarr.Array"),
            ("Zarr format", str(meta.zarr_format)),
            ("Data type", array.metadata.data_type.name),
            ("Shape", str(array.shape)),
            ("Chunk shape", str(array.chunks if is_regular(meta.grid) else array.chunk_sizes)),
            *([("Shard shape", str(array.shards))] if array.shards else []),
            ("Order", array.order),
            ("Read-only", str(array.read_only)),
            *((f"Filter [{i}]", repr(codec)) for i, codec in enumerate(array.filters or ())),
            *([("Serializer", repr(array.serializer))] if array.serializer is not None else []),
            *(("Compressor", repr(codec)) for codec in array.compressors),
            ("Store type", full_type_name(array.store)),
            ("No. bytes", human_size(array.nbytes)),
            ("No. bytes stored", human_size(stored)),
            ("Storage ratio", f"{array.nbytes / stored:.1f}" if stored else "inf"),
            ("Chunks initialized", f"{array.nchunks_initialized}/{array.nchunks}"),
        ]
    )


def array_page(array: GzarrArray) -> str:
    """Return what a notebook shows of an array, as HTML. Asks nothing of the store."""
    from gzarr.display.drawing import draw_grid  # few programs show pages

    meta = array.metadata
    filters, serializer, compressors = split_codecs(meta)
    codecs = [*filters, *([] if serializer is None else [serializer]), *compressors]

    def size(shape: tuple[int, ...]) -> str:
        return f"{shape}, {size_text(prod(shape) * array.itemsize)}" if is_regular(meta.grid) else "several shapes"

    report = Report(
        [
            ("Array", str(array.store_path)),
            ("Shape", f"{array.shape}, {size_text(array.nbytes)}"),
            ("Chunks", f"{array.nchunks} of {size(array.chunks)}"),
            *([("Shards", f"{nchunks(meta.grid)} of {size(array.shards)}")] if array.shards else []),
            ("Data type", array.metadata.data_type.name),
            ("Fill value", str(array.fill_value)),
            ("Codecs", ", ".join(map(repr, codecs)) or "none"),
            ("Device", array.device),
            ("Store", f"{type_name(array.store)}{', read-only' if array.read_only else ''}"),
            ("Format", f"Zarr v{meta.zarr_format}"),
            *([("Axes", ", ".join(map(str, array.dimension_names)))] if array.dimension_names else []),
            *([("Attributes", ", ".join(array.attrs))] if array.attrs else []),
        ]
    )
    drawing = draw_grid(array.shape, boundaries(meta.chunk_grid), boundaries(meta.grid) if array.shards else ())
    return f"<div style='display:flex;gap:24px;align-items:center'>{report._repr_html_()}{drawing}</div>"


def chunk_lengths(grid: Grid) -> tuple[tuple[int, ...], ...]:
    """Return the lengths of the chunks along every axis, within the array."""
    return tuple(tuple(b - a for a, b in pairwise(axis.edges())) for axis in grid)


def boundaries(grid: Grid) -> list[Sequence[int]]:
    """Return the chunk boundaries of every axis, from 0 to the extent or past it: ranges if chunks are regular."""
    return [
        range(0, axis.nchunks * axis.length + 1, axis.length) if isinstance(axis, RegularAxis) else axis.edges()
        for axis in grid
    ]


# -- views -------------------------------------------------------------------------------------------------------------
# The same stored chunks under other metadata, for `gzarr.Array.astype` and `gzarr.Array.view`.


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
