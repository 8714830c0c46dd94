"""What several arrays have in common that are to be joined: one data type, and attributes that mean the same in all.

What differs is decoded to a common form where that is exact, or as exact as float64: numbers to a wider type, packed
numbers (``scale_factor``, ``add_offset``) and marks of missing data to floats with NaN, times to one unit. Everything
else that has a meaning and differs is refused. Other attributes stay where all arrays have the same.

Source: CF conventions 1.11, sections 2.5.1 (missing data), 4.4 (time), 8.1 (packed data).
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import nan, prod
from typing import Any, NamedTuple

import numpy as np
from numcodecs.vlen import VLenUTF8

from gzarr.api.many import read_many
from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.vlen import VLenUTF8Codec
from gzarr.dtypes import DataType, default_fill, parse_dtype
from gzarr.errors import MetadataError, StoreError
from gzarr.hierarchy.array import Array
from gzarr.indexing.grid import Grid, RegularAxis, chunk_shape
from gzarr.indexing.keys import Coords, KeyEncoding
from gzarr.metadata.conventions import MASK, decode_mask, described_in, marking, same_value
from gzarr.metadata.documents import documents
from gzarr.metadata.model import ArrayMeta
from gzarr.storage.base import Buffer
from gzarr.storage.extras import require
from gzarr.virtual.store import Chunks, Reader

_PACKING = "scale_factor", "add_offset"
_CODING = (*_PACKING, MASK, "missing_value")
#: What is in terms of elements as they are stored, so that these must not be decoded.
_OF_STORED = "_Unsigned", "valid_min", "valid_max", "valid_range", "flag_values", "flag_masks"
#: Attributes that say what the elements mean, besides those of the coding and the units.
_MEANING = (
    *("calendar", "standard_name", "positive", "axis", "grid_mapping", "proj:code", "flag_meanings"),
    *_OF_STORED,
)
_TIME = re.compile(r"(\w+?)s? +since +\S.*", re.IGNORECASE)
#: Microseconds of the units of time that have a fixed length, by the names that CF and udunits give them.
_UNITS = {"day": 86400 * 10**6, "hour": 3600 * 10**6, "minute": 60 * 10**6, "second": 10**6}
_UNITS |= {"millisecond": 1000, "microsecond": 1}
_ALIASES = {"d": "day", "h": "hour", "hr": "hour", "min": "minute", "s": "second", "sec": "second", "m": "millisecond"}
#: Integers up to this are exact in float64, and those up to the other one can be added without overflow.
_EXACT, _SAFE = 2**53, 2**62


@dataclass(frozen=True, slots=True)
class Conversion:
    """How the elements of one array become those of all.

    Attributes
    ----------
    name : str
        What errors call the array.
    dtype : numpy.dtype
        Of all.
    missing : tuple
        Elements that stand for missing data, which become ``gone``.
    gone : scalar
        What stands for it in all.
    factor, offset
        What elements are multiplied by, and what is then added.
    """

    name: str
    dtype: np.dtype[Any]
    missing: tuple[Any, ...] = ()
    gone: Any = nan
    factor: Any = 1
    offset: Any = 0

    @property
    def is_plain(self) -> bool:
        """Whether elements are only cast."""
        return not self.missing and (self.factor, self.offset) == (1, 0)

    def __call__(self, values: Any) -> Any:
        """Convert elements. Raises: StoreError if integers become too large to stay exact."""
        gone = np.isin(values, np.asarray(self.missing)) if self.missing else np.False_
        there = values[~gone] if self.missing else values
        is_scaled = (self.factor, self.offset) != (1, 0)
        is_large = values.dtype.kind in "iu" and values.dtype.itemsize == 8
        if is_large and there.size and (is_scaled or self.dtype != values.dtype):
            is_integer = self.dtype.kind == "i"
            limit = _SAFE // abs(int(self.factor)) - abs(int(self.offset)) if is_integer else _EXACT
            if max(abs(int(there.min())), abs(int(there.max()))) > limit:
                raise StoreError(f"{self.name} has integers that are not exact as {self.dtype}; convert it first")
        found = values.astype(self.dtype)
        if is_scaled:
            found = found * self.dtype.type(self.factor) + self.dtype.type(self.offset)
        if self.missing:
            found[gone] = self.gone
        return found


class Agreed(NamedTuple):
    """What the joined array is like.

    Attributes
    ----------
    data_type : DataType
        Of its elements.
    fill_value : scalar
        Of what is not stored.
    attributes : mapping
        Its attributes.
    names : tuple or None
        Names of the axes.
    conversions : sequence of Conversion or None
        How the elements of each array become its elements; None for those that stay.
    """

    data_type: DataType
    fill_value: Any
    attributes: Mapping[str, Any]
    names: tuple[str | None, ...] | None
    conversions: Sequence[Conversion | None]


class _Stated(NamedTuple):
    """An array, and what it says in the words of Zarr v3."""

    name: str
    data_type: DataType
    dtype: np.dtype[Any]
    fill_value: Any
    attributes: Mapping[str, Any]
    names: tuple[str | None, ...] | None

    @property
    def missing(self) -> tuple[Any, ...]:
        """The elements that stand for missing data."""
        values = [self.attributes.get(name, []) for name in _CODING[2:]]
        listed = [one for value in values for one in (value if isinstance(value, list) else [value])]
        return tuple(decode_mask(one, self.dtype) for one in listed)

    def conversion(self, dtype: np.dtype[Any], **how: Any) -> Conversion | None:
        """How its elements become those of another type; None if they stay."""
        made = Conversion(self.name, dtype, **how)
        return None if self.dtype == dtype and made.is_plain else made


def agree(arrays: Sequence[Array]) -> Agreed:
    """Find what arrays have in common. Raises: MetadataError with both values, for what differs and must not."""
    parts = [_stated_by(array) for array in arrays]
    first, named = parts[0], [one for one in parts if one.names is not None]
    _expect_same(named, "dimension names", [one.names for one in named])
    for name in _MEANING:
        _expect_same(parts, name)
    attributes = {
        name: value
        for name, value in first.attributes.items()
        if all(one.attributes.get(name) == value for one in parts)
    }
    units, steps = _time_steps(parts)
    if units is not None:
        attributes["units"] = units
    codings = [{name: one.attributes[name] for name in _CODING if name in one.attributes} for one in parts]
    is_moved, are_alike = set(steps) != {(1, 0)}, all(coding == codings[0] for coding in codings)
    is_fixed = any(name in attributes for name in _OF_STORED)
    if is_moved or is_fixed:
        for name in _CODING:
            _expect_same(parts, name)
    if is_fixed:
        _expect_same_types(parts)
    fill = first.fill_value
    if is_moved:
        dtype, conversions = _moved(parts, steps)
    elif are_alike and all(one.data_type == first.data_type for one in parts):
        data_type = first.data_type
        same_fill = all(same_value(one.fill_value, fill, data_type) for one in parts)
        fill = fill if same_fill else default_fill(data_type)
        return Agreed(data_type, fill, attributes, named[0].names if named else None, [None] * len(parts))
    elif any(codings):
        dtype, conversions = _decoded(parts)
        attributes = {name: value for name, value in attributes.items() if name not in _CODING}
        attributes |= marking(nan, parse_dtype(dtype), attributes)
    else:
        dtype = _common_dtype(parts)
        conversions = [one.conversion(dtype) for one in parts]
    data_type = parse_dtype(dtype)
    return Agreed(data_type, default_fill(data_type), attributes, named[0].names if named else None, conversions)


def _stated_by(array: Array) -> _Stated:
    meta = described_in(array.metadata, 3)
    data_type = parse_dtype(array.dtype) if array.is_view else meta.data_type
    said = meta.fill_value, meta.attributes, meta.dimension_names
    return _Stated(str(array.store_path), data_type, array.dtype, *said)


def _expect_same(parts: Sequence[_Stated], name: str, values: Sequence[Any] | None = None) -> None:
    """Raise MetadataError if arrays differ in something, by default in an attribute."""
    values = [one.attributes.get(name) for one in parts] if values is None else values
    if name == "calendar":
        values = ["standard" if value in (None, "gregorian") else value for value in values]
    for value, other in zip(values, parts, strict=True):
        if value != values[0]:
            raise MetadataError(
                f"cannot join arrays that differ in {name}: {values[0]!r} of {parts[0].name}, and {value!r} of"
                f" {other.name}; convert one of them first"
            )


def _expect_same_types(parts: Sequence[_Stated]) -> None:
    """Raise MetadataError if no type holds the elements of all arrays, as they are stored."""
    _expect_same(parts, "data type, and no other one does for both", [one.data_type.name for one in parts])


def _common_dtype(parts: Sequence[_Stated]) -> np.dtype[Any]:
    """The smallest type that holds the elements of all exactly. Raises: MetadataError."""
    dtypes = [one.dtype.newbyteorder("=") for one in parts]
    kinds = {one.data_type.variable or one.dtype.kind for one in parts}
    if kinds <= set("biufc"):
        common = np.result_type(*dtypes)
        widest = max((one.itemsize * 8 - (one.kind == "i") for one in dtypes if one.kind in "iu"), default=0)
        if common.kind not in "fc" or widest <= np.finfo(common).nmant + 1:
            return common
    if len(kinds) == 1 and kinds <= set("SU"):
        return np.result_type(*dtypes)
    _expect_same_types(parts)
    return dtypes[0]


def _decoded(parts: Sequence[_Stated]) -> tuple[np.dtype[Any], list[Conversion | None]]:
    """Arrays that differ in how they pack numbers or mark missing data: as floats, with NaN. Raises: MetadataError."""
    if any(one.dtype.kind not in "iuf" or (one.dtype.kind != "f" and one.dtype.itemsize > 4) for one in parts):
        for name in _CODING:
            _expect_same(parts, name)
        _expect_same_types(parts)
    is_packed = any(name in one.attributes for one in parts for name in _PACKING)
    dtype = np.dtype("f8") if is_packed else np.result_type(_common_dtype(parts), "f4")
    conversions = []
    for one in parts:
        factor, offset = float(one.attributes.get(_PACKING[0], 1)), float(one.attributes.get(_PACKING[1], 0))
        conversions.append(one.conversion(dtype, missing=one.missing, factor=factor, offset=offset))
    return dtype, conversions


def _time_steps(parts: Sequence[_Stated]) -> tuple[str | None, Sequence[tuple[int, int]]]:
    """The unit of all, and how elements become times in it: a factor, and what is then added, for each array.

    Raises: MetadataError for units that differ, and are not of times.
    """
    units = [one.attributes.get("units") for one in parts]
    same = units[0], [(1, 0)] * len(parts)
    if all(unit == units[0] for unit in units):
        return same
    matches = [_TIME.fullmatch(unit.strip()) if isinstance(unit, str) else None for unit in units]
    names = [match[1].lower() if match else "none" for match in matches]
    lengths = [_UNITS.get(_ALIASES.get(name, name), 0) for name in names]
    if 0 in lengths or any(one.dtype.kind not in "iuf" for one in parts):
        _expect_same(parts, "units")
    cftime = require("cftime", "netcdf", "joining times of different units")
    calendar = parts[0].attributes.get("calendar", "standard")
    try:
        begin = [cftime.num2date(0, unit, calendar, only_use_cftime_datetimes=True) for unit in units]
    except ValueError:
        _expect_same(parts, "units")
        raise
    shifts = [round((date - begin[0]).total_seconds() * 10**6) for date in begin]
    # The longest unit in which all are whole numbers.
    name, n = next((name, n) for name, n in _UNITS.items() if not any(number % n for number in (*lengths, *shifts)))
    steps = [(length // n, shift // n) for length, shift in zip(lengths, shifts, strict=True)]
    return same if set(steps) == {(1, 0)} else (f"{name}s since {begin[0].isoformat(' ')}", steps)


def _moved(parts: Sequence[_Stated], steps: Sequence[tuple[int, int]]) -> tuple[np.dtype[Any], list[Conversion | None]]:
    """Times that become those of one unit. Raises: MetadataError for packed ones."""
    if any(name in parts[0].attributes for name in (*_PACKING, *_OF_STORED)):
        _expect_same(parts, "units")
    dtype, missing = np.dtype("i8" if all(one.dtype.kind in "iu" for one in parts) else "f8"), parts[0].missing
    how = {"missing": missing, "gone": missing[0] if missing else nan}
    found = zip(parts, steps, strict=True)
    return dtype, [one.conversion(dtype, factor=factor, offset=shift, **how) for one, (factor, shift) in found]


# -- chunks made of decoded parts --------------------------------------------------------------------------------------

#: Bytes of a chunk: so many that chunks of parts are seldom decoded twice.
_NBYTES = 1 << 18


def decoded(arrays: Sequence[Array], axis: int, agreed: Agreed, *, is_new: bool) -> tuple[bytes, Callable[[], Chunks]]:
    """The document of a joined array whose chunks are decoded and converted, and what reads them.

    Arguments: as of `gzarr.virtual.joins.join`. Raises: MetadataError for elements that are no numbers and no texts.
    """
    data_type = DataType(agreed.data_type.dtype.newbyteorder("="), agreed.data_type.variable)
    if data_type.variable not in ("", "string"):
        raise MetadataError(
            f"{arrays[0].store_path} and others have elements of type {data_type.name}, which are joined only where all"
            " arrays are stored alike; copy them first"
        )
    starts = [0, *accumulate(1 if is_new else one.shape[axis] for one in arrays)]
    shape, chunks = list(arrays[0].shape), list(arrays[0].chunks)
    chunks[axis : axis if is_new else axis + 1] = [1 if is_new else max(one.chunks[axis] for one in arrays)]
    shape[axis : axis if is_new else axis + 1] = [starts[-1]]
    chunks[axis] *= max(_NBYTES // max(prod(chunks) * data_type.dtype.itemsize, 1), 1)
    grid = tuple(RegularAxis(n, max(min(n, c), 1)) for n, c in zip(shape, chunks, strict=True))
    codec = VLenUTF8Codec() if data_type.variable else BytesCodec("little")
    how = agreed.fill_value, (codec,), agreed.attributes, agreed.names
    ((_, document),) = documents(ArrayMeta(tuple(shape), data_type, grid, KeyEncoding(), *how), "")
    parts = _Parts(tuple(one.to("cpu") for one in arrays), tuple(starts), axis, is_new, grid, agreed)
    return document, lambda: Reader(tuple(one.nchunks for one in grid), parts.read)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Makes chunks out of the parts of a joined array.

    Attributes
    ----------
    arrays, starts, axis, is_new
        The parts, where each begins along the axis, which axis it is, and whether it is new.
    grid : Grid
        Of the joined array.
    agreed : Agreed
        What the parts have in common.
    """

    arrays: tuple[Array, ...]
    starts: tuple[int, ...]
    axis: int
    is_new: bool
    grid: Grid
    agreed: Agreed

    def read(self, chunks: Sequence[Coords]) -> list[Buffer | None]:
        """Some chunks, encoded; all that they are made of is read at once."""
        wanted = [list(self._wanted(coords)) for coords in chunks]
        found = iter(read_many([(self.arrays[part], box) for boxes in wanted for part, box in boxes]))
        return [
            self._encoded(coords, [self._converted(part, next(found)) for part, _ in boxes])
            for coords, boxes in zip(chunks, wanted, strict=True)
        ]

    def _wanted(self, coords: Coords) -> Iterator[tuple[int, tuple[slice, ...]]]:
        """The parts that a chunk is made of, and what of each."""
        bounds = [axis.bounds(at) for axis, at in zip(self.grid, coords, strict=True)]
        box = [slice(start, min(stop, axis.extent)) for axis, (start, stop) in zip(self.grid, bounds, strict=True)]
        begin, end = box[self.axis].start, box[self.axis].stop
        for part in range(bisect_right(self.starts, begin) - 1, bisect_right(self.starts, end - 1)):
            start = self.starts[part]
            here = slice(max(begin - start, 0), min(end, self.starts[part + 1]) - start)
            if here.start < here.stop:
                yield part, (*box[: self.axis], *(() if self.is_new else (here,)), *box[self.axis + 1 :])

    def _converted(self, part: int, values: Any) -> Any:
        convert = self.agreed.conversions[part]
        return np.asarray(values) if convert is None else convert(np.asarray(values))

    def _encoded(self, coords: Coords, values: Sequence[Any]) -> Buffer:
        """A chunk as its bytes, or those of its texts, filled up to its whole shape."""
        joined = np.stack(values, self.axis) if self.is_new else np.concatenate(values, self.axis)
        shape, data_type = chunk_shape(self.grid, coords), self.agreed.data_type
        is_text = bool(data_type.variable)
        whole = np.full(shape, "", object) if is_text else np.zeros(shape, data_type.dtype.newbyteorder("<"))
        whole[tuple(map(slice, joined.shape))] = joined
        return VLenUTF8().encode(whole.ravel()) if is_text else whole.reshape(-1).view(np.uint8)
