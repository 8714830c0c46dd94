"""Functions that store the metadata of a whole hierarchy in one document, and open the hierarchy from it."""

from collections.abc import Mapping
from typing import Any, Unpack, overload

from gzarr.errors import MetadataError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group, opened_node
from gzarr.hierarchy.keywords import GroupKeywords, OpenMode
from gzarr.hierarchy.reaching import open_place, reach_group, take_format
from gzarr.indexing.keys import join_path
from gzarr.metadata.catalog import open_consolidated_node, require_consolidated
from gzarr.metadata.consolidated import DEFAULT_KEY, consolidate
from gzarr.metadata.documents import expect_node, read_node
from gzarr.metadata.model import NodeMeta
from gzarr.storage.base import Store


def consolidate_metadata(
    store: Any,
    metadata_key: str = DEFAULT_KEY,
    *,
    path: str | None = None,
    zarr_format: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Array | Group:
    """Store the metadata of a group and of everything below it in one document, so that one read opens them all.

    From then on gzarr keeps the document current: whatever creates, changes, moves or deletes a member updates it.
    Other programs do not; call this again after they have changed something. Many changes in a row are faster before
    this call than after it.

    Parameters
    ----------
    store : Store, Group, path, URL or mapping
        Where the group is stored.
    metadata_key : str
        Key of the document (v2). Only the document under the default key is kept current.
    path : str, optional
        Path of the group in the store.
    zarr_format : {2, 3}, optional
        Format to look for. By default both.
    storage_options : mapping, optional
        Options for the server of a URL.

    Returns
    -------
    Group or Array
        What `open_consolidated` returns. For an array there is nothing to consolidate.

    Raises
    ------
    NodeNotFoundError
        If nothing is stored there.
    MetadataError
        If the stored metadata are malformed, or ``metadata_key`` is given for v3.
    ReadOnlyError
        If the store was opened for reading.

    Examples
    --------
    >>> import gzarr
    >>> root = gzarr.group("many.zarr", zarr_format=2)
    >>> arrays = [root.zeros(f"a{i}", shape=10) for i in range(3)]
    >>> root = gzarr.consolidate_metadata("many.zarr")
    >>> list(gzarr.open_consolidated("many.zarr", mode="r"))
    ['a0', 'a1', 'a2']
    """
    opened, where = open_place(store, path, "a", {"storage_options": storage_options})
    wanted = take_format(zarr_format, {})
    if wanted == 3 and metadata_key != DEFAULT_KEY:
        raise MetadataError(f"metadata_key={metadata_key!r}: Zarr v3 keeps consolidated metadata in zarr.json")
    meta = expect_node(opened, where, read_node(opened.live(), where, wanted))
    if not consolidate(opened, where, metadata_key):
        expect_node(opened, where, None)  # it was deleted meanwhile
    return open_consolidated(opened, metadata_key, path=where, zarr_format=meta.zarr_format)


@overload
def open_consolidated(
    store: Group,
    metadata_key: str = DEFAULT_KEY,
    mode: OpenMode | None = None,
    *,
    path: None = None,
    zarr_format: int | None = None,
    device: str | None = None,
    use_consolidated: bool = True,
    **kwargs: Unpack[GroupKeywords],
) -> Group: ...


@overload
def open_consolidated(
    store: Any,
    metadata_key: str = DEFAULT_KEY,
    mode: OpenMode | None = None,
    *,
    path: str | None = None,
    zarr_format: int | None = None,
    device: str | None = None,
    use_consolidated: bool = True,
    **kwargs: Unpack[GroupKeywords],
) -> Array | Group: ...


def open_consolidated(
    store: Any,
    metadata_key: str = DEFAULT_KEY,
    mode: OpenMode | None = None,
    *,
    path: str | None = None,
    zarr_format: int | None = None,
    device: str | None = None,
    use_consolidated: bool = True,
    **kwargs: Unpack[GroupKeywords],
) -> Array | Group:
    """Open a group from its consolidated metadata: one read, however many members it has.

    The metadata are read-only: nothing can be created, deleted, resized or given attributes. Data can be written unless
    the mode is "r".

    Parameters
    ----------
    store : Store, Group, path, URL or mapping
        Where the group is stored.
    metadata_key : str
        Key of the consolidated metadata (v2).
    mode : {"r", "r+", "a"}, optional
        Whether data can be written. By default they can, unless the store was opened for reading.
    path : str, optional
        Path of the group in the store.
    zarr_format : {2, 3}, optional
        Format to look for. By default both.
    device : str, optional
        Where reads of the arrays in the group put their results: see `gzarr.open_array`.
    use_consolidated : bool
        Accepted for zarr-python; only True is allowed.
    **kwargs
        See `gzarr.open_group`.

    Returns
    -------
    Group or Array
        What is stored there.

    Raises
    ------
    MetadataError
        If there are no consolidated metadata, or they are malformed.
    NodeNotFoundError
        If nothing is stored there.
    ValueError
        If the mode would create something.
    """
    if mode not in (None, "r", "r+", "a"):
        raise ValueError(f"open_consolidated creates nothing: mode must be 'r', 'r+' or 'a', got {mode!r}")
    if not use_consolidated:
        raise ValueError("use_consolidated must be True here; use open_group to do without consolidated metadata")
    store, path = (path, None) if store is None else (store, path)
    given: dict[str, Any] = {**kwargs, "zarr_format": zarr_format}
    opened, where, mode, opened_with, wanted = reach_group(open_consolidated, store, path, mode, device, given)
    opened, meta = open_consolidated_node(opened, where, wanted, metadata_key, frozen=True)
    meta = expect_node(opened, where, meta)
    require_consolidated(opened, meta, join_path(str(opened), where))
    return opened_node(opened, where, meta, opened_with, read_only=mode == "r")


def read_with_consolidated(
    store: Store, path: str, zarr_format: Any, mode: OpenMode, use_consolidated: bool | str | None
) -> tuple[Store, NodeMeta | None]:
    """Return a store and what is at a path; the store serves consolidated metadata if they exist and are wanted."""
    if use_consolidated is False or (use_consolidated is None and mode != "r"):
        return store, read_node(store, path, zarr_format)
    key = use_consolidated if isinstance(use_consolidated, str) else DEFAULT_KEY
    opened, meta = open_consolidated_node(store, path, zarr_format, key)
    if use_consolidated:
        require_consolidated(opened, meta, join_path(str(store), path))
    return opened, meta
