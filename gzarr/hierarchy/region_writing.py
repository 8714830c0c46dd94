"""Writes from many places: regions of whole stored objects, and writers that refuse whatever is not their own."""

from typing import Any

from gzarr.errors import SelectionError
from gzarr.hierarchy.node import GzarrArray
from gzarr.indexing.grid import Axis
from gzarr.indexing.regions import Region, Regions, cut


def regions_of(array: GzarrArray, nbytes: int, whole: str) -> Regions:
    """The regions of `gzarr.Array.regions`. Raises: ValueError."""
    grids = {"shards": array.metadata.grid, "chunks": array.metadata.chunk_grid}
    if whole not in grids:
        raise ValueError(f"whole={whole!r} must be 'shards' or 'chunks'")
    return cut(grids[whole], grids[whole], array.itemsize, nbytes, nbytes)


class RegionWriter:
    """Writes whole chunks or shards of one region of an array, and refuses everything else.

    Made by `gzarr.Array.region_writer`. It can be pickled, to be sent to the process that owns the region.

    Attributes
    ----------
    region : tuple of slice
        What it owns.
    """

    __slots__ = ("_array", "region")

    def __init__(self, array: GzarrArray, region: Any) -> None:
        self._array, self.region = array, _box(array, region)
        self._check_whole(self.region)

    def write(self, values: Any) -> None:
        """Write the whole region."""
        self[self.region] = values

    def __setitem__(self, selection: Any, values: Any) -> None:
        """Write a part of the region, which is selected in the array by slices. Raises: SelectionError."""
        part = _box(self._array, selection)
        if any(p.start < own.start or p.stop > own.stop for p, own in zip(part, self.region, strict=True)):
            raise SelectionError(
                f"{self._array.store_path}: {shown(part)} is not within {shown(self.region)}, which this writer owns"
            )
        self._check_whole(part)
        self._array[part] = values

    def __repr__(self) -> str:
        return f"<RegionWriter: {shown(self.region)} of {self._array.store_path}>"

    def _check_whole(self, part: Region) -> None:
        for number, (axis, ends) in enumerate(zip(self._array.metadata.grid, part, strict=True)):
            low, high = _around(axis, ends)
            if (low, high) != (ends.start, ends.stop):
                raise SelectionError(
                    f"{self._array.store_path}: {shown(part)} cuts chunks or shards along axis {number}, which others "
                    f"may be writing: take {low}:{high} there, or regions of Array.regions"
                )


def _around(axis: Axis, part: slice) -> tuple[int, int]:
    """The ends of the stored objects that a part of an axis touches."""
    if part.start >= part.stop:
        return part.start, part.stop
    return axis.bounds(axis.locate(part.start))[0], min(axis.bounds(axis.locate(part.stop - 1))[1], axis.extent)


def _box(array: GzarrArray, selection: Any) -> Region:
    """A selection of slices as a region. Raises: SelectionError."""
    items = selection if isinstance(selection, tuple) else () if selection is Ellipsis else (selection,)
    if len(items) > len(array.shape) or not all(isinstance(item, slice) and item.step in (None, 1) for item in items):
        raise SelectionError(f"{array.store_path}: a region is made of slices of step 1, got {selection!r}")
    items += (slice(None),) * (len(array.shape) - len(items))
    return tuple(slice(*item.indices(n)[:2]) for item, n in zip(items, array.shape, strict=True))


def shown(region: Region) -> str:
    """A region as messages show it."""
    return "[" + ", ".join(f"{part.start}:{part.stop}" for part in region) + "]"
