"""Turns what users pass as ``dtype=`` into a `DataType`, and registers data types of third parties."""

from typing import Any

import numpy as np

from gzarr.dtypes.datatype import BYTES, OBJECT, STRING, DataType, canonical, quote
from gzarr.dtypes.extension import ML_NAMES, add_extension, extension_name, find_extension, is_extension, unknown
from gzarr.dtypes.v2 import from_v2
from gzarr.dtypes.v3 import from_v3, is_standard_name
from gzarr.errors import MetadataError, UnknownDataTypeError
from gzarr.tensors import numpy_dtype

_OF_NO_LENGTH = {"U": STRING, "S": BYTES}
_VARIABLE = {str: STRING, bytes: BYTES}


def parse_dtype(like: Any) -> DataType:
    """The data type that a user's ``dtype=`` means.

    ``like`` is whatever `numpy.dtype` takes, with its byte order; ``str``, "string" or a NumPy StringDType for strings
    and ``bytes`` or "bytes" for bytes of variable length; ``object`` for Zarr v2 object arrays; a type of ml_dtypes,
    also by name; an object of `gzarr.dtype` or of zarr-python's ``zarr.dtype``; or a data type of
    Zarr v2 metadata (a list) or Zarr v3 metadata (a name such as "r16", an object).
    Padding of structs is kept; overlapping or unordered fields are packed.

    Raises UnknownDataTypeError if the name is unknown, MetadataError for what cannot be stored (titles, objects in
    structs, subarrays outside structs), and MissingExtraError if the name needs ml_dtypes.
    """
    if isinstance(like, DataType):
        return like
    if hasattr(like, "to_native_dtype"):
        return _from_zarr(like)
    like = numpy_dtype(like)
    if isinstance(like, str):
        return _from_name(like)
    if isinstance(like, dict) and "name" in like:
        return from_v3(like)
    if isinstance(like, list) and any(isinstance(field, list) for field in like):
        return from_v2(like)
    return _from_numpy(like)


def _from_zarr(like: Any) -> DataType:
    """The data type of an object of `gzarr.dtype` or of zarr-python."""
    if isinstance(like, type):
        raise UnknownDataTypeError(f"dtype: expected an object, got the class {like.__name__}; write {like.__name__}()")
    if type(like).__name__ == "VariableLengthBytes":  # NumPy has no type that says so
        return BYTES
    data_type: DataType | None = getattr(like, "data_type", None)
    return data_type if isinstance(data_type, DataType) else _from_numpy(like.to_native_dtype())


def _from_name(name: str) -> DataType:
    if is_standard_name(name):
        return from_v3(name)
    try:
        return _from_numpy(name)
    except UnknownDataTypeError:
        return from_v3(name)


def _from_numpy(like: Any) -> DataType:
    try:
        dtype = np.dtype(like)
    except (TypeError, ValueError, SyntaxError) as error:  # SyntaxError: "i4,,"
        raise unknown(like if isinstance(like, str) else quote(like)) from error
    if dtype.kind == "O":
        # h5py marks its strings so
        return _VARIABLE.get((dtype.metadata or {}).get("vlen"), OBJECT)  # type: ignore[arg-type]
    if dtype.kind == "T":
        return STRING
    if dtype.itemsize == 0 and dtype.kind in _OF_NO_LENGTH and dtype.subdtype is None:
        return _OF_NO_LENGTH[dtype.kind]
    if is_extension(dtype) and dtype.names is None:
        extension_name(dtype)  # raises if it is not registered
    return DataType(canonical(dtype))


def register_data_type(name: str, dtype: Any) -> None:
    """Register a name for a data type, for metadata of Zarr v2 and v3 and for ``dtype=``.

    Parameters
    ----------
    name : str
        Name in the metadata, such as "posit16".
    dtype : dtype
        NumPy dtype, or what `numpy.dtype` takes, with elements of one size. For a dtype of NumPy's own, the name is an
        alias for reading. A user-defined dtype is also written by this name. Its fill values are written as
        hexadecimal bytes, and read from those or from what the constructor of its scalar type takes.

    Raises
    ------
    MetadataError
        If the size of the dtype is not fixed, or the name or the dtype is taken by another.

    Examples
    --------
    >>> import gzarr
    >>> gzarr.register_data_type("example.reading", "f4")
    >>> gzarr.create_array(shape=3, dtype="example.reading").dtype
    dtype('float32')
    """
    known = DataType(canonical(np.dtype(dtype)))
    if is_standard_name(name) or name in ML_NAMES or (find_extension(name) or known) != known:
        raise MetadataError(f"data_type: the name {name!r} is taken; register {known.dtype} under another")
    if is_extension(known.dtype):
        try:
            taken = extension_name(known.dtype)
        except UnknownDataTypeError:
            taken = name
        if taken != name:
            raise MetadataError(f"data_type: {known.dtype} already has the name {taken!r}")
    add_extension(name, known)
