"""User attributes: those of an array or group, and those of a document by itself, as zarr 2 has them."""

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import nullcontext
from typing import Any

from gzarr.errors import ReadOnlyError
from gzarr.indexing.keys import join_path
from gzarr.metadata.documents import change_attributes_at, read_attributes_at
from gzarr.storage import open_store


def _named(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Return attributes as a dict. Raises TypeError for a name that is no string."""
    bad = next((name for name in values if not isinstance(name, str)), None)
    if bad is not None:
        raise TypeError(f"attribute names must be strings, got {bad!r}")
    return dict(values)


class Attributes(MutableMapping[str, Any]):
    r"""User attributes: a mutable mapping of JSON values. Each change reads, changes and stores the document.

    ``array.attrs`` and ``group.attrs`` make it. Calling the class, as zarr 2 allows, gives the attributes of one
    document of a store.

    Parameters
    ----------
    store : Store, path, URL or mapping
        Where the attributes are stored.
    key : str
        Key of their document: a JSON object.
    read_only : bool
        Whether changes are refused.
    cache : bool
        Whether reads come from memory after the first. `refresh` reads again.
    synchronizer : ProcessSynchronizer, ThreadSynchronizer or mapping of locks, optional
        Locks that writers hold besides gzarr's own.

    Examples
    --------
    >>> from gzarr.hierarchy.attributes import Attributes
    >>> store = {}
    >>> attributes = Attributes(store)
    >>> attributes["unit"] = "m"
    >>> store[".zattrs"]
    b'{\n    "unit": "m"\n}'
    """

    __slots__ = ("_loaded", "_store", "_synchronizer", "cache", "key", "read_only")

    def __init__(
        self, store: Any, key: str = ".zattrs", read_only: bool = False, cache: bool = True, synchronizer: Any = None
    ) -> None:
        self._store = open_store(store)[0]
        self._loaded: Mapping[str, Any] | None = None
        self._synchronizer = synchronizer
        self.key, self.read_only, self.cache = key, read_only, cache

    @property
    def store(self) -> Any:
        """The store of the attributes."""
        return self._store

    # What differs for the attributes of a node.

    def _values(self) -> Mapping[str, Any]:
        """Return the attributes, from memory where that is allowed."""
        if self._loaded is None or not self.cache:
            self._loaded = read_attributes_at(self._store, self.key)
        return self._loaded

    def _change(self, change: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
        """Store what a function makes of the stored attributes; it may be called several times."""
        if self.read_only:
            raise ReadOnlyError(f"attributes of {join_path(str(self._store), self.key)} were opened read-only")
        with nullcontext() if self._synchronizer is None else self._synchronizer[self.key]:
            change_attributes_at(self._store, self.key, change)
        self.refresh()

    def refresh(self) -> None:
        """Read the attributes from the store again."""
        self._loaded = read_attributes_at(self._store, self.key)

    # Mapping

    def __getitem__(self, key: str) -> Any:
        return self._values()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._change(lambda stored: {name: value for name, value in stored.items() if name != key})

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set several attributes, stored once.

        Parameters
        ----------
        *args, **kwargs
            What ``dict`` takes: a mapping or pairs, and names with values.
        """
        values = _named(dict(*args, **kwargs))
        self._change(lambda stored: {**stored, **values})

    def put(self, values: Mapping[str, Any]) -> None:
        """Replace all attributes, stored once.

        Parameters
        ----------
        values : mapping
            JSON values by name.
        """
        values = _named(values)
        self._change(lambda _: dict(values))

    def clear(self) -> None:
        """Remove all attributes."""
        self.put({})

    def asdict(self) -> dict[str, Any]:
        """Return the attributes as a dict, which can be changed freely."""
        return dict(self._values())

    def _ipython_key_completions_(self) -> list[str]:
        return sorted(self)

    def __repr__(self) -> str:
        return f"Attributes({self.asdict()!r})"
