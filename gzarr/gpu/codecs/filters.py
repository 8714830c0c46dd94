"""Filters on the device, in the direction of decoding, on all chunks of a wave at once.

Each factory returns a function from a uint8 array (n chunks, encoded bytes) to one of (n chunks, decoded bytes), or
the reason why the host does it, where the device cannot give the host's answer bit for bit or cannot raise the host's
errors: floats out of range of an integer become other integers on every machine, and the integers of scale_offset and
all but the exact casts of cast_value are checked one by one. What works on floats is in `gzarr.gpu.codecs.floats`; the
rest are operations of the array module (CuPy or NumPy). Numbers between two filters are in native byte order.
Source: numcodecs, the filters of the same names; `gzarr.codecs.scale_offset`, `gzarr.codecs.cast_value`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from gzarr.backend import Array
from gzarr.codecs.cast_value import CastValueCodec
from gzarr.codecs.scale_offset import ScaleOffsetCodec
from gzarr.codecs.spec import ArrayRepr, BytesRepr, Step
from gzarr.codecs.transpose import TransposeCodec
from gzarr.gpu.codecs import floats
from gzarr.gpu.codecs.batch import Wave
from gzarr.gpu.codecs.dtypes import has_dtype

#: Works on all chunks of a wave: uint8 (n, bytes before) -> uint8 (n, bytes after), both on the device.
Filter: TypeAlias = Callable[[Wave, Array], Array]
#: A filter, or why the host has to run it.
Found: TypeAlias = Filter | str

#: Makes the function of a step.
Maker: TypeAlias = Callable[[Step], Found]

#: A pair of native dtypes: decoded, encoded.
Dtypes: TypeAlias = tuple[np.dtype[Any], np.dtype[Any]]

NO_FILTER = "the device has no such codec"
DATA_TYPE = "the device cannot run it for this data type"
_UNUSUAL_SCALE = "the device calculates with plain finite scales and offsets"
_CHECKED = "the host checks each number"


def find(step: Step, makers: Mapping[str, Maker]) -> Found:
    """The device function of a codec from array to array in one direction, or why the host does it."""
    make = makers.get(step.spec.name)
    return NO_FILTER if make is None else make(step)


def filter_for(step: Step) -> Found:
    """The device function that decodes a codec from array to array, or why the host does."""
    return find(step, _DECODING)


def why_on_host(found: Found) -> str:
    """Why the host does a step; empty if the device does, or if the codec is none from array to array."""
    return found if isinstance(found, str) and found != NO_FILTER else ""


def of_numcodecs(make: Callable[[Step, Any], Found]) -> Maker:
    """The maker of a codec of numcodecs, which is given its configuration."""

    def maker(step: Step) -> Found:
        return make(step, step.spec.configuration())

    return maker


def transposed(shape: tuple[int, ...], itemsize: int, axes: list[int] | tuple[int, ...]) -> Filter:
    """The function that gives the elements of chunks of a shape another order of axes."""
    order = (0, *(axis + 1 for axis in axes), len(shape) + 1)

    def run(wave: Wave, rows: Array) -> Array:
        n = rows.shape[0]
        return wave.device.xp.ascontiguousarray(rows.reshape(n, *shape, itemsize).transpose(order)).reshape(n, -1)

    return run


def scale_offset(step: Step, *operations: str) -> Found:
    """Of floats; the first of two operations takes the scale in decoding and the offset in encoding."""
    spec = step.spec
    if not isinstance(spec, ScaleOffsetCodec) or not isinstance(step.decoded, ArrayRepr):
        return DATA_TYPE
    if not has_dtype(step.decoded.dtype):
        return DATA_TYPE
    native = step.decoded.dtype.newbyteorder("=")
    if native.kind != "f":
        return _CHECKED
    operands = dict(zip(("offset", "scale"), spec.scalars(native), strict=True))
    names = {"add": "offset", "subtract": "offset", "multiply": "scale", "divide": "scale"}
    return calculated((native, native), native, *((name, operands[names[name]]) for name in operations))


def cast_value(step: Step, direction: str) -> Found:
    """The casts of cast_value that are exact, and so alike for all roundings. direction: "encode" or "decode"."""
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
        return _CHECKED
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


def filter_dtypes(step: Step, config: Any, first: str, second: str) -> Dtypes | None:
    """(decoded, encoded) native dtypes of a filter, or None if the device lacks one, or would view other numbers."""
    decoded = np.dtype(config[first])
    encoded = np.dtype(config.get(second) or config[first])
    stated = (decoded, step.decoded), (encoded, step.encoded)
    same = all(isinstance(there, ArrayRepr) and there.dtype == dtype for dtype, there in stated)
    if not all(has_dtype(dtype) for dtype in (decoded, encoded)):
        return None
    if not same and not (decoded.isnative and encoded.isnative):
        return None
    return decoded.newbyteorder("="), encoded.newbyteorder("=")


def casting(source: np.dtype[Any], target: np.dtype[Any]) -> Found:
    """A cast, if the device gives the host's bits."""
    return floats.why_not_cast(source, target) or (lambda wave, rows: floats.cast(wave, rows, source, target))


def calculated(dtypes: Dtypes, target: np.dtype[Any], *steps: tuple[str, Any]) -> Found:
    """Arithmetic, if the device gives the host's bits. dtypes: of the numbers, and of the arithmetic."""
    for source, made in (dtypes, (dtypes[1], target)):
        if source.kind == "c":
            return "complex numbers are calculated with on the host"
        if "f2" in (source.str[1:], made.str[1:]):
            return floats.HALF_FLOATS
        if why := floats.why_not_cast(source, made):
            return why
    numbers = floats.steps_of(dtypes[1], *steps)
    if numbers is None:
        return _UNUSUAL_SCALE
    return lambda wave, rows: floats.calculate(wave, rows, dtypes, target, numbers)


def _transpose(step: Step) -> Found:
    if not isinstance(step.encoded, ArrayRepr) or not isinstance(step.spec, TransposeCodec):
        return DATA_TYPE
    shape = step.encoded.shape
    inverse = np.argsort(step.spec.permutation(len(shape))).tolist()
    return transposed(shape, step.encoded.dtype.itemsize, inverse)


def _delta(step: Step, config: Any) -> Found:
    dtypes = filter_dtypes(step, config, "dtype", "astype")
    if dtypes is None:
        return DATA_TYPE
    decoded, encoded = dtypes
    if decoded.kind in "iu" and encoded.kind in "iu":
        return lambda wave, rows: wave.device.xp.cumsum(rows.view(encoded), axis=1, dtype=decoded).view(np.uint8)
    return floats_of_one_type(dtypes) or (lambda wave, rows: floats.running_sums(wave, rows, decoded))


def floats_of_one_type(dtypes: Dtypes) -> str:
    """Why a delta of others than integers is the host's; empty if it is the device's."""
    if dtypes[0].str[1:] == "f2":
        return floats.HALF_FLOATS
    if dtypes[0] != dtypes[1] or dtypes[0].kind not in "fc":
        return "the device takes differences of integers, and of floats stored in their own type"
    return ""


def _fixed_scale_offset(step: Step, config: Any) -> Found:
    dtypes = filter_dtypes(step, config, "dtype", "astype")
    if dtypes is None or "b" in (dtypes[0].kind, dtypes[1].kind):
        return DATA_TYPE
    decoded, encoded = dtypes
    work = encoded if encoded.kind in "fc" else np.dtype(np.float64)
    return calculated((encoded, work), decoded, ("divide", config["scale"]), ("add", config["offset"]))


def _quantize(step: Step, config: Any) -> Found:
    return _cast(filter_dtypes(step, config, "dtype", "astype"))


def _astype(step: Step, config: Any) -> Found:
    return _cast(filter_dtypes(step, config, "decode_dtype", "encode_dtype"))


def _cast(dtypes: Dtypes | None) -> Found:
    return DATA_TYPE if dtypes is None else casting(dtypes[1], dtypes[0])


def _bitround(step: Step, config: Any) -> Found:
    return lambda wave, rows: rows


def _packbits(step: Step, config: Any) -> Found:
    if not isinstance(step.decoded, (ArrayRepr, BytesRepr)) or step.decoded.nbytes is None:
        return DATA_TYPE
    n_bits = step.decoded.nbytes  # a bool is a byte

    def decode(wave: Wave, rows: Array) -> Array:
        xp = wave.device.xp
        # The first byte says how many bits of the last one are padding; the number of elements is known anyway.
        bits = xp.unpackbits(xp.ascontiguousarray(rows[:, 1:]).reshape(-1))
        return xp.ascontiguousarray(bits.reshape(rows.shape[0], -1)[:, :n_bits])

    return decode


#: By name of the codec.
_DECODING: dict[str, Maker] = {
    "cast_value": lambda step: cast_value(step, "decode"),
    "numcodecs.astype": of_numcodecs(_astype),
    "numcodecs.bitround": of_numcodecs(_bitround),
    "numcodecs.delta": of_numcodecs(_delta),
    "numcodecs.fixedscaleoffset": of_numcodecs(_fixed_scale_offset),
    "numcodecs.packbits": of_numcodecs(_packbits),
    "numcodecs.quantize": of_numcodecs(_quantize),
    "scale_offset": lambda step: scale_offset(step, "divide", "add"),
    "transpose": _transpose,
}
