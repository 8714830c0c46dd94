"""What a read or write takes of every element: all of it, or a field; and what it becomes in the result."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gzarr.backend import Fields
from gzarr.cpu.compiled.casts import NO_CAST, cast_numbers
from gzarr.cpu.compiled.source import WHOLE, LoopChain


class Element(NamedTuple):
    """What is taken of every element.

    Attributes
    ----------
    start : int
        Where in an element that begins, in bytes.
    numbers : tuple of int
        Of the loop's struct Job: start, bytes, bytes in the result, types of a cast (`WHOLE` for all of it as it is).
    fill : bytes
        The same of a missing chunk, as in the result.
    """

    start: int
    numbers: tuple[int, ...]
    fill: bytes


def make_element(chain: LoopChain, dtype: np.dtype[Any], fields: Fields) -> Element | None:
    """Return what is taken of a chunk's elements for an array of a dtype; None if the loop does not know it."""
    stored = chain.chunk.dtype
    if fields is None:
        if dtype == stored:
            return Element(0, WHOLE, chain.fill)
        taken, start = stored, 0
    elif isinstance(fields, str) and stored.fields and fields in stored.fields:
        taken, start = stored.fields[fields][:2]
    else:
        return None
    cast = cast_numbers(taken, dtype)
    if cast is None or taken.subdtype is not None or taken.hasobject or (fields is not None and cast != NO_CAST):
        return None
    fill = np.frombuffer(chain.fill, stored)
    with np.errstate(all="ignore"):  # as in chunks that are there
        fill = (fill if fields is None else fill[fields]).astype(dtype)
    return Element(start, (start, taken.itemsize, dtype.itemsize, *cast), fill.tobytes())
