"""What arrays and groups have in common: a place in a store, metadata, attributes."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeAlias, TypeVar

import numpy as np

from gzarr.backend import Backend
from gzarr.devices import backend_for
from gzarr.display.progress import ProgressLike
from gzarr.errors import MetadataError, NodeNotFoundError, ReadOnlyError
from gzarr.hierarchy.attributes import Attributes
from gzarr.hierarchy.options import OpenedWith, opened_with_settings
from gzarr.hierarchy.threads import run_in_thread
from gzarr.indexing.keys import join_path
from gzarr.metadata.documents import as_meta, change_attributes, document_key, read_node
from gzarr.metadata.model import ArrayMeta, GroupMeta, NodeMeta
from gzarr.storage import open_store
from gzarr.storage.base import Store
from gzarr.storage.store_path import StorePath
from gzarr.storage.wrappers import seen_through, type_name

if TYPE_CHECKING:
    from gzarr.checking.report import Verification

M = TypeVar("M", ArrayMeta, GroupMeta)

#: A `gzarr.Array`, for functions that its methods call: their modules are below the module of the class.
GzarrArray: TypeAlias = Any


def same_objects(one: Store, two: Store) -> bool:
    """Return whether two stores, behind wrappers, are one, or are in memory with equal objects, as after pickling."""
    one, two = seen_through(one), seen_through(two)
    return one == two or (type_name(one) == type_name(two) == "MemoryStore" and dict(one) == dict(two))


def lies_within(store: Store, path: str, outer_store: Store, outer_path: str) -> bool:
    """Return whether one place is the same as another or below it, even if the stores have different roots."""
    inner, outer = store.lock_name(path), outer_store.lock_name(outer_path)
    if isinstance(inner, str) and isinstance(outer, str):  # real paths of files
        return f"{inner.rstrip('/')}/".startswith(f"{outer.rstrip('/')}/")
    same_store = store.lock_name("") == outer_store.lock_name("")
    return same_store and f"{path}/".startswith(f"{outer_path}/" if outer_path else "")


class Sized:
    """The length of an array or a view, and its only element, which is read, as a Python scalar."""

    __slots__ = ()

    def __len__(self: Any) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-dimensional array")
        return int(self.shape[0])

    def __bool__(self: Any) -> bool:
        if self.size != 1:
            raise ValueError("the truth value of an array with more than one element is ambiguous")
        return bool(_only_element(self))

    def __int__(self: Any) -> int:
        return int(_only_element(self))

    def __float__(self: Any) -> float:
        return float(_only_element(self))


def _only_element(array: Any) -> Any:
    if array.size != 1:
        raise TypeError("only arrays of one element can be converted to a Python scalar")
    return array[...].reshape(())


class Node(Generic[M]):
    """An array or group that was opened in a store.

    Attributes
    ----------
    store : Store
        The store.
    path : str
        Path of the node in the store; "" is the root.
    metadata : ArrayMeta or GroupMeta
        What the node's documents said when it was opened or last changed through this object.
    opened_with : OpenedWith
        The backend, the cache of decoded chunks, and whether pickles are loaded.
    """

    _metadata_kind: ClassVar[type[NodeMeta]]
    __slots__ = ("__weakref__", "_read_only", "metadata", "opened_with", "path", "store")
    metadata: M

    def __init__(
        self, store: Store, path: str, metadata: M, opened_with: OpenedWith | Backend, *, read_only: bool = False
    ) -> None:
        self.store = store
        self.path = path
        self.metadata = metadata
        self.opened_with = opened_with if isinstance(opened_with, OpenedWith) else OpenedWith(opened_with)
        self._read_only = read_only

    @classmethod
    def open(cls, store: Any, zarr_format: int | None = None) -> Self:
        """Open the array or group, whichever the class is of, in a store.

        Parameters
        ----------
        store : Store, StorePath, Group, path, URL or mapping
            Where it is stored.
        zarr_format : {2, 3}, optional
            Format to look for. By default both.

        Returns
        -------
        Array or Group
            It.

        Raises
        ------
        ArrayNotFoundError, GroupNotFoundError
            If none is stored there.
        """
        constructor: type[Any] = cls
        return constructor(store) if zarr_format is None else constructor(store, zarr_version=zarr_format)

    @classmethod
    def from_dict(cls, store_path: Any, data: Any) -> Self:
        """Return the array or group that a document describes, which need not be stored.

        Parameters
        ----------
        store_path : Store, StorePath, path, URL or mapping
            Where the chunks or the members are.
        data : mapping or metadata
            What ``metadata.to_dict()`` gives, or metadata of gzarr or zarr-python.

        Returns
        -------
        Array or Group
            It.

        Raises
        ------
        MetadataError
            If the document is malformed, or is of the other kind.
        """
        opened, path = open_store(store_path)
        meta: Any = as_meta(data)
        kind: type[Any] = cls._metadata_kind
        if not isinstance(meta, kind):
            expected, got = ("an array", "a group's") if kind is ArrayMeta else ("a group", "an array's")
            raise MetadataError(f"{join_path(str(opened), path)}: expected the metadata of {expected}, got {got}")
        return cls(opened, path, meta, opened_with_settings())

    @property
    def backend(self) -> Backend:
        """The backend of the node's device."""
        return self.opened_with.backend

    @property
    def read_only(self) -> bool:
        """Whether writes through this object are refused."""
        return self._read_only or self.store.read_only

    @property
    def name(self) -> str:
        """Absolute path of the node in its store: "/" is the root."""
        return "/" + self.path

    @property
    def basename(self) -> str:
        """Last part of the path."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def store_path(self) -> StorePath:
        """Store and path. It prints as ``file://data/x.zarr/foo``."""
        return StorePath(self.store, self.path)

    @property
    def zarr_format(self) -> int:
        """Zarr format of the node's documents: 2 or 3."""
        return self.metadata.zarr_format

    @property
    def device(self) -> str:
        """Name of the device that reads put their results on."""
        return self.backend.device

    @property
    def synchronizer(self) -> Any:
        """The locks that writers hold besides gzarr's own, or None."""
        return getattr(self.store, "synchronizer", None)

    @property
    def chunk_store(self) -> Store:
        """The store of the node, by another name of zarr 2."""
        return self.store

    @property
    def meta_array(self) -> Any:
        """An empty array of the kind that reads return."""
        return self.backend.empty((), np.dtype("f8"))

    @property
    def attrs(self) -> Attributes:
        """User attributes: a mutable mapping of JSON values. Each change is stored at once.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.zeros(10)
        >>> z.attrs["unit"] = "m"
        >>> z.attrs.update(station=3, valid=True)
        >>> z.attrs.asdict()
        {'unit': 'm', 'station': 3, 'valid': True}
        """
        return NodeAttributes(self)

    @attrs.setter
    def attrs(self, values: Mapping[str, Any]) -> None:
        self.attrs.put(values)

    def update_attributes(self, new_attributes: Mapping[str, Any]) -> Self:
        """Set some attributes.

        Parameters
        ----------
        new_attributes : mapping
            JSON values by name.

        Returns
        -------
        Array or Group
            The node itself.
        """
        self.attrs.update(new_attributes)
        return self

    async def update_attributes_async(self, new_attributes: Mapping[str, Any]) -> Self:
        """Replace all attributes, as zarr-python's coroutine of this name does; `update_attributes` keeps the others.

        Parameters
        ----------
        new_attributes : mapping
            JSON values by name.

        Returns
        -------
        Array or Group
            The node itself.
        """
        await run_in_thread(self.attrs.put, new_attributes)
        return self

    def verify(self, progress: ProgressLike = None, *, device: str | Backend | None = None) -> "Verification":
        """Read and check everything that is stored of the node and below it: `gzarr.verify`.

        Parameters
        ----------
        progress : bool or callable, optional
            True for a bar in the terminal; or a function of (bytes done, bytes in all, path of the array).
        device : str, optional
            Where chunks are decoded. By default on the host.

        Returns
        -------
        Verification
            What is wrong.

        Raises
        ------
        NodeNotFoundError
            If the node was deleted.

        Examples
        --------
        >>> import gzarr
        >>> gzarr.array([1, 2, 3]).verify().ok
        True
        """
        from gzarr.checking.chunks import verify_place
        from gzarr.checking.report import Place  # few programs verify

        backend = self.backend.host if device is None else backend_for(device)
        return verify_place(Place(self.store, self.path, backend, self.opened_with.allow_pickle), progress)

    def check_writable(self) -> None:
        """Raise `ReadOnlyError` if the node was opened for reading."""
        if self._read_only:
            raise ReadOnlyError(f"{self.store_path} was opened read-only; open it with mode='r+' or 'a' to change it")
        self.store.check_writable()

    def check_metadata_writable(self) -> None:
        """Raise `ReadOnlyError` if the node, or the metadata of its hierarchy, was opened for reading."""
        self.check_writable()
        self.store.check_metadata_writable()


class NodeAttributes(Attributes):
    """User attributes of an array or group. Reads come from the node's metadata in memory."""

    __slots__ = ("_node",)

    def __init__(self, node: Node[Any]) -> None:
        self._node = node
        self.key = document_key(node.metadata, node.path)
        self.read_only, self.cache = node.read_only, node.opened_with.cache_attrs

    @property
    def store(self) -> Any:
        """The store of the node."""
        return self._node.store

    def _values(self) -> Mapping[str, Any]:
        if not self.cache:
            self.refresh()
        return self._node.metadata.attributes

    def refresh(self) -> None:
        """Read the attributes from the store again."""
        self._node.metadata = replace(self._node.metadata, attributes=self._stored().attributes)

    def _stored(self) -> Any:
        node = self._node
        meta = read_node(node.store.live(), node.path, node.metadata.zarr_format)
        if meta is None:
            raise NodeNotFoundError(f"{node.store_path} was deleted")
        return meta

    def _change(self, change: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
        node = self._node
        node.check_metadata_writable()
        self._stored()  # it may have been deleted: a v2 array need not have attributes
        try:
            change_attributes(node.store, node.path, node.metadata.zarr_format, change)
        except TypeError as error:
            raise TypeError(f"attributes of {node.store_path}: {error}") from error
        # Take what was stored, not what was given: NumPy scalars have become JSON values.
        self.refresh()
