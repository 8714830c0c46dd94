"""The group: a mapping of names to arrays and groups, with the calls of h5py, zarr 2 and zarr-python 3.

The class holds the state and the documentation. The work is done by functions of other modules, by topic:
``new_nodes``, ``create``, ``group_info``.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, MutableMapping
from typing import Any, Self, Unpack

from gzarr.backend import Backend
from gzarr.display.info import Report, Tree
from gzarr.errors import (
    ArrayNotFoundError,
    ContainsArrayError,
    ContainsGroupError,
    ContainsNodeError,
    GroupNotFoundError,
    MemberNotFoundError,
    MetadataError,
)
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.asynchronous import AsyncGroup, take_over, unwrapped
from gzarr.hierarchy.create import create_nodes, new_group_meta, require_group_meta
from gzarr.hierarchy.keywords import (
    ConstructorKeywords,
    DeviceKeywords,
    FilledMemberKeywords,
    LikeMemberKeywords,
    MemberKeywords,
    NewMemberKeywords,
)
from gzarr.hierarchy.new_nodes import like_member, member_path, new_member, path_from, require_member
from gzarr.hierarchy.node import Node, lies_within, same_objects
from gzarr.hierarchy.options import UNSET, OpenedWith, check_keywords, opened_with_settings
from gzarr.hierarchy.reaching import reach_existing, split_positional
from gzarr.hierarchy.threads import run_in_thread
from gzarr.indexing.keys import join_path, normalize_path
from gzarr.metadata import documents
from gzarr.metadata.model import ArrayMeta, GroupMeta, NodeMeta
from gzarr.storage import open_store
from gzarr.storage.base import Store


class Group(Node[GroupMeta], MutableMapping[str, Any]):
    """A group of arrays and groups.

    A group is a mapping of names, which may be paths (``"foo/bar"``), to arrays and groups. A path with a leading slash
    begins at the store's root in groups of format 2, as in zarr 2, and in the group in those of format 3, as in
    zarr-python 3. Groups are made by `gzarr.group`, `gzarr.open_group` and `Group.create_group`; calling the class, as
    in zarr 2, opens the group in a store: ``Group(store, path="foo")``.
    In a ``with`` statement the store is closed at the end.

    Examples
    --------
    >>> import gzarr
    >>> root = gzarr.group()
    >>> root["foo/bar"] = [1, 2, 3]
    >>> list(root), "foo/bar" in root
    (['foo'], True)
    >>> root["foo/bar"][1:]
    array([2, 3])
    """

    _metadata_kind = GroupMeta
    __slots__ = ()

    def __init__(
        self,
        store: Any,
        path: str | None = None,
        metadata: GroupMeta | None = None,
        opened_with: OpenedWith | Backend | None = None,
        *,
        read_only: bool = False,
        **kwargs: Unpack[ConstructorKeywords],
    ) -> None:
        if path is None or opened_with is None or not isinstance(metadata, GroupMeta):
            if isinstance(store, AsyncGroup) and path is None and not kwargs:
                node: Group = unwrapped(store)
                store, path, metadata, opened_with = node.store, node.path, node.metadata, node.opened_with
                read_only |= node._read_only
            else:
                read_only, metadata = split_positional(Group, GroupMeta, metadata, opened_with, read_only)
                store, path, meta, opened_with = reach_existing(Group.__init__, store, path, metadata, {**kwargs})
                metadata = documents.expect_group(store, path, meta)
        super().__init__(store, path, metadata, opened_with, read_only=read_only)

    # -- mapping ------------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Array | Self:
        """Return the array or group with a name or path.

        Parameters
        ----------
        name : str
            Name, or path from here.

        Returns
        -------
        Array or Group
            The member.

        Raises
        ------
        KeyError
            If there is no such member.
        """
        path = path_from(self, name)
        meta = documents.read_node(self.store, path, self.metadata.zarr_format)
        if meta is None:
            raise KeyError(f"{name!r} is not in {self.store_path}")
        return self._node(path, meta)

    def __setitem__(self, name: str, value: Any) -> None:
        """Store an array under a name, replacing an array but not a group.

        Parameters
        ----------
        name : str
            Name, or path from here.
        value : array-like or Group
            Data, or an array or group to copy. The copy of a gzarr or h5py array has its chunks and data type; that of
            a gzarr array also its codecs and attributes.

        Raises
        ------
        ContainsGroupError
            If a group has that name.
        ContainsNodeError
            If a group is to be copied into itself.
        """
        if isinstance(value, Group):
            self.check_metadata_writable()
            if lies_within(self.store, path_from(self, name), value.store, value.path):
                raise ContainsNodeError(f"cannot copy {str(value.store_path)!r} into itself, as {name!r}")
            copy = self.create_group(name, attributes=value.attrs.asdict())
            for child, node in value.items():
                copy[child] = node
            return
        if isinstance(documents.read_node(self.store, member_path(self, name), self.metadata.zarr_format), GroupMeta):
            raise ContainsGroupError(
                f"{name!r} is a group in {self.store_path}; delete it before storing an array there"
            )
        keywords = like_member(self, value, {}) if hasattr(value, "shape") and hasattr(value, "dtype") else {}
        attributes = value.attrs.asdict() if isinstance(value, Array) else None
        self.create_array(name, data=value, overwrite=True, attributes=attributes, **keywords)

    def __delitem__(self, name: str) -> None:
        """Delete an array or group with everything in it, even if its metadata are malformed.

        Parameters
        ----------
        name : str
            Name, or path from here.

        Raises
        ------
        KeyError
            If there is no such member.
        """
        self.check_metadata_writable()
        path = member_path(self, name)
        if not documents.node_exists(self.store, path, self.metadata.zarr_format):
            raise KeyError(f"{name!r} is not in {self.store_path}")
        documents.delete_node(self.store, path)

    # As in zarr 2, names are those of the nodes that are stored. A node's metadata are read when it is opened, so a
    # damaged member hides neither itself nor the others.

    def __iter__(self) -> Iterator[str]:
        return documents.member_names(self.store, self.path, self.metadata.zarr_format)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and documents.node_exists(
                self.store, path_from(self, name), self.metadata.zarr_format
            )
        except MetadataError:  # a name that no member can have
            return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(f"a group has no attribute or member {name!r}") from error

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def close(self) -> None:
        """Close the store. A ZIP archive is complete only then."""
        self.store.close()

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for name in self if name.isidentifier())})

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Group)
            and self.path == other.path
            and self.read_only == other.read_only
            and same_objects(self.store, other.store)
        )

    def __hash__(self) -> int:
        return hash(self.path)

    def get_array(self, path: str) -> Array:
        """Return the array with a name.

        Parameters
        ----------
        path : str
            Name of the array, or its path from here.

        Returns
        -------
        Array
            The array.

        Raises
        ------
        ArrayNotFoundError
            If there is nothing of that name.
        ContainsGroupError
            If a group has that name.
        """
        found = self.get(path)
        if isinstance(found, Array):
            return found
        if found is None:
            raise ArrayNotFoundError(f"No array found in store: {str(self.store_path / path)!r} does not exist")
        raise ContainsGroupError(f"A group exists in store at {str(found.store_path)!r}, no array; use get_group")

    def get_group(self, path: str) -> Self:
        """Return the group with a name.

        Parameters
        ----------
        path : str
            Name of the group, or its path from here.

        Returns
        -------
        Group
            The group.

        Raises
        ------
        GroupNotFoundError
            If there is nothing of that name.
        ContainsArrayError
            If an array has that name.
        """
        found = self.get(path)
        if isinstance(found, Array):
            raise ContainsArrayError(f"An array exists in store at {str(found.store_path)!r}, no group; use get_array")
        if found is None:
            raise GroupNotFoundError(f"No group found in store: {str(self.store_path / path)!r} does not exist")
        return found

    @property
    def async_group(self) -> AsyncGroup:
        """The same group for callers that await."""
        return AsyncGroup(self)

    @classmethod
    def from_store(
        cls,
        store: Any,
        *,
        attributes: Mapping[str, Any] | None = None,
        zarr_format: int | None = None,
        overwrite: bool = False,
    ) -> Self:
        """Create the group in a store.

        Parameters
        ----------
        store : Store, StorePath, Group, path, URL or mapping
            Where to create the group.
        attributes : mapping, optional
            User attributes: JSON values by name.
        zarr_format : {2, 3}, optional
            By default the setting ``default_zarr_format``, which is 3.
        overwrite : bool
            Whether to replace an array or group that is stored there.

        Returns
        -------
        Group
            The new group.

        Raises
        ------
        ContainsArrayError, ContainsGroupError
            If something is stored there and ``overwrite`` is false.
        """
        opened, path = open_store(store)
        meta = new_group_meta(opened, path, attributes or {}, zarr_format, overwrite=overwrite)
        return cls(opened, path, meta, opened_with_settings())

    # -- groups -------------------------------------------------------------------------------------------------------

    def create_group(self, name: str, *, overwrite: bool = False, attributes: Any = None) -> "Group":
        """Create a group, and missing groups above it.

        Parameters
        ----------
        name : str
            Name of the group, or its path from here.
        overwrite : bool
            Whether to replace an array or group that is stored there.
        attributes : mapping, optional
            User attributes: JSON values by name.

        Returns
        -------
        Group
            The new group.

        Raises
        ------
        ContainsArrayError, ContainsGroupError
            If something is stored there and ``overwrite`` is false.
        ReadOnlyError
            If this group was opened for reading.

        Examples
        --------
        >>> import gzarr
        >>> root = gzarr.group()
        >>> root.create_group("foo/bar", attributes={"unit": "m"}).name
        '/foo/bar'
        """
        self.check_metadata_writable()
        path = member_path(self, name)
        meta = new_group_meta(self.store, path, attributes or {}, self.metadata.zarr_format, overwrite=overwrite)
        return Group(self.store, path, meta, self.opened_with)

    def create_groups(self, *names: str, overwrite: bool = False, attributes: Any = None) -> "tuple[Group, ...]":
        """Create several groups.

        Parameters
        ----------
        *names : str
            Names, or paths from here.
        overwrite, attributes
            See `create_group`.

        Returns
        -------
        tuple of Group
            The new groups.
        """
        return tuple(self.create_group(name, overwrite=overwrite, attributes=attributes) for name in names)

    def require_group(self, name: str, overwrite: bool = False) -> "Group":
        """Open the group with a name, creating it if it is missing.

        Parameters
        ----------
        name : str
            Name of the group, or its path from here.
        overwrite : bool
            Whether to create it anew, deleting what is stored there.

        Returns
        -------
        Group
            The group.

        Raises
        ------
        ContainsArrayError
            If an array has that name.
        """
        if overwrite:
            return self.create_group(name, overwrite=True)
        path, zarr_format = path_from(self, name), self.metadata.zarr_format
        if self._read_only and documents.read_node(self.store, path, zarr_format) is None:
            self.check_metadata_writable()
        meta = require_group_meta(self.store, path, {}, zarr_format)
        return Group(self.store, path, meta, self.opened_with, read_only=self._read_only)

    def require_groups(self, *names: str) -> "tuple[Group, ...]":
        """Open several groups, creating those that are missing.

        Parameters
        ----------
        *names : str
            Names, or paths from here.

        Returns
        -------
        tuple of Group
            The groups.
        """
        return tuple(self.require_group(name) for name in names)

    def create_hierarchy(
        self, nodes: Mapping[str, Any], *, overwrite: bool = False
    ) -> Iterator[tuple[str, Array | Self]]:
        """Create many arrays and groups in this group: see `gzarr.create_hierarchy`.

        Parameters
        ----------
        nodes : mapping
            Metadata by path from here, in the format of this group.
        overwrite : bool
            Whether to replace arrays and groups that are stored there.

        Returns
        -------
        iterator of (str, Array or Group)
            Paths from here, and the nodes that were created.

        Raises
        ------
        MetadataError
            If one of the paths is that of this group, or metadata have another format.
        ContainsArrayError, ContainsGroupError
            If something is stored at one of the paths and ``overwrite`` is false. Nothing is created then.
        """
        self.check_metadata_writable()
        parsed = {normalize_path(name): documents.as_meta(meta) for name, meta in nodes.items()}
        if "" in parsed:
            raise MetadataError(f"{self.store_path} is there: leave the path '' out, or call gzarr.create_hierarchy")
        zarr_format = self.metadata.zarr_format
        if any(meta.zarr_format != zarr_format for meta in parsed.values()):
            raise MetadataError(f"{self.store_path} has format {zarr_format} and cannot contain nodes of the other one")
        created = create_nodes(self.store, self.path, nodes, overwrite=overwrite)
        return iter([(name, self._node(join_path(self.path, name), meta)) for name, meta in created.items()])

    # -- arrays -------------------------------------------------------------------------------------------------------

    def create_array(
        self,
        name: str,
        shape: Any = None,
        dtype: Any = None,
        data: Any = None,
        *,
        fill_value: Any = UNSET,
        **kwargs: Unpack[MemberKeywords],
    ) -> Array:
        """Create an array, and missing groups above it.

        Parameters
        ----------
        name : str
            Name of the array, or its path from here.
        shape : int or sequence of int
            Extents. By default those of ``data``.
        dtype : dtype-like, optional
            Data type of the elements. By default that of ``data``, or float64.
        data : array-like, optional
            Values to fill the array with, on the host or on a GPU.
        fill_value : scalar, optional
            Value of elements that were never written.
        **kwargs
            See `gzarr.create_array`. The format and the device are those of the group.

        Returns
        -------
        Array
            The new array.

        Raises
        ------
        MetadataError
            If keywords contradict each other, or the group's format has no such array.
        ContainsArrayError, ContainsGroupError
            If something is stored there and ``overwrite`` is false.
        ReadOnlyError
            If the group was opened for reading.

        Examples
        --------
        >>> import gzarr
        >>> root = gzarr.group()
        >>> z = root.create_array("run/speed", shape=(100, 3), chunks=(10, 3), dtype="f4")
        >>> root["run/speed"].chunks
        (10, 3)
        """
        check_keywords(kwargs, MemberKeywords, self.create_array)
        given: dict[str, Any] = {"shape": shape, "dtype": dtype, "fill_value": fill_value, **kwargs}
        return new_member(self, name, data, given)

    create_dataset = create_array  # h5py's name
    create = create_array  # zarr 2's name

    def require_array(
        self,
        name: str,
        shape: Any,
        dtype: Any = None,
        exact: bool = False,
        *,
        fill_value: Any = UNSET,
        **kwargs: Unpack[MemberKeywords],
    ) -> Array:
        """Open the array with a name, creating it if it is missing.

        Parameters
        ----------
        name : str
            Name of the array, or its path from here.
        shape : int or sequence of int
            Extents.
        dtype : dtype-like, optional
            Data type of the elements. By default float64.
        exact : bool
            Whether an existing array must have just this data type, instead of one to which it can be cast safely.
        fill_value, **kwargs
            See `create_array`; used if the array is created.

        Returns
        -------
        Array
            The array.

        Raises
        ------
        TypeError
            If the array that is there has another shape or data type.
        ContainsNodeError
            If a group is there.

        Examples
        --------
        >>> import gzarr
        >>> root = gzarr.group()
        >>> z = root.require_array("a", shape=(10,), dtype="i4")
        >>> root.require_array("a", shape=(10,), dtype="i4") == z
        True
        """
        check_keywords(kwargs, MemberKeywords, self.require_array)
        given: dict[str, Any] = {"fill_value": fill_value, **kwargs}
        return require_member(self, name, shape, dtype, given, exact=exact)

    require_dataset = require_array  # h5py's name

    def array(self, name: str, data: Any, **kwargs: Unpack[NewMemberKeywords]) -> Array:
        """Create an array from data: `create_array` with ``data`` in second place."""
        given: dict[str, Any] = {**kwargs}
        return self.create_array(name, data=data, **given)

    def empty(self, name: str, shape: Any = None, **kwargs: Unpack[FilledMemberKeywords]) -> Array:
        """Create an array without giving it a fill value: see `gzarr.empty` and `create_array`."""
        return self._filled(name, None, shape, kwargs)

    def zeros(self, name: str, shape: Any = None, **kwargs: Unpack[FilledMemberKeywords]) -> Array:
        """Create an array of zeros, for which nothing is stored: see `create_array`."""
        return self._filled(name, 0, shape, kwargs)

    def ones(self, name: str, shape: Any = None, **kwargs: Unpack[FilledMemberKeywords]) -> Array:
        """Create an array of ones, for which nothing is stored: see `create_array`."""
        return self._filled(name, 1, shape, kwargs)

    def full(
        self, name: str, shape: Any = None, fill_value: Any = None, **kwargs: Unpack[FilledMemberKeywords]
    ) -> Array:
        """Create an array filled with a value, for which nothing is stored: see `create_array`."""
        given: dict[str, Any] = {**kwargs}
        return self.create_array(name, shape, fill_value=fill_value, **given)

    def _filled(self, name: str, fill_value: Any, shape: Any, keywords: Mapping[str, Any]) -> Array:
        return self.create_array(name, shape, **{"fill_value": fill_value, **keywords})

    def _like(self, name: str, fill_value: Any, template: Any, keywords: Mapping[str, Any]) -> Array:
        return self.create_array(name, **like_member(self, template, {"fill_value": fill_value, **keywords}))

    def empty_like(self, name: str, data: Any, **kwargs: Unpack[LikeMemberKeywords]) -> Array:
        """Create an array like another, as `empty` does: see `gzarr.empty_like`."""
        return self._like(name, getattr(data, "fill_value", None), data, kwargs)

    def zeros_like(self, name: str, data: Any, **kwargs: Unpack[LikeMemberKeywords]) -> Array:
        """Create an array of zeros like another: see `gzarr.zeros_like`."""
        return self._like(name, 0, data, kwargs)

    def ones_like(self, name: str, data: Any, **kwargs: Unpack[LikeMemberKeywords]) -> Array:
        """Create an array of ones like another: see `gzarr.ones_like`."""
        return self._like(name, 1, data, kwargs)

    def full_like(self, name: str, data: Any, fill_value: Any = None, **kwargs: Unpack[LikeMemberKeywords]) -> Array:
        """Create an array like another, filled with a value or the other's fill value: see `gzarr.full_like`."""
        chosen = {} if fill_value is None else {"fill_value": fill_value}
        return self.create_array(name, **like_member(self, data, {**chosen, **kwargs}))

    # -- listing ------------------------------------------------------------------------------------------------------

    def arrays(self, recurse: bool = False) -> Iterator[tuple[str, Array]]:
        """Iterate over the arrays in the group.

        Parameters
        ----------
        recurse : bool
            Whether to go into the groups below as well.

        Returns
        -------
        iterator of (str, Array)
            Names, without their paths, and arrays.
        """
        for name, node in self._nodes(recurse):
            if isinstance(node, Array):
                yield name, node

    def groups(self, recurse: bool = False) -> Iterator[tuple[str, Self]]:
        """Iterate over the groups in the group.

        Parameters
        ----------
        recurse : bool
            Whether to go into the groups below as well.

        Returns
        -------
        iterator of (str, Group)
            Names, without their paths, and groups.
        """
        for name, node in self._nodes(recurse):
            if not isinstance(node, Array):
                yield name, node

    def array_keys(self, recurse: bool = False) -> Iterator[str]:
        """Iterate over the names of the arrays.

        Parameters
        ----------
        recurse : bool
            Whether to go into the groups below as well.

        Returns
        -------
        iterator of str
            Names, without their paths.
        """
        found = self._descendants(None if recurse else 0)
        return (path.rpartition("/")[2] for path, meta in found if isinstance(meta, ArrayMeta))

    def group_keys(self) -> Iterator[str]:
        """Iterate over the names of the groups in the group."""
        return (name for name, meta in self._descendants(0) if isinstance(meta, GroupMeta))

    def array_values(self) -> Iterator[Array]:
        """Iterate over the arrays in the group."""
        return (array for _, array in self.arrays())

    def group_values(self) -> Iterator[Self]:
        """Iterate over the groups in the group."""
        return (group for _, group in self.groups())

    def members(
        self, max_depth: int | None = 0, *, use_consolidated_for_children: bool = True
    ) -> tuple[tuple[str, Array | Self], ...]:
        """List everything in the group, down to a depth.

        Parameters
        ----------
        max_depth : int, optional
            How many levels to go down: 0, the default, lists the group's own members; None lists all.
        use_consolidated_for_children : bool
            Accepted for zarr-python; changes nothing: consolidated metadata here are never stale.

        Returns
        -------
        tuple of (str, Array or Group)
            Paths from here, and nodes.

        Examples
        --------
        >>> import gzarr
        >>> root = gzarr.group()
        >>> z = root.zeros("a/b", shape=3)
        >>> [path for path, node in root.members(None)]
        ['a', 'a/b']
        """
        if max_depth is not None and max_depth < 0:
            raise ValueError(f"max_depth must be None or >= 0, got {max_depth!r}")
        found = self._descendants(max_depth)
        return tuple((path, self._node(join_path(self.path, path), meta)) for path, meta in found)

    async def amembers(self, max_depth: int | None = 0) -> AsyncIterator[tuple[str, Array | Self]]:
        """List everything in the group without blocking: ``async for path, node in group.amembers()``.

        Each group is listed when it is reached. A member whose path is known is opened by
        ``asyncio.to_thread(gzarr.open, group, path=...)``.

        Parameters
        ----------
        max_depth : int, optional
            See `members`.

        Yields
        ------
        (str, Array or Group)
            Path from here, and node.
        """
        for name, meta in await run_in_thread(lambda: list(self._descendants(0))):
            node = self._node(join_path(self.path, name), meta)
            yield name, node
            if not isinstance(node, Array) and (max_depth is None or max_depth > 0):
                async for below, deeper in node.amembers(None if max_depth is None else max_depth - 1):
                    yield f"{name}/{below}", deeper

    def nmembers(self, max_depth: int | None = 0) -> int:
        """Count what `members` lists.

        Parameters
        ----------
        max_depth : int, optional
            See `members`.

        Returns
        -------
        int
            The number of members.
        """
        return len(self.members(max_depth))

    def visitvalues(self, function: Callable[[Any], Any]) -> Any:
        """Call a function with every node below, until it returns something.

        Parameters
        ----------
        function : callable
            Takes a node.

        Returns
        -------
        object
            The first result that is not None, or None.
        """
        return self.visititems(lambda _, node: function(node))

    def visitkeys(self, function: Callable[[str], Any]) -> Any:
        """Call a function with the path of every node below, until it returns something.

        Parameters
        ----------
        function : callable
            Takes a path from here.

        Returns
        -------
        object
            The first result that is not None, or None.
        """
        return self.visititems(lambda path, _: function(path))

    visit = visitkeys

    def visititems(self, function: Callable[[str, Any], Any]) -> Any:
        """Call a function with path and node of everything below, until it returns something.

        Parameters
        ----------
        function : callable
            Takes a path from here and a node.

        Returns
        -------
        object
            The first result that is not None, or None.

        Examples
        --------
        >>> import gzarr
        >>> root = gzarr.group()
        >>> z = root.zeros("a/b", shape=3)
        >>> root.visititems(lambda path, node: path if isinstance(node, gzarr.Array) else None)
        'a/b'
        """
        for path, node in self.members(None):
            result = function(path, node)
            if result is not None:
                return result
        return None

    def tree(
        self, level: int | None = None, *, expand: bool = False, max_nodes: int | None = None, plain: bool = False
    ) -> Tree:
        """Draw the hierarchy with lines.

        Parameters
        ----------
        level : int, optional
            How many levels to show. By default all.
        expand : bool
            Accepted for zarr 2; changes nothing.
        max_nodes : int, optional
            How many arrays and groups to show. By default all.
        plain : bool
            Accepted for zarr-python, whose drawing has bold names without it; this one has none.

        Returns
        -------
        Tree
            Its ``repr`` is the drawing; notebooks show it as well.

        Examples
        --------
        >>> import gzarr
        >>> root = gzarr.group()
        >>> z = root.zeros("a/b", shape=(2, 3), dtype="i4")
        >>> root.tree()
        /
        └── a
            └── b (2, 3) int32
        """
        from gzarr.hierarchy.group_info import group_tree  # few programs draw

        return group_tree(self, level, max_nodes)

    @property
    def info(self) -> Report:
        """A report of what the group holds."""
        from gzarr.hierarchy.group_info import group_report

        return group_report(self)

    def info_complete(self) -> Report:
        """Return `info`, as zarr-python's method of this name does."""
        return self.info

    # -- moving -------------------------------------------------------------------------------------------------------

    def move(self, source: str, dest: str) -> None:
        """Rename an array or group with everything in it, creating missing groups above its new place.

        Parameters
        ----------
        source, dest : str
            Old and new name, or paths from here.

        Raises
        ------
        MemberNotFoundError
            If there is no ``source``. It is a KeyError and a ValueError.
        ContainsNodeError
            If something is stored at ``dest``, or ``dest`` is in ``source``.

        Examples
        --------
        >>> import gzarr
        >>> root = gzarr.group()
        >>> root["a"] = [1, 2]
        >>> root.move("a", "b/c")
        >>> root["b/c"][...]
        array([1, 2])
        """
        self.check_metadata_writable()
        old, new = path_from(self, source), member_path(self, dest)
        if not old or documents.read_node(self.store, old, self.metadata.zarr_format) is None:
            raise MemberNotFoundError(f"{source!r} is not in {self.store_path}")
        if new == old or new.startswith(old + "/"):
            raise ContainsNodeError(f"{self.store_path}: cannot move {source!r} into itself, as {dest!r}")
        parent = new.rpartition("/")[0]
        if documents.read_node(self.store, new, self.metadata.zarr_format) is not None:
            raise ContainsNodeError(
                f"{self.store_path}: cannot move {source!r}: something is already stored at {dest!r}"
            )
        if parent:
            Group(self.store, "", GroupMeta({}, self.metadata.zarr_format), self.opened_with).require_group(parent)
        documents.move_node(self.store, old, new)

    def to(self, device: str | Backend, **options: Unpack[DeviceKeywords]) -> Self:
        """Return the same group with its arrays on another device.

        Parameters
        ----------
        device : str
            "auto", "cpu", "cuda" or "cuda:N".
        **options
            See `Array.to`.

        Returns
        -------
        Group
            The group. Nothing is copied.

        Raises
        ------
        DeviceError
            If the device cannot be used; the message says what is missing.
        """
        opened_with = self.opened_with.on(device, **options)
        return type(self)(self.store, self.path, self.metadata, opened_with, read_only=self._read_only)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.store.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.store, self.path, self.opened_with, self._read_only)

    def __repr__(self) -> str:
        return f"<Group {self.store_path}>"

    def _repr_html_(self) -> str:
        from gzarr.hierarchy.group_info import group_page  # few programs show pages

        return group_page(self)

    def _node(self, path: str, meta: NodeMeta) -> Array | Self:
        if isinstance(meta, ArrayMeta):
            return Array(self.store, path, meta, self.opened_with, read_only=self._read_only)
        return type(self)(self.store, path, meta, self.opened_with, read_only=self._read_only)

    def _descendants(self, max_depth: int | None) -> Iterator[tuple[str, NodeMeta]]:
        return documents.descendants(self.store, self.path, self.metadata.zarr_format, max_depth)

    def _nodes(self, recurse: bool) -> tuple[tuple[str, Array | Self], ...]:
        return tuple((name.rpartition("/")[2], node) for name, node in self.members(None if recurse else 0))


def opened_node(
    store: Store, path: str, meta: NodeMeta, opened_with: OpenedWith, *, read_only: bool = False
) -> Array | Group:
    """Return the array or group that has some metadata."""
    if isinstance(meta, ArrayMeta):
        return Array(store, path, meta, opened_with, read_only=read_only)
    return Group(store, path, meta, opened_with, read_only=read_only)


def _reopen(store: Store, path: str, opened_with: OpenedWith, read_only: bool) -> Group:
    """Open a pickled group again. Raises GroupNotFoundError or MetadataError."""
    meta = documents.expect_group(store, path, documents.read_node(store, path))
    return Group(store, path, meta, opened_with, read_only=read_only)


take_over(AsyncGroup, Group)
