"""The ways to select: brackets, the ``get_`` and ``set_`` methods, ``vindex``, ``oindex`` and ``blocks``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from gzarr.backend import Array as AnyArray
from gzarr.backend import Fields
from gzarr.hierarchy.threads import run_in_thread
from gzarr.indexing.selection import (
    Box,
    Selection,
    normalize,
    normalize_basic,
    normalize_blocks,
    normalize_mask,
    normalize_orthogonal,
    normalize_vindex,
    split_fields,
)


class Indexed(ABC):
    """What can be read and written by every kind of selection. Subclasses read and write normalized ones."""

    __slots__ = ()

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Extents."""

    @abstractmethod
    def _edges(self) -> list[Sequence[int]]:
        """For every axis the chunk boundaries, from 0 to the extent."""

    @abstractmethod
    def _read(self, selection: Selection, fields: Fields, out: AnyArray) -> AnyArray:
        """Read a normalized selection."""

    @abstractmethod
    def _write(self, selection: Selection, value: Any, fields: Fields) -> None:
        """Write a normalized selection."""

    def __getitem__(self, key: Any) -> AnyArray:
        """Read a selection: integers, slices, ``...``, None, index lists, masks, field names.

        Returns: a new array on the array's device; a scalar if every axis has an integer.
        Raises: SelectionError, ChunkError, StoreError.
        """
        key, fields = split_fields(key)
        return self._read(normalize(key, self.shape), fields, None)

    async def aread(self, selection: Any = ...) -> AnyArray:
        """``array[selection]`` for coroutines: reads on a thread, so that many reads wait for a store at once.

        Cancelled before its turn, nothing is read; later, the result is dropped. A result on a GPU is ordered on the
        device's default stream. Raises: what ``array[selection]`` raises.
        """
        return await run_in_thread(self.__getitem__, selection)

    def get_basic_selection(self, selection: Any = ..., *, out: AnyArray = None, fields: Fields = None) -> AnyArray:
        """Read integers and slices. ``out``: an array of the result's shape to read into."""
        return self._read(normalize_basic(selection, self.shape), fields, out)

    def get_orthogonal_selection(self, selection: Any, *, out: AnyArray = None, fields: Fields = None) -> AnyArray:
        """Read an integer, slice, index list or boolean list for each axis, independently."""
        return self._read(normalize_orthogonal(selection, self.shape), fields, out)

    def get_coordinate_selection(self, selection: Any, *, out: AnyArray = None, fields: Fields = None) -> AnyArray:
        """Read the points given by one index array per axis."""
        return self._read(normalize_vindex(selection, self.shape), fields, out)

    def get_mask_selection(self, selection: Any, *, out: AnyArray = None, fields: Fields = None) -> AnyArray:
        """Read the points where a boolean array of the array's shape is true."""
        return self._read(normalize_mask(selection, self.shape), fields, out)

    def get_block_selection(self, selection: Any, *, out: AnyArray = None, fields: Fields = None) -> AnyArray:
        """Read whole chunks by their coordinates in the chunk grid."""
        return self._read(self._blocks(selection), fields, out)

    @property
    def vindex(self) -> VIndex:
        """Points: ``array.vindex[[0, 2], [1, 3]]``, ``array.vindex[mask]``; also assignable."""
        return VIndex(self)

    @property
    def oindex(self) -> OIndex:
        """Rows and columns: ``array.oindex[[0, 2], 1:3]``; also assignable."""
        return OIndex(self)

    @property
    def blocks(self) -> Blocks:
        """Whole chunks: ``array.blocks[0, 1:3]``; also assignable."""
        return Blocks(self)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write a selection. ``value`` is broadcast; another gzarr array or h5py dataset is read piece by piece.

        Raises: SelectionError, ValueError for a value of another shape, ReadOnlyError, ChunkError, StoreError.
        """
        key, fields = split_fields(key)
        self._write(normalize(key, self.shape), value, fields)

    async def awrite(self, selection: Any, value: Any) -> None:
        """``array[selection] = value`` for coroutines: writes on a thread.

        ``value`` must not change before the write is done; on a GPU it is read in the order of the device's default
        stream, so synchronize first if it was made on another. Cancelled before its turn, nothing is written; later,
        the write goes on to its end. Raises: what ``array[selection] = value`` raises.
        """
        await run_in_thread(self.__setitem__, selection, value)

    def set_basic_selection(self, selection: Any, value: Any, *, fields: Fields = None) -> None:
        """Write integers and slices."""
        self._write(normalize_basic(selection, self.shape), value, fields)

    def set_orthogonal_selection(self, selection: Any, value: Any, *, fields: Fields = None) -> None:
        """Write an integer, slice, index list or boolean list for each axis, independently."""
        self._write(normalize_orthogonal(selection, self.shape), value, fields)

    def set_coordinate_selection(self, selection: Any, value: Any, *, fields: Fields = None) -> None:
        """Write the points given by one index array per axis."""
        self._write(normalize_vindex(selection, self.shape), value, fields)

    def set_mask_selection(self, selection: Any, value: Any, *, fields: Fields = None) -> None:
        """Write the points where a boolean array of the array's shape is true."""
        self._write(normalize_mask(selection, self.shape), value, fields)

    def set_block_selection(self, selection: Any, value: Any, *, fields: Fields = None) -> None:
        """Write whole chunks by their coordinates in the chunk grid."""
        self._write(self._blocks(selection), value, fields)

    def _blocks(self, selection: Any) -> Box:
        return normalize_blocks(selection, self.shape, self._edges())


class VIndex:
    """Points: one index array per axis, broadcast together, or a boolean mask."""

    __slots__ = ("_array",)

    def __init__(self, array: Indexed) -> None:
        self._array = array

    def __getitem__(self, key: Any) -> AnyArray:
        key, fields = split_fields(key)
        return self._array.get_coordinate_selection(key, fields=fields)

    def __setitem__(self, key: Any, value: Any) -> None:
        key, fields = split_fields(key)
        self._array.set_coordinate_selection(key, value, fields=fields)


class OIndex:
    """Rows and columns: an integer, slice, index list or boolean list for each axis, independently."""

    __slots__ = ("_array",)

    def __init__(self, array: Indexed) -> None:
        self._array = array

    def __getitem__(self, key: Any) -> AnyArray:
        key, fields = split_fields(key)
        return self._array.get_orthogonal_selection(key, fields=fields)

    def __setitem__(self, key: Any, value: Any) -> None:
        key, fields = split_fields(key)
        self._array.set_orthogonal_selection(key, value, fields=fields)


class Blocks:
    """Whole chunks, by their coordinates in the chunk grid."""

    __slots__ = ("_array",)

    def __init__(self, array: Indexed) -> None:
        self._array = array

    def __getitem__(self, key: Any) -> AnyArray:
        key, fields = split_fields(key)
        return self._array.get_block_selection(key, fields=fields)

    def __setitem__(self, key: Any, value: Any) -> None:
        key, fields = split_fields(key)
        self._array.set_block_selection(key, value, fields=fields)
