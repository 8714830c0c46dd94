"""Registers third-party data types: a name for a NumPy dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from gzarr.dtypes.datatype import DataType, canonical
from gzarr.dtypes.extension import ML_NAMES, add_extension, extension_name, find_extension, is_extension
from gzarr.dtypes.v3 import is_standard_name
from gzarr.errors import MetadataError, UnknownDataTypeError


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
