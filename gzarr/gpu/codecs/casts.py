"""Filters that store numbers as another data type: astype, and the exact casts of cast_value."""

from __future__ import annotations

import numpy as np

from gzarr.backend import Array
from gzarr.codecs.cast_value import CastValueCodec
from gzarr.codecs.spec import ArrayRepr, Step
from gzarr.gpu.codecs import floats
from gzarr.gpu.codecs.batch import Wave
from gzarr.gpu.codecs.filters import CHECKED, DATA_TYPE, Filter, casting, filter_codec, filter_dtypes


def _decoding_astype(step: Step) -> Filter | str:
    dtypes = filter_dtypes(step, "decode_dtype", "encode_dtype")
    return DATA_TYPE if dtypes is None else casting(dtypes[1], dtypes[0])


def _encoding_astype(step: Step) -> Filter | str:
    dtypes = filter_dtypes(step, "decode_dtype", "encode_dtype")
    return DATA_TYPE if dtypes is None else casting(*dtypes)


def _cast_value(step: Step, direction: str) -> Filter | str:
    """The exact casts of cast_value, for which the rounding rule does not matter. direction: "encode" or "decode"."""
    spec = step.spec
    if not isinstance(spec, CastValueCodec):
        return DATA_TYPE
    if not isinstance(step.decoded, ArrayRepr) or not isinstance(step.encoded, ArrayRepr):
        return DATA_TYPE
    source, target = step.encoded.dtype.newbyteorder("="), step.decoded.dtype.newbyteorder("=")
    if direction == "encode":
        source, target = target, source
    # NumPy calls the cast of 64-bit integers to doubles safe, although it rounds.
    exact = target.kind != "f" or source.kind == "f" or source.itemsize < target.itemsize
    if not (exact and np.can_cast(source, target, "safe")):
        return CHECKED
    why = floats.why_not_cast(source, target)
    if why:
        return why
    mapping = spec.mapping(direction, source, target)

    def run(wave: Wave, rows: Array) -> Array:
        result = floats.cast(wave, rows, source, target)
        if mapping and result is rows:
            result = rows.copy()
        for key, value in mapping:
            floats.put(result, target, floats.where_equal(rows, source, key), value)
        return result

    return run


CODECS = {
    "cast_value": filter_codec(lambda step: _cast_value(step, "decode"), lambda step: _cast_value(step, "encode")),
    "numcodecs.astype": filter_codec(_decoding_astype, _encoding_astype),
}
