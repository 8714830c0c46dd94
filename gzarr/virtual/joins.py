"""Joined arrays: several arrays along one axis, as one array that is read from where they are.

Where all parts have the same elements and end where a chunk ends, the joined array has their chunks: its table is
theirs, one after the other, and says by which codecs each is decoded if they differ. Otherwise its chunks are made when
they are read (`gzarr.virtual.agreement`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, overload

import numpy as np

from gzarr.api.open import open_array
from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.spec import CodecSpec
from gzarr.errors import CodecError, MetadataError, SelectionError, StoreError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.lazy_views import LazyView
from gzarr.hierarchy.resizing import objects_stored
from gzarr.hierarchy.view_joins import join_views
from gzarr.indexing.grid import Grid, RegularAxis, VaryingAxis
from gzarr.indexing.keys import KeyEncoding
from gzarr.metadata.conventions import described_in, same_value
from gzarr.metadata.documents import as_meta, documents, to_dict
from gzarr.metadata.model import ArrayMeta
from gzarr.storage.base import Buffer, Request, Store
from gzarr.storage.tables import INLINE, MISSING, ChunkTable, Inline, chains_of
from gzarr.storage.wrappers import seen_through
from gzarr.virtual.agreement import Agreed, agree, decoded
from gzarr.virtual.store import Chunks, Contents, LazyTables, Reader, VirtualStore

#: Numbers of chains that a column of bytes holds.
_MAX_CHAINS = 256


@overload
def concat(arrays: Iterable[LazyView], axis: int | str = 0) -> LazyView: ...
@overload
def concat(arrays: Iterable[Any], axis: int | str = 0) -> Array: ...
def concat(arrays: Iterable[Any], axis: int | str = 0) -> Array | LazyView:
    """Join arrays along an axis, without a copy.

    Parameters
    ----------
    arrays : iterable of Array, LazyView, path or URL
        The arrays, in order. They have the same lengths along all other axes. Views (`Array.lazy`) become one view,
        which is read as one queue and can be written to.
    axis : int or str
        The axis, or its name.

    Returns
    -------
    Array or LazyView
        The joined array, read-only, on the device of the first array. Its chunks are read when they are used, from
        where they are. If an array is changed meanwhile, `ReplacedError` is raised.

    Raises
    ------
    MetadataError
        If the arrays differ in what their elements mean, and it cannot be made the same: the message has both values.
    SelectionError
        If the arrays have no such axis, or differ in shape.

    Notes
    -----
    Arrays may differ in chunks, codecs and byte order. Numbers of different types become those of a type that holds all
    exactly. If arrays pack numbers or mark missing data differently, all become floats with NaN; times of different
    units become those of one. Other attributes stay where all arrays have the same.

    Examples
    --------
    >>> import gzarr
    >>> a, b = gzarr.array([[1, 2], [3, 4]]), gzarr.array([[5, 6]])
    >>> gzarr.concat([a, b])[1:]
    array([[3, 4],
           [5, 6]])
    """
    found = _given(arrays)
    return join_views(found, axis, is_new=False) if _has_views(found) else _opened(found, axis, is_new=False)


@overload
def stack(arrays: Iterable[LazyView], axis: int = 0, *, name: str | None = None) -> LazyView: ...
@overload
def stack(arrays: Iterable[Any], axis: int = 0, *, name: str | None = None) -> Array: ...
def stack(arrays: Iterable[Any], axis: int = 0, *, name: str | None = None) -> Array | LazyView:
    """Join arrays of one shape along a new axis, without a copy. See `concat`.

    Parameters
    ----------
    arrays : iterable of Array, LazyView, path or URL
        The arrays, in order. Views become a view.
    axis : int
        Where the new axis is.
    name : str, optional
        The name of the new axis.

    Returns
    -------
    Array or LazyView
        The joined array, read-only.

    Raises
    ------
    MetadataError, SelectionError
        As of `concat`.

    Examples
    --------
    >>> import gzarr
    >>> gzarr.stack([gzarr.array([1, 2]), gzarr.array([3, 4])], axis=1)[...]
    array([[1, 3],
           [2, 4]])
    """
    found = _given(arrays)
    return (join_views if _has_views(found) else _opened)(found, axis, is_new=True, name=name)


def _has_views(arrays: Iterable[Any]) -> bool:
    return any(isinstance(one, LazyView) for one in arrays)


def _given(arrays: Iterable[Any]) -> tuple[Any, ...]:
    found = tuple(one if isinstance(one, (Array, LazyView)) else open_array(one, mode="r") for one in arrays)
    if not found:
        raise SelectionError("there are no arrays to join; give at least one")
    return found


def _opened(arrays: tuple[Array, ...], axis: int | str, *, is_new: bool, name: str | None = None) -> Array:
    title = f"{len(arrays)} arrays from {arrays[0].store_path} to {arrays[-1].store_path}"
    store = VirtualStore(partial(_find, arrays, axis, is_new=is_new, name=name), title)
    return open_array(store, mode="r", device=arrays[0].backend)  # type: ignore[arg-type]  # a backend is one


def _find(arrays: tuple[Array, ...], axis: int | str, *, is_new: bool, name: str | None) -> Contents:
    objects = Objects()
    document, make, chains = join(arrays, axis, objects, is_new=is_new, name=name)
    found = {"zarr.json": document}, LazyTables({"": make}), objects.found
    return Contents(*found, tokens=objects.tokens, chains={"": chains})


class Objects:
    """The objects of joined arrays, by number, and the versions that their stores have read."""

    def __init__(self) -> None:
        self.found: list[tuple[Store, str]] = []
        self.tokens: dict[int, object] = {}
        self._numbers: dict[tuple[int, str], int] = {}

    def number(self, store: Store, key: str) -> int:
        """The number of an object."""
        found = self._numbers.setdefault((id(store), key), len(self.found))
        if found == len(self.found):
            self.found.append((store, key))
        return found

    def numbers(self, store: VirtualStore) -> list[int]:
        """The numbers of all objects of a store."""
        found = []
        for at, (inner, key) in enumerate(store.contents.objects):
            found.append(self.number(inner, key))
            token = store.tokens.get(at)
            if token is not None:
                self.tokens.setdefault(found[-1], token)
        return found


def join(
    arrays: Sequence[Array], axis: int | str, objects: Objects, *, is_new: bool = False, name: str | None = None
) -> tuple[bytes, Callable[[], Chunks], Sequence[bytes]]:
    """Join arrays: the document of the joined one, what makes its table or reader, and `Tables.chains`.

    axis: by number, or by name. objects: takes the objects that the chunks are in. is_new, name: of a new axis.
    Raises: as `concat`.
    """
    agreed = agree(arrays)
    at = _axis(arrays[0], axis, agreed.names, is_new=is_new)
    _check_shapes(arrays, None if is_new else at)
    names = agreed.names if name is None else agreed.names or (None,) * arrays[0].ndim
    if is_new and names is not None:
        agreed = agreed._replace(names=(*names[:at], name, *names[at:]))
    metas = _as_stored(arrays, at, agreed, is_new=is_new)
    if metas is None:
        return *decoded(arrays, at, agreed, is_new=is_new), ()
    found = [documents(meta, "")[0][1] for meta in metas]
    chains = list(dict.fromkeys(found))
    if len(chains) > _MAX_CHAINS:
        return *decoded(arrays, at, agreed, is_new=is_new), ()
    numbers = [chains.index(one) for one in found]
    make = partial(_joined_table, arrays, at, objects, numbers if len(chains) > 1 else (), is_new=is_new)
    return chains[0], make, chains if len(chains) > 1 else ()


def _axis(array: Array, axis: int | str, names: Sequence[str | None] | None, *, is_new: bool) -> int:
    if isinstance(axis, str):
        if names is None or axis not in names or is_new:
            raise SelectionError(f"{array.store_path} has no axis {axis!r}; its axes are {names}")
        return names.index(axis)
    ndim = array.ndim + is_new
    if not -ndim <= axis < ndim:
        raise SelectionError(f"axis {axis} is out of range for a joined array of {ndim} axes")
    return axis % ndim


def _check_shapes(arrays: Sequence[Array], axis: int | None) -> None:
    first = arrays[0]
    for one in arrays:
        if one.ndim != first.ndim or any(
            n != m and number != axis for number, (n, m) in enumerate(zip(one.shape, first.shape, strict=True))
        ):
            raise SelectionError(
                f"cannot join arrays of shapes {first.shape} ({first.store_path}) and {one.shape} ({one.store_path});"
                f" they may differ along {'no axis' if axis is None else f'axis {axis} alone'}"
            )


def _as_stored(arrays: Sequence[Array], axis: int, agreed: Agreed, *, is_new: bool) -> list[ArrayMeta] | None:
    """The metadata of the joined array by the codecs and the fill value of each part; None if chunks must be made."""
    metas = [described_in(one.metadata, 3) for one in arrays]
    first, are_sharded = metas[0], any(one.sharding is not None for one in metas)
    if any(agreed.conversions) or any(one.is_view or reader_of(one) or is_mixed(one) for one in arrays):
        return None
    grid = _joined_grid([one.grid for one in metas], axis, is_new=is_new)
    if grid is None or any(one.data_type != first.data_type for one in metas):
        return None
    if is_new and any(
        type(one.codecs[0]) is not BytesCodec for one in metas
    ):  # whose bytes are those of a larger chunk
        return None
    found: list[ArrayMeta] = []
    for one in metas:
        is_same = same_value(one.fill_value, agreed.fill_value, first.data_type)
        fill = agreed.fill_value if is_same else one.fill_value
        fixed = tuple([axis.extent for axis in grid]), first.data_type, grid, KeyEncoding(), fill, one.codecs
        meta = same_when_read(ArrayMeta(*fixed, agreed.attributes, agreed.names))
        if meta is None or (are_sharded and (meta.codecs, is_same) != (first.codecs, True)):
            return None
        found.append(meta)
    return found


def is_mixed(array: Array) -> bool:
    """Whether the chunks of an array have several chains of codecs."""
    return bool(chains_of(array.store.tables, array.path))


def with_one_chain(array: Array) -> Array:
    """An array, the chunks of which are made when they are read if they have several chains of codecs."""
    return concat([array]) if is_mixed(array) else array


def alone(array: Array, objects: Objects) -> tuple[bytes, Callable[[], Chunks]]:
    """The document of one array in the words of Zarr v3, and what makes its table or reader. Raises: MetadataError."""
    array = with_one_chain(array)
    meta = same_when_read(described_in(array.metadata, 3))
    if meta is None:
        raise MetadataError(f"{array.store_path} has codecs that only Zarr v2 has; copy it to Zarr v3 first")
    return documents(meta, "")[0][1], partial(chunks_of, array, objects)


def chunks_of(array: Array, objects: Objects) -> Chunks:
    """The table or the reader of an array. objects: takes the objects that the chunks are in."""
    return _watched(array, reader_of(array)) or table_of(array, objects)


def _watched(array: Array, reader: Reader | None) -> Reader | None:
    """A reader by way of the array's own store, which compares the version of the file."""
    key = array.metadata.keys.under(array.path, array.ndim)
    return reader and reader._replace(read=lambda many: array.store.get_many([Request(key(at)) for at in many]))


def same_when_read(meta: ArrayMeta) -> ArrayMeta | None:
    """Metadata, if their documents say all of them; else None."""
    try:
        read = as_meta(to_dict(meta))
    except (MetadataError, CodecError):
        return None
    is_same = isinstance(read, ArrayMeta) and _chain(read) == _chain(meta) and read.grid == meta.grid
    return meta if is_same else None


def _chain(meta: ArrayMeta) -> list[CodecSpec]:
    """The codecs of an array, of which single bytes need no order."""
    is_ordered = meta.data_type.variable or meta.data_type.dtype.itemsize > 1
    return [one for one in meta.codecs if is_ordered or type(one) is not BytesCodec]


def _joined_grid(grids: Sequence[Grid], axis: int, *, is_new: bool) -> Grid | None:
    """The grid of all chunks; None if a part ends within one, or the parts differ along another axis."""
    if is_new:
        return (*grids[0][:axis], RegularAxis(len(grids), 1), *grids[0][axis:]) if len(set(grids)) == 1 else None
    along = [grid[axis] for grid in grids if grid[axis].extent]
    is_even = all(one.bounds(one.nchunks - 1)[1] == one.extent for one in along[:-1])
    if not is_even or len({(*grid[:axis], *grid[axis + 1 :]) for grid in grids}) > 1:
        return None
    lengths = [end - start for one in along for start, end in map(one.bounds, range(one.nchunks))]
    extent, joined = sum(one.extent for one in along), grids[0][axis]
    if lengths:
        joined = RegularAxis(extent, lengths[0]) if len(set(lengths)) == 1 else VaryingAxis(extent, tuple(lengths))
    return (*grids[0][:axis], joined, *grids[0][axis + 1 :])


def reader_of(array: Array) -> Reader | None:
    """What reads the chunks of an array without a table."""
    store = seen_through(array.store)
    found = store.contents.arrays[array.path] if isinstance(store, VirtualStore) else None
    return found if isinstance(found, Reader) else None


def table_of(array: Array, objects: Objects) -> ChunkTable:
    """Where the chunks are of an array that needs no reader. objects: takes the objects."""
    store, meta = seen_through(array.store), array.metadata
    if isinstance(store, VirtualStore) and (table := store.place_of(array.path)) is not None:
        numbers = objects.numbers(store)
        return replace(table, objects=np.array([*numbers, INLINE, MISSING], np.int32)[table.objects])
    table, key = ChunkTable.empty(tuple(one.nchunks for one in meta.grid)), meta.keys.under(array.path, array.ndim)
    for coords in objects_stored(meta, array.store, array.path):
        row = table.row(coords)
        table.objects[row], table.offsets[row] = objects.number(array.store, key(coords)), 0
    return table


def _joined_table(
    arrays: Sequence[Array], axis: int, objects: Objects, chains: Sequence[int], *, is_new: bool
) -> ChunkTable:
    """The chunks of several arrays, one after the other along an axis. chains: the number of each array's, if any."""
    tables = [table_of(one, objects) for one in arrays]
    padded = tables[0].padded_nbytes
    if any(one.padded_nbytes != padded for one in tables):  # chunks of other lengths
        padded, tables = 0, [_unpadded(table, array) for table, array in zip(tables, arrays, strict=True)]
    counts = [(*one.counts[:axis], 1, *one.counts[axis:]) if is_new else one.counts for one in tables]
    joined = np.concatenate([one.objects.reshape(n) for one, n in zip(tables, counts, strict=True)], axis)
    places = np.concatenate([one.places.reshape(*n, 2) for one, n in zip(tables, counts, strict=True)], axis)
    column = None
    if chains:
        column = np.concatenate([np.full(n, k, np.uint8) for n, k in zip(counts, chains, strict=True)], axis).ravel()
    inline: dict[int, Inline] = {}
    start = 0
    for table, shape in zip(tables, counts, strict=True):
        for row, chunk in table.inline.items():
            coords = list(map(int, np.unravel_index(row, shape)))
            coords[axis] += start
            inline[int(np.ravel_multi_index(coords, joined.shape))] = chunk
        start += shape[axis]
    return ChunkTable(joined.shape, joined.ravel(), places.reshape(-1, 2), inline, padded, column)


def _unpadded(table: ChunkTable, array: Array) -> ChunkTable:
    """The table of an array without padding: its store fills up chunks that are short."""
    short = np.flatnonzero((table.objects >= 0) & (table.lengths >= 0) & (table.lengths < table.padded_nbytes))
    key, inline, numbers = array.metadata.keys.under(array.path, array.ndim), dict(table.inline), table.objects.copy()
    for row in short.tolist():
        coords = tuple(map(int, np.unravel_index(row, table.counts)))
        inline[row], numbers[row] = partial(_chunk, array.store, key(coords)), INLINE
    return replace(table, objects=numbers, inline=inline, padded_nbytes=0)


def _chunk(store: Store, key: str) -> Buffer:
    """A chunk as its store has it. Raises: StoreError."""
    found = store.get_one(Request(key))
    if found is None:
        raise StoreError(f"{store}: {key!r} is gone; open the arrays again")
    return found
