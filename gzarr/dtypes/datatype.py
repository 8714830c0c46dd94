"""`DataType`, a Zarr data type in memory, and the rules for structs that both formats share."""

import reprlib
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from gzarr.errors import MetadataError

#: "" for elements of one size; "string" and "bytes" for elements of variable length; "object" for Zarr v2 object
#: arrays, whose elements are whatever their object codec decodes to.
Variable: TypeAlias = Literal["", "string", "bytes", "object"]

#: Deepest nesting of structs: no real data has more, and hostile metadata must not exhaust the stack.
MAX_DEPTH = 16


def quote(value: Any) -> str:
    """A value for an error message: its repr, shortened."""
    return reprlib.repr(value)


def canonical(dtype: np.dtype[Any], depth: int = 0) -> np.dtype[Any]:
    """Check that a dtype has elements of one size that can be stored, and order the fields of structs.

    Padding between fields is kept. Fields that overlap or lie out of order, as in a multi-field view
    ``x[["c", "a"]]``, are packed in the order of their names. Values are assigned by position, so nothing is lost.

    Raises MetadataError for titles, empty names, subarrays outside a struct, and objects or empty strings in one.
    """
    if dtype.subdtype is not None:
        raise MetadataError(
            f"dtype: expected the dtype of one element, got the subarray {dtype}; append its shape to the array's shape"
        )
    if dtype.names is None:
        if dtype.itemsize == 0 or dtype.kind in "OT":
            raise MetadataError(f"dtype: expected elements of one size, at least one byte, got {dtype!r}")
        return dtype
    if depth == MAX_DEPTH or not dtype.names:
        raise MetadataError(f"dtype: expected 1 or more fields, nested at most {MAX_DEPTH} deep, got {quote(dtype)}")
    fields: list[tuple[str, np.dtype[Any], tuple[int, ...], int]] = []
    for name in dtype.names:
        field: Any = dtype.fields[name]  # type: ignore[index]
        if len(field) == 3:
            raise MetadataError(f"dtype: field {name!r} has the title {field[2]!r}; Zarr stores no titles, remove it")
        if not name:
            raise MetadataError("dtype: expected every field to have a name, got ''")
        fields.append((name, canonical(field[0].base, depth + 1), field[0].shape, field[1]))
    return _lay_out(fields, dtype)


def _lay_out(fields: list[tuple[str, np.dtype[Any], tuple[int, ...], int]], dtype: np.dtype[Any]) -> np.dtype[Any]:
    formats = [np.dtype((base, shape)) for _, base, shape, _ in fields]
    names = [name for name, *_ in fields]
    offsets = [offset for *_, offset in fields]
    ends = [offset + item.itemsize for offset, item in zip(offsets, formats, strict=True)]
    if any(end > start for end, start in zip(ends, offsets[1:], strict=False)) or ends[-1] > dtype.itemsize:
        return np.dtype({"names": names, "formats": formats})
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": dtype.itemsize})


def packed_little(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype as Zarr v3 lays it out in a fill value: without padding, little endian."""
    if dtype.names is None:
        return dtype.newbyteorder("<")
    fields = [(name, dtype.fields[name][0]) for name in dtype.names]  # type: ignore[index]
    return np.dtype([(name, packed_little(item.base), item.shape) for name, item in fields])


@dataclass(frozen=True, slots=True)
class DataType:
    """The type of an array's elements.

    Attributes
    ----------
    dtype : numpy.dtype
        Dtype of the array in memory; object for elements of variable length.
    variable : {"", "string", "bytes", "object"}
        What the objects are, see `Variable`; "" for elements of one size.
    """

    dtype: np.dtype[Any]
    variable: Variable = ""

    @property
    def name(self) -> str:
        """Name for people: "int32", ">i4", "bfloat16", "[('a', '<i4')]", "string"."""
        return self.variable or str(self.dtype)


STRING = DataType(np.dtype(object), "string")
BYTES = DataType(np.dtype(object), "bytes")
OBJECT = DataType(np.dtype(object), "object")
