"""An opened array, ready to run: its store, layout, backend and chains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from gzarr.backend import Backend, Chain, Compiled, Placement
from gzarr.chunk_io.chunk_cache import ArrayChunks
from gzarr.errors import ChunkError, ChunkNotFoundError, CodecError
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import Groups, Part
from gzarr.layout.chunk_layout import Layout
from gzarr.profiling.recorder import Marker
from gzarr.storage.base import Store

T = TypeVar("T")


class ArrayIO(NamedTuple):
    """An opened array, ready to run.

    Attributes
    ----------
    name : str
        What errors call the array.
    store : Store
        Where its objects are.
    layout : Layout
        Where its chunks are.
    backend : Backend
        Decodes them.
    chain : callable
        The prepared codecs of a chunk with given coordinates.
    only_chain : Chain or None
        The chain of all chunks; None if they differ in shape, and so in their chains.
    chunk_nbytes : int
        Size of a decoded chunk, or an estimate.
    compiled : Compiled or None
        Decides which reads and writes compiled code does; None if the backend has no such code.
    cache : ArrayChunks or None
        Of decoded chunks, or None.
    marker : Marker or None
        Shows the stages of a profile on the device; None on the host.
    """

    name: str
    store: Store
    layout: Layout
    backend: Backend
    chain: Callable[[Coords], Chain]
    only_chain: Chain | None
    chunk_nbytes: int
    compiled: Compiled | None = None
    cache: ArrayChunks | None = None
    marker: Marker | None = None
    read_missing: bool = True

    def without_missing(self) -> ArrayIO:
        """Return the same array, reads of which raise `ChunkNotFoundError` for chunks that are not stored."""
        return self._replace(read_missing=False, compiled=None, cache=None)

    def placement(self) -> tuple[Placement, ...]:
        """Say where each step of a read runs, and what reads and writes many chunks."""
        steps = self.chain((0,) * len(self.layout.grid)).placement
        if self.layout.objects is not self.layout.grid and self.store.versions is None:
            steps = *steps, Placement("parts of shards", "host", "shards are read whole: the store has no versions")
        return steps if self.compiled is None else (*steps, *self.compiled.placement())


def by_chain(io: ArrayIO, parts: Sequence[Part]) -> Iterable[tuple[Chain, Sequence[int]]]:
    """Group the parts of a batch by the chain of their chunks: (chain, positions)."""
    if io.only_chain is not None:
        return ((io.only_chain, range(len(parts))),)
    chains: dict[int, tuple[Chain, list[int]]] = {}
    for position, part in enumerate(parts):
        chain = io.chain(part.coords)
        chains.setdefault(id(chain), (chain, []))[1].append(position)
    return chains.values()


def pick(items: Sequence[T], positions: Sequence[int]) -> list[T]:
    """Some of the items, by their positions."""
    return [items[i] for i in positions]


def check_present(io: ArrayIO, groups: Groups, buffers: Sequence[Any]) -> None:
    """Raise ChunkNotFoundError for the first chunk of a batch that is not stored."""
    owners = [(coords, part) for coords, parts in groups for part in parts]
    for (object_coords, part), buffer in zip(owners, buffers, strict=True):
        if buffer is None:
            why = (
                "the chunk is not stored, and array.read_missing_chunks is False, so that it is not read as fill value"
            )
            key = io.layout.key(object_coords)
            raise ChunkNotFoundError(why, path=io.name, key=key, chunk_coords=part.coords)


def chunk_error(io: ArrayIO, groups: Groups, error: CodecError, positions: Sequence[int]) -> ChunkError:
    """Return an error that names the chunk of a batch. positions: of the batch's items in the groups."""
    owners: list[tuple[Any, Part]] = [(coords, part) for coords, parts in groups for part in parts]
    object_coords, part = owners[positions[min(error.index, len(positions) - 1)]]
    key = io.layout.key(object_coords)
    return ChunkError(str(error), path=io.name, key=key, chunk_coords=part.coords, codec=error.codec)
