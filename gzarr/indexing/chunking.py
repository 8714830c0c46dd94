"""Shapes of arrays and of chunks: what users write for ``shape=``, ``chunks=`` and ``shards=``, or a guess for chunks.

Numbers are what NumPy takes for a shape: anything with ``__index__``, so that no float is cut off; not bools.

Source: the guess is h5py's rule as zarr tuned it (targets grow with the array from 128 KiB to 64 MiB), so that arrays
made without ``chunks=`` have the chunks that zarr-python would give them.
"""

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

from gzarr.errors import MetadataError
from gzarr.indexing.grid import Axis, Grid, RegularAxis, VaryingAxis

_BASE_NBYTES = 256 * 1024
_MIN_NBYTES = 128 * 1024
_MAX_NBYTES = 64 * 1024 * 1024
#: Size that ``shards="auto"`` aims at: large enough for few objects, small enough to rewrite.
_SHARD_NBYTES = 64 * 1024 * 1024


def parse_shape(shape: Any, ndim: int | None = None) -> tuple[int, ...]:
    """The extents that an int or a sequence of ints means. ndim: how many there must be. Raises: MetadataError."""
    if shape is None:
        raise MetadataError("shape is missing: pass shape=..., or data=...")
    items = (shape,) if _is_int(shape) or not _is_sequence(shape) else tuple(shape)
    if not all(_is_int(n) and n >= 0 for n in items) or len(items) != (len(items) if ndim is None else ndim):
        expected = "shape must be ints >= 0" if ndim is None else f"a shape of {ndim} extents >= 0 is needed"
        raise MetadataError(f"{expected}, got {shape!r}")
    return tuple(map(operator.index, items))


def guess_chunks(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """A chunk shape for an array: axes are halved in turn until a chunk is near the target size."""
    chunks = [max(int(n), 1) for n in shape]
    if not chunks:
        return ()
    itemsize = max(itemsize, 1)
    megabytes = math.prod(chunks) * itemsize / (1024 * 1024)
    target = min(max(_BASE_NBYTES * 2 ** math.log10(megabytes), _MIN_NBYTES), _MAX_NBYTES)
    axis = 0
    while math.prod(chunks) > 1:
        size = math.prod(chunks) * itemsize
        if size < _MAX_NBYTES and (size < target or abs(size - target) / target < 0.5):
            break
        chunks[axis % len(chunks)] = math.ceil(chunks[axis % len(chunks)] / 2)
        axis += 1
    return tuple(chunks)


def parse_chunks(chunks: Any, shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The chunk shape that a user's ``chunks=`` means.

    chunks: None, True or "auto" for a guess; False or -1 for one chunk; an int for every axis; a sequence of ints for
        all axes, in which None or -1 mean the whole axis.
    Raises: MetadataError.
    """
    if chunks is None or chunks is True or (isinstance(chunks, str) and chunks == "auto"):
        return guess_chunks(shape, itemsize)
    if chunks is False:
        chunks = -1
    if _is_int(chunks):
        chunks = (chunks,) * len(shape)
    if not _is_sequence(chunks):
        raise MetadataError(f"chunks must be an int, a tuple of ints, True, False, None or 'auto', got {chunks!r}")
    lengths = list(chunks)
    if len(lengths) != len(shape):
        filled = (*lengths, *[-1] * (len(shape) - len(lengths)))
        remedy = f"; use {filled}: -1 stands for a whole axis" if len(lengths) < len(shape) else ""
        raise MetadataError(
            f"chunks {tuple(lengths)} have {len(lengths)} dimensions, the shape {shape} has {len(shape)}{remedy}"
        )
    return tuple(_length(n, extent, lengths) for n, extent in zip(lengths, shape, strict=True))


def parse_grid(chunks: Any, shards: Any, shape: tuple[int, ...], itemsize: int) -> tuple[Grid, tuple[int, ...] | None]:
    """The grid of stored objects, and the shape of the chunks within them if they are shards.

    chunks: as for `parse_chunks`, or for every axis a list of chunk lengths (a rectilinear grid).
    shards: None, a shape, a list of shard lengths for every axis, {"shape": ...}, or "auto".
    Raises: MetadataError.
    """
    if isinstance(shards, dict):
        shards = shards.get("shape")
    if shards is None or shards is False:
        if is_rectilinear(chunks):
            return _varying(chunks, shape, "chunks"), None
        return _regular(shape, parse_chunks(chunks, shape, itemsize)), None
    if is_rectilinear(shards):
        inner = parse_chunks(chunks, shape, itemsize)
        return _varying(shards, shape, "shards"), inner
    if shards is True or (isinstance(shards, str) and shards == "auto"):
        inner = parse_chunks(chunks, shape, itemsize)
        return _regular(shape, _guess_shards(inner, shape, itemsize)), inner
    outer = parse_chunks(shards, shape, itemsize)
    if chunks is None or chunks is True or (isinstance(chunks, str) and chunks == "auto"):
        guess = guess_chunks(outer, itemsize)
        inner = tuple(_divisor_near(n, g) for n, g in zip(outer, guess, strict=True))
    else:
        inner = parse_chunks(chunks, outer, itemsize)
    bad = [axis for axis, (n, c) in enumerate(zip(outer, inner, strict=True)) if n % c]
    if bad:
        raise MetadataError(
            f"shards {outer} are not whole multiples of chunks {inner} on axis {bad[0]}; "
            f"use for instance {tuple(-(-n // c) * c for n, c in zip(outer, inner, strict=True))}"
        )
    return _regular(shape, outer), inner


def _is_int(value: Any) -> bool:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return False
    try:
        operator.index(value)
    except TypeError:  # an array, or one of floats without axes
        return False
    return True


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes)) and getattr(value, "ndim", 1) > 0


def _length(value: Any, extent: int, given: list[Any]) -> int:
    if value is None or (_is_int(value) and operator.index(value) == -1):
        return max(extent, 1)
    if not _is_int(value) or operator.index(value) < 1:
        raise MetadataError(f"chunk lengths must be ints >= 1 (None or -1 for a whole axis), got {value!r} in {given}")
    return operator.index(value)


def _regular(shape: tuple[int, ...], lengths: tuple[int, ...]) -> Grid:
    return tuple(RegularAxis(extent, length) for extent, length in zip(shape, lengths, strict=True))


def is_rectilinear(chunks: Any) -> bool:
    """Return whether chunks are given as lengths for every axis."""
    return isinstance(chunks, (list, tuple)) and any(isinstance(item, (list, tuple)) for item in chunks)


def _varying(axes: Sequence[Any], shape: tuple[int, ...], what: str) -> Grid:
    if len(axes) != len(shape):
        raise MetadataError(f"{what} {axes!r} list {len(axes)} axes, the shape {shape} has {len(shape)}")
    grid: list[Axis] = []
    for number, (lengths, extent) in enumerate(zip(axes, shape, strict=True)):
        if not isinstance(lengths, (list, tuple)):
            grid.append(RegularAxis(extent, _length(lengths, extent, list(axes))))
            continue
        if not lengths or not all(_is_int(n) and n >= 1 for n in lengths) or sum(map(operator.index, lengths)) < extent:
            raise MetadataError(
                f"{what} of axis {number} must be ints >= 1 that cover its {extent} elements, got {list(lengths)}"
            )
        grid.append(VaryingAxis(extent, tuple(map(operator.index, lengths))))
    return tuple(grid)


def _guess_shards(chunks: tuple[int, ...], shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Whole multiples of the chunks, doubled axis by axis up to the target size and the array's extent."""
    shards = list(chunks)
    grew = True
    while grew:
        grew = False
        for axis, extent in enumerate(shape):
            doubled = math.prod(shards) * 2 * max(itemsize, 1)
            if shards[axis] < extent and doubled <= _SHARD_NBYTES:
                shards[axis] *= 2
                grew = True
    return tuple(shards)


def _divisor_near(n: int, target: int) -> int:
    """The largest divisor of ``n`` that is not above ``target``."""
    return max(d for d in range(1, min(target, n) + 1) if n % d == 0)
