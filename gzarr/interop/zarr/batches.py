"""Turns a batch of zarr-python, with an entry for each chunk, back into one selection.

Theory of operation. An entry is (place of the chunk, its spec, selectors within the chunk, selectors within the result,
whether the chunk is taken whole). zarr-python makes batches of its indexers: the product of one list of selectors per
axis, in C order of the chunks, or points sorted by chunk. Of a product, the entries that begin each axis say
everything.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gzarr.errors import GzarrError
from gzarr.indexing.grid import Axis, Grid
from gzarr.indexing.keys import Coords
from gzarr.indexing.selection import Box, Indices, Points, Range, Selection

Batch: TypeAlias = list[Any]
#: An entry of a batch, and the coordinates of its chunk.
Entry: TypeAlias = tuple[Any, Coords]
#: From the key of a chunk to the path of its array and the coordinates of the chunk.
Split: TypeAlias = Callable[[str], tuple[str, Coords]]


class NotHandledError(GzarrError):
    """gzarr leaves something to zarr-python."""


class Taken(NamedTuple):
    """What a batch takes.

    Attributes
    ----------
    path : str
        Path of the array in its store.
    selection : Selection
        What is taken of it.
    view : tuple or None
        Index that gives an array of zarr-python an axis per axis of the array; None if it has them.
    lasts : Coords
        Coordinate of the last chunk of every axis.
    ends : tuple of (int or None)
        For every axis the extent of the array if the last chunk reaches past it and is taken whole; None otherwise.
    """

    path: str
    selection: Selection
    view: tuple[Any, ...] | None
    lasts: Coords
    ends: tuple[int | None, ...]


def take(
    batch: Batch, split: Split, grid: Grid, drop_axes: Sequence[int], shape: Coords, *, writing: bool = True
) -> Taken:
    """Return what a batch takes.

    shape: of the result or value; () for a scalar value. writing: whether it matters where the array ends.
    Raises: NotHandledError.
    """
    if not isinstance(batch[0][3], tuple):
        return _points(batch, split, grid, shape)
    inside = batch[0][2]
    if not isinstance(inside, tuple) or len(inside) != len(grid):
        raise NotHandledError("selectors of another number of axes")
    dropped = [isinstance(s, int | np.integer) for s in inside]
    for number in drop_axes:
        dropped[number] = True
    path, members, counts = _members(batch, split)
    axes: list[Range | Indices] = []
    lasts, ends = [], []
    for i, (axis, entries) in enumerate(zip(grid, members, strict=True)):
        place = None if dropped[i] else i - sum(dropped[:i])
        axes.append(_taken(axis, i, entries, place))
        lasts.append(max(coords[i] for _, coords in entries))
        is_range = isinstance(axes[-1], Range)
        ends.append(_end(axes[-1], axis, lasts[-1]) if is_range and writing else None)
    sizes = tuple([a.size for a in axes])
    if shape != () and shape != tuple([size for size, drop in zip(sizes, dropped, strict=True) if not drop]):
        raise NotHandledError(f"an array of shape {shape} for a selection of {sizes}")
    return Taken(path, Box(tuple(axes), sizes, None), _view(dropped), tuple(lasts), _known(batch, counts, ends))


def _members(batch: Batch, split: Split) -> tuple[str, list[list[Entry]], list[int]]:
    """Return the path, and for every axis the entries that differ from the first in that axis alone; and their number.

    Each entry comes with the coordinates of its chunk.
    """
    path, first = split(batch[0][0].path)
    members: list[list[Entry]] = []
    stride = 1
    for i in reversed(range(len(first))):
        entries = [(batch[0], first)]
        while len(entries) * stride < len(batch):
            entry = batch[len(entries) * stride]
            coords = split(entry[0].path)[1]
            if coords[:i] != first[:i]:
                break
            entries.append((entry, coords))
        members.insert(0, entries)
        stride *= len(entries)
    if stride != len(batch):
        raise NotHandledError("not a product of selectors")
    return path, members, [len(entries) for entries in members]


def _taken(axis: Axis, i: int, entries: list[Entry], place: int | None) -> Range | Indices:
    """Return what entries take of an axis. place: the axis of the result; None if the result lacks it."""
    head, tail = entries[0][0][2][i], entries[-1][0][2][i]
    low, high = axis.bounds(entries[0][1][i])
    if isinstance(head, int):
        return Range(low + head, 1, 1)
    if type(head) is slice:
        start, _, step = head.indices(high - low)
        begin, end = axis.bounds(entries[-1][1][i])
        size = len(range(low + start, begin + tail.indices(end - begin)[1], step))
        return Range(low + start, step if size > 1 else 1, size)
    parts = [_indices(entry[2][i], axis.bounds(coords[i])) for entry, coords in entries]
    return parts[0] if place is None else _in_order(parts, [entry[3][place] for entry, _ in entries])


def _indices(selector: Any, bounds: tuple[int, int]) -> Indices:
    """Return what a selector takes of a chunk, as indices into the array."""
    first, end = bounds
    if isinstance(selector, slice):
        return np.arange(*selector.indices(end - first), dtype=np.int64) + first
    within = np.ravel(selector)
    if within.dtype == np.bool_:
        within = np.flatnonzero(within)
    return within.astype(np.int64) + first


def _in_order(parts: list[Indices], places: list[Any]) -> Indices:
    """Return the indices of an axis in the order of the result."""
    joined = np.concatenate(parts)
    if all(type(place) is slice for place in places):
        return joined
    indices = np.empty_like(joined)
    for at, place in zip(parts, places, strict=True):
        indices[place if isinstance(place, slice) else _indices(place, (0, indices.size))] = at
    return indices


def _points(batch: Batch, split: Split, grid: Grid, shape: Coords) -> Taken:
    """Return the points that a batch takes."""
    if len(shape) > 1 or not grid:
        raise NotHandledError(f"points of shape {shape}")
    path = split(batch[0][0].path)[0]
    chunks = [split(entry[0].path)[1] for entry in batch]
    counts = [len(entry[2][0]) for entry in batch]
    order = None
    if any(type(entry[3]) is not slice for entry in batch):
        places = [entry[3] for entry in batch]
        if shape and not all(isinstance(place, np.ndarray) and place.dtype.kind == "i" for place in places):
            places = [_indices(place, (0, shape[0])) for place in places]
        order = np.concatenate(places)
    coords = []
    for i, axis in enumerate(grid):
        starts = np.repeat([axis.bounds(c[i])[0] for c in chunks], counts)
        found = np.concatenate([np.asarray(entry[2][i], np.int64) for entry in batch]) + starts
        coords.append(found if order is None or not shape else _scattered(found, order))
    size = coords[0].size
    if shape not in ((), (size,)):
        raise NotHandledError(f"an array of shape {shape} for {size} points")
    lasts = tuple([max(c[i] for c in chunks) for i in range(len(grid))])
    return Taken(path, Points(tuple(coords), (size,)), None, lasts, (None,) * len(grid))


def _scattered(values: Indices, order: Any) -> Indices:
    """Put sorted values back to where they come from."""
    found = np.empty_like(values)
    found[order] = values
    return found


def _view(dropped: list[bool]) -> tuple[Any, ...] | None:
    """Return the index that gives an array of zarr-python the axes that it lacks."""
    # The dots: of no axes it stays an array.
    return (*(None if drop else slice(None) for drop in dropped), ...) if True in dropped or not dropped else None


def _end(taken: Range | Indices, axis: Axis, last: int) -> int | None:
    """Return one past the last element taken, if the last chunk goes on after it."""
    final = taken.start + (taken.size - 1) * taken.step if isinstance(taken, Range) else int(taken[-1])
    return final + 1 if final + 1 < axis.bounds(last)[1] else None


def _known(batch: Batch, counts: list[int], ends: list[int | None]) -> tuple[int | None, ...]:
    """Return the ends where zarr-python says that the array ends there, because it takes a chunk whole.

    A chunk is taken whole if it is so along every axis. So of the chunks at the end of an axis that one is asked for
    which is likeliest to be whole along the others: neither the first nor the last of them, if there is another.
    """
    if ends.count(None) == len(ends):
        return tuple(ends)
    if len(batch) == 1:
        return tuple(ends) if batch[0][4] else (None,) * len(ends)
    within = [min(1, n - 1) if n > 2 or not _begins(head) else 0 for n, head in zip(counts, batch[0][2], strict=True)]
    known = []
    for i, end in enumerate(ends):
        at = [counts[i] - 1 if axis == i else position for axis, position in enumerate(within)]
        place = 0
        for position, n in zip(at, counts, strict=True):
            place = place * n + position
        known.append(end if batch[place][4] else None)
    return tuple(known)


def _begins(selector: Any) -> bool:
    """Whether a selector takes a chunk from its first element on."""
    return isinstance(selector, slice) and selector.start == 0
