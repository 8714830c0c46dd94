"""Coroutines that open arrays and groups; those that read, write and list are methods of arrays and groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from gzarr.api.open import open as open_node
from gzarr.api.open import open_array, open_group
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.keywords import GroupKeywords, OpenArrayKeywords, OpenKeywords
from gzarr.hierarchy.threads import run_in_thread


async def aopen(
    store: Any = None, mode: str | None = None, *, path: str | None = None, **kwargs: Unpack[OpenKeywords]
) -> Array | Group:
    """Open an array or a group on a thread, as `gzarr.open` does.

    Parameters
    ----------
    store, mode, path, **kwargs
        See `gzarr.open`.

    Returns
    -------
    Array or Group
        What is stored there.

    Examples
    --------
    >>> import asyncio, gzarr
    >>> async def first_row():
    ...     array = await gzarr.aopen({}, "w", shape=(2, 3), dtype="i4")
    ...     await array.awrite((0, slice(None)), [1, 2, 3])
    ...     return await array.aread(0)
    >>> asyncio.run(first_row())
    array([1, 2, 3], dtype=int32)
    """
    return await run_in_thread(open_node, store, mode, path=path, **kwargs)


async def aopen_array(
    store: Any = None,
    mode: str | None = None,
    *,
    path: str | None = None,
    device: str | None = None,
    write_empty_chunks: bool | None = None,
    zarr_format: int | None = None,
    **kwargs: Unpack[OpenArrayKeywords],
) -> Array:
    """Open an array on a thread, as `gzarr.open_array` does.

    Parameters
    ----------
    store, mode, path, device, write_empty_chunks, zarr_format, **kwargs
        See `gzarr.open_array`.

    Returns
    -------
    Array
        The array.
    """
    given: dict[str, Any] = {"write_empty_chunks": write_empty_chunks, "zarr_format": zarr_format, **kwargs}
    return await run_in_thread(open_array, store, mode, path=path, device=device, **given)


async def aopen_group(
    store: Any = None,
    mode: str | None = None,
    *,
    path: str | None = None,
    zarr_format: int | None = None,
    attributes: Mapping[str, Any] | None = None,
    device: str | None = None,
    use_consolidated: bool | str | None = None,
    **kwargs: Unpack[GroupKeywords],
) -> Group:
    """Open a group on a thread, as `gzarr.open_group` does.

    Parameters
    ----------
    store, mode, path, zarr_format, attributes, device, use_consolidated, **kwargs
        See `gzarr.open_group`.

    Returns
    -------
    Group
        The group.
    """
    given: dict[str, Any] = {"zarr_format": zarr_format, "attributes": attributes, **kwargs}
    return await run_in_thread(
        open_group, store, mode, path=path, device=device, use_consolidated=use_consolidated, **given
    )
