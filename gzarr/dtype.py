"""Data types as objects, under zarr-python's names: any function takes them as ``dtype=``.

NumPy's data types and names ("int16", "datetime64[ms]", "string") do the same and are shorter.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np

from gzarr.dtypes import cast_fill, default_fill, fill_from_json, fill_to_json, from_v2, from_v3, to_v2, to_v3
from gzarr.dtypes import parse_dtype as parse_data_type
from gzarr.dtypes.datatype import BYTES, STRING, DataType
from gzarr.errors import MetadataError

_Endianness: TypeAlias = Literal["little", "big"]
_ORDERS: dict[str, Literal["<", ">", "="]] = {"little": "<", "big": ">", sys.byteorder: "="}


class ZDType:
    """A data type of Zarr.

    Examples
    --------
    >>> import gzarr
    >>> gzarr.zeros(3, dtype=gzarr.dtype.Int16(), zarr_format=2).dtype
    dtype('int16')
    >>> gzarr.dtype.parse_dtype("<M8[10ms]", zarr_format=3)
    DateTime64(unit='ms', scale_factor=10, endianness='little')
    """

    #: NumPy's name of the data type but for the byte order, with the fields in it.
    _native: ClassVar[str] = "{name}"

    def to_native_dtype(self) -> Any:
        """Return the NumPy data type.

        Returns
        -------
        numpy.dtype
            The data type of elements in memory.
        """
        name = type(self).__name__.lower()
        fields = {"name": name, "unit": "generic", "scale_factor": 1, "endianness": sys.byteorder, **vars(self)}
        units = "" if fields["unit"] == "generic" else "[{scale_factor}{unit}]".format(**fields)
        return np.dtype(self._native.format(units=units, **fields)).newbyteorder(_ORDERS[fields["endianness"]])

    @classmethod
    def from_native_dtype(cls, dtype: Any) -> Self:
        """Return the object for a NumPy data type.

        Parameters
        ----------
        dtype : dtype-like
            A data type of NumPy, or its name.

        Returns
        -------
        ZDType
            The object.

        Raises
        ------
        MetadataError
            If the data type is one of another class.
        """
        return cls._checked(_named(parse_data_type(dtype)))

    @classmethod
    def from_json(cls, data: Any, *, zarr_format: int) -> Self:
        """Return the object for a data type in the metadata of an array.

        Parameters
        ----------
        data : str, list or dict
            What the metadata hold.
        zarr_format : {2, 3}
            Format of the metadata.

        Returns
        -------
        ZDType
            The object.

        Raises
        ------
        MetadataError
            If the data type is malformed, or one of another class.
        """
        if zarr_format == 3:
            return cls._checked(_named(from_v3(data)))
        given = data if isinstance(data, dict) else {"name": data}
        return cls._checked(_named(from_v2(given["name"], given.get("object_codec_id"))))

    def to_json(self, zarr_format: int) -> Any:
        """Return the data type as the metadata of an array hold it.

        Parameters
        ----------
        zarr_format : {2, 3}
            Format of the metadata.

        Returns
        -------
        str or dict
            The data type; for v2 with the name of the codec of objects, as in zarr-python.
        """
        if zarr_format == 3:
            return to_v3(self._data_type)
        codec = {"string": "vlen-utf8", "bytes": "vlen-bytes"}.get(self._data_type.variable)
        return {"name": to_v2(self._data_type), "object_codec_id": codec}

    def default_scalar(self) -> Any:
        """Return the fill value of arrays that are created without one.

        Returns
        -------
        object
            The fill value.
        """
        return default_fill(self._data_type)

    def cast_scalar(self, data: Any) -> Any:
        """Return a value as a fill value of this type.

        Parameters
        ----------
        data : object
            The value.

        Returns
        -------
        object
            The fill value.

        Raises
        ------
        MetadataError
            If this type has no such value.
        """
        return cast_fill(data, self._data_type)

    def to_json_scalar(self, data: Any, *, zarr_format: int) -> Any:
        """Return a fill value as the metadata of an array hold it.

        Parameters
        ----------
        data : object
            The fill value.
        zarr_format : {2, 3}
            Format of the metadata.

        Returns
        -------
        object
            A value of JSON.
        """
        return fill_to_json(self.cast_scalar(data), self._data_type, zarr_format)

    def from_json_scalar(self, data: Any, *, zarr_format: int) -> Any:
        """Return a fill value that the metadata of an array hold.

        Parameters
        ----------
        data : object
            A value of JSON.
        zarr_format : {2, 3}
            Format of the metadata.

        Returns
        -------
        object
            The fill value.
        """
        return fill_from_json(data, self._data_type, zarr_format)

    @property
    def item_size(self) -> int:
        """Bytes of an element in memory."""
        return int(self._data_type.dtype.itemsize)

    @property
    def _data_type(self) -> DataType:
        return DataType(np.dtype(self.to_native_dtype()))

    @classmethod
    def _checked(cls, found: "ZDType") -> Self:
        if not isinstance(found, cls):
            raise MetadataError(f"the data type is {found}, not {cls.__name__}")
        return found


@dataclass(frozen=True)
class Bool(ZDType):
    """True and False."""


@dataclass(frozen=True)
class Int8(ZDType):
    """Integers of one byte."""


@dataclass(frozen=True)
class UInt8(ZDType):
    """Unsigned integers of one byte."""


@dataclass(frozen=True)
class _Number(ZDType):
    endianness: _Endianness = "little" if sys.byteorder == "little" else "big"


class Int16(_Number):
    """Integers of two bytes."""


class Int32(_Number):
    """Integers of four bytes."""


class Int64(_Number):
    """Integers of eight bytes."""


class UInt16(_Number):
    """Unsigned integers of two bytes."""


class UInt32(_Number):
    """Unsigned integers of four bytes."""


class UInt64(_Number):
    """Unsigned integers of eight bytes."""


class Float16(_Number):
    """Half precision."""


class Float32(_Number):
    """Single precision."""


class Float64(_Number):
    """Double precision."""


class Complex64(_Number):
    """Complex numbers of single precision."""


class Complex128(_Number):
    """Complex numbers of double precision."""


@dataclass(frozen=True)
class _Time(ZDType):
    unit: str = "generic"
    scale_factor: int = 1
    endianness: _Endianness = "little" if sys.byteorder == "little" else "big"


class DateTime64(_Time):
    """Dates and times, counted in units from 1970."""

    _native = "M8{units}"


class TimeDelta64(_Time):
    """Spans of time, counted in units."""

    _native = "m8{units}"


@dataclass(frozen=True)
class FixedLengthUTF32(ZDType):
    """Text of at most ``length`` characters."""

    length: int
    endianness: _Endianness = "little" if sys.byteorder == "little" else "big"
    _native = "U{length}"


@dataclass(frozen=True)
class NullTerminatedBytes(ZDType):
    """Bytes, at most ``length`` of them, which do not end with a zero."""

    length: int
    _native = "S{length}"


@dataclass(frozen=True)
class RawBytes(ZDType):
    """Exactly ``length`` bytes."""

    length: int
    _native = "V{length}"


@dataclass(frozen=True)
class Struct(ZDType):
    """Records: the names of the fields, with their types."""

    fields: tuple[tuple[str, ZDType], ...]

    def to_native_dtype(self) -> np.dtype[Any]:
        """See `ZDType`."""
        return np.dtype([(name, field.to_native_dtype()) for name, field in self.fields])


@dataclass(frozen=True)
class VariableLengthUTF8(ZDType):
    """Text of any length."""

    def to_native_dtype(self) -> Any:
        """Return NumPy's type of strings."""
        return np.dtypes.StringDType()

    @property
    def _data_type(self) -> DataType:
        return STRING


@dataclass(frozen=True)
class VariableLengthBytes(ZDType):
    """Bytes, any number of them."""

    def to_native_dtype(self) -> Any:
        """Return NumPy's type of objects."""
        return np.dtype(object)

    @property
    def _data_type(self) -> DataType:
        return BYTES


@dataclass(frozen=True)
class _Other(ZDType):
    """A type without a class of its own: of ml_dtypes, of Zarr v2 objects, records with padding or subarrays."""

    data_type: DataType

    def to_native_dtype(self) -> Any:
        """See `ZDType`."""
        return self.data_type.dtype

    @property
    def _data_type(self) -> DataType:
        return self.data_type


#: The older name of zarr-python.
Structured = Struct


def parse_dtype(dtype_spec: Any, *, zarr_format: int = 3) -> ZDType:
    """Return the data type that anything means which functions take as ``dtype=``.

    Parameters
    ----------
    dtype_spec : object
        A NumPy data type, a name, metadata, or an object of this module or of zarr-python.
    zarr_format : {2, 3}
        The format of metadata, where they differ.

    Returns
    -------
    ZDType
        The data type.

    Raises
    ------
    UnknownDataTypeError
        If nothing has that name.

    Examples
    --------
    >>> import gzarr
    >>> gzarr.dtype.parse_dtype("int16").to_native_dtype()
    dtype('int16')
    """
    if isinstance(dtype_spec, ZDType):
        return dtype_spec
    return _named(from_v2(dtype_spec) if zarr_format == 2 and _is_v2(dtype_spec) else parse_data_type(dtype_spec))


def _is_v2(spec: Any) -> bool:
    return isinstance(spec, list) or (isinstance(spec, str) and spec[:1] in "<>|")


_NUMBERS = {np.dtype(kind.__name__.lower()).str[1:]: kind for kind in _Number.__subclasses__()}
_PLAIN: dict[str, ZDType] = {"b1": Bool(), "i1": Int8(), "u1": UInt8()}


def _named(data_type: DataType) -> ZDType:
    """The object of a data type."""
    if data_type.variable == "string":
        return VariableLengthUTF8()
    if data_type.variable == "bytes":
        return VariableLengthBytes()
    dtype = data_type.dtype
    code = dtype.str[1:]
    order: _Endianness = "big" if dtype.str[0] == ">" else "little"
    found: Any = None
    if dtype.names is not None:
        found = Struct(_fields(dtype))
    elif code in _PLAIN:
        found = _PLAIN[code]
    elif code in _NUMBERS:
        found = _NUMBERS[code](order)
    elif dtype.kind in "Mm":
        found = (DateTime64 if dtype.kind == "M" else TimeDelta64)(*np.datetime_data(dtype), order)
    elif dtype.kind == "U":
        found = FixedLengthUTF32(dtype.itemsize // 4, order)
    elif dtype.kind in "SV":
        found = (NullTerminatedBytes if dtype.kind == "S" else RawBytes)(dtype.itemsize)
    return found if found is not None and found._data_type == data_type else _Other(data_type)  # noqa: SLF001


def _fields(dtype: np.dtype[Any]) -> tuple[tuple[str, ZDType], ...]:
    fields: Iterable[str] = dtype.names or ()
    return tuple((name, _named(DataType(dtype.fields[name][0]))) for name in fields)  # type: ignore[index]


def __dir__() -> list[str]:
    """What is defined here."""
    return sorted(
        name for name, found in globals().items() if name[0] != "_" and getattr(found, "__module__", "") == __name__
    )
