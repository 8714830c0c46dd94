"""Which parts of an array are stored: what is not there is fill value, and need not be computed."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gzarr.errors import StoreError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.reductions import fill_of
from gzarr.hierarchy.resizing import objects_stored
from gzarr.images.pyramid.units import Units
from gzarr.indexing.regions import Region


class StoredChunks:
    """The stored objects of an array, which are listed when they are first asked for."""

    def __init__(self, array: Array) -> None:
        self._array = array

    @cached_property
    def _boxes(self) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """First elements of the stored objects, and those behind the last ones; None if they cannot be listed."""
        meta = self._array.metadata
        with suppress(StoreError):
            coords = np.array(objects_stored(meta, self._array.store, self._array.path), np.int64)
            coords = coords.reshape(-1, len(meta.shape))
            ends = [np.array([axis.bounds(k) for k in range(axis.nchunks)], np.int64) for axis in meta.grid]
            found = [np.minimum(ends[n][coords[:, n]], extent) for n, extent in enumerate(meta.shape)]
            each = np.stack(found, 1) if found else np.zeros((len(coords), 0, 2), np.int64)
            return each[..., 0], each[..., 1]
        return None

    def units(self, units: Units) -> list[Region] | None:
        """The units that hold anything, in order; None for all."""
        if self._boxes is None or not self._array.size:
            return None
        first, last = self._boxes[0] // units.unit, (self._boxes[1] - 1) // units.unit
        most = (last - first).max(0, initial=0) + 1
        touched = [np.minimum(first + step, last) for step in product(*map(range, most))]
        coords = np.unique(np.concatenate(touched), axis=0)
        return None if len(coords) == len(units) else units.in_order(coords)

    def has_any(self, region: Region) -> bool:
        """Whether something of a region is stored."""
        if self._boxes is None:
            return True
        low, high = np.array([(part.start, part.stop) for part in region], np.int64).reshape(-1, 2).T
        return bool(((self._boxes[0] < high) & (self._boxes[1] > low)).all(1).any())


def same_fill(*arrays: Array) -> bool:
    """Whether arrays have the same elements where nothing is stored."""
    return len({repr(np.asarray(fill_of(array)).astype("O")) for array in arrays}) == 1


def chunk_of(data: Any) -> tuple[int, ...] | None:
    """The shape of the chunks that an array decodes whole; None for one in memory."""
    chunks = getattr(data, "chunksize", None) or getattr(data, "chunks", None)  # Dask's are those of every block
    if not isinstance(chunks, tuple) or not all(isinstance(n, int) and n > 0 for n in chunks):
        return None
    return chunks


def units_with_any(
    sources: Sequence[Array], bases: Sequence[Array], needs: Callable[[Region], Sequence[tuple[int, Region]]]
) -> Callable[[Units], Sequence[Region]] | None:
    """What says which units of results need be computed, where functions keep the fill value; None for all.

    needs: the boxes of a region, each by the number of its source.
    """
    if any(source.is_view for source in sources) or not same_fill(*sources, *bases):
        return None
    stored = [StoredChunks(source) for source in sources]

    def occupied(units: Units) -> list[Region]:
        return [region for region in units if any(stored[n].has_any(box) for n, box in needs(region))]

    return occupied
