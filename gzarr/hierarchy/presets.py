"""Chooses chunks, shards and a compressor for arrays that a GPU will read: what ``layout="gpu"`` means.

A GPU decodes many small streams at once, one block of threads each, and wants thousands of them. So chunks are small,
and they are in shards, because otherwise they would become as many objects. The compressor is Blosc with LZ4 and a byte
shuffle, in streams of 64 KiB: every Zarr reader has it, LZ4 needs no scratch memory on the device, and the shuffle is
undone while chunks are placed in the result. Zarr v2 has no shards: its chunks are larger, with small streams in them.

Shapes result from halving the longest axis until a chunk is small enough. They are near-cubic, so that no axis is worse
to cut than another, and nearly divide the extents, so that edges need little padding. Source of the sizes: nvCOMP's
guide (streams of 64 KiB), and the index of a shard, which takes 16 bytes per chunk.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np

from gzarr.codecs.compressors import BloscCodec
from gzarr.codecs.registry import parse_codec
from gzarr.devices import gpu_has_dtype
from gzarr.dtypes import parse_dtype
from gzarr.errors import MetadataError
from gzarr.hierarchy.options import ArrayOptions, as_list, is_default
from gzarr.indexing.chunking import is_rectilinear, parse_chunks, parse_grid

#: How an array is read; see `gzarr.advising.access`.
AccessPattern: TypeAlias = Literal["batch", "plane", "volume", "random"]
ACCESS_PATTERNS: tuple[AccessPattern, ...] = ("batch", "plane", "volume", "random")

#: Decoded bytes of the largest chunk in a shard; the smallest has nearly half as many.
CHUNK_NBYTES = 256 << 10
#: The same for reads that need little of a chunk, so that they decode less unnecessarily.
SMALL_CHUNK_NBYTES = 128 << 10
#: Below this, the index entry and the tables of a chunk begin to cost time.
LEAST_CHUNK_NBYTES = 64 << 10
#: Zarr v2 chunks are objects of their own: four times the size, so a terabyte is a million objects, not four.
PLAIN_FACTOR = 4
#: Decoded bytes of the largest shard: a shard is rewritten whole, and its writer holds it in memory.
SHARD_NBYTES = 32 << 20
#: Decoded bytes of a stream. c-blosc 1.21 splits blocks of elements of up to 16 bytes into a stream for each of these
#: bytes, and makes such blocks as many times longer than it is asked to.
STREAM_NBYTES = 64 << 10
#: What a layout chooses itself in an array that is made like another.
LAYOUT_KEYWORDS = frozenset({"chunks", "shards", "compressor", "compressors"})
#: Stands for the extent of an axis that is empty and will be appended to.
_UNKNOWN_EXTENT = 1 << 30


def apply_layout(options: ArrayOptions, shape: tuple[int, ...], dtype: np.dtype[Any], *, sharded: bool) -> ArrayOptions:
    """Return options with what their ``layout`` chooses, wherever they leave the choice open.

    Arrays that no GPU can have (strings, objects, times, bytes) stay as they are without a layout: the host reads them.

    ``sharded`` says whether the format has shards. Raises MetadataError for an unknown layout, and for chunks or codecs
    that do not fit the layout.
    """
    if options.layout is None:
        return options
    access = _access(options.layout)
    if not is_for_gpu(dtype):
        return replace(options, layout=None)
    if sharded and options.shards is not False:
        _check_addressable(options)
    chunks, shards = _shapes(options, shape, max(dtype.itemsize, 1), access, sharded=sharded)
    options = replace(options, layout=None, chunks=chunks, shards=shards)
    if all(is_default(v) for v in (options.compressor, options.compressors, options.codecs)):
        options = replace(options, compressors=[gpu_compressor()])
    return options


def _access(layout: Any) -> AccessPattern | None:
    """Return the access pattern that a layout is for. Raises MetadataError for an unknown layout."""
    for access in (None, *ACCESS_PATTERNS):
        if layout == ("gpu" if access is None else f"gpu:{access}"):
            return access
    raise MetadataError(
        f"layout must be 'gpu', {', '.join(repr('gpu:' + a) for a in ACCESS_PATTERNS)} or None, got {layout!r}"
    )


def layout_applies(keywords: Mapping[str, Any], dtype: Any) -> bool:
    """Return whether keywords have a layout that applies to an array made like another one with a dtype."""
    if keywords.get("layout") is None:
        return False
    _access(keywords["layout"])
    return is_for_gpu(parse_dtype(dtype if keywords.get("dtype") is None else keywords["dtype"]).dtype)


def is_for_gpu(dtype: np.dtype[Any]) -> bool:
    """Return whether a GPU decodes elements of a dtype: numbers, and records with a field of them."""
    if dtype.names is not None:
        return any(is_for_gpu(dtype[name]) for name in dtype.names)
    return gpu_has_dtype(dtype.base)


def gpu_compressor() -> BloscCodec:
    """Return Blosc with LZ4 and a byte shuffle, in streams of at most 64 KiB: what c-blosc makes of its block size."""
    return BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", blocksize=STREAM_NBYTES)


def choose_chunks(
    shape: Sequence[int], itemsize: int, *, access: AccessPattern | None = None, sharded: bool = True
) -> tuple[int, ...]:
    """Choose a chunk shape for a GPU.

    ``access`` says what to favour: "batch" keeps samples (indices of axis 0) apart, "plane" and "random" want smaller
    chunks, None and "volume" favour nothing. ``sharded`` says whether chunks will be in shards.
    """
    factor = 1 if sharded else PLAIN_FACTOR
    chunk = [n if n > 0 else _UNKNOWN_EXTENT for n in shape]
    limit = (SMALL_CHUNK_NBYTES if access in ("plane", "random") else CHUNK_NBYTES) * factor
    if access == "batch" and chunk:
        rest = math.prod(chunk[1:]) * itemsize
        chunk[0] = min(max(LEAST_CHUNK_NBYTES * factor // max(rest, 1), 1), chunk[0])
    return tuple(halved(chunk, limit // itemsize))


def choose_shards(shape: Sequence[int], chunks: Sequence[int], itemsize: int) -> tuple[int, ...] | None:
    """Choose a shard shape in whole chunks, near-cubic; None if one chunk holds the whole array."""
    counts = [-(-n // c) if n > 0 else _UNKNOWN_EXTENT for n, c in zip(shape, chunks, strict=True)]
    if math.prod(counts) <= 1:
        return None
    counts = halved(counts, max(SHARD_NBYTES // max(math.prod(chunks) * itemsize, 1), 1))
    return tuple(c * n for c, n in zip(chunks, counts, strict=True)) if max(counts) > 1 else None


def halved(lengths: list[int], most: int) -> list[int]:
    """Return lengths of which the longest was halved until their product is small enough."""
    while math.prod(lengths) > most and max(lengths) > 1:
        longest = lengths.index(max(lengths))
        lengths[longest] = -(-lengths[longest] // 2)
    return lengths


def _shapes(
    options: ArrayOptions, shape: tuple[int, ...], itemsize: int, access: AccessPattern | None, *, sharded: bool
) -> tuple[Any, Any]:
    """Return (chunks, shards): those given, and what suits them. Raises MetadataError."""

    def choice(*, sharded: bool) -> tuple[int, ...]:
        return choose_chunks(shape, itemsize, access=access, sharded=sharded)

    chunks, shards = options.chunks, options.shards
    free = chunks is None or _is_auto(chunks)
    if shards is False or (shards is None and not sharded):
        return choice(sharded=False) if free else chunks, None
    if shards is not None and not _is_auto(shards):
        return _chunks_dividing(shards, shape, itemsize) if free else chunks, shards
    if not sharded:
        return chunks, shards  # the format refuses them
    if not free and is_rectilinear(chunks):
        raise MetadataError(
            f"layout='gpu' puts chunks of one shape into shards, but chunks={chunks!r} vary: leave out one of the two, "
            "or pass shards=False"
        )
    inner = choice(sharded=True) if free else parse_chunks(chunks, shape, itemsize)
    return inner, choose_shards(shape, inner, itemsize)


def _is_auto(value: Any) -> bool:
    """Return whether a value of ``chunks=`` or ``shards=`` asks for a choice."""
    return value is True or (isinstance(value, str) and value == "auto")


def _chunks_dividing(shards: Any, shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return chunks that divide given shards, on each axis all of them."""
    grid, _ = parse_grid(shards["shape"] if isinstance(shards, dict) else shards, None, shape, itemsize)
    chunk = [math.gcd(*getattr(axis, "lengths", (axis.bounds(0)[1],))) for axis in grid]
    while math.prod(chunk) * itemsize > CHUNK_NBYTES and max(chunk) > 1:
        longest = chunk.index(max(chunk))
        chunk[longest] //= _smallest_factor(chunk[longest])
    return tuple(chunk)


def _smallest_factor(n: int) -> int:
    return next((d for d in range(2, math.isqrt(n) + 1) if n % d == 0), n)


def _check_addressable(options: ArrayOptions) -> None:
    """Refuse shards within the shards that the layout makes."""
    for name in ("codecs", "serializer", "filters"):
        given = getattr(options, name)
        for codec in [] if is_default(given) else as_list(given):
            if parse_codec(codec).name == "sharding_indexed":
                raise MetadataError(
                    f"layout='gpu' puts chunks into shards itself, but {name} has 'sharding_indexed': "
                    "leave out one of the two"
                )
