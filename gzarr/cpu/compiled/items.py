"""Strings and bytes of variable length by compiled code: made from what is stored, and laid out to be stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from gzarr.cpu.compiled.library import loop

Array = np.ndarray[Any, np.dtype[Any]]


def decode_items(data: Any, count: int, first: int, out: Array, *, text: bool) -> bool:
    """Make objects of the items of a buffer, from the first wanted one on, as many as ``out`` has elements.

    count: how many the buffer should hold. out: a new contiguous array of objects.
    Returns: whether that was possible; if not, another decoder says what is wrong with the buffer.
    """
    module = loop()
    done: bool = module is not None and module.decode_items(data, count, first, out, text)
    return done


def encode_items(objects: Array, *, text: bool) -> bytes | None:
    """Lay out the elements of a contiguous array of objects; None if one is no string (or no bytes)."""
    module = loop()
    encoded: bytes | None = None if module is None else module.encode_items(objects, text)
    return encoded
