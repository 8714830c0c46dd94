"""Labels the connected components of a block by the compiled loop (`loop/components.c`), on several threads at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gzarr.cpu.compiled import library

#: Voxels of a block, at most: labels have 32 bits.
_MAX_SIZE = (1 << 31) - 2


def label_components(
    mask: NDArray[np.bool_], structure: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], NDArray[np.int64]] | None:
    """Label the connected components of a block, numbered by their first voxels.

    mask: in C order. structure: (3, ..., 3), symmetric, which neighbours of its centre are connected to it.
    Returns: int32 labels, and int64 first voxels of the components, indices of the flat block; None if the loop does
    not do that.
    """
    loop, neighbours = library.loop(), _neighbours(structure)
    if loop is None or neighbours is None or not 0 < mask.size <= _MAX_SIZE or not mask.flags.c_contiguous:
        return None
    labels = np.empty(mask.shape, np.int32)
    firsts = loop.components(mask, np.array(mask.shape, np.int64), neighbours, labels)
    return labels, np.frombuffer(firsts, np.int64)


def _neighbours(structure: NDArray[np.bool_]) -> NDArray[Any] | None:
    """Return the rows before one that its voxels are connected to, and how far; None if these are no plain runs."""
    if not structure.ndim or structure.size // 3 > 1 << 8:
        return None
    rows = structure.reshape(-1, 3)
    middle = len(rows) // 2
    if not rows[middle].all():
        return None  # voxels beside each other are not connected
    found = []
    for index in range(middle):
        moves = np.flatnonzero(rows[index]) - 1
        if moves.size and np.ptp(moves) != moves.size - 1:
            return None  # a voxel is connected to both sides of what is before it, but not to that
        if moves.size:
            shift = np.array(np.unravel_index(index, structure.shape[:-1])) - 1
            found.append([*shift, moves[0], moves[-1]])
    return np.array(found, np.int64).reshape(-1, structure.ndim + 1)
