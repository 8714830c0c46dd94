"""The group: a mapping of names to arrays and groups, with the calls of h5py, zarr 2 and zarr-python 3."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from typing import Any, Self, Unpack

from gzarr.backend import Backend
from gzarr.display.info import Report, Tree
from gzarr.errors import (
    ContainsArrayError,
    ContainsGroupError,
    ContainsNodeError,
    GroupNotFoundError,
    MetadataError,
)
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.create import new_group_meta
from gzarr.hierarchy.group_arrays import GroupArrays
from gzarr.hierarchy.group_info import group_page, group_report, group_tree
from gzarr.hierarchy.keywords import DeviceKeywords
from gzarr.hierarchy.node import lies_within, same_objects
from gzarr.hierarchy.open_options import PickledBackend, backend_on, pickle_backend, unpickle_backend
from gzarr.hierarchy.threads import run_in_thread
from gzarr.indexing.keys import join_path
from gzarr.metadata.documents import delete_node, member_names, members, move_node, node_exists, read_node
from gzarr.metadata.model import ArrayMeta, GroupMeta, NodeMeta
from gzarr.storage.base import Store


class Group(GroupArrays, MutableMapping[str, Any]):
    """A group of arrays and groups. Names may be paths (``"foo/bar"``); a leading slash means the store's root.

    Made by `gzarr.group`, `gzarr.open_group` and `Group.create_group`, not by calling the class.
    """

    __slots__ = ()

    # -- mapping -------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        """The array or group with a name or path. Raises: KeyError."""
        path = self._path(name)
        meta = read_node(self.store, path, self.metadata.zarr_format)
        if meta is None:
            raise KeyError(f"{name!r} is not in {self.store_path}")
        return self._node(path, meta)

    def __setitem__(self, name: str, value: Any) -> None:
        """Store an array under a name, replacing an array (not a group): data, or a copy of an array or group.

        The copy of a gzarr or h5py array keeps chunks and dtype; that of a gzarr array also codecs and attributes.
        """
        if isinstance(value, Group):
            self.check_metadata_writable()
            if lies_within(self.store, self._path(name), value.store, value.path):
                raise ContainsNodeError(f"cannot copy {value.store_path} into itself ({name!r})")
            copy = self.create_group(name, attributes=value.attrs.asdict())
            for child, node in value.items():
                copy[child] = node
            return
        if isinstance(read_node(self.store, self._member_path(name), self.metadata.zarr_format), GroupMeta):
            raise ContainsGroupError(
                f"{name!r} is a group in {self.store_path}; delete it before storing an array there"
            )
        keywords = self._like(value, {}) if hasattr(value, "shape") and hasattr(value, "dtype") else {}
        attributes = value.attrs.asdict() if isinstance(value, Array) else None
        self.create_array(name, data=value, overwrite=True, attributes=attributes, **keywords)

    def __delitem__(self, name: str) -> None:
        """Delete an array or group with all that is in it, also one whose metadata are malformed. Raises: KeyError."""
        self.check_metadata_writable()
        path = self._member_path(name)
        if not node_exists(self.store, path, self.metadata.zarr_format):
            raise KeyError(f"{name!r} is not in {self.store_path}")
        delete_node(self.store, path)

    # Names, as in zarr 2, are those of the nodes that are there. What one says is read when it is opened: a damaged
    # member hides neither itself nor the others.

    def __iter__(self) -> Iterator[str]:
        return member_names(self.store, self.path, self.metadata.zarr_format)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and node_exists(self.store, self._path(name), self.metadata.zarr_format)
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
        """Close the store: a zip archive is complete only then."""
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

    # -- listing -------------------------------------------------------------------------------------------------

    def arrays(self, recurse: bool = False) -> Iterator[tuple[str, Array]]:
        """(name, array) of the arrays in the group; of those below it too if ``recurse``."""
        for name, node in self._nodes(recurse):
            if isinstance(node, Array):
                yield name, node

    def groups(self, recurse: bool = False) -> Iterator[tuple[str, Group]]:
        """(name, group) of the groups in the group; of those below it too if ``recurse``."""
        for name, node in self._nodes(recurse):
            if isinstance(node, Group):
                yield name, node

    def array_keys(self, recurse: bool = False) -> Iterator[str]:
        """Names of the arrays."""
        if recurse:
            return (name for name, _ in self.arrays(recurse=True))
        return (name for name, meta in self._members() if isinstance(meta, ArrayMeta))

    def group_keys(self) -> Iterator[str]:
        """Names of the groups."""
        return (name for name, meta in self._members() if isinstance(meta, GroupMeta))

    def array_values(self) -> Iterator[Array]:
        """The arrays."""
        return (array for _, array in self.arrays())

    def group_values(self) -> Iterator[Group]:
        """The groups."""
        return (group for _, group in self.groups())

    def members(self, max_depth: int | None = 0) -> tuple[tuple[str, Array | Group], ...]:
        """(path, node) of everything down to a depth: 0 is the group's own members, None has no limit."""
        found: list[tuple[str, Array | Group]] = []
        for name, meta in self._members():
            node = self._node(join_path(self.path, name), meta)
            found.append((name, node))
            if isinstance(node, Group) and (max_depth is None or max_depth > 0):
                deeper = node.members(None if max_depth is None else max_depth - 1)
                found += [(f"{name}/{below}", n) for below, n in deeper]
        return tuple(found)

    async def amembers(self, max_depth: int | None = 0) -> AsyncIterator[tuple[str, Array | Group]]:
        """`members` for coroutines: ``async for path, node in group.amembers()``; a group is listed when it is reached.

        A member whose path is known is opened by ``await gzarr.aopen(group, path=..., device=...)``.
        """
        for name, meta in await run_in_thread(lambda: list(self._members())):
            node = self._node(join_path(self.path, name), meta)
            yield name, node
            if isinstance(node, Group) and (max_depth is None or max_depth > 0):
                async for below, deeper in node.amembers(None if max_depth is None else max_depth - 1):
                    yield f"{name}/{below}", deeper

    def nmembers(self, max_depth: int | None = 0) -> int:
        """Number of `members`."""
        return len(self.members(max_depth))

    def visitvalues(self, function: Callable[[Any], Any]) -> Any:
        """Call a function with every node below; stops at, and returns, the first result that is not None."""
        return self.visititems(lambda _, node: function(node))

    def visitkeys(self, function: Callable[[str], Any]) -> Any:
        """Call a function with the path of every node below; stops at the first result that is not None."""
        return self.visititems(lambda path, _: function(path))

    visit = visitkeys

    def visititems(self, function: Callable[[str, Any], Any]) -> Any:
        """Call a function with path and node of everything below; stops at the first result that is not None."""
        for path, node in self.members(None):
            result = function(path, node)
            if result is not None:
                return result
        return None

    def tree(self, level: int | None = None, *, expand: bool = False) -> Tree:
        """The hierarchy, drawn with lines; ``level`` limits its depth, ``expand`` is zarr 2's and changes nothing."""
        return group_tree(self.store, self.path, self.metadata.zarr_format, self.basename or "/", level)

    @property
    def info(self) -> Report:
        """A report of what the group holds."""
        return group_report(self)

    def info_complete(self) -> Report:
        """The same as `info`."""
        return self.info

    # -- groups --------------------------------------------------------------------------------------------------

    def create_group(self, name: str, *, overwrite: bool = False, attributes: Any = None) -> Group:
        """Create a group, and missing groups above it. Raises: ContainsArrayError, ContainsGroupError."""
        self.check_metadata_writable()
        path = self._member_path(name)
        meta = new_group_meta(self.store, path, attributes or {}, self.metadata.zarr_format, overwrite=overwrite)
        return Group(self.store, path, meta, self.backend)

    def create_groups(self, *names: str, **kwargs: Any) -> tuple[Group, ...]:
        """Create several groups."""
        return tuple(self.create_group(name, **kwargs) for name in names)

    def require_group(self, name: str, overwrite: bool = False) -> Group:
        """The group with a name, created if it is missing; always anew if ``overwrite``.

        Raises: ContainsArrayError if an array has that name.
        """
        path = self._path(name)
        if not overwrite:
            meta = read_node(self.store, path, self.metadata.zarr_format)
            if isinstance(meta, ArrayMeta):
                raise ContainsArrayError(f"an array, not a group, is stored at {join_path(str(self.store), path)!r}")
            if meta is not None:
                return Group(self.store, path, meta, self.backend, read_only=self._read_only)
        return self.create_group(name, overwrite=overwrite)

    def require_groups(self, *names: str) -> tuple[Group, ...]:
        """`require_group` for several names."""
        return tuple(self.require_group(name) for name in names)

    # -- moving --------------------------------------------------------------------------------------------------

    def move(self, source: str, dest: str) -> None:
        """Rename an array or group, with all that is in it. Missing groups above ``dest`` are created.

        Raises: KeyError if there is no ``source``, ContainsNodeError if there is something at ``dest``.
        """
        self.check_metadata_writable()
        old, new = self._path(source), self._member_path(dest)
        if not old or read_node(self.store, old, self.metadata.zarr_format) is None:
            raise KeyError(f"{source!r} is not in {self.store_path}")
        if new == old or new.startswith(old + "/"):
            raise ContainsNodeError(f"cannot move {source!r} into itself ({dest!r})")
        parent = new.rpartition("/")[0]
        if read_node(self.store, new, self.metadata.zarr_format) is not None:
            raise ContainsNodeError(f"cannot move {source!r}: something is already stored at {dest!r}")
        if parent:
            Group(self.store, "", GroupMeta({}, self.metadata.zarr_format), self.backend).require_group(parent)
        move_node(self.store, old, new)

    def to(self, device: str | Backend, **options: Unpack[DeviceKeywords]) -> Self:
        """The same group with its arrays on another device. For options see `gzarr.Array.to`. Raises: DeviceError."""
        backend = backend_on(self.backend, device, **options)
        return type(self)(self.store, self.path, self.metadata, backend, read_only=self._read_only)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.store.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.store, self.path, pickle_backend(self.backend), self._read_only)

    def __repr__(self) -> str:
        return f"<Group {self.store_path}>"

    def _repr_html_(self) -> str:
        return group_page(self)

    # -- inside --------------------------------------------------------------------------------------------------

    def _members(self) -> Iterator[tuple[str, NodeMeta]]:
        return members(self.store, self.path, self.metadata.zarr_format)

    def _node(self, path: str, meta: NodeMeta) -> Array | Group:
        if isinstance(meta, ArrayMeta):
            return Array(self.store, path, meta, self.backend, read_only=self._read_only)
        return Group(self.store, path, meta, self.backend, read_only=self._read_only)

    def _nodes(self, recurse: bool) -> tuple[tuple[str, Array | Group], ...]:
        return tuple((name.rpartition("/")[2], node) for name, node in self.members(None if recurse else 0))


def open_node_group(store: Store, path: str, backend: Backend, *, read_only: bool = False) -> Group:
    """Open the group at a path. Raises: GroupNotFoundError, MetadataError."""
    meta = read_node(store, path)
    if not isinstance(meta, GroupMeta):
        found = "nothing is there" if meta is None else "an array is there"
        raise GroupNotFoundError(f"no group at {join_path(str(store), path)!r}: {found}")
    return Group(store, path, meta, backend, read_only=read_only)


def _reopen(store: Store, path: str, where: PickledBackend, read_only: bool) -> Group:
    """Open a pickled group again: on its own device if this process has that, else on the best there is."""
    return open_node_group(store, path, unpickle_backend(where), read_only=read_only)
