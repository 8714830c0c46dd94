"""The accessors ``array.vindex``, ``array.oindex`` and ``array.blocks``: selections by other rules than brackets."""

from __future__ import annotations

from typing import Any, Protocol

from gzarr.backend import Array as AnyArray
from gzarr.selection import split_fields


class _Selectable(Protocol):
    def get_coordinate_selection(self, selection: Any, **kwargs: Any) -> AnyArray: ...
    def set_coordinate_selection(self, selection: Any, value: Any, **kwargs: Any) -> None: ...
    def get_orthogonal_selection(self, selection: Any, **kwargs: Any) -> AnyArray: ...
    def set_orthogonal_selection(self, selection: Any, value: Any, **kwargs: Any) -> None: ...
    def get_block_selection(self, selection: Any, **kwargs: Any) -> AnyArray: ...
    def set_block_selection(self, selection: Any, value: Any, **kwargs: Any) -> None: ...


class VIndex:
    """Points: one index array per axis, broadcast together, or a boolean mask."""

    __slots__ = ("_array",)

    def __init__(self, array: _Selectable) -> None:
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

    def __init__(self, array: _Selectable) -> None:
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

    def __init__(self, array: _Selectable) -> None:
        self._array = array

    def __getitem__(self, key: Any) -> AnyArray:
        key, fields = split_fields(key)
        return self._array.get_block_selection(key, fields=fields)

    def __setitem__(self, key: Any, value: Any) -> None:
        key, fields = split_fields(key)
        self._array.set_block_selection(key, value, fields=fields)
