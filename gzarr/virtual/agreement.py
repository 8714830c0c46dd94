"""What several arrays have in common that are to be joined: one data type, and attributes that mean the same in all.

What differs is decoded to a common form where that is exact, or as exact as float64: numbers to a wider type, packed
numbers (``scale_factor``, ``add_offset``) and marks of missing data to floats with NaN, times to one unit. Everything
else that has a meaning and differs is refused. Other attributes stay where all arrays have the same.

Source: CF conventions 1.11, sections 2.5.1 (missing data), 4.4 (time), 8.1 (packed data).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any, NamedTuple

import numpy as np

from gzarr.dtypes import DataType, default_fill, parse_dtype
from gzarr.errors import MetadataError, StoreError
from gzarr.hierarchy.array import Array
from gzarr.metadata.conventions import MASK, decode_mask, described_in, marking, same_value
from gzarr.storage.extras import require

_MISSING = "missing_value"
_PACKING = "scale_factor", "add_offset"
_CODING = (*_PACKING, MASK, _MISSING)
#: Limits are in terms of packed numbers.
_LIMITS = "valid_min", "valid_max", "valid_range"
#: Attributes that say what the elements mean, besides those of the coding.
_MEANING = (
    *("units", "calendar", "standard_name", "positive", "axis", "grid_mapping", "proj:code", "_Unsigned"),
    *("flag_values", "flag_masks", "flag_meanings", *_LIMITS),
)
_TIME = re.compile(r"(\w+) +since +\S.*", re.IGNORECASE)
#: Microseconds of the units of time that have a fixed length, by the names that CF and udunits give them.
_US = {"microsecond": 1, "millisecond": 10**3, "second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6}
_US |= {"day": 86400 * 10**6, "us": 1, "ms": 10**3, "s": 10**6, "sec": 10**6, "min": 60 * 10**6, "h": 3600 * 10**6}
_US |= {"hr": 3600 * 10**6, "d": 86400 * 10**6}
_UNITS = "day", "hour", "minute", "second", "millisecond", "microsecond"
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

    def __call__(self, values: Any) -> Any:
        """Convert elements. Raises: StoreError if integers become too large to stay exact."""
        gone = np.isin(values, np.asarray(self.missing)) if self.missing else None
        if (self.factor, self.offset) != (1, 0) or self.dtype.kind != values.dtype.kind:
            self._check(values if gone is None else values[~gone])
        found = values.astype(self.dtype)
        if (self.factor, self.offset) != (1, 0):
            found = found * self.dtype.type(self.factor) + self.dtype.type(self.offset)
        if gone is not None:
            found[gone] = self.gone
        return found

    def _check(self, values: Any) -> None:
        if values.dtype.kind not in "iu" or values.dtype.itemsize < 8 or not values.size:
            return
        limit = _SAFE // max(abs(int(self.factor)), 1) - abs(int(self.offset)) if self.dtype.kind == "i" else _EXACT
        if max(abs(int(values.min())), abs(int(values.max()))) > limit:
            raise StoreError(
                f"{self.name} has integers that cannot be joined exactly as {self.dtype}; convert it first"
            )


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
        found: list[Any] = []
        for name in (MASK, _MISSING):
            value = self.attributes.get(name, [])
            found += [decode_mask(one, self.dtype) for one in (value if isinstance(value, list) else [value])]
        return tuple(found)

    @property
    def packing(self) -> tuple[float, float]:
        """Factor and offset of packed numbers."""
        return float(self.attributes.get("scale_factor", 1)), float(self.attributes.get("add_offset", 0))


def agree(arrays: Sequence[Array]) -> Agreed:
    """Find what arrays have in common. Raises: MetadataError with both values, for what differs and must not."""
    parts = [_part_of(array) for array in arrays]
    first = parts[0]
    names = _names(parts)
    attributes = {
        name: value
        for name, value in first.attributes.items()
        if all(one.attributes.get(name) == value for one in parts)
    }
    times = _times(parts)
    for name in _MEANING:
        if not (name == "units" and times is not None):
            _expect_same(parts, name)
    if times is not None:
        attributes["units"] = times.units
        if any(step != (1, 0) for step in times.steps):
            return _joined_times(parts, times, attributes, names)
    codings = [{name: one.attributes[name] for name in _CODING if name in one.attributes} for one in parts]
    same_types = all(one.data_type == first.data_type for one in parts)
    if same_types and all(coding == codings[0] for coding in codings):
        same_fill = all(same_value(one.fill_value, first.fill_value, first.data_type) for one in parts)
        fill = first.fill_value if same_fill else default_fill(first.data_type)
        return Agreed(first.data_type, fill, attributes, names, [None] * len(parts))
    if not any(codings):
        data_type = parse_dtype(_common_dtype(parts))
        plain = [_conversion(one, data_type.dtype) for one in parts]
        return Agreed(data_type, default_fill(data_type), attributes, names, plain)
    return _decoded(parts, attributes, names)


def _part_of(array: Array) -> _Stated:
    meta = described_in(array.metadata, 3)
    data_type = parse_dtype(array.dtype) if array.is_view else meta.data_type
    return _Stated(
        str(array.store_path), data_type, array.dtype, meta.fill_value, meta.attributes, meta.dimension_names
    )


def _refuse(parts: Sequence[_Stated], what: str, values: Sequence[Any]) -> MetadataError:
    other = next(at for at, value in enumerate(values) if value != values[0])
    return MetadataError(
        f"cannot join arrays that differ in {what}: {values[0]!r} of {parts[0].name}, and {values[other]!r} of"
        f" {parts[other].name}; convert one of them first"
    )


def _expect_same(parts: Sequence[_Stated], name: str) -> None:
    values = [one.attributes.get(name) for one in parts]
    if name == "calendar":
        values = ["standard" if value in (None, "gregorian") else value for value in values]
    if any(value != values[0] for value in values):
        raise _refuse(parts, name, values)


def _names(parts: Sequence[_Stated]) -> tuple[str | None, ...] | None:
    """The names of the axes. An array without names takes those of the others."""
    given = [one for one in parts if one.names is not None]
    if any(one.names != given[0].names for one in given):
        raise _refuse(given, "dimension names", [one.names for one in given])
    return given[0].names if given else None


def _conversion(part: _Stated, dtype: np.dtype[Any], **how: Any) -> Conversion | None:
    made = Conversion(part.name, dtype, **how)
    return None if part.dtype == dtype and not made.missing and (made.factor, made.offset) == (1, 0) else made


def _common_dtype(parts: Sequence[_Stated]) -> np.dtype[Any]:
    """The smallest type that holds the elements of all exactly. Raises: MetadataError."""
    dtypes = [one.dtype.newbyteorder("=") for one in parts]
    variable = [one.data_type.variable for one in parts]
    common = None
    if not any(variable) and all(dtype.kind in "biufc" for dtype in dtypes):
        common = np.result_type(*dtypes)
        digits = {"f": 1, "c": 2}.get(common.kind)
        room = 63 if digits is None else np.finfo(common).nmant + 1
        widest = max((dtype.itemsize * 8 - (dtype.kind == "i") for dtype in dtypes if dtype.kind in "iu"), default=0)
        if digits is not None and widest > room:
            common = None
    elif not any(variable) and len({dtype.kind for dtype in dtypes}) == 1 and dtypes[0].kind in "SU":
        common = np.result_type(*dtypes)
    elif len({(dtype, name) for dtype, name in zip(dtypes, variable, strict=True)}) == 1:
        common = dtypes[0]
    if common is None:
        raise _refuse(parts, "data type, of which none holds both exactly", [str(one.dtype) for one in parts])
    return common


def _decoded(parts: Sequence[_Stated], attributes: Mapping[str, Any], names: tuple[str | None, ...] | None) -> Agreed:
    """Arrays that differ in how they pack numbers or mark missing data: as floats, with NaN. Raises: MetadataError."""
    is_inexact = any(one.dtype.kind not in "iuf" or (one.dtype.kind != "f" and one.dtype.itemsize > 4) for one in parts)
    if is_inexact or any(name in attributes for name in _LIMITS):
        for name in _CODING:
            _expect_same(parts, name)
        raise _refuse(parts, "data type", [str(one.dtype) for one in parts])
    is_packed = any(name in one.attributes for one in parts for name in _PACKING)
    dtype = np.dtype("f8") if is_packed else np.result_type(_common_dtype(parts), "f4")
    conversions = []
    for one in parts:
        factor, offset = one.packing
        conversions.append(_conversion(one, dtype, missing=one.missing, factor=factor, offset=offset))
    data_type = parse_dtype(dtype)
    rest = {name: value for name, value in attributes.items() if name not in _CODING}
    return Agreed(data_type, default_fill(data_type), {**rest, **marking(nan, data_type, rest)}, names, conversions)


class _Times(NamedTuple):
    """How times of different units become those of one: a factor and what is then added, for each array."""

    units: str
    steps: Sequence[tuple[int, int]]


def _times(parts: Sequence[_Stated]) -> _Times | None:
    """The common unit of times whose units differ; None if these are no such times. Raises: MetadataError."""
    units = [one.attributes.get("units") for one in parts]
    matches = [_TIME.fullmatch(unit.strip()) if isinstance(unit, str) else None for unit in units]
    if all(unit == units[0] for unit in units) or not all(matches) or any(one.dtype.kind not in "iuf" for one in parts):
        return None
    _expect_same(parts, "calendar")
    lengths = [_US.get(_singular(match[1].lower()), 0) for match in matches if match]
    cftime = require("cftime", "netcdf", "joining times of different units")
    calendar = parts[0].attributes.get("calendar", "standard")
    try:
        begin = [cftime.num2date(0, unit, calendar, only_use_cftime_datetimes=True) for unit in units]
    except ValueError as error:
        raise _refuse(parts, "units", units) from error
    if 0 in lengths:
        raise _refuse(parts, "units", units)
    shifts = [round((date - begin[0]).total_seconds() * 10**6) for date in begin]
    # The longest unit that makes whole numbers of all.
    name = next(name for name in _UNITS if not any(number % _US[name] for number in (*lengths, *shifts)))
    n = _US[name]
    steps = [(length // n, shift // n) for length, shift in zip(lengths, shifts, strict=True)]
    return _Times(str(units[0]) if set(steps) == {(1, 0)} else f"{name}s since {begin[0].isoformat(' ')}", steps)


def _joined_times(
    parts: Sequence[_Stated], times: _Times, attributes: Mapping[str, Any], names: tuple[str | None, ...] | None
) -> Agreed:
    for name in _CODING:
        _expect_same(parts, name)
    if parts[0].packing != (1, 0):
        raise _refuse(parts, "units", [one.attributes["units"] for one in parts])
    dtype = np.dtype("i8" if all(one.dtype.kind in "iu" for one in parts) else "f8")
    missing = parts[0].missing
    how = {"missing": missing, "gone": missing[0] if missing else nan}
    found = zip(parts, times.steps, strict=True)
    conversions = [_conversion(one, dtype, factor=factor, offset=shift, **how) for one, (factor, shift) in found]
    data_type = parse_dtype(dtype)
    return Agreed(data_type, default_fill(data_type), attributes, names, conversions)


def _singular(unit: str) -> str:
    return unit if unit in _US else unit.removesuffix("s")
