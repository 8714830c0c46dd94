"""Whether the levels of an image hold what they should: every chunk decodes, and each level shows the one before.

Levels are compared in samples. Every method of downsampling keeps to the values that are there: an element of a level
lies between the least and the greatest of the elements around it in the level before. A level that was never written,
or is of another picture, does not.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gzarr.backend import Backend
from gzarr.display.progress import ProgressLike
from gzarr.errors import GzarrError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.resizing import objects_stored
from gzarr.images.ome.faults import Fault, Notes, Taker
from gzarr.images.pyramid.downsample import downsample
from gzarr.tensors import to_host

#: Problems that nobody sees who reads the image: a killed program has left them.
_LEFT = ("temporary", "unreachable", "unfinished")
#: Samples of a level, and the longest side of one.
_SAMPLES, _SIDE = 8, 32
#: The fraction of a sample's elements that may lie outside: codecs lose something, and filters reach further.
_OUTSIDE = 0.05
#: Rounding of floats, as a fraction of the range of a sample.
_ROUNDING = 1e-3
#: How far elements lie outside on average, as a fraction of that range, where sharpening and lossy codecs may be why.
_NEAR = 0.05


def check_data(levels: Sequence[Array | None], take: Taker, progress: ProgressLike) -> None:
    """Note damaged chunks of an image, and levels that do not show the one before.

    Parameters
    ----------
    levels : sequence of Array or None
        Of the image; None for those that cannot be opened.
    take : callable
        Takes a `Fault`.
    progress : bool or callable, optional
        As in `gzarr.verify`.
    """
    damaged = set()
    for level in levels:
        if level is None:
            continue
        left: dict[str, list[Any]] = {}
        for problem in level.verify(progress, device=level.backend).problems:
            if problem.kind in _LEFT:
                left.setdefault(problem.kind, []).append(problem)
                continue
            damaged.add(level.path)
            chunk = "" if problem.chunk_coords is None else f", chunk {problem.chunk_coords}"
            what = problem.reason + chunk
            take(Fault("error", str(level.store_path), problem.key, what, "restore it, or run gzarr.repair"))
        for first, *others in left.values():
            what = first.reason + (f"; and {len(others)} more objects like it" if others else "")
            take(Fault("warning", str(level.store_path), first.key, what, "gzarr.repair removes what nothing needs"))
    for number in range(1, len(levels)):
        before, level = levels[number - 1], levels[number]
        if before is None or level is None or before.ndim != level.ndim or {before.path, level.path} & damaged:
            continue
        if level.dtype.kind in "biuf" and level.dtype == before.dtype:
            _compare(before, level, number, Notes(str(level.store_path), take))


def _compare(before: Array, level: Array, number: int, notes: Notes) -> None:
    factors = _factors(before.shape, level.shape)
    if factors is None:
        return
    try:
        starts = _samples(before, level, factors)
        distances = {start: _distance(before, level, factors, start) for start in starts}
    except GzarrError as error:
        notes.error("", f"cannot be compared with the level before: {error}", "see the error")
        return
    if not any(distances.values()):
        return
    wrong = max(distances, key=distances.__getitem__)
    remedy = "build the levels anew with gzarr.images.build_pyramid"
    if not objects_stored(level.metadata, level.store, level.path):
        notes.error("", f"level {number} is empty: no chunk is stored", "build it with gzarr.images.build_pyramid")
    elif distances[wrong] > _NEAR:
        notes.error("", f"level {number} does not show level {number - 1} at {wrong}", remedy)
    else:
        what = f"level {number} differs from level {number - 1}, as if sharpened or stored with loss, most at {wrong}"
        notes.warning("", what, remedy)


def _factors(larger: Sequence[int], smaller: Sequence[int]) -> tuple[int, ...] | None:
    """The whole numbers that take one shape to the other, rounding up or down; None if there are none."""
    if 0 in smaller:
        return None
    factors = tuple(max(round(m / n), 1) for m, n in zip(larger, smaller, strict=True))
    fits = all(m // f <= n <= -(-m // f) for m, n, f in zip(larger, smaller, factors, strict=True))
    return factors if fits else None


def _samples(before: Array, level: Array, factors: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Where to compare a level: first where one of the two levels has nothing, then all over."""
    cells: dict[tuple[int, ...], tuple[int, ...]] = {}
    for coords in objects_stored(before.metadata, before.store, before.path):
        bounds = [axis.bounds(c) for axis, c in zip(before.metadata.grid, coords, strict=True)]
        middle = tuple((low + high) // 2 for low, high in bounds)
        place = tuple(min(m // f, n - 1) for m, f, n in zip(middle, factors, level.shape, strict=True))
        cells[tuple(p // n for p, n in zip(place, level.metadata.object_shape, strict=True))] = place
    stored = set(objects_stored(level.metadata, level.store, level.path))
    for chosen in (cells.keys() - stored, stored - cells.keys(), cells.keys() & stored):
        for cell in _spread(sorted(chosen)):
            place = cells.get(cell) or _corner(level, cell)
            yield tuple(max(p - _SIDE // 2, 0) for p in place)


def _corner(level: Array, cell: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axis.bounds(c)[0] for axis, c in zip(level.metadata.grid, cell, strict=True))


def _spread(items: Sequence[Any]) -> list[Any]:
    if len(items) <= _SAMPLES:
        return list(items)
    return [items[round(n * (len(items) - 1) / (_SAMPLES - 1))] for n in range(_SAMPLES)]


def _distance(before: Array, level: Array, factors: Sequence[int], start: Sequence[int]) -> float:
    """How far a part of a level lies outside the extremes of what surrounds it in the level before.

    Returns: the mean over all elements, as a fraction of the range there; 0 if few elements lie outside.
    """
    stop = [min(o + _SIDE, n) for o, n in zip(start, level.shape, strict=True)]
    low = [max(o - 1, 0) for o in start]
    high = [min(e + 1, n) for e, n in zip(stop, level.shape, strict=True)]
    source = tuple(slice(o * f, e * f) for o, e, f in zip(low, high, factors, strict=True))
    part = _numbers(to_host(level[tuple(map(slice, start, stop))]))
    block = _numbers(to_host(before[source]))
    inner = tuple(slice(o - w, e - w) for o, e, w in zip(start, stop, low, strict=True))
    least, most = (_around(level.backend.host, block, factors, method)[inner] for method in ("min", "max"))
    with np.errstate(invalid="ignore"):
        slack = _slack(least, most)
        outside = (part < least - slack) | (part > most + slack)
    if np.count_nonzero(outside) <= _OUTSIDE * outside.size:
        return 0.0
    least, most, part = (np.nan_to_num(values.astype("f8")) for values in (least, most, part))
    excess = np.maximum(least - part, part - most).clip(0)
    extent = most.max() - least.min()
    return float(excess.mean() / extent) if extent else 1.0


def _numbers(block: Any) -> Any:
    """A block with numbers for bools, which have no difference."""
    return block.view("u1") if block.dtype.kind == "b" else block


def _slack(least: Any, most: Any) -> Any:
    if least.dtype.kind != "f":
        return np.zeros((), least.dtype)
    finite = np.concatenate([least[np.isfinite(least)], most[np.isfinite(most)]])
    return least.dtype.type(_ROUNDING * (np.ptp(finite) if finite.size else 0))


def _around(backend: Backend, block: Any, factors: Sequence[int], method: str) -> Any:
    """The extreme of every window of a block and of those beside it."""
    found = downsample(backend, block, factors, method)
    choose = np.fmin if method == "min" else np.fmax
    for axis, extent in enumerate(found.shape):
        if factors[axis] == 1 or extent == 1:
            continue
        wider = found.copy()
        body, ahead = (slice(None),) * axis + (slice(1, None),), (slice(None),) * axis + (slice(None, -1),)
        choose(wider[body], found[ahead], out=wider[body])
        choose(wider[ahead], found[body], out=wider[ahead])
        found = wider
    return found
