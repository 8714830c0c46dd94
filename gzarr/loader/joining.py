"""The samples of arrays that are given as lists: rows, windows and crops of many arrays, whose shapes may differ."""

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

from gzarr.backend import Backend
from gzarr.indexing.grid import Axis, RegularAxis
from gzarr.indexing.selection import Indices
from gzarr.loader.arrays import grid_of
from gzarr.loader.order import Floats, Ints, Weighted, parse_weights
from gzarr.loader.samples import Samples, check_kinds, crop_steps, make_samples
from gzarr.loader.sources import Arrays, join
from gzarr.loader.starts import make_starts
from gzarr.loader.windows import Crops, Window


class Joined(NamedTuple):
    """What a loader reads.

    Attributes
    ----------
    arrays : dict
        By name; those of lists are joined.
    samples : Samples
        Their samples.
    offsets : array of int64 or None
        First row of each array of a list, and the number of all rows; None if no list was given.
    sampler : Weighted or None
        What draws samples in proportion to weights.
    """

    arrays: Arrays
    samples: Samples
    offsets: Indices | None
    sampler: Weighted | None


def join_arrays(arrays: Arrays, given: Mapping[str, Any], backend: Backend) -> Joined:
    """Join arrays of lists, and tell the samples of all arrays.

    Parameters
    ----------
    arrays : dict
        By name, some of them lists (`gzarr.loader.sources.collect`).
    given : mapping
        The arguments of the loader.
    backend : Backend
        Of arrays in memory.
    """
    window, crops, weights = given["window"], given["crops"], given["weights"]
    check_kinds(window, crops)
    is_list = any(isinstance(array, list) for array in arrays.values())
    if not is_list and (crops is None or crops.pad is None):
        samples = make_samples({name: tuple(a.shape) for name, a in arrays.items()}, window=window, crops=crops)
        return Joined(arrays, samples, None, _sampler(weights, samples, np.zeros(1, np.int64), given))
    extents = _extents(arrays, 1 if crops is None else len(crops.size), is_cropped=crops is not None)
    made = join(arrays, crops, backend)
    offsets = np.concatenate([[0], np.cumsum(extents[:, 0])])
    if crops is None:
        make_samples({name: tuple(array.shape) for name, array in made.items()})  # refuses single ones of other lengths
    samples, kept = _samples_of(extents, offsets, window, crops)
    sampler = None
    if not samples.draws:
        sampler = _sampler(weights, samples, kept, given, len(extents))
    elif weights is not None:
        samples = samples.with_odds(_kept_weights(parse_weights(weights, len(extents), len(extents)), kept))
    elif len(samples.inner) > 1:
        samples = samples.with_odds(np.diff(samples.firsts))  # every place is equally likely
    return Joined(made, samples, offsets if is_list else None, sampler)


def _samples_of(extents: Ints, offsets: Ints, window: Window | None, crops: Crops | None) -> tuple[Samples, Ints]:
    """The samples of joined arrays, and the numbers of the arrays that have some."""
    size, stride, kind = _steps(extents, window, crops)
    padded = crops is not None and crops.is_padded
    fits = (extents > 0).all(1) if padded else (extents >= size).all(1)
    if not fits.any() or not (fits.all() or crops is None or crops.pad == "skip"):
        raise ValueError(
            f"arrays: number {np.flatnonzero(~fits)[0]} has {tuple(extents[~fits][0].tolist())} elements where samples "
            f'take {size}; give smaller samples, or pad= of Crops: a value, or "skip" to leave such arrays out'
        )
    kept = np.flatnonzero(fits)
    tables = [np.stack([offsets[kept], offsets[kept] + extents[kept, 0]], 1)]
    for ends in extents[kept, 1:].T:
        some = ends if (ends != ends[0]).any() else ends[:1]
        tables.append(np.stack([np.zeros_like(some), some], 1))
    starts = [
        make_starts(spans, n, step, whole=kind == "tiles", padded=padded)
        for spans, n, step in zip(tables, size, stride, strict=True)
    ]
    draws = crops.n or 0 if crops is not None else 0
    return Samples(kind, size, tables[0], tuple(starts), draws, episodes=True, padded=padded), kept


def _steps(extents: Ints, window: Window | None, crops: Crops | None) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Extents of samples, the steps between them, and their kind."""
    if crops is not None:
        same = [int(axis[0]) if (axis == axis[0]).all() else None for axis in extents.T]
        return *crop_steps(same, crops), "tiles" if crops.n is None else "crops"
    if window is None:
        return (1,), (1,), "rows"
    if window.ends is not None:
        raise ValueError("window: the arrays of a list are its episodes; leave ends= of Window out")
    return (window.n,), (window.stride,), "window"


def _sampler(
    weights: Any, samples: Samples, kept: Ints, given: Mapping[str, Any], n_arrays: int = 1
) -> Weighted | None:
    """What draws samples in proportion to weights, of arrays or of samples."""
    if weights is None:
        return None
    if given["sampler"] is not None or given["shuffle"] == "blocks":
        raise ValueError("weights= draws samples at random: leave sampler= and shuffle='blocks' out")
    if samples.draws:
        raise ValueError("weights= of random crops are those of the arrays of a list; one array has no weight")
    found = parse_weights(weights, n_arrays, samples.n)
    by_array = len(found) == n_arrays
    firsts = samples.firsts if by_array else np.arange(samples.n + 1)
    return Weighted(_kept_weights(found, kept) if by_array else found, firsts, given["seed"])


def _kept_weights(weights: Floats, kept: Ints) -> Floats:
    """The weights of the arrays that have samples. Raises: ValueError if all are zero."""
    if not weights[kept].any():
        raise ValueError("weights: the arrays that have a weight have no samples: they are empty, or too small")
    return weights[kept]


def _extents(arrays: Arrays, naxes: int, *, is_cropped: bool) -> Ints:
    """The shapes of the arrays of lists on the axes that samples are cut along: (n, naxes). Raises: ValueError."""
    known: tuple[str, Ints] | None = None
    is_list = any(isinstance(array, list) for array in arrays.values())
    for name, array in arrays.items():
        if is_list and not isinstance(array, list):
            if is_cropped:
                raise ValueError(f"arrays: crops are taken out of lists of arrays; {name!r} is a single one")
            continue
        members = array if is_list else [array]
        for number, one in enumerate(members):
            if one.ndim < naxes:
                raise ValueError(f"Crops has {naxes} axes, {name}[{number}] of shape {tuple(one.shape)} has {one.ndim}")
            if one.ndim != members[0].ndim or one.shape[naxes:] != members[0].shape[naxes:]:
                raise ValueError(
                    f"arrays: {name}[{number}] has shape {tuple(one.shape)}, {name}[0] {tuple(members[0].shape)}; "
                    f"beyond the axes that samples are cut along, {naxes}, the extents in a list must be equal"
                )
        table = np.array([one.shape[:naxes] for one in members], np.int64)
        if known is None:
            known = name, table
        elif len(table) != len(known[1]):
            raise ValueError(f"arrays: {name!r} are {len(table)}, {known[0]!r} {len(known[1])}; expected equally many")
        elif (table != known[1]).any():
            number = int(np.flatnonzero((table != known[1]).any(1))[0])
            one, other = tuple(table[number].tolist()), tuple(known[1][number].tolist())
            raise ValueError(
                f"arrays: {name}[{number}] has {one} elements where samples are cut, {known[0]}[{number}] {other}"
            )
    return known[1] if known is not None else np.empty((0, naxes), np.int64)


def axis_of(arrays: Arrays, samples: Samples) -> Axis:
    """How axis 0 of the array with the largest samples is cut into chunks; NumPy's has chunks of a row."""
    largest = max(arrays.values(), key=lambda a: prod(samples.box(tuple(a.shape))) * a.dtype.itemsize)
    return RegularAxis(len(largest), 1) if isinstance(largest, np.ndarray) else grid_of(largest)[0]
