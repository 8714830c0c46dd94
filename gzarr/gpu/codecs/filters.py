"""The common part of filters, which are codecs from array to array.

On the device, a filter is a function from a uint8 array (n chunks, bytes before) to a uint8 array (n chunks, bytes
after). Between two filters, numbers are in native byte order. A filter runs on the host if the device cannot give the
host's results bit for bit, or cannot raise its errors: machines differ in how they cast floats that an integer type
cannot hold; scale_offset checks each integer, and cast_value each number unless the cast is exact. Arithmetic on floats
is in `gzarr.gpu.codecs.floats`; everything else is done with the array module (CuPy or NumPy).
Source: numcodecs, the filters of the same names; `gzarr.codecs.scale_offset`, `gzarr.codecs.cast_value`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from gzarr.backend import Array
from gzarr.codecs.spec import ArrayRepr, Step
from gzarr.errors import CodecError
from gzarr.gpu.codecs import floats
from gzarr.gpu.codecs.batch import Chunks, Encoded, Streams, Wave
from gzarr.gpu.codecs.dtypes import has_dtype
from gzarr.gpu.codecs.entry import UNFIT, Decoder, DeviceCodec, Encoder, decoded_nbytes
from gzarr.gpu.codecs.transfers import as_chunks, as_rows, rows_as_chunks, unshuffled
from gzarr.gpu.device.protocol import Device

#: Works on all chunks of a wave: uint8 (n, bytes before) -> uint8 (n, bytes after), both on the device.
Filter: TypeAlias = Callable[[Wave, Array], Array]
#: Makes the filter of a step, or says why the host has to run it.
Maker: TypeAlias = Callable[[Step], Filter | str]

#: A pair of native dtypes: decoded, encoded.
Dtypes: TypeAlias = tuple[np.dtype[Any], np.dtype[Any]]

DATA_TYPE = "the device cannot run it for this data type"
CHECKED = "the host checks each number"
_UNUSUAL_SCALE = "the device calculates with plain finite scales and offsets"


def filter_codec(decoding: Maker, encoding: Maker) -> DeviceCodec:
    """The codec of a pair of filters, one for each direction."""

    def decoder(step: Step, device: Device) -> Decoder | str:
        function, decoded, encoded = decoding(step), decoded_nbytes(step), step.encoded.nbytes
        if isinstance(function, str) or decoded is None or encoded is None:
            return function if isinstance(function, str) else UNFIT
        name = step.spec.name

        def decode(wave: Wave, batch: Streams | Chunks) -> Chunks:
            chunks = unshuffled(wave, as_chunks(wave, batch, encoded, name))
            return _expect(name, "decoded", decoded, rows_as_chunks(wave, function(wave, chunks.rows)))

        return decode

    def encoder(step: Step, device: Device) -> Encoder | str:
        function, encoded = encoding(step), step.encoded.nbytes
        if isinstance(function, str) or decoded_nbytes(step) is None or encoded is None:
            return function if isinstance(function, str) else UNFIT
        name = step.spec.name

        def encode(wave: Wave, batch: Chunks | Encoded) -> Chunks:
            return _expect(name, "encoded", encoded, rows_as_chunks(wave, function(wave, as_rows(wave, batch))))

        return encode

    return DeviceCodec(decoder, encoder)


def _expect(name: str, what: str, nbytes: int, chunks: Chunks) -> Chunks:
    if chunks.nbytes != nbytes:
        raise CodecError(f"{name}: expected {nbytes} {what} bytes, got {chunks.nbytes}", codec=name)
    return chunks


def filter_dtypes(step: Step, first: str = "dtype", second: str = "astype") -> Dtypes | None:
    """Decoded and encoded dtype of a filter of numcodecs, in native byte order, from two fields of its configuration.

    Returns: None if the device lacks one of them, or if the chunks hold other numbers.
    """
    config = step.spec.configuration()
    decoded = np.dtype(config[first])
    encoded = np.dtype(config.get(second) or config[first])
    stated = (decoded, step.decoded), (encoded, step.encoded)
    same = all(isinstance(there, ArrayRepr) and there.dtype == dtype for dtype, there in stated)
    if not all(has_dtype(dtype) for dtype in (decoded, encoded)):
        return None
    if not same and not (decoded.isnative and encoded.isnative):
        return None
    return decoded.newbyteorder("="), encoded.newbyteorder("=")


def casting(source: np.dtype[Any], target: np.dtype[Any]) -> Filter | str:
    """A cast, or why the device would not give the host's bits."""
    return floats.why_not_cast(source, target) or (lambda wave, rows: floats.cast(wave, rows, source, target))


def calculated(dtypes: Dtypes, target: np.dtype[Any], *steps: tuple[str, Any]) -> Filter | str:
    """Arithmetic, or why the device would not give the host's bits. dtypes: of the numbers, and of the arithmetic."""
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
