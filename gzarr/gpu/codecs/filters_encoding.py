"""Filters on the device, in the direction of encoding, on all chunks of a wave at once.

Each factory returns a function from a uint8 array (n chunks, decoded bytes) to one of (n chunks, encoded bytes), or
the reason why the host does it, where the device might not give what the host encodes, bit for bit: see
`gzarr.gpu.codecs.filters`, and `gzarr.gpu.codecs.floats` for all that works on floats. Numbers between two filters are
in native byte order.
Source: numcodecs, the filters of the same names; `gzarr.codecs.scale_offset`, `gzarr.codecs.cast_value`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gzarr.backend import Array
from gzarr.codecs.spec import ArrayRepr, BytesRepr, Step
from gzarr.codecs.transpose import TransposeCodec
from gzarr.gpu.codecs import floats
from gzarr.gpu.codecs.batch import Wave
from gzarr.gpu.codecs.filters import (
    DATA_TYPE,
    Found,
    Maker,
    calculated,
    cast_value,
    casting,
    filter_dtypes,
    find,
    floats_of_one_type,
    of_numcodecs,
    scale_offset,
    transposed,
)

#: Bits of the mantissa that is stored, by the size of a float (IEEE 754, binary16, 32, 64).
_MANTISSA_BITS = {2: 10, 4: 23, 8: 52}


def encoding_filter_for(step: Step) -> Found:
    """The device function that encodes a codec from array to array, or why the host does."""
    return find(step, _ENCODING)


def _transpose(step: Step) -> Found:
    if not isinstance(step.decoded, ArrayRepr) or not isinstance(step.spec, TransposeCodec):
        return DATA_TYPE
    shape = step.decoded.shape
    return transposed(shape, step.decoded.dtype.itemsize, step.spec.permutation(len(shape)))


def _delta(step: Step, config: Any) -> Found:
    dtypes = filter_dtypes(step, config, "dtype", "astype")
    if dtypes is None:
        return DATA_TYPE
    decoded, encoded = dtypes
    if decoded.kind not in "iu" or encoded.kind not in "iu":
        return floats_of_one_type(dtypes) or (lambda wave, rows: floats.differences(wave, rows, decoded))
    if not np.can_cast(decoded, encoded, "safe"):
        return "the host refuses a first number that is out of range"

    def encode(wave: Wave, rows: Array) -> Array:
        values = rows.view(decoded)
        steps = wave.device.xp.empty(values.shape, encoded)
        steps[:, :1] = values[:, :1].astype(encoded)
        with np.errstate(over="ignore"):  # as on the host; the emulated device has NumPy's warnings
            steps[:, 1:] = (values[:, 1:] - values[:, :-1]).astype(encoded)
        return steps.view(np.uint8)

    return encode


def _fixed_scale_offset(step: Step, config: Any) -> Found:
    dtypes = filter_dtypes(step, config, "dtype", "astype")
    if dtypes is None or "b" in (dtypes[0].kind, dtypes[1].kind):
        return DATA_TYPE
    decoded, encoded = dtypes
    if decoded.kind in "iu":
        return "integers are scaled on the host"
    steps = ("subtract", config["offset"]), ("multiply", config["scale"]), ("rint", None)
    return calculated((decoded, decoded), encoded, *steps)


def _quantize(step: Step, config: Any) -> Found:
    dtypes = filter_dtypes(step, config, "dtype", "astype")
    if dtypes is None or dtypes[0].kind != "f":
        return DATA_TYPE
    (decoded, encoded), scale = dtypes, _quantum(config["digits"])
    return calculated((decoded, decoded), encoded, ("multiply", scale), ("rint", None), ("divide", scale))


def _quantum(digits: int) -> float:
    """The power of two that numcodecs multiplies by to keep so many decimal digits."""
    exponent = math.log10(10.0**-digits)
    exponent = math.floor(exponent) if exponent < 0 else math.ceil(exponent)
    return float(2.0 ** math.ceil(math.log2(10.0**-exponent)))


def _astype(step: Step, config: Any) -> Found:
    dtypes = filter_dtypes(step, config, "decode_dtype", "encode_dtype")
    return DATA_TYPE if dtypes is None else casting(*dtypes)


def _bitround(step: Step, config: Any) -> Found:
    """In integers, as numcodecs does it."""
    if not isinstance(step.decoded, ArrayRepr) or step.decoded.dtype.kind != "f":
        return DATA_TYPE
    itemsize, keep = step.decoded.dtype.itemsize, config["keepbits"]
    dropped = _MANTISSA_BITS.get(itemsize, -1) - keep
    if dropped < 0:
        return DATA_TYPE
    if dropped == 0:
        return lambda wave, rows: rows
    number = np.dtype(f"i{itemsize}").type
    half, shift, mask = number((1 << (dropped - 1)) - 1), number(dropped), number(-(1 << dropped))

    def encode(wave: Wave, rows: Array) -> Array:
        bits = rows.view(number)
        return ((bits + ((bits >> shift & number(1)) + half)) & mask).view(np.uint8)

    return encode


def _packbits(step: Step, config: Any) -> Found:
    if not isinstance(step.decoded, (ArrayRepr, BytesRepr)) or step.decoded.nbytes is None:
        return DATA_TYPE
    n_bits = step.decoded.nbytes  # a bool is a byte
    padding = -n_bits % 8

    def encode(wave: Wave, rows: Array) -> Array:
        xp, n = wave.device.xp, rows.shape[0]
        whole = xp.zeros((n, n_bits + padding), np.uint8)
        whole[:, :n_bits] = rows
        packed = xp.empty((n, 1 + (n_bits + padding) // 8), np.uint8)
        packed[:, :1] = padding
        packed[:, 1:] = xp.packbits(whole.reshape(-1)).reshape(n, -1)
        return packed

    return encode


#: By name of the codec.
_ENCODING: dict[str, Maker] = {
    "cast_value": lambda step: cast_value(step, "encode"),
    "numcodecs.astype": of_numcodecs(_astype),
    "numcodecs.bitround": of_numcodecs(_bitround),
    "numcodecs.delta": of_numcodecs(_delta),
    "numcodecs.fixedscaleoffset": of_numcodecs(_fixed_scale_offset),
    "numcodecs.packbits": of_numcodecs(_packbits),
    "numcodecs.quantize": of_numcodecs(_quantize),
    "scale_offset": lambda step: scale_offset(step, "subtract", "multiply"),
    "transpose": _transpose,
}
