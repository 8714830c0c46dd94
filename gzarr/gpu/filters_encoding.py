"""Filters on the device, in the direction of encoding: operations of the array module on all chunks of a wave at once.

Each factory returns a function from a uint8 array (n chunks, decoded bytes) to one of (n chunks, encoded bytes), or
None where the device might not give what the host encodes, bit for bit. That is so for floats that become integers;
for all arithmetic and casts of floats of fewer than 8 bytes (CuPy compiles its kernels to make subnormal numbers of 4
bytes zero, casts to 2 bytes by way of 4, and GPUs give NaNs of 4 bytes other bits); for complex numbers that are
multiplied; and for what the host checks: the integers of scale_offset, all but the exact casts of cast_value, and
differences stored in a type that does not hold every number. Numbers between two filters are in native byte order.
Source: numcodecs, the filters of the same names; `gzarr.codecs.scale_offset`, `gzarr.codecs.cast_value`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gzarr.backend import Array
from gzarr.codecs.cast_value import CastValueCodec
from gzarr.codecs.numcodecs import NumcodecsCodec
from gzarr.codecs.scale_offset import ScaleOffsetCodec
from gzarr.codecs.spec import ArrayRepr, BytesRepr, Step
from gzarr.codecs.transpose import TransposeCodec
from gzarr.gpu.dtypes import has_dtype
from gzarr.gpu.filters import Filter, filter_dtypes

#: Bits of the mantissa that is stored, by the size of a float (IEEE 754, binary16, 32, 64).
_MANTISSA_BITS = {2: 10, 4: 23, 8: 52}


def encoding_filter_for(step: Step) -> Filter | None:
    """The device function of a codec from array to array, or None if the device has none."""
    match step.spec:
        case NumcodecsCodec():
            make = _FILTERS.get(step.spec.id)
            return None if make is None else make(step, step.spec.configuration())
        case TransposeCodec():
            return _transpose(step, step.spec)
        case ScaleOffsetCodec():
            return _scale_offset(step, step.spec)
        case CastValueCodec():
            return _cast_value(step, step.spec)
    return None


def casts_alike(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Whether a cast between native dtypes gives the same bits on every machine; see above."""
    if source == target:
        return True
    return source.kind in "biu" and (target.kind in "biu" or (target.kind == "f" and target.itemsize > 2))


def _is_double(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" and dtype.itemsize == 8


def _transpose(step: Step, spec: TransposeCodec) -> Filter | None:
    if not isinstance(step.decoded, ArrayRepr):
        return None
    shape, itemsize = step.decoded.shape, step.decoded.dtype.itemsize
    order = (0, *(axis + 1 for axis in spec.permutation(len(shape))), len(shape) + 1)

    def encode(xp: Any, rows: Array) -> Array:
        n = rows.shape[0]
        return xp.ascontiguousarray(rows.reshape(n, *shape, itemsize).transpose(order)).reshape(n, -1)

    return encode


def _scale_offset(step: Step, spec: ScaleOffsetCodec) -> Filter | None:
    if not isinstance(step.decoded, ArrayRepr) or not _is_double(step.decoded.dtype):
        return None
    native = step.decoded.dtype.newbyteorder("=")
    offset, factor = spec.scalars(native)

    def encode(xp: Any, rows: Array) -> Array:
        with np.errstate(all="ignore"):  # as on the host; the emulated device has NumPy's warnings
            return ((rows.view(native) - offset) * factor).view(np.uint8)

    return encode


def _cast_value(step: Step, spec: CastValueCodec) -> Filter | None:
    if not isinstance(step.decoded, ArrayRepr) or not isinstance(step.encoded, ArrayRepr):
        return None
    source, target = step.decoded.dtype.newbyteorder("="), step.encoded.dtype.newbyteorder("=")
    mapping = spec.mapping("encode", source, target)
    # NumPy calls the cast of 64-bit integers to doubles safe, although it rounds.
    exact = target.kind != "f" or source.kind == "f" or source.itemsize < target.itemsize
    compares = not mapping or source.kind in "iu" or _is_double(source)
    if not (exact and compares and has_dtype(target) and has_dtype(source) and casts_alike(source, target)):
        return None
    if not np.can_cast(source, target, "safe"):
        return None

    def encode(xp: Any, rows: Array) -> Array:
        values = rows.view(source)
        result = values.astype(target)
        for key, value in mapping:
            hit = xp.isnan(values) if key != key else values == key  # noqa: PLR0124 - NaN is not itself
            result[hit] = value
        return result.view(np.uint8)

    return encode


def _delta(step: Step, config: Any) -> Filter | None:
    dtypes = filter_dtypes(step, config, "dtype", "astype")
    if dtypes is None or not (dtypes[0].kind in "iu" or dtypes[0].str[1:] in ("f8", "c16")):
        return None
    decoded, encoded = dtypes
    # The host refuses a first number that is out of range.
    if not (casts_alike(decoded, encoded) and np.can_cast(decoded, encoded, "safe")):
        return None

    def encode(xp: Any, rows: Array) -> Array:
        values = rows.view(decoded)
        steps = xp.empty(values.shape, encoded)
        steps[:, :1] = values[:, :1].astype(encoded)
        with np.errstate(all="ignore"):
            steps[:, 1:] = (values[:, 1:] - values[:, :-1]).astype(encoded)
        return steps.view(np.uint8)

    return encode


def _fixed_scale_offset(step: Step, config: Any) -> Filter | None:
    dtypes = filter_dtypes(step, config, "dtype", "astype")
    if dtypes is None or not _is_double(dtypes[0]) or dtypes[0] != dtypes[1]:
        return None
    double = dtypes[0]
    scale, offset = double.type(config["scale"]), double.type(config["offset"])

    def encode(xp: Any, rows: Array) -> Array:
        with np.errstate(all="ignore"):
            return xp.rint((rows.view(double) - offset) * scale).view(np.uint8)

    return encode


def _quantize(step: Step, config: Any) -> Filter | None:
    dtypes = filter_dtypes(step, config, "dtype", "astype")
    if dtypes is None or not _is_double(dtypes[0]) or dtypes[0] != dtypes[1]:
        return None
    double, scale = dtypes[0], np.float64(_quantum(config["digits"]))

    def encode(xp: Any, rows: Array) -> Array:
        with np.errstate(all="ignore"):
            return (xp.rint(rows.view(double) * scale) / scale).view(np.uint8)

    return encode


def _quantum(digits: int) -> float:
    """The power of two that numcodecs multiplies by to keep so many decimal digits."""
    exponent = math.log10(10.0**-digits)
    exponent = math.floor(exponent) if exponent < 0 else math.ceil(exponent)
    return float(2.0 ** math.ceil(math.log2(10.0**-exponent)))


def _astype(step: Step, config: Any) -> Filter | None:
    dtypes = filter_dtypes(step, config, "decode_dtype", "encode_dtype")
    if dtypes is None or not casts_alike(*dtypes):
        return None
    decoded, encoded = dtypes
    return lambda xp, rows: rows.view(decoded).astype(encoded, copy=False).view(np.uint8)


def _bitround(step: Step, config: Any) -> Filter | None:
    """In integers, as numcodecs does it."""
    if not isinstance(step.decoded, ArrayRepr) or step.decoded.dtype.kind != "f":
        return None
    itemsize, keep = step.decoded.dtype.itemsize, config["keepbits"]
    dropped = _MANTISSA_BITS.get(itemsize, -1) - keep
    if dropped < 0:
        return None
    if dropped == 0:
        return lambda xp, rows: rows
    number = np.dtype(f"i{itemsize}").type
    half, shift, mask = number((1 << (dropped - 1)) - 1), number(dropped), number(-(1 << dropped))

    def encode(xp: Any, rows: Array) -> Array:
        bits = rows.view(number)
        return ((bits + ((bits >> shift & number(1)) + half)) & mask).view(np.uint8)

    return encode


def _packbits(step: Step, config: Any) -> Filter | None:
    if not isinstance(step.decoded, (ArrayRepr, BytesRepr)) or step.decoded.nbytes is None:
        return None
    n_bits = step.decoded.nbytes  # a bool is a byte
    padding = -n_bits % 8

    def encode(xp: Any, rows: Array) -> Array:
        n = rows.shape[0]
        whole = xp.zeros((n, n_bits + padding), np.uint8)
        whole[:, :n_bits] = rows
        packed = xp.empty((n, 1 + (n_bits + padding) // 8), np.uint8)
        packed[:, :1] = padding
        packed[:, 1:] = xp.packbits(whole.reshape(-1)).reshape(n, -1)
        return packed

    return encode


_FILTERS: dict[str, Callable[[Step, Any], Filter | None]] = {
    "astype": _astype,
    "bitround": _bitround,
    "delta": _delta,
    "fixedscaleoffset": _fixed_scale_offset,
    "packbits": _packbits,
    "quantize": _quantize,
}
