"""Lazy views as arrays of a loader: their chunks are made when they are read."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from gzarr.codecs.bytes import BytesCodec
from gzarr.dtypes import parse_dtype
from gzarr.errors import ReadOnlyError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.lazy_views import LazyView
from gzarr.indexing.grid import RegularAxis
from gzarr.indexing.keys import KeyEncoding
from gzarr.indexing.regions import chunks_region
from gzarr.metadata.documents import documents
from gzarr.metadata.model import ArrayMeta
from gzarr.storage.base import Buffer, Request
from gzarr.storage.flat import FlatStore
from gzarr.storage.rules import cut

_KEYS = KeyEncoding()


def array_of_view(view: LazyView) -> Array:
    """Return a read-only array that has the elements of a view. Raises TypeError for elements of varying size."""
    if view.dtype.hasobject:
        raise TypeError(f"arrays: {view} has elements of varying size; read it with view.result()")
    grid = tuple(RegularAxis(n, max(chunk, 1)) for n, chunk in zip(view.shape, view.chunks, strict=True))
    data_type = parse_dtype(view.dtype.newbyteorder("="))
    fill = np.zeros((), data_type.dtype)[()]
    meta = ArrayMeta(view.shape, data_type, grid, _KEYS, fill, (BytesCodec("little"),), {}, view.dimension_names)
    return Array(_ViewStore(view, meta), "", meta, view.arrays[0].opened_with, read_only=True)


class _ViewStore(FlatStore):
    """A store with an array whose chunks are parts of a view."""

    read_only = True

    def __init__(self, view: LazyView, meta: ArrayMeta) -> None:
        self._view, self._grid, self._chunks, self._name = view, meta.grid, meta.chunks, str(view)
        ((_, self._document),) = documents(meta, "")

    def __str__(self) -> str:
        return self._name

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        found: list[Buffer | None] = []
        for key, start, length in requests:
            value = self._get(key)
            found.append(value if value is None or start is None else cut(value, start, length))
        return found

    def _get(self, key: str) -> bytes | None:
        if key == "zarr.json":
            return self._document
        coords = _KEYS.decode(key, len(self._grid))
        if coords is None or any(at >= axis.nchunks for at, axis in zip(coords, self._grid, strict=True)):
            return None
        part = np.asarray(self._view[chunks_region(self._grid, coords, coords)])
        whole = np.zeros(self._chunks, part.dtype.newbyteorder("<"))
        whole[tuple(map(slice, part.shape))] = part
        return whole.tobytes()

    def list_prefix(self, prefix: str = "") -> Iterator[str]:
        yield from (key for key in ["zarr.json"] if key.startswith(prefix))

    def getsize(self, key: str) -> int | None:
        value = self._get(key)
        return None if value is None else len(value)

    def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
        raise ReadOnlyError(f"{self} can only be read")

    def delete_many(self, keys: Iterable[str]) -> None:
        raise ReadOnlyError(f"{self} can only be read")
