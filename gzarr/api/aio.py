"""Coroutines that open arrays and groups; reading, writing and listing them is in their own ``a...`` methods."""

from __future__ import annotations

from typing import Any

from gzarr.api.open import open as open_node
from gzarr.api.open import open_array, open_group
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.threads import run_in_thread


async def aopen(store: Any = None, mode: str | None = None, **kwargs: Any) -> Array | Group:
    """`gzarr.open`, awaited: an array or a group, whichever is there.

    >>> import asyncio
    >>> async def first_row():
    ...     array = await aopen({}, "w", shape=(2, 3), dtype="i4")
    ...     await array.awrite((0, slice(None)), [1, 2, 3])
    ...     return await array.aread(0)
    >>> asyncio.run(first_row())
    array([1, 2, 3], dtype=int32)
    """
    return await run_in_thread(open_node, store, mode, **kwargs)


async def aopen_array(store: Any = None, mode: str | None = None, **kwargs: Any) -> Array:
    """`gzarr.open_array`, awaited."""
    return await run_in_thread(open_array, store, mode, **kwargs)


async def aopen_group(store: Any = None, mode: str | None = None, **kwargs: Any) -> Group:
    """`gzarr.open_group`, awaited."""
    return await run_in_thread(open_group, store, mode, **kwargs)
