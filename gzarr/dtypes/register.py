"""Data types of third parties: a name for a NumPy dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from gzarr.dtypes.datatype import DataType, canonical
from gzarr.dtypes.extension import ML_NAMES, add_extension, extension_name, find_extension, is_extension
from gzarr.dtypes.v3 import is_standard_name
from gzarr.errors import MetadataError, UnknownDataTypeError


def register_data_type(name: str, dtype: Any) -> None:
    """Teach gzarr a data type's name, for metadata of both formats and for ``dtype=``.

    Args:
        name: name in the metadata, such as "posit16".
        dtype: NumPy dtype (or what `numpy.dtype` takes) with elements of one size. A dtype that NumPy has itself makes
            the name an alias for reading; a user-defined one is also written by the name, its fill values as
            hexadecimal bytes, and read from those or from whatever its scalar type's constructor takes.

    Raises: MetadataError if the dtype's size is not fixed, or the name or the dtype is already taken by another.
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
