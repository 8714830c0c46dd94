"""Which elements of an array are missing: those that are NaN or equal a number, or where a mask says so.

What is made of an array, such as its statistics and the levels of an image, leaves them out.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend
from gzarr.dtypes import DataType, cast_fill
from gzarr.errors import MetadataError
from gzarr.hierarchy.node import GzarrArray
from gzarr.hierarchy.reductions import fill_of, fold
from gzarr.indexing.keys import Coords
from gzarr.metadata.conventions import MissingData, missing_data_of, nodata_of
from gzarr.tensors import from_tensor

P = TypeVar("P")

#: Elements of a mask that are read at once.
_MASK_SIZE = 1 << 24


class Missing(NamedTuple):
    """Which elements are missing.

    Attributes
    ----------
    value : scalar
        The element that stands for what is missing in what is made of the array.
    mask : numpy.ndarray or Array of bool, or None
        True for each element of the array that is missing. None if those are missing that equal the value.
    window : tuple of int or None
        How many elements of the mask make one element, by axis; None for one. An element is missing if all of them are.
    others : MissingData or None
        Elements that are missing, where these are not only those that equal the value.
    """

    value: Any
    mask: Any = None
    window: Coords | None = None
    others: MissingData | None = None

    def above(self, factors: Coords) -> "Missing":
        """The same of an array whose elements are made of windows of this one."""
        window = factors if self.window is None else tuple(w * f for w, f in zip(self.window, factors, strict=True))
        return self._replace(window=window)

    def find(self, backend: Backend, block: AnyArray, start: Coords) -> AnyArray:
        """Which elements of a block are missing. start: where it lies in the array."""
        if self.mask is not None:
            return self.read(backend, start, block.shape)
        if self.others is None:
            return block != block if self.value != self.value else block == self.value  # noqa: PLR0124 - NaN
        found = backend.xp.zeros(block.shape, bool)
        for value in self.others.values:
            found |= block == value
        low, high = self.others.low, self.others.high
        if low is not None and high is not None and low > high:
            return found | ((block > high) & (block < low))
        if low is not None:
            found |= block < low
        if high is not None:
            found |= block > high
        return found

    def read(self, backend: Backend, start: Coords, shape: Coords) -> AnyArray:
        """What the mask says of a block, on the device of a backend."""
        window = (1,) * len(shape) if self.window is None else self.window
        sizes = [n * w if n > 1 else 0 for n, w in zip(shape, window, strict=True)]
        if math.prod(shape) * math.prod(window) > _MASK_SIZE and any(sizes):
            axis = sizes.index(max(sizes))
            half = shape[axis] // 2
            parts = [
                self.read(backend, _with(start, axis, start[axis] + at), _with(shape, axis, n))
                for at, n in ((0, half), (half, shape[axis] - half))
            ]
            return backend.xp.concatenate(parts, axis)
        region = tuple(
            slice(o * w, min((o + n) * w, extent))
            for o, n, w, extent in zip(start, shape, window, self.mask.shape, strict=True)
        )
        part = _on(backend, self.mask[region])
        if window == (1,) * len(shape):
            return part
        out = backend.empty(shape, part.dtype)
        backend.reduce_windows(part, window, "min", out)
        return out


def missing_by_convention(skip: Any, array: GzarrArray) -> Missing | None:
    """What ``skip=`` means for what is shown of an array: by default, what netCDF, CF and xarray take for missing.

    Arguments and errors: as of `missing_of`.
    """
    if skip is not None:
        return missing_of(skip, array)
    said = missing_data_of(array.metadata)
    if not said.values and said.low is None and said.high is None:
        return None
    return Missing(said.values[0] if said.values else None, others=said)


def missing_of(skip: Any, array: GzarrArray) -> Missing | None:
    """What ``skip=`` means for an array; None if no element is missing.

    Parameters
    ----------
    skip : number, array of bool or None
        NaN or a number; or a mask of the array's shape. By default, what the array records as missing data. False for
        nothing.
    array : Array
        The array.

    Raises
    ------
    ValueError
        If no element can be that number, or the mask has another shape.
    TypeError
        If the mask has other elements than bools.
    """
    if skip is None:
        recorded = nodata_of(array.metadata)
        return None if recorded is None else Missing(recorded)
    mask: Any = np.asarray(skip) if isinstance(skip, (list, tuple)) else from_tensor(skip)
    if not getattr(mask, "shape", ()):
        value = as_element(skip, array.metadata.data_type, f"{array.store_path}, ")
        return None if value is None else Missing(value)
    where = f"skip: the mask of {array.store_path}"
    if mask.dtype != np.bool_:
        raise TypeError(f"{where} is of {mask.dtype}, not of bools; give mask != 0, where True is missing")
    if tuple(mask.shape) != array.shape:
        raise ValueError(f"{where} has shape {tuple(mask.shape)}, but the array {array.shape}; give one of its shape")
    recorded = nodata_of(array.metadata)
    fill = fill_of(array) if recorded is None else recorded
    if hasattr(mask, "store_path"):
        return Missing(fill, mask.to(array.backend))
    return Missing(fill, np.asarray(mask.get() if hasattr(mask, "get") else mask))


def fold_present(
    array: GzarrArray,
    missing: Missing | None,
    reduce: Callable[..., P],
    combine: Callable[[P, P], P],
    *,
    others: Sequence[GzarrArray] = (),
    of_fill: Callable[[int], P] | None = None,
    **options: Any,
) -> P | None:
    """Reduce an array by `gzarr.hierarchy.reductions.fold`, without elements that are missing.

    Blocks then have one axis. Nothing is made of blocks without other elements; None if there are none at all.
    """
    if missing is None:
        return fold(array, reduce, combine, others=others, of_fill=of_fill, **options)
    equals = missing.mask is None

    def part(block: AnyArray, *rest: AnyArray) -> P | None:
        there = ~(missing.find(array.backend, block, ()) if equals else _on(array.backend, rest[-1]))
        blocks = [one[there] for one in (block, *rest[: len(others)])]
        return reduce(*blocks) if blocks[0].size else None

    def joined(one: P | None, two: P | None) -> P | None:
        return combine(one, two) if one is not None and two is not None else two if one is None else one

    if of_fill is not None and equals and missing.find(array.backend, np.asarray([fill_of(array)]), ()).any():
        of_fill = _nothing
    masks = [] if equals else [missing.mask]
    return fold(array, part, joined, others=[*others, *masks], of_fill=of_fill, **{"by": combine, **options})


def _nothing(_: int) -> Any:
    return None


def as_element(skip: Any, data_type: DataType, where: str = "") -> Any:
    """The element that a number is; None for False, and for NaN among integers. Raises ValueError if none is.

    where: what has the elements, for messages.
    """
    is_nan = isinstance(skip, (float, np.floating)) and math.isnan(skip)
    if isinstance(skip, np.bool_):
        skip = bool(skip)
    if skip is False or (is_nan and data_type.dtype.kind in "biu"):
        return None
    reason = None
    if skip is not True:
        try:
            return cast_fill(skip, data_type)
        except MetadataError as error:
            reason = error
    raise ValueError(
        f"skip={skip!r}: {where}no element of type {data_type.dtype} is that; give NaN, a number of this type, a "
        "mask, or False for nothing"
    ) from reason


def _on(backend: Backend, part: AnyArray) -> AnyArray:
    """A part of a mask on the device of a backend."""
    return backend.xp.asarray(part) if isinstance(part, np.ndarray) else part


def _with(values: Coords, axis: int, value: int) -> Coords:
    return (*values[:axis], value, *values[axis + 1 :])
