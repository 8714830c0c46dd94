"""Filters on the device: operations of the array module (CuPy or NumPy) on all chunks of a wave at once.

Each factory returns a function from a uint8 array (n chunks, encoded bytes) to one of (n chunks, decoded bytes), or
None where the device cannot give the host's answer bit for bit, or cannot raise the host's errors: floats out of range
of an integer become other integers there, and the integers of scale_offset and all but the exact casts of cast_value
are checked one by one. Numbers between two filters are in native byte order.
Source: numcodecs, the filters of the same names; `gzarr.codecs.scale_offset`, `gzarr.codecs.cast_value`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from gzarr.backend import Array
from gzarr.codecs.cast_value import CastValueCodec
from gzarr.codecs.numcodecs import NumcodecsCodec
from gzarr.codecs.scale_offset import ScaleOffsetCodec
from gzarr.codecs.spec import ArrayRepr, BytesRepr, Step
from gzarr.codecs.transpose import TransposeCodec
from gzarr.gpu.dtypes import has_dtype

#: Decodes all chunks of a wave: (array module, uint8 (n, encoded bytes)) -> uint8 (n, decoded bytes).
Filter: TypeAlias = Callable[[Any, Array], Array]


def filter_for(step: Step) -> Filter | None:
    """The device function of a codec from array to array, or None if the device has none."""
    match step.spec:
        case NumcodecsCodec():
            make = _FILTERS.get(step.spec.id)
            return None if make is None else make(step, step.spec.configuration())
        case TransposeCodec():
            return _transpose(step)
        case ScaleOffsetCodec():
            return _scale_offset(step, step.spec)
        case CastValueCodec():
            return _cast_value(step, step.spec)
    return None


#: Floats that running_sums adds.
_SUMMED = ("<f4", "<f8", "<c8", "<c16")


def sums_floats(step: Step) -> bool:
    """Whether a step is a delta of floats stored in their own type, for which there is a kernel: their order counts."""
    if not isinstance(step.spec, NumcodecsCodec) or step.spec.id != "delta":
        return False
    dtypes = filter_dtypes(step, step.spec.configuration(), "dtype", "astype")
    return dtypes is not None and dtypes[0] == dtypes[1] and dtypes[0] in map(np.dtype, _SUMMED)


def _transpose(step: Step) -> Filter | None:
    if not isinstance(step.encoded, ArrayRepr) or not isinstance(step.spec, TransposeCodec):
        return None
    shape, itemsize = step.encoded.shape, step.encoded.dtype.itemsize
    inverse = np.argsort(step.spec.permutation(len(shape))).tolist()
    order = (0, *(axis + 1 for axis in inverse), len(shape) + 1)

    def decode(xp: Any, rows: Array) -> Array:
        n = rows.shape[0]
        return xp.ascontiguousarray(rows.reshape(n, *shape, itemsize).transpose(order)).reshape(n, -1)

    return decode


def _scale_offset(step: Step, spec: ScaleOffsetCodec) -> Filter | None:
    if not isinstance(step.decoded, ArrayRepr) or not has_dtype(step.decoded.dtype) or step.decoded.dtype.kind != "f":
        return None
    native = step.decoded.dtype.newbyteorder("=")
    offset, factor = spec.scalars(native)

    def decode(xp: Any, rows: Array) -> Array:
        with np.errstate(all="ignore"):  # as on the host; the emulated device has NumPy's warnings
            return (rows.view(native) / factor + offset).astype(native, copy=False).view(np.uint8)

    return decode


def _cast_value(step: Step, spec: CastValueCodec) -> Filter | None:
    if not isinstance(step.decoded, ArrayRepr) or not isinstance(step.encoded, ArrayRepr):
        return None
    target, source = step.decoded.dtype.newbyteorder("="), step.encoded.dtype.newbyteorder("=")
    # NumPy calls the cast of 64-bit integers to doubles safe, although it rounds.
    exact = target.kind != "f" or source.kind == "f" or source.itemsize < target.itemsize
    if not (exact and has_dtype(target) and has_dtype(source) and np.can_cast(source, target, "safe")):
        return None
    mapping = spec.mapping("decode", source, target)

    def decode(xp: Any, rows: Array) -> Array:
        values = rows.view(source)
        result = values.astype(target)
        for key, value in mapping:
            hit = xp.isnan(values) if key != key else values == key  # noqa: PLR0124 - NaN is not itself
            result[hit] = value
        return result.view(np.uint8)

    return decode


def filter_dtypes(step: Step, config: Any, first: str, second: str) -> tuple[np.dtype[Any], np.dtype[Any]] | None:
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


def is_defined(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Whether a cast gives the same on every machine: not so from floats to integers that are out of range."""
    return source.kind not in "fc" or target.kind in "fcb"


def _delta(step: Step, config: Any) -> Filter | None:
    dtypes = filter_dtypes(step, config, "dtype", "astype")
    if dtypes is None or any(d.kind not in "iu" for d in dtypes):
        return None
    decoded, encoded = dtypes
    return lambda xp, rows: xp.cumsum(rows.view(encoded), axis=1, dtype=decoded).view(np.uint8)


def _fixed_scale_offset(step: Step, config: Any) -> Filter | None:
    dtypes = filter_dtypes(step, config, "dtype", "astype")
    if dtypes is None or dtypes[0].kind not in "fc":
        return None
    decoded, encoded = dtypes
    scale, offset = config["scale"], config["offset"]

    def decode(xp: Any, rows: Array) -> Array:
        return ((rows.view(encoded) / scale) + offset).astype(decoded, copy=False).view(np.uint8)

    return decode


def _quantize(step: Step, config: Any) -> Filter | None:
    return _cast(filter_dtypes(step, config, "dtype", "astype"))


def _astype(step: Step, config: Any) -> Filter | None:
    return _cast(filter_dtypes(step, config, "decode_dtype", "encode_dtype"))


def _cast(dtypes: tuple[np.dtype[Any], np.dtype[Any]] | None) -> Filter | None:
    if dtypes is None or not is_defined(dtypes[1], dtypes[0]):
        return None
    decoded, encoded = dtypes
    return lambda xp, rows: rows.view(encoded).astype(decoded, copy=False).view(np.uint8)


def _bitround(step: Step, config: Any) -> Filter | None:
    return lambda xp, rows: rows


def _packbits(step: Step, config: Any) -> Filter | None:
    if not isinstance(step.decoded, (ArrayRepr, BytesRepr)) or step.decoded.nbytes is None:
        return None
    n_bits = step.decoded.nbytes  # a bool is a byte

    def decode(xp: Any, rows: Array) -> Array:
        # The first byte says how many bits of the last one are padding; the number of elements is known anyway.
        bits = xp.unpackbits(xp.ascontiguousarray(rows[:, 1:]).reshape(-1))
        return xp.ascontiguousarray(bits.reshape(rows.shape[0], -1)[:, :n_bits])

    return decode


_FILTERS: dict[str, Callable[[Step, Any], Filter | None]] = {
    "astype": _astype,
    "bitround": _bitround,
    "delta": _delta,
    "fixedscaleoffset": _fixed_scale_offset,
    "packbits": _packbits,
    "quantize": _quantize,
}
