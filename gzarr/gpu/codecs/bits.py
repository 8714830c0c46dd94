"""Filters on bits: bitround drops bits of floats, packbits stores eight booleans in a byte."""

from __future__ import annotations

import numpy as np

from gzarr.backend import Array
from gzarr.codecs.spec import ArrayRepr, Step
from gzarr.gpu.codecs.batch import Wave
from gzarr.gpu.codecs.filters import DATA_TYPE, Filter, filter_codec

#: Bits of the mantissa that is stored, by the size of a float (IEEE 754, binary16, 32, 64).
_MANTISSA_BITS = {2: 10, 4: 23, 8: 52}


def _decoding_bitround(step: Step) -> Filter | str:
    return lambda wave, rows: rows


def _encoding_bitround(step: Step) -> Filter | str:
    """In integers, as numcodecs does it."""
    if not isinstance(step.decoded, ArrayRepr) or step.decoded.dtype.kind != "f":
        return DATA_TYPE
    itemsize, keep = step.decoded.dtype.itemsize, step.spec.configuration()["keepbits"]
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


def _decoding_packbits(step: Step) -> Filter | str:
    n_bits = step.decoded.nbytes  # a bool is a byte
    if n_bits is None:
        return DATA_TYPE

    def decode(wave: Wave, rows: Array) -> Array:
        xp = wave.device.xp
        # The first byte is the number of padding bits in the last one, which the number of elements tells too.
        bits = xp.unpackbits(xp.ascontiguousarray(rows[:, 1:]).reshape(-1))
        return xp.ascontiguousarray(bits.reshape(rows.shape[0], -1)[:, :n_bits])

    return decode


def _encoding_packbits(step: Step) -> Filter | str:
    n_bits = step.decoded.nbytes  # a bool is a byte
    if n_bits is None:
        return DATA_TYPE
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


CODECS = {
    "numcodecs.bitround": filter_codec(_decoding_bitround, _encoding_bitround),
    "numcodecs.packbits": filter_codec(_decoding_packbits, _encoding_packbits),
}
