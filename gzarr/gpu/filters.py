"""Filters on the device: operations of the array module (CuPy or NumPy) on all chunks of a wave at once.

Each factory returns a function from a uint8 array (n chunks, encoded bytes) to one of (n chunks, decoded bytes), or
None where the device cannot give the host's answer bit for bit: a delta of floats adds in another order there.
Source: numcodecs, the filters of the same names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from gzarr.backend import Array
from gzarr.codecs.numcodecs import NumcodecsCodec
from gzarr.codecs.spec import ArrayRepr, BytesRepr, Step
from gzarr.gpu.dtypes import has_dtype

#: Decodes all chunks of a wave: (array module, uint8 (n, encoded bytes)) -> uint8 (n, decoded bytes).
Filter: TypeAlias = Callable[[Any, Array], Array]


def filter_for(step: Step) -> Filter | None:
    """The device function of a numcodecs filter, or None if the device has none."""
    if not isinstance(step.spec, NumcodecsCodec):
        return None
    make = _FILTERS.get(step.spec.id)
    return None if make is None else make(step, step.spec.configuration())


def _dtypes(config: Any, first: str, second: str) -> tuple[np.dtype[Any], np.dtype[Any]] | None:
    """(decoded, encoded) dtypes of a filter, or None if the device lacks one or its byte order."""
    decoded = np.dtype(config[first])
    encoded = np.dtype(config.get(second) or config[first])
    usable = all(has_dtype(d) and d.isnative for d in (decoded, encoded))
    return (decoded, encoded) if usable else None


def _delta(step: Step, config: Any) -> Filter | None:
    dtypes = _dtypes(config, "dtype", "astype")
    if dtypes is None or any(d.kind not in "iu" for d in dtypes):
        return None
    decoded, encoded = dtypes
    return lambda xp, rows: xp.cumsum(rows.view(encoded), axis=1, dtype=decoded).view(np.uint8)


def _fixed_scale_offset(step: Step, config: Any) -> Filter | None:
    dtypes = _dtypes(config, "dtype", "astype")
    if dtypes is None:
        return None
    decoded, encoded = dtypes
    scale, offset = config["scale"], config["offset"]
    return lambda xp, rows: ((rows.view(encoded) / scale) + offset).astype(decoded, copy=False).view(np.uint8)


def _quantize(step: Step, config: Any) -> Filter | None:
    return _cast(_dtypes(config, "dtype", "astype"))


def _astype(step: Step, config: Any) -> Filter | None:
    return _cast(_dtypes(config, "decode_dtype", "encode_dtype"))


def _cast(dtypes: tuple[np.dtype[Any], np.dtype[Any]] | None) -> Filter | None:
    if dtypes is None:
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
