"""Filters in the compiled loop's terms (`loop/filters.c`, `loop/values.c`): steps from numbers to numbers.

A filter that is one of numcodecs itself, or of Zarr v3, with a configuration whose values the loop computes bit for bit
as NumPy does, becomes some steps; any other one keeps its chain out of the loop.
"""

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numcodecs.astype import AsType
from numcodecs.bitround import BitRound, max_bits
from numcodecs.delta import Delta
from numcodecs.fixedscaleoffset import FixedScaleOffset
from numcodecs.packbits import PackBits
from numcodecs.quantize import Quantize
from numcodecs.shuffle import Shuffle

from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.cast_value import CastValueCodec
from gzarr.codecs.registry import to_numcodecs
from gzarr.codecs.rounding import OUT_OF_RANGE, ROUNDINGS
from gzarr.codecs.scale_offset import ScaleOffsetCodec
from gzarr.codecs.spec import ArrayRepr, Step
from gzarr.cpu.compiled.casts import number_of

#: Steps of a chain at most (MAX_FILTERS).
_MAX_STEPS = 8
#: Floats hold all integers up to here: none is rounded on its way through Python's. Those of parameters have 64 bits.
_MAX_INTEGER, _MAX_PARAMETER = 1 << 24, 1 << 53


class Kind(IntEnum):
    """What a step does, in the order of the loop."""

    SWAP_BYTES = 0
    SHUFFLE_BYTES = 1
    TAKE_DELTA = 2
    CAST_TYPE = 3
    SCALE_OFFSET = 4
    QUANTIZE_DIGITS = 5
    ROUND_MANTISSA = 6
    PACK_BITS = 7
    SCALE_VALUES = 8
    CAST_VALUES = 9


class FilterStep(NamedTuple):
    """A step of the loop.

    Attributes
    ----------
    kind : Kind
        What it does.
    dtype, stored : np.dtype[Any]
        Types of elements before it is encoded, and then.
    a, b : float
        Parameters.
    """

    kind: Kind
    dtype: np.dtype[Any]
    stored: np.dtype[Any]
    a: float = 0.0
    b: float = 0.0


Steps: TypeAlias = list[FilterStep]


class Filters(NamedTuple):
    """The filters of a chain.

    Attributes
    ----------
    decoded : ArrayRepr
        What the first of them encodes, in the byte order of the machine.
    table : bytes
        The loop's steps, in the order of encoding.
    widest : int
        The most bytes of a chunk between them.
    """

    decoded: ArrayRepr
    table: bytes
    widest: int


def make_filters(steps: Sequence[Step]) -> Filters | str | None:
    """Describe the filters of a chain for the loop, or say why the loop does not know them; None if there are none."""
    found: Steps = []
    decoded: Any = None
    in_arrays = False
    for step in steps:
        name = step.spec.name
        make = FILTERS.get(name)
        if make is not None:
            made = make(step.spec if name in _OF_ZARR else to_numcodecs(step.spec), step)
            if made is None:
                return f"codec {name!r} with this configuration is not in the compiled loop"
            in_arrays = in_arrays or isinstance(step.decoded, ArrayRepr)
            decoded = step.decoded if decoded is None else decoded
            found += made
        elif isinstance(step.spec, BytesCodec):
            if decoded is None:
                decoded = step.decoded
            elif (stored := _stored(step)) is not None and not stored.isnative:
                unsigned = np.dtype(f"u{stored.itemsize}")
                found.append(FilterStep(Kind.SWAP_BYTES, unsigned, unsigned))
    if not any(step.spec.name in FILTERS for step in steps):
        return None
    if in_arrays:
        decoded = ArrayRepr(decoded.dtype.newbyteorder("="), decoded.shape)
    table = _table(found, decoded.nbytes or 0)
    return "many filters are not in the compiled loop" if table is None else Filters(decoded, *table)


def _stored(step: Step) -> np.dtype[Any] | None:
    """The type that the codec "bytes" stores, with its byte order."""
    spec: Any = step.spec
    chunk: Any = step.decoded
    dtype: np.dtype[Any] = chunk.dtype if spec.endian is None else chunk.dtype.newbyteorder(spec.endian)
    return dtype if dtype.itemsize > 1 else None


def _table(steps: Steps, nbytes: int) -> tuple[bytes, int] | None:
    """The loop's table, and the most bytes that a chunk has there. nbytes: when decoded. None for too many steps."""
    most, rows = nbytes, []
    for kind, dtype, stored, a, b in steps:
        n = nbytes // dtype.itemsize
        encoded = 1 + -(-n // 8) if kind is Kind.PACK_BITS else n * stored.itemsize
        rows.append(struct.pack("5q2d", kind, number_of(dtype), number_of(stored), nbytes, encoded, a, b))
        nbytes = encoded
        most = max(most, nbytes)
    return (b"".join(rows), most) if len(rows) <= _MAX_STEPS and nbytes else None


def _fits(array: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a codec's own type is that of its array: the bits of the same numbers, in the same byte order."""
    if not isinstance(array, ArrayRepr) or dtype.itemsize != array.dtype.itemsize:
        return False
    same = (dtype.kind == "f") == (array.dtype.kind == "f")
    return same and (dtype.itemsize == 1 or dtype.isnative == array.dtype.isnative)


def _cast(dtype: np.dtype[Any], stored: np.dtype[Any]) -> Steps | None:
    """The steps of a cast from and to a stored type; None if the loop does not know it."""
    dtype, stored = dtype.newbyteorder("="), stored.newbyteorder("=")
    if dtype == stored or (dtype.kind in "iu" and stored.kind in "iu" and dtype.itemsize == stored.itemsize):
        return []
    integers = dtype.kind in "iu" and stored.kind in "iu"
    # The loop would round twice from float64 to float16.
    floats = dtype.kind == stored.kind == "f" and sorted((dtype.itemsize, stored.itemsize)) in ([2, 4], [4, 8])
    return [FilterStep(Kind.CAST_TYPE, dtype, stored)] if integers or floats else None


def _then_cast(first: FilterStep, stored: np.dtype[Any]) -> Steps | None:
    cast = _cast(first.stored, stored)
    return None if cast is None else [first, *cast]


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" and dtype.itemsize in (4, 8)


def _delta(codec: Any, step: Step) -> Steps | None:
    if type(codec) is not Delta or not _fits(step.decoded, codec.dtype) or not _fits(step.encoded, codec.astype):
        return None
    dtype = codec.dtype.newbyteorder("=")
    if dtype.kind not in "iu" and not _is_float(dtype):
        return None
    low, end = 0, 0
    if dtype.kind in "iu" and codec.astype.kind in "iu" and dtype != codec.astype.newbyteorder("="):
        low, end = int(np.iinfo(codec.astype).min), int(np.iinfo(codec.astype).max) + 1
    return _then_cast(FilterStep(Kind.TAKE_DELTA, dtype, dtype, low, end), codec.astype)


def _scale_offset(codec: Any, step: Step) -> Steps | None:
    if type(codec) is not FixedScaleOffset or not _fits(step.decoded, codec.dtype):
        return None
    dtype, stored = codec.dtype.newbyteorder("="), codec.astype.newbyteorder("=")
    integer = stored.kind in "iu"
    if not _fits(step.encoded, codec.astype) or not _is_float(dtype) or not (integer or _is_float(stored)):
        return None
    offset, scale = codec.offset, codec.scale
    if not _is_exact(offset, dtype) or not _is_exact(scale, dtype) or not _is_exact(offset, stored):
        return None
    # NumPy refuses an integer that is not of the type that it divides.
    if type(scale) is int and integer and not np.iinfo(stored).min <= scale <= np.iinfo(stored).max:
        return None
    return [FilterStep(Kind.SCALE_OFFSET, dtype, stored, offset, scale)] if dtype.type(scale) else None


def _is_exact(value: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a parameter is converted to floats of a type as NumPy does it, without a warning."""
    if type(value) is int:
        return abs(value) <= _MAX_INTEGER
    return (
        type(value) is float
        and (dtype != np.float32 or value == 0 or 1e-37 < abs(value) < 1e37)
        and math.isfinite(value)
    )


def _quantize(codec: Any, step: Step) -> Steps | None:
    if type(codec) is not Quantize or not _fits(step.decoded, codec.dtype) or not _fits(step.encoded, codec.astype):
        return None
    dtype = codec.dtype.newbyteorder("=")
    if not _is_float(dtype) or type(codec.digits) is not int or abs(codec.digits) > 30:
        return None
    return _then_cast(FilterStep(Kind.QUANTIZE_DIGITS, dtype, dtype, quantum(codec.digits)), codec.astype)


def quantum(digits: int) -> float:
    """The power of two by which numcodecs multiplies to keep a number of decimal digits."""
    exponent = math.log10(10.0**-digits)
    exponent = math.floor(exponent) if exponent < 0 else math.ceil(exponent)
    return float(2.0 ** math.ceil(math.log2(10.0**-exponent)))


def _bitround(codec: Any, step: Step) -> Steps | None:
    if type(codec) is not BitRound or not isinstance(step.decoded, ArrayRepr):
        return None
    dtype = step.decoded.dtype.newbyteorder("=")
    dropped = max_bits.get(str(dtype), -1) - codec.keepbits if type(codec.keepbits) is int else -1
    if dropped < 0 or dtype.kind != "f":
        return None
    return [FilterStep(Kind.ROUND_MANTISSA, dtype, dtype, dropped)] if dropped else []


def _packbits(codec: Any, step: Step) -> Steps | None:
    is_known = type(codec) is PackBits and isinstance(step.decoded, ArrayRepr) and step.decoded.dtype == np.bool_
    return [FilterStep(Kind.PACK_BITS, np.dtype("u1"), np.dtype("u1"))] if is_known else None


def _astype(codec: Any, step: Step) -> Steps | None:
    if type(codec) is not AsType or not _fits(step.decoded, codec.decode_dtype):
        return None
    return _cast(codec.decode_dtype, codec.encode_dtype) if _fits(step.encoded, codec.encode_dtype) else None


def _shuffle(codec: Any, step: Step) -> Steps | None:
    nbytes = step.decoded.nbytes
    if type(codec) is not Shuffle or type(codec.elementsize) is not int or nbytes is None:
        return None
    if codec.elementsize <= 1:
        return []
    byte, known = np.dtype("u1"), codec.elementsize <= 255  # MAX_PLANES
    return (
        None
        if nbytes % codec.elementsize or not known
        else [FilterStep(Kind.SHUFFLE_BYTES, byte, byte, codec.elementsize)]
    )


def _scale_values(codec: ScaleOffsetCodec, step: Step) -> Steps | None:
    if not isinstance(step.decoded, ArrayRepr):
        return None
    dtype = step.decoded.dtype.newbyteorder("=")
    offset, scale = codec.scalars(dtype)
    if dtype.kind in "iu":
        known = max(abs(int(offset)), abs(int(scale))) <= _MAX_PARAMETER
    else:
        known = _is_float(dtype) and bool(np.isfinite(offset) and np.isfinite(scale))
    return [FilterStep(Kind.SCALE_VALUES, dtype, dtype, float(offset), float(scale))] if known else None


def _cast_values(codec: CastValueCodec, step: Step) -> Steps | None:
    if not isinstance(step.decoded, ArrayRepr) or any(pairs for _, pairs in codec.scalar_map or ()):
        return None
    dtype, stored = step.decoded.dtype.newbyteorder("="), np.dtype(codec.data_type)
    if dtype == stored:
        return []
    if any(t.kind == "f" and not _is_float(t) for t in (dtype, stored)):
        return None
    # The loop rounds to floats as the processor does.
    nearest = codec.rounding == ROUNDINGS[0]
    if not nearest and any(_rounds_to_float(*types) for types in ((dtype, stored), (stored, dtype))):
        return None
    how = OUT_OF_RANGE.index(codec.out_of_range or OUT_OF_RANGE[0])
    return [FilterStep(Kind.CAST_VALUES, dtype, stored, how, ROUNDINGS.index(codec.rounding))]


def _rounds_to_float(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Whether a cast may have to round to a float."""
    if target.kind != "f":
        return False
    return source.itemsize > target.itemsize or (source.kind != "f" and source.itemsize == target.itemsize)


#: The filters that the loop knows, by the names of their codecs: those of arrays, and those of bytes.
_OF_ZARR: Mapping[str, Callable[[Any, Step], Steps | None]] = {
    CastValueCodec.name: _cast_values,
    ScaleOffsetCodec.name: _scale_values,
}
ARRAY_FILTERS: Mapping[str, Callable[[Any, Step], Steps | None]] = {
    **_OF_ZARR,
    "numcodecs.astype": _astype,
    "numcodecs.bitround": _bitround,
    "numcodecs.delta": _delta,
    "numcodecs.fixedscaleoffset": _scale_offset,
    "numcodecs.packbits": _packbits,
    "numcodecs.quantize": _quantize,
}
BYTES_FILTERS: Mapping[str, Callable[[Any, Step], Steps | None]] = {"numcodecs.shuffle": _shuffle}
FILTERS = {**ARRAY_FILTERS, **BYTES_FILTERS}
