"""Filters that scale and round floats: fixedscaleoffset, quantize, scale_offset."""

from __future__ import annotations

import math

import numpy as np

from gzarr.codecs.scale_offset import ScaleOffsetCodec
from gzarr.codecs.spec import ArrayRepr, Step
from gzarr.gpu.codecs.dtypes import has_dtype
from gzarr.gpu.codecs.filters import (
    CHECKED,
    DATA_TYPE,
    Filter,
    calculated,
    casting,
    filter_codec,
    filter_dtypes,
)


def _decoding_fixed(step: Step) -> Filter | str:
    dtypes, config = filter_dtypes(step), step.spec.configuration()
    if dtypes is None or "b" in (dtypes[0].kind, dtypes[1].kind):
        return DATA_TYPE
    decoded, encoded = dtypes
    work = encoded if encoded.kind in "fc" else np.dtype(np.float64)
    return calculated((encoded, work), decoded, ("divide", config["scale"]), ("add", config["offset"]))


def _encoding_fixed(step: Step) -> Filter | str:
    dtypes, config = filter_dtypes(step), step.spec.configuration()
    if dtypes is None or "b" in (dtypes[0].kind, dtypes[1].kind):
        return DATA_TYPE
    decoded, encoded = dtypes
    if decoded.kind in "iu":
        return "integers are scaled on the host"
    steps = ("subtract", config["offset"]), ("multiply", config["scale"]), ("rint", None)
    return calculated((decoded, decoded), encoded, *steps)


def _decoding_quantize(step: Step) -> Filter | str:
    dtypes = filter_dtypes(step)
    return DATA_TYPE if dtypes is None else casting(dtypes[1], dtypes[0])


def _encoding_quantize(step: Step) -> Filter | str:
    dtypes = filter_dtypes(step)
    if dtypes is None or dtypes[0].kind != "f":
        return DATA_TYPE
    (decoded, encoded), scale = dtypes, _quantum(step.spec.configuration()["digits"])
    return calculated((decoded, decoded), encoded, ("multiply", scale), ("rint", None), ("divide", scale))


def _quantum(digits: int) -> float:
    """The power of two by which numcodecs multiplies to keep a number of decimal digits."""
    exponent = math.log10(10.0**-digits)
    exponent = math.floor(exponent) if exponent < 0 else math.ceil(exponent)
    return float(2.0 ** math.ceil(math.log2(10.0**-exponent)))


def _decoding_scale_offset(step: Step) -> Filter | str:
    return _scale_offset(step, ("divide", "scale"), ("add", "offset"))


def _encoding_scale_offset(step: Step) -> Filter | str:
    return _scale_offset(step, ("subtract", "offset"), ("multiply", "scale"))


def _scale_offset(step: Step, *operations: tuple[str, str]) -> Filter | str:
    """Arithmetic on floats. operations: each with the field that holds its operand."""
    spec = step.spec
    if not isinstance(spec, ScaleOffsetCodec) or not isinstance(step.decoded, ArrayRepr):
        return DATA_TYPE
    if not has_dtype(step.decoded.dtype):
        return DATA_TYPE
    native = step.decoded.dtype.newbyteorder("=")
    if native.kind != "f":
        return CHECKED
    operands = dict(zip(("offset", "scale"), spec.scalars(native), strict=True))
    return calculated((native, native), native, *((name, operands[field]) for name, field in operations))


CODECS = {
    "numcodecs.fixedscaleoffset": filter_codec(_decoding_fixed, _encoding_fixed),
    "numcodecs.quantize": filter_codec(_decoding_quantize, _encoding_quantize),
    "scale_offset": filter_codec(_decoding_scale_offset, _encoding_scale_offset),
}
