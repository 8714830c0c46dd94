"""xarray's conventions for what netCDF has and Zarr lacks: dimension names and the value for missing data.

Dimension names are a field in v3 and the attribute ``_ARRAY_DIMENSIONS`` in v2. The value for missing data
(``_FillValue``) is the array's fill value in v2 and an attribute in v3, with floats as base64 of their eight bytes.
Source: xarray, "Zarr encoding specification", and ``FillValueCoder`` in its Zarr backend.

Theory of operation. `translate` states what an array says in the words of the other format, so that xarray reads the
same. Some of it has no words there: a fill value of v3 that marks no missing data, for example, must not become the
fill value of v2. If translating back would not restore everything, the new document has a field that records the
original (``gzarr_copied_from``). A copy back uses the record unless the array was changed meanwhile, which
shows if the recorded original no longer translates to what is there. Other readers ignore the field.
"""

import base64
import math
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gzarr.codecs.bytes import BytesCodec
from gzarr.dtypes import DataType, cast_fill, default_fill, fill_from_json, fill_to_json
from gzarr.errors import MetadataError
from gzarr.indexing.keys import KeyEncoding
from gzarr.metadata.fields import dump_json
from gzarr.metadata.model import ArrayMeta, ZarrFormat

ATTRIBUTE = "_ARRAY_DIMENSIONS"
MASK = "_FillValue"
#: An element that stands for missing data, also where xarray is not asked: as a fill value of v3 in JSON.
NODATA = "nodata"
#: Of files of other formats that are read in place: why members of a group, and attributes, were left out, by name.
UNREADABLE = "not_read_in_place"
#: A group's attribute with the names of netCDF's unlimited dimensions. Xarray hides attributes that begin with "_nc".
UNLIMITED = "_nc_unlimited_dims"
#: What xarray also takes for missing data, in both formats, and the only way to say it of text in v3.
_MISSING = "missing_value"
#: How netCDF says that signed integers mean unsigned ones ("true"), or the other way round ("false").
UNSIGNED = "_Unsigned"
_SPECIAL = (ATTRIBUTE, MASK, _MISSING)
_RECORD = "gzarr_copied_from"


@dataclass(frozen=True, slots=True)
class Stated:
    """What an array says in the words of its format.

    Attributes
    ----------
    fill_value : scalar or None
        The fill value; None if it is undefined (v2).
    attributes : mapping
        All attributes.
    names : tuple or None
        The field ``dimension_names`` (v3).
    """

    fill_value: Any
    attributes: Mapping[str, Any]
    names: tuple[str | None, ...] | None


def stated_by(meta: ArrayMeta) -> Stated:
    """What an array says."""
    return Stated(meta.fill_value, meta.attributes, meta.dimension_names)


def described_in(meta: ArrayMeta, zarr_format: ZarrFormat) -> ArrayMeta:
    """The same chunks as another format describes them, by its default keys. What it lacks words for may be lost."""
    stated = stated_by(meta) if meta.zarr_format == zarr_format else translate(meta)[0]
    fill, data_type = stated.fill_value, meta.data_type
    if zarr_format == 2:
        if BytesCodec("big") in meta.codecs:  # which the data type says
            data_type = DataType(data_type.dtype.newbyteorder(">"), data_type.variable)
        keys = KeyEncoding("v2", ".")
    else:
        fill, keys = default_fill(data_type) if fill is None else fill, KeyEncoding()
    fixed = meta.shape, data_type, meta.grid, keys, fill, meta.codecs, stated.attributes
    return ArrayMeta(*fixed, stated.names, zarr_format)


def with_names(meta: ArrayMeta, names: Sequence[str | None] | None) -> ArrayMeta:
    """Metadata with other dimension names, in the words of its format."""
    if meta.zarr_format == 3:
        return replace(meta, dimension_names=None if names is None else tuple(names))
    rest = {name: value for name, value in meta.attributes.items() if name != ATTRIBUTE}
    return replace(meta, attributes=rest if names is None else {**rest, ATTRIBUTE: list(names)})


def translate(meta: ArrayMeta) -> tuple[Stated, Mapping[str, Any]]:
    """What an array says in the words of the other format, and the field of the new document that records the rest."""
    recorded = _recorded(meta)
    if recorded is not None:
        return recorded, {}
    there = _translated(stated_by(meta), meta, meta.zarr_format)
    if _same(_translated(there, meta, _other(meta)), stated_by(meta), meta.data_type):
        return there, {}
    record = {
        "must_understand": False,
        "zarr_format": meta.zarr_format,
        "fill_value": fill_to_json(meta.fill_value, meta.data_type, meta.zarr_format),
        "dimension_names": None if meta.dimension_names is None else list(meta.dimension_names),
        "attributes": {name: meta.attributes[name] for name in _SPECIAL if name in meta.attributes},
    }
    return there, {_RECORD: record}


def _recorded(meta: ArrayMeta) -> Stated | None:
    """What an array said from which this one was copied, if that is recorded, and this one has not changed since."""
    record, other = meta.extra.get(_RECORD), _other(meta)
    if not isinstance(record, dict) or record.get("zarr_format") != other:
        return None
    with suppress(MetadataError, LookupError, TypeError, ValueError):
        names = record["dimension_names"]
        rest = {name: value for name, value in meta.attributes.items() if name not in _SPECIAL}
        before = Stated(
            fill_from_json(record["fill_value"], meta.data_type, other),
            {**rest, **record["attributes"]},
            None if names is None else tuple(names),
        )
        if _same(_translated(before, meta, other), stated_by(meta), meta.data_type):
            return before
    return None


def _other(meta: ArrayMeta) -> ZarrFormat:
    return 2 if meta.zarr_format == 3 else 3


def _same(one: Stated, other: Stated, data_type: DataType) -> bool:
    if one.names != other.names or _dumped(one.attributes) != _dumped(other.attributes):
        return False
    return same_value(one.fill_value, other.fill_value, data_type)


def _dumped(attributes: Mapping[str, Any]) -> bytes:
    return dump_json(attributes, 0, "attributes", sort_keys=True)  # NaN equals NaN


def same_value(one: Any, other: Any, data_type: DataType) -> bool:
    """Whether two fill values are the same, bit for bit."""
    if one is None or other is None or data_type.variable:
        return one is other or (one is not None and other is not None and bool(one == other))
    a, b = (np.asarray(value, data_type.dtype) for value in (one, other))
    return a.tobytes() == b.tobytes()


def _translated(stated: Stated, meta: ArrayMeta, zarr_format: ZarrFormat) -> Stated:
    """What is stated in a format, in the words of the other; ``meta`` has the shape and the data type."""
    return (_in_v2 if zarr_format == 3 else _in_v3)(stated, meta.data_type, len(meta.shape))


def _in_v3(stated: Stated, data_type: DataType, ndim: int) -> Stated:
    fill = default_fill(data_type) if stated.fill_value is None else stated.fill_value
    attributes, names = split_names(stated.attributes, None, ndim)
    if names is None:  # xarray does not read such arrays
        return Stated(fill, attributes, None)
    mask = attributes.pop(MASK, None)
    mask = mask if stated.fill_value is None else stated.fill_value
    return Stated(fill, {**attributes, **marking(mask, data_type, attributes)}, names if ndim else None)


def marking(mask: Any, data_type: DataType, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attribute that marks a value as missing in v3; none for what xarray does not mark, or would not open."""
    if mask is None:
        return {}
    if data_type.variable == "string" or data_type.dtype.kind == "U":
        return {} if _MISSING in attributes else {_MISSING: str(mask)}
    with suppress(TypeError, ValueError, OverflowError):
        return {MASK: encode_mask(mask, data_type.dtype)}
    return {}


def _in_v2(stated: Stated, data_type: DataType, ndim: int) -> Stated:
    names = () if stated.names is None and not ndim else stated.names  # xarray does not ask scalars for names
    if names is None:
        return Stated(stated.fill_value, stated.attributes, None)
    attributes, fill, kind = {**stated.attributes, ATTRIBUTE: list(names)}, stated.fill_value, data_type.dtype.kind
    if MASK in attributes and kind in "biufcS" and not data_type.variable:
        fill = None
        with suppress(TypeError, ValueError):
            mask = decode_mask(attributes[MASK], data_type.dtype)
            fill = _exact(mask, data_type)
            attributes[MASK] = as_json(mask)
        if fill is not None:
            del attributes[MASK]
    elif not (kind in "fc" and np.isnan(fill)):  # NaN is missing in any case
        fill = None
    return Stated(fill, attributes, None)


def _exact(value: Any, data_type: DataType) -> Any:
    """The scalar of a data type that equals a value, or None."""
    with suppress(MetadataError):
        scalar = cast_fill(value, data_type)
        if scalar == value or (scalar != scalar and value != value):  # noqa: PLR0124 - NaN
            return scalar
    return None


def split_names(
    attributes: Mapping[str, Any], names: Sequence[str | None] | None, ndim: int
) -> tuple[dict[str, Any], tuple[str | None, ...] | None]:
    """Attributes without dimension names, and the names, from whichever of the two has them."""
    rest = dict(attributes)
    stored = rest.get(ATTRIBUTE)
    if isinstance(stored, list) and len(stored) == ndim and all(isinstance(name, str | None) for name in stored):
        del rest[ATTRIBUTE]
        names = stored if names is None else names
    return rest, None if names is None else tuple(names)


def in_format(
    meta: ArrayMeta, attributes: Mapping[str, Any], names: Sequence[str | None] | None, mask_value: Any
) -> ArrayMeta:
    """Metadata of what is not Zarr, with its attributes, dimension names and value for missing data."""
    rest, dims = split_names(attributes, names, len(meta.shape))
    if meta.zarr_format == 3:
        if MASK not in rest:
            rest |= marking(mask_value, meta.data_type, rest)
        return replace(meta, attributes=rest, dimension_names=dims)
    if dims is not None and all(isinstance(name, str) for name in dims):
        rest[ATTRIBUTE] = list(dims)
    return replace(meta, attributes={**_mask_attribute(mask_value, meta.data_type, 2), **rest}, dimension_names=None)


def nodata_of(meta: ArrayMeta) -> Any:
    """The element that the attribute ``nodata`` names; None if there is none.

    ``_FillValue`` does not count: each array of v2 with names of axes that is copied to v3 gets one, as xarray takes
    its fill value for missing data.
    """
    value = meta.attributes.get(NODATA)
    with suppress(MetadataError):
        return None if value is None else fill_from_json(value, meta.data_type, 3)
    return None


@dataclass(frozen=True, slots=True)
class MissingData:
    """What an array's attributes say of missing data.

    Attributes
    ----------
    values : tuple of scalar
        The elements that stand for it, other than NaN.
    low, high : scalar or None
        Smaller and greater elements are no data either; None if there is no such limit. If ``low`` is greater, as of
        unsigned numbers that are stored with a sign, those between are none.
    """

    values: tuple[Any, ...] = ()
    low: Any = None
    high: Any = None


def missing_data_of(meta: ArrayMeta) -> MissingData:
    """What the attributes of an array say of missing data, as netCDF, CF and xarray have them.

    ``nodata``, ``_FillValue``, ``missing_value``, ``valid_range``, ``valid_min`` and ``valid_max``; for Zarr v2, where
    xarray keeps ``_FillValue`` as the fill value, also the fill value of an array with names of axes. A ``_FillValue``
    of zero does not count: arrays of v2 in which nothing is missing have it, and so have their copies in v3. Limits of
    packed integers that are floats, as ``scale_factor`` and ``add_offset``, are of what is unpacked.
    Source: CF conventions 1.11, section 2.5.1; NetCDF Users Guide, "Attribute Conventions".
    """
    dtype, attributes = meta.data_type.dtype, meta.attributes
    if dtype.kind not in "iuf" or meta.data_type.variable:
        nodata = nodata_of(meta)
        return MissingData(() if nodata is None else (nodata,))
    wrapped = UNSIGNED in attributes and dtype.kind in "iu"
    given = [attributes.get(NODATA), *_listed(attributes.get(_MISSING))]
    with suppress(ValueError, TypeError):
        given += [value for value in (decode_mask(one, dtype) for one in _listed(attributes.get(MASK))) if value]
    if meta.zarr_format == 2 and ATTRIBUTE in attributes and meta.fill_value:
        given.append(meta.fill_value)
    low, high = (*_listed(attributes.get("valid_range")), None, None)[:2]
    limits = [(*_listed(attributes.get(name)), end)[0] for name, end in (("valid_min", low), ("valid_max", high))]
    if wrapped and limits != [None, None]:  # one that is not given is the end of the numbers without a sign
        limits = [end if one is None else one for one, end in zip(limits, (0, -1), strict=True)]
    if dtype.kind in "iu":
        limits = _packed_limits(limits, attributes)
    elements = dict.fromkeys(_as_element(one, meta.data_type, wrapped=wrapped) for one in given)
    values = tuple(value for value in elements if value is not None and value == value)  # noqa: PLR0124 - NaN
    return MissingData(values, *(_as_element(one, meta.data_type, wrapped=wrapped) for one in limits))


def _packed_limits(limits: list[Any], attributes: Mapping[str, Any]) -> list[Any]:
    """Limits as whole numbers; those that are floats are of what integers are unpacked to, if floats unpack them."""
    scale, offset = ((*_listed(attributes.get(name)), n)[0] for name, n in (("scale_factor", 1), ("add_offset", 0)))
    is_packed = isinstance(scale, float) or isinstance(offset, float)
    with suppress(TypeError, ValueError, OverflowError, ZeroDivisionError):
        packed = [(n - offset) / scale if is_packed and isinstance(n, float) else n for n in limits]
        low, high = packed[:: -1 if packed != limits and scale < 0 else 1]
        low = math.ceil(low - 1e-4) if isinstance(low, float) else low  # what is unpacked was rounded
        return [low, math.floor(high + 1e-4) if isinstance(high, float) else high]
    return limits


def _listed(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _as_element(value: Any, data_type: DataType, *, wrapped: bool) -> Any:
    """The element that a number, wrapped if it may be of the other sign, is in a type's precision; None if none is."""
    with suppress(MetadataError, ValueError, TypeError, OverflowError):
        bits = 8 * data_type.dtype.itemsize
        if wrapped and type(value) is int and -1 << bits - 1 <= value < 1 << bits:
            return np.asarray(value % (1 << bits)).astype(data_type.dtype)[()]
        if isinstance(value, str):
            value = fill_from_json(value, data_type, 3)
        return np.asarray(cast_fill(value, data_type))[()]
    return None


def nodata_attributes(value: Any, data_type: DataType, zarr_format: int) -> dict[str, Any]:
    """The attributes that name an element, which is the fill value, as missing data: to gzarr, and to xarray."""
    return {NODATA: fill_to_json(value, data_type, 3), **_mask_attribute(value, data_type, zarr_format)}


def _mask_attribute(value: Any, data_type: DataType, zarr_format: int) -> dict[str, Any]:
    if zarr_format == 3:
        return marking(value, data_type, {})
    is_nan = isinstance(value, (float, np.floating)) and math.isnan(value)
    with suppress(TypeError):  # JSON has neither NaN nor complex numbers; the fill value says them
        return {} if value is None or is_nan else {MASK: as_json(value)}
    return {}


def encode_mask(value: Any, dtype: np.dtype[Any]) -> Any:
    """A value for missing data as xarray writes it in a v3 attribute. Raises TypeError for types it cannot read."""
    if dtype.kind == "f":
        return base64.standard_b64encode(struct.pack("<d", float(value))).decode()
    if dtype.kind == "c":
        number = complex(value)
        return [encode_mask(part, np.dtype("f8")) for part in (number.real, number.imag)]
    if dtype.kind not in "biu":
        raise TypeError(f"xarray reads no {MASK} of {dtype} in v3")
    return bool(value) if dtype.kind == "b" else int(value)


def decode_mask(value: Any, dtype: np.dtype[Any]) -> Any:
    """The value that xarray wrote in base64; other values as they are. Raises ValueError."""
    if dtype.kind == "f" and isinstance(value, str):
        return _double(value)
    if dtype.kind == "c" and isinstance(value, list):
        real, imaginary = map(_double, value)
        return complex(real, imaginary)
    return base64.standard_b64decode(value) if dtype.kind == "S" and isinstance(value, str) else value


def _double(text: str) -> float:
    (number,) = np.frombuffer(base64.standard_b64decode(text), "<f8")
    return float(number)


def as_json(value: Any) -> Any:
    """The value of an attribute in JSON: arrays as lists, bytes as text. Raises TypeError, ValueError."""
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value[()]
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.generic) and value.dtype.kind in "biufSU":
        return as_json(value.item())
    if isinstance(value, (list, tuple, np.ndarray)):
        return [as_json(item) for item in value]
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TypeError(f"a value of type {type(value).__name__}")


# -- enumerations ------------------------------------------------------------------------------------------------------
# Zarr stores the integers, and the names in the attribute ``enum`` and in the words of the CF conventions (section 3.5,
# "Flags"), which readers such as xarray's know. Both come back.

ENUM = "enum"
_FLAGS = ("flag_values", "flag_meanings")


def enum_attributes(names: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that describe an enumeration, from its integers by name."""
    values = {str(name): int(value) for name, value in names.items()}
    meanings = " ".join(name.replace(" ", "_") for name in values)
    return {ENUM: values, **dict(zip(_FLAGS, (list(values.values()), meanings), strict=True))}


def split_enum(attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> tuple[dict[str, Any], dict[str, int] | None]:
    """Attributes without those of an enumeration, and its integers by name; None if they describe none of the type."""
    rest, names = dict(attributes), attributes.get(ENUM)
    if dtype.kind not in "iu" or not isinstance(names, Mapping) or not names:
        return rest, None
    limits = np.iinfo(dtype)
    if not all(type(value) is int and limits.min <= value <= limits.max for value in names.values()):
        return rest, None
    same = {name: value for name, value in enum_attributes(names).items() if rest.get(name) == value}
    return {name: value for name, value in rest.items() if name not in same}, dict(names)
