"""Where chunks are: chunk coordinates to places, and new chunks to stored objects. Sharding is addressing.

Theory of operation. An *object* is what has a key in the store. In a plain `Layout`, every chunk is an object. In a
`gzarr.layout.sharded.Sharded` layout, an object holds a grid of chunks and an index. ``locate`` says where the chunks
of one object are, as a table with a row for each: its offset, and its bytes (`Places`). ``build`` makes an object's
new bytes from its old ones and the chunks that change; it copies the other chunks encoded.

Rules: nothing here decodes chunks; every inconsistency raises CodecError.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.indexing.grid import Grid, cut_chunks
from gzarr.indexing.keys import Coords, KeyEncoding
from gzarr.indexing.selection import Indices
from gzarr.storage.base import Buffer, Request, Store

#: A located chunk: a request that fetches it, its bytes, or None if it is missing.
Located: TypeAlias = "Request | Buffer | None"

#: In place of the offset and the bytes of a chunk: it is missing. In place of its bytes alone: all of the object.
MISSING = 2**64 - 1

#: In place of an object's token: the store reads one version of it, and says itself which (`PinnedStore`).
PINNED: object = object()


class Places:
    """Where the chunks of one stored object are, of one version of it: here, the object is the chunk."""

    __slots__ = ()

    def find(self, chunks: Sequence[Coords] | Indices) -> tuple[memoryview | None, NDArray[np.uint64]]:
        """Find chunks. Raises: CodecError, StoreError.

        chunks: coordinates, (n, ndim). Returns: the bytes that they are in, None if these are the object's, which is
        not in memory; and a row for each chunk, (n, 2): offset and number of bytes (see `MISSING`).
        """
        return None, np.array([(0, MISSING)], np.uint64)

    def located(self, key: str, chunks: Sequence[Coords] | Indices) -> list[Located]:
        """Find chunks, as items for `Backend.load`. key: of the object. Raises: as `find`."""
        data, rows = self.find(chunks)
        if data is not None:
            return [None if start == MISSING else data[start : start + n] for start, n in rows.tolist()]
        return [
            None if start == MISSING else Request(key) if n == MISSING else Request(key, start, n)
            for start, n in rows.tolist()
        ]


class Names(NamedTuple):
    """How the keys of an array's objects are made.

    Attributes
    ----------
    path : str
        Of the array.
    keys : KeyEncoding
        How coordinates become the rest of the key.
    """

    path: str
    keys: KeyEncoding


class Layout:
    """Where the chunks of one array are in its store. In this class, every chunk is a stored object.

    A layout whose ``objects`` is the same object as its ``grid`` stores every chunk by itself.

    Attributes
    ----------
    grid : Grid
        The chunk grid.
    objects : Grid
        The grid of stored objects.
    names : Names
        How the keys of objects are made.
    key
        Key of a stored object.
    cut : tuple of Coords
        The coordinate on every axis of the chunks, and of the objects, that reach beyond the array (-1: of none).
        Others may have appended to these, unknown to this object. None until it is needed.
    """

    def __init__(self, grid: Grid, objects: Grid, names: Names) -> None:
        self.grid, self.objects, self.names = grid, objects, names
        self.key = names.keys.under(names.path, len(objects))
        self.cut: tuple[Coords, Coords] | None = None

    def keys(self, coords: Indices) -> list[str]:
        """Keys of several objects. coords: int64 (n, ndim)."""
        return list(map(self.key, map(tuple, coords.tolist())))

    def find_cut(self) -> tuple[Coords, Coords]:
        """Find `cut`, which writes need."""
        self.cut = cut_chunks(self.grid), cut_chunks(self.objects)
        return self.cut

    def locate(
        self,
        store: Store,
        object_coords: Coords,
        token: object | None = None,
        *,
        stored: Buffer | None = None,
        wanted: int = 0,
    ) -> Places:
        """Say where the chunks of one object are.

        token: of the object (`Versions.token`), taken just before; None if the store has none; `PINNED`.
        stored: the object, if it was fetched whole; the token is then its own (`Versions.of`).
        wanted: how many chunks are wanted, if an object may be fetched whole for most of them, which saves a request.
        Raises: CodecError.
        """
        return Places()

    def extract(self, stored: Buffer, object_coords: Coords, chunks: Sequence[Coords]) -> list[Buffer | None]:
        """Take chunks out of an object's bytes. Raises: CodecError."""
        return [stored]

    def cached_token(self, key: str) -> object | None:
        """The token of the version of an object whose index is cached; None if there is none."""
        return None

    def initialized(self, store: Store, object_coords: Coords) -> int:
        """Number of chunks that an object that is stored holds. Raises: CodecError."""
        return 1

    def is_whole(self, object_coords: Coords, nchunks: int) -> bool:
        """Whether that many distinct chunks are all that the object holds within the array."""
        return nchunks == 1

    def build(
        self, stored: Buffer | None, object_coords: Coords, changed: Mapping[Coords, Buffer | None]
    ) -> Buffer | None:
        """An object's new bytes: the old ones with some chunks replaced or removed. None if nothing is left."""
        return changed[object_coords]

    def segments(
        self, stored: Buffer | None, object_coords: Coords, changed: Mapping[Coords, Buffer | None]
    ) -> Sequence[Buffer]:
        """What `build` returns, as buffers that belong one after the other; none if nothing is left."""
        data = changed[object_coords]
        return () if data is None else (data,)
