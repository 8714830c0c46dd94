"""Functions that create arrays like another."""

from typing import Any, Unpack

from gzarr.api.create import create_array
from gzarr.hierarchy import new_nodes
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.keywords import FromArrayKeywords, LikeKeywords, NewArrayKeywords


def from_array(store: Any = None, *, data: Any, **kwargs: Unpack[FromArrayKeywords]) -> Array:
    """Create an array from data, with the chunks, codecs and fill value of data that is a gzarr array.

    Parameters
    ----------
    store : Store, Group, path, URL or mapping, optional
        Where to create the array. By default in memory.
    data : array-like
        Values, on the host or on a GPU.
    **kwargs
        See `create_array`; what is given here takes precedence.

    Returns
    -------
    Array
        The new array.

    Examples
    --------
    >>> import gzarr
    >>> z = gzarr.array([[1, 2], [3, 4]], chunks=(1, 2))
    >>> gzarr.from_array(data=z).chunks
    (1, 2)
    """
    return create_array(store, data=data, **new_nodes.like(data, kwargs))


def empty_like(a: Any, **kwargs: Unpack[LikeKeywords]) -> Array:
    """Create an array like another; nothing is stored.

    Parameters
    ----------
    a : array-like
        Lends shape and dtype, a gzarr array also chunks, codecs and fill value.
    **kwargs
        See `create_array`; what is given here takes precedence.

    Returns
    -------
    Array
        The new array.
    """
    return create_array(**new_nodes.like(a, {"fill_value": getattr(a, "fill_value", None), **kwargs}))


def zeros_like(a: Any, **kwargs: Unpack[LikeKeywords]) -> Array:
    """Create an array of zeros like another.

    Parameters
    ----------
    a : array-like
        Lends shape and dtype, a gzarr array also chunks and codecs.
    **kwargs
        See `create_array`; what is given here takes precedence.

    Returns
    -------
    Array
        The new array.

    Examples
    --------
    >>> import gzarr
    >>> z = gzarr.ones((100, 100), chunks=(10, 10), dtype="i4")
    >>> gzarr.zeros_like(z, dtype="f8").chunks
    (10, 10)
    """
    return create_array(**new_nodes.like(a, {"fill_value": 0, **kwargs}))


def ones_like(a: Any, **kwargs: Unpack[LikeKeywords]) -> Array:
    """Create an array of ones like another.

    Parameters
    ----------
    a : array-like
        Lends shape and dtype, a gzarr array also chunks and codecs.
    **kwargs
        See `create_array`; what is given here takes precedence.

    Returns
    -------
    Array
        The new array.
    """
    return create_array(**new_nodes.like(a, {"fill_value": 1, **kwargs}))


def full_like(a: Any, **kwargs: Unpack[NewArrayKeywords]) -> Array:
    """Create an array like another, filled with ``fill_value`` or with the fill value of the other.

    Parameters
    ----------
    a : array-like
        Lends shape and dtype, a gzarr array also chunks, codecs and fill value.
    **kwargs
        See `create_array`; what is given here takes precedence.

    Returns
    -------
    Array
        The new array.
    """
    if "fill_value" not in kwargs and not hasattr(a, "fill_value"):
        raise TypeError("full_like: fill_value is missing, and what the array shall be like has none")
    return create_array(**new_nodes.like(a, kwargs))
