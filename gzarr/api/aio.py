"""Coroutines that open arrays and groups; those that read, write and list are methods of arrays and groups."""

from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import Any, ParamSpec, TypeAlias, TypeVar

from gzarr.api.groups import open_group
from gzarr.api.open import open as open_node
from gzarr.api.open import open_array
from gzarr.hierarchy.threads import run_in_thread

P = ParamSpec("P")
T = TypeVar("T")
Awaited: TypeAlias = Callable[P, Coroutine[Any, Any, T]]


def _awaited(call: Callable[P, T]) -> Callable[[Callable[[], None]], Awaited[P, T]]:
    """Return a decorator that gives a name and a docstring to a coroutine with the parameters of a call."""

    def decorate(documented: Callable[[], None]) -> Awaited[P, T]:
        async def run(*args: P.args, **kwargs: P.kwargs) -> T:
            return await run_in_thread(call, *args, **kwargs)

        update_wrapper(run, documented)
        return update_wrapper(run, call, ["__annotations__"])

    return decorate


@_awaited(open_node)
def aopen() -> None:
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


@_awaited(open_array)
def aopen_array() -> None:
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


@_awaited(open_group)
def aopen_group() -> None:
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
