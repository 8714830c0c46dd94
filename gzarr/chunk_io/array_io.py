"""An opened array, ready to run: its store, layout, backend and chains."""

from collections.abc import Callable
from typing import NamedTuple

from gzarr.backend import Backend, Chain, Compiled, Placement
from gzarr.chunk_io.chunk_cache import ArrayChunks
from gzarr.indexing.keys import Coords
from gzarr.layout.chunk_layout import Layout
from gzarr.profiling.recorder import Marker
from gzarr.storage.base import Store


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

    def without_missing(self) -> "ArrayIO":
        """Return the same array, reads of which raise `ChunkNotFoundError` for chunks that are not stored."""
        return self._replace(read_missing=False, compiled=None, cache=None)

    def placement(self) -> tuple[Placement, ...]:
        """Say where each step of a read runs, and what reads and writes many chunks."""
        steps = self.chain((0,) * len(self.layout.grid)).placement
        if self.layout.objects is not self.layout.grid and self.store.versions is None:
            steps = *steps, Placement("parts of shards", "host", "shards are read whole: the store has no versions")
        return steps if self.compiled is None else (*steps, *self.compiled.placement())
