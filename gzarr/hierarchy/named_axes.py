"""Names of axes: taken from values that have them, as those of xarray do, and compared with those of an array.

A value is not transposed to fit: its axes may have one length, so that the mistake would go unnoticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gzarr.hierarchy.node import Node
from gzarr.indexing.selection import Box, Selection
from gzarr.metadata.conventions import split_names
from gzarr.metadata.model import ArrayMeta


def axis_names(value: Any) -> tuple[Any, ...]:
    """Return the names of the axes of a value as xarray's arrays have them; empty if it has none."""
    dims = getattr(value, "dims", None)
    is_named = isinstance(dims, tuple) and len(dims) == len(getattr(value, "shape", ()))
    return dims if is_named and dims is not None else ()


def stored_names(meta: ArrayMeta) -> tuple[str | None, ...]:
    """Return the names of the axes of a stored array, of either format; empty if it has none."""
    return split_names(meta.attributes, meta.dimension_names, len(meta.shape))[1] or ()


def check_names(value: Any, selection: Selection, array: Node[ArrayMeta]) -> None:
    """Raise ValueError if a value's axes would go to axes that have other names."""
    dims = axis_names(value)
    if dims and isinstance(selection, Box):
        names = stored_names(array.metadata)
        check_aligned(dims, _names_of_result(names, selection), names, array.store_path)


def check_aligned(dims: Sequence[Any], names: Sequence[Any], known: Sequence[Any], where: object) -> None:
    """Raise ValueError if axes that are broadcast, the last to the last, would go to axes of other names.

    Names that an array does not know say nothing.
    """
    for dim, name in zip(reversed(dims), reversed(names), strict=False):
        if dim != name and dim in known:
            raise ValueError(
                f"{where}: a value with the axes {tuple(dims)} would be written to the axes {tuple(names)}, {dim!r} to "
                f"{name!r}; transpose it with value.transpose, or give value.data, whose axes have no names"
            )


def _names_of_result(names: Sequence[str | None], selection: Box) -> list[str | None]:
    """Return the names of the axes of what is selected; None for a new axis."""
    if selection.view is None:
        return list(names)
    found: list[str | None] = []
    rest = iter(names)
    for item in selection.view:
        if item is None:
            next(rest, None)
        elif item is not ...:
            found.append(None if isinstance(item, int) else next(rest, None))
    return found
