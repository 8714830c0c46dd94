"""Converts between the ``dtype`` of Zarr v2 as JSON and `DataType`.

Strings are NumPy's (``"<i4"``), structs are lists of ``[name, dtype]`` or ``[name, dtype, shape]``, and elements of
variable length are ``"|O"``: the object codec says what they hold. Padding of structs is a field without a name, as in
NumPy's ``dtype.descr`` and zarr-python 2. Types from outside NumPy have their names, as in TensorStore.

Source: https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html#data-type-encoding
"""

import re
from typing import Any

import numpy as np

from gzarr.dtypes.datatype import BYTES, MAX_DEPTH, OBJECT, STRING, DataType, canonical, quote
from gzarr.dtypes.extension import extension_name, find_extension, is_extension, unknown
from gzarr.errors import MetadataError

_OBJECT_CODECS = {"vlen-utf8": STRING, "vlen-bytes": BYTES}

# What numpy.dtype may be asked about; it would also take "i4,f8", "O" and much else.
_TYPESTR = re.compile(
    r"[<>|=]?(\?|[biufcSUV]\d{1,10}|[mM]8(\[\d{0,10}[a-zA-Zμ]{1,7}(/\d{1,9})?\])?|[a-z]{3,10}\d{0,3})"
)

#: Kind and size of NumPy's own types of numbers.
CODES = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
_PLAIN = {order + code: DataType(np.dtype(order + code)) for order in "<>|" for code in CODES}


def to_v2(dt: DataType) -> Any:
    """The data type as JSON: "<i4", a list for structs, "|O" for variable lengths.

    Raises UnknownDataTypeError for an unregistered extension, MetadataError for a byte-swapped one, which has no name.
    """
    return "|O" if dt.variable else _dtype_to_v2(dt.dtype)


def from_v2(json: Any, object_codec_id: str | None = None) -> DataType:
    """Parse the ``dtype`` of a ``.zarray``; the ``id`` of the object codec decides what "|O" means.

    Raises UnknownDataTypeError if the name is unknown, MetadataError if the value is malformed.
    """
    if type(json) is str:
        plain = _PLAIN.get(json)
        if plain is not None:
            return plain
        if json in {"|O", "O"}:
            return _OBJECT_CODECS.get(object_codec_id or "", OBJECT)
        return DataType(_string_from_v2(json))
    if type(json) is list:
        return DataType(canonical(_struct_from_v2(json, 1)))
    raise MetadataError(f"dtype: expected a string or a list of fields, got {quote(json)}")


def _dtype_to_v2(dtype: np.dtype[Any]) -> Any:
    if dtype.names is not None:
        return _struct_to_v2(dtype)
    if is_extension(dtype):
        name = extension_name(dtype)
        if not dtype.isnative:
            raise MetadataError(f"dtype: {name} is stored little endian in Zarr v2, got a byte-swapped dtype; swap it")
        return name
    return dtype.str


def _struct_to_v2(dtype: np.dtype[Any]) -> list[Any]:
    fields: list[Any] = []
    end = 0
    for name in dtype.names or ():
        item, offset = dtype.fields[name][:2]  # type: ignore[index]
        if offset > end:
            fields.append(["", f"|V{offset - end}"])
        field = [name, _dtype_to_v2(item.base)]
        fields.append([*field, list(item.shape)] if item.shape else field)
        end = offset + item.itemsize
    if dtype.itemsize > end:
        fields.append(["", f"|V{dtype.itemsize - end}"])
    return fields


def _string_from_v2(text: str) -> np.dtype[Any]:
    extension = find_extension(text)
    if extension is not None:
        return extension.dtype
    if not _TYPESTR.fullmatch(text):
        raise unknown(text)
    try:
        dtype = np.dtype(text)
    except (TypeError, ValueError) as error:
        raise unknown(text) from error
    if dtype.itemsize == 0 and dtype.kind in "SU":
        # NumPy makes strings without a length one character wide, so zarr-python 2 stored them so
        return np.dtype(f"{dtype.str[:2]}1")
    return canonical(dtype)


def _struct_from_v2(json: list[Any], depth: int) -> np.dtype[Any]:
    if depth > MAX_DEPTH:
        raise MetadataError(f"dtype: expected structs nested at most {MAX_DEPTH} deep")
    names, formats, offsets, end = [], [], [], 0
    for field in json:
        name, item = _field_from_v2(field, depth)
        if name:
            names.append(name)
            formats.append(item)
            offsets.append(end)
        elif item.kind != "V" or item.names is not None:
            raise MetadataError(f"dtype: expected a field without a name to be padding ('|V4'), got {quote(field)}")
        end += item.itemsize
    try:
        return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": end})
    except (TypeError, ValueError) as error:
        raise MetadataError(f"dtype: {quote(json)} is not a struct: {error}") from error


def _field_from_v2(field: Any, depth: int) -> tuple[str, np.dtype[Any]]:
    if type(field) is not list or len(field) not in {2, 3} or type(field[0]) is not str:
        raise MetadataError(f"dtype: expected a field [name, dtype] or [name, dtype, shape], got {quote(field)}")
    name, json = field[:2]
    if type(json) is list:
        item = _struct_from_v2(json, depth + 1)
    elif type(json) is str:
        item = _string_from_v2(json)
    else:
        raise MetadataError(f"dtype: field {name!r}: expected a string or a list of fields, got {quote(json)}")
    if len(field) == 2:
        return name, item
    shape = field[2] if type(field[2]) is list else [field[2]]
    return name, subarray(item, shape, "dtype", name)


def subarray(item: np.dtype[Any], shape: Any, key: str, name: str) -> np.dtype[Any]:
    """The dtype of a field that holds an array. Raises MetadataError if the shape is not a list of lengths."""
    if type(shape) is not list or not all(type(length) is int and length >= 0 for length in shape):
        raise MetadataError(f"{key}: field {name!r}: expected a shape of non-negative integers, got {quote(shape)}")
    try:
        return np.dtype((item, tuple(shape)))
    except (TypeError, ValueError) as error:
        raise MetadataError(f"{key}: field {name!r}: a subarray of shape {quote(shape)} is too large") from error
