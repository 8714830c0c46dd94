"""Access patterns as reads that can be counted and carried out.

- "batch": `NSAMPLES` samples in random order, in one read; a sample is one index of axis 0.
- "plane": one index of one axis, in turn for each axis.
- "volume": everything, once.
- "random": `NPOINTS` single elements anywhere, in one read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gzarr.hierarchy.array import Array
from gzarr.hierarchy.presets import ACCESS_PATTERNS, AccessPattern

NSAMPLES = 32
NPOINTS = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """One read.

    Attributes
    ----------
    name : str
        Description in a few words.
    shape : tuple of int
        Shape of the array.
    axes : tuple of array of int64
        For each axis, the indices that are read; None for all of them.
    points : tuple of array of int64, optional
        Instead of ``axes``, the coordinates of single elements by axis.
    """

    name: str
    shape: tuple[int, ...]
    axes: tuple[NDArray[np.int64] | None, ...] = ()
    points: tuple[NDArray[np.int64], ...] | None = None

    @property
    def nelements(self) -> int:
        """Number of elements that are read."""
        if self.points is not None:
            return len(self.points[0])
        return math.prod(n if a is None else a.size for a, n in zip(self.axes, self.shape, strict=True))

    def read(self, array: Array) -> Any:
        """Carry the read out."""
        if self.points is not None:
            return array.vindex[self.points]
        return array.oindex[tuple(slice(None) if a is None else a for a in self.axes)]


def probes_of(access: AccessPattern, shape: tuple[int, ...]) -> list[Probe]:
    """The reads of an access pattern, the same ones for the same shape. Raises ValueError for an unknown pattern.

    An array without dimensions is read as a whole.
    """
    if access not in ACCESS_PATTERNS:
        raise ValueError(f"access must be one of {', '.join(map(repr, ACCESS_PATTERNS))}; got {access!r}")
    whole: tuple[NDArray[np.int64] | None, ...] = (None,) * len(shape)
    if access == "volume" or not shape:
        return [Probe("everything", shape, whole)]
    if access == "plane":
        return [
            Probe(f"one index of axis {axis}", shape, (*whole[:axis], np.array([n // 2]), *whole[axis + 1 :]))
            for axis, n in enumerate(shape)
        ]
    rng = np.random.default_rng(0)
    if access == "batch":
        picked = rng.choice(shape[0], min(NSAMPLES, shape[0]), replace=False).astype(np.int64)
        return [Probe(f"{picked.size} samples of axis 0", shape, (picked, *whole[1:]))]
    points = tuple(rng.integers(0, n, min(NPOINTS, math.prod(shape))) for n in shape)
    return [Probe(f"{points[0].size} single elements", shape, (), points)]
