"""Lists what is in a group: its members by kind, everything below it, its tree and its report."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Self

from gzarr.display.info import Report, Tree
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.node import Node
from gzarr.hierarchy.threads import run_in_thread
from gzarr.indexing.keys import join_path
from gzarr.metadata.documents import members
from gzarr.metadata.model import ArrayMeta, GroupMeta, NodeMeta


class GroupListing(Node[GroupMeta]):
    """The methods of a group that list what is in it."""

    __slots__ = ()

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
        if recurse:
            return (name for name, _ in self.arrays(recurse=True))
        return (name for name, meta in self._members() if isinstance(meta, ArrayMeta))

    def group_keys(self) -> Iterator[str]:
        """Iterate over the names of the groups in the group."""
        return (name for name, meta in self._members() if isinstance(meta, GroupMeta))

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
        listed: list[tuple[str, Array | Self]] = []
        waiting = self._children("")  # not by recursion: an archive may be deeper than Python allows
        while waiting:
            path, node = waiting.pop()
            listed.append((path, node))
            if not isinstance(node, Array) and (max_depth is None or path.count("/") < max_depth):
                waiting += node._children(f"{path}/")  # noqa: SLF001 - its own kind
        return tuple(listed)

    async def amembers(self, max_depth: int | None = 0) -> AsyncIterator[tuple[str, Array | Self]]:
        """List everything in the group without blocking: ``async for path, node in group.amembers()``.

        Each group is listed when it is reached. A member whose path is known is opened by ``gzarr.aopen(group,
        path=...)``.

        Parameters
        ----------
        max_depth : int, optional
            See `members`.

        Yields
        ------
        (str, Array or Group)
            Path from here, and node.
        """
        for name, meta in await run_in_thread(lambda: list(self._members())):
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

    def _members(self) -> Iterator[tuple[str, NodeMeta]]:
        return members(self.store, self.path, self.metadata.zarr_format)

    def _children(self, prefix: str) -> list[tuple[str, Array | Self]]:
        """The members with their names after a prefix, the last first."""
        return [(prefix + name, self._node(join_path(self.path, name), meta)) for name, meta in self._members()][::-1]

    def _node(self, path: str, meta: NodeMeta) -> Array | Self:
        if isinstance(meta, ArrayMeta):
            return Array(self.store, path, meta, self.opened_with, read_only=self._read_only)
        return type(self)(self.store, path, meta, self.opened_with, read_only=self._read_only)

    def _nodes(self, recurse: bool) -> tuple[tuple[str, Array | Self], ...]:
        return tuple((name.rpartition("/")[2], node) for name, node in self.members(None if recurse else 0))
