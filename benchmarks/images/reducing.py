"""Means of windows for the bare work."""

from __future__ import annotations

from typing import Any

import numpy as np


def means_into(block: Any, factors: tuple[int, ...], out: Any) -> None:
    """Write the means of whole windows into ``out``; integers are rounded half to even."""
    wide = np.dtype(block.dtype.kind + str(2 * block.dtype.itemsize))
    sums, bits = block, sum(f == 2 for f in factors)
    for axis, f in enumerate(factors):
        if f == 2:
            at = (slice(None),) * axis
            sums = np.add(sums[(*at, slice(None, None, 2))], sums[(*at, slice(1, None, 2))], dtype=wide)
    sums += (sums >> bits) & 1
    sums += (1 << (bits - 1)) - 1
    np.copyto(out, sums >> bits, casting="unsafe")
