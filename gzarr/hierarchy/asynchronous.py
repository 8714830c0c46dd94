"""Arrays and groups for callers that await: zarr-python's ``AsyncArray`` and ``AsyncGroup``, over gzarr's own.

Theory of operation. The core is synchronous. An asynchronous node has the names of the node that it wraps: properties
are read at once, methods become coroutine functions that run on a thread, and those that iterate become asynchronous
generators. Nodes among arguments are unwrapped, nodes among results wrapped.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any, Self

from gzarr.hierarchy.node import Node
from gzarr.hierarchy.selecting import Accessor
from gzarr.hierarchy.threads import run_in_thread

#: Methods that touch no store: they are called at once.
_PURE = frozenset({"astype", "to", "view", "with_config"})
#: Methods that iterate over members.
_LISTING = frozenset(
    {
        *("arrays", "array_keys", "array_values", "groups", "group_keys", "group_values"),
        *("create_hierarchy", "items", "keys", "members", "values"),
    }
)
#: Methods by the operators whose names they give.
_OPERATORS = {"__contains__": "contains", "__delitem__": "delitem", "__getitem__": "getitem", "__setitem__": "setitem"}
#: Properties that ask the store, which are methods here.
_ASKING = frozenset({"nbytes_stored", "nchunks_initialized"})


class AsyncNode:
    """What `AsyncArray` and `AsyncGroup` have in common.

    Parameters
    ----------
    metadata : Array or Group, or metadata
        The node to wrap; or metadata, as of ``array.metadata``, and where they are.
    store_path : StorePath, optional
        Where the node of the metadata is.
    """

    __slots__ = ("_node",)
    _kind: type[Any]  # of the nodes that it wraps

    def __init__(self, metadata: Any, store_path: Any = None) -> None:
        node = metadata if store_path is None else self._kind.from_dict(store_path, metadata)
        if not isinstance(node, self._kind):
            name = type(self).__name__
            raise TypeError(f"{name} wraps a gzarr.{self._kind.__name__}, got {node!r}; use await {name}.open(...)")
        self._node = node

    @classmethod
    async def open(cls, store: Any, **kwargs: Any) -> Self:
        """Open an array or group: see `Group.open`."""
        return cls(await run_in_thread(cls._kind.open, store, **kwargs))

    @classmethod
    def from_dict(cls, store_path: Any, data: Any) -> Self:
        """Return the array or group that a document describes: see `Group.from_dict`."""
        return cls(cls._kind.from_dict(store_path, data))

    @property
    def attrs(self) -> dict[str, Any]:
        """User attributes, as they were read. `update_attributes` changes them."""
        return dict(self._node.attrs)

    if TYPE_CHECKING:  # what `take_over` adds

        def __getattr__(self, name: str) -> Any: ...

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncNode) and bool(self._node == other._node)

    def __hash__(self) -> int:
        return hash(self._node)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._node,)

    def __repr__(self) -> str:
        return f"<Async{repr(self._node)[1:]}"


class AsyncArray(AsyncNode):
    """An array whose methods are awaited: ``await array.getitem((0, ...))``, ``await array.setitem(0, 5)``.

    It has the properties and methods of `Array`. ``nbytes_stored`` and ``nchunks_initialized`` are methods, as they ask
    the store; ``oindex`` and ``vindex`` have coroutines ``getitem`` and ``setitem``.

    Parameters
    ----------
    metadata, store_path
        The array to wrap; or metadata, and where they are.

    Examples
    --------
    >>> import asyncio, gzarr
    >>> async def first_row():
    ...     array = await gzarr.AsyncArray.open("grid.zarr")
    ...     return await array.getitem(0)
    >>> z = gzarr.save("grid.zarr", [[1, 2], [3, 4]])
    >>> asyncio.run(first_row())
    array([1, 2])
    """

    __slots__ = ()


class AsyncGroup(AsyncNode):
    """A group whose methods are awaited: ``await group.getitem("a/b")``, ``await group.create_array("c", shape=5)``.

    It has the properties and methods of `Group`; ``members``, ``keys``, ``arrays`` and the others that list are
    asynchronous generators.

    Parameters
    ----------
    metadata, store_path
        The group to wrap; or metadata, and where they are.

    Examples
    --------
    >>> import asyncio, gzarr
    >>> async def names():
    ...     group = await gzarr.AsyncGroup.from_store({})
    ...     await group.create_array("speed", shape=3)
    ...     return [name async for name, array in group.arrays()]
    >>> asyncio.run(names())
    ['speed']
    """

    __slots__ = ()

    @classmethod
    async def from_store(cls, store: Any, **kwargs: Any) -> Self:
        """Create a group: see `Group.from_store`."""
        return cls(await run_in_thread(cls._kind.from_store, store, **kwargs))


class AsyncAccessor:
    """``oindex`` and ``vindex`` of an `AsyncArray`.

    Parameters
    ----------
    accessor : Accessor
        That of the array.
    """

    __slots__ = ("_accessor",)

    def __init__(self, accessor: Accessor) -> None:
        self._accessor = accessor

    async def getitem(self, selection: Any) -> Any:
        """Read a selection.

        Parameters
        ----------
        selection : object
            What stands in the brackets of ``oindex`` or ``vindex``.

        Returns
        -------
        numpy.ndarray or cupy.ndarray
            The elements.
        """
        return await run_in_thread(self._accessor.__getitem__, selection)

    async def setitem(self, selection: Any, value: Any) -> None:
        """Write a selection.

        Parameters
        ----------
        selection : object
            What stands in the brackets of ``oindex`` or ``vindex``.
        value : array-like
            The elements, which are broadcast to the selection.
        """
        await run_in_thread(self._accessor.__setitem__, selection, value)


def wrapped(value: Any) -> Any:
    """Return the asynchronous form of a node, also in a tuple; other values as they are."""
    if isinstance(value, tuple):
        return tuple(map(wrapped, value)) if type(value) is tuple else value
    if not isinstance(value, Node):
        return value
    return AsyncArray(value) if isinstance(value, AsyncArray._kind) else AsyncGroup(value)


def unwrapped(value: Any) -> Any:
    """Return the node that an asynchronous node wraps; other values as they are."""
    return value._node if isinstance(value, AsyncNode) else value


def _at_once(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes and returns asynchronous nodes."""

    @wraps(call)
    def run(*args: Any, **kwargs: Any) -> Any:
        return wrapped(call(*map(unwrapped, args), **{name: unwrapped(value) for name, value in kwargs.items()}))

    return run


def awaited(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a coroutine function that makes a call on a thread, with asynchronous nodes."""
    made = _at_once(call)

    @wraps(call)
    async def run(*args: Any, **kwargs: Any) -> Any:
        return await run_in_thread(made, *args, **kwargs)

    return run


def iterating(call: Callable[..., Iterable[Any]]) -> Callable[..., AsyncIterator[Any]]:
    """Return an asynchronous generator function over what a call lists on a thread."""
    listed = _at_once(lambda *args, **kwargs: tuple(call(*args, **kwargs)))

    @wraps(call)
    async def run(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        for item in await run_in_thread(listed, *args, **kwargs):
            yield item

    return run


def _reading(name: str, member: property) -> property:
    """Return a property that is read from the node."""

    def read(self: AsyncNode) -> Any:
        value = getattr(unwrapped(self), name)
        return AsyncAccessor(value) if isinstance(value, Accessor) else value

    return property(read, doc=member.__doc__)


def take_over(kind: type[AsyncNode], sync: type) -> None:
    """Give a class the properties and methods of the nodes that it wraps: called once, when those are defined."""
    kind._kind = sync
    for name in dir(sync):
        member = getattr(sync, name)
        taken = _OPERATORS.get(name, name)
        if taken.startswith("_") or hasattr(kind, taken):
            continue
        if name in _ASKING:
            value: Any = awaited(member.fget)
        elif isinstance(member, property) or not callable(member):
            value = _reading(name, member)
        else:
            form = _at_once if name in _PURE else iterating if name in _LISTING else awaited
            value = form(member)
        setattr(kind, taken, value)
