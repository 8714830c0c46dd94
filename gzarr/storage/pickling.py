"""How stores are pickled: without what is bound to a process, such as locks and connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gzarr.storage.base import Store


def pickled(store: Store, owner: type[Store], *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Say how a store is pickled: for ``__reduce__``.

    The copy has the same class, and all attributes that are not bound to this process. A subclass takes arguments that
    nobody knows here, so the copy is not made by calling it.

    Parameters
    ----------
    store : Store
        The store.
    owner : type
        The class of gzarr whose ``__init__`` makes locks and connections anew.
    *args, **kwargs
        Its arguments.
    """
    carried = {name: value for name, value in vars(store).items() if name not in owner._process_bound}  # noqa: SLF001
    return _unpickled, (type(store), owner, args, kwargs, carried)


def _unpickled(
    kind: type[Store], owner: type[Store], args: tuple[Any, ...], kwargs: dict[str, Any], carried: dict[str, Any]
) -> Store:
    store = kind.__new__(kind)
    owner.__init__(store, *args, **kwargs)
    vars(store).update(carried)
    return store
