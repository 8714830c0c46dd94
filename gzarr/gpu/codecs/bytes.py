"""The bytes codec. It passes chunks on; next to filters, it also reverses the bytes of elements that are not native."""

from __future__ import annotations

from typing import Any

import numpy as np

from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.spec import ArrayRepr, Step
from gzarr.gpu.codecs.batch import BatchContext, Chunks, Encoded, Streams
from gzarr.gpu.codecs.dtypes import swap_unit
from gzarr.gpu.codecs.entry import UNFIT, Decoder, DeviceCodec, Encoder, decoded_nbytes
from gzarr.gpu.codecs.transfers import as_chunks, as_rows, reversed_units, rows_as_chunks, unshuffled
from gzarr.gpu.device.protocol import Device


def stored_dtype(step: Step) -> np.dtype[Any]:
    """Dtype of the elements as the bytes codec of a step stores them."""
    if not isinstance(step.decoded, ArrayRepr):
        return np.dtype(np.uint8)
    dtype = step.decoded.dtype
    endian = getattr(step.spec, "endian", None)
    return dtype if endian is None else dtype.newbyteorder(">" if endian == "big" else "<")


def _decoder(step: Step, device: Device) -> Decoder | str:
    nbytes = decoded_nbytes(step)
    if nbytes is None or not isinstance(step.spec, BytesCodec):
        return UNFIT
    return lambda context, batch: as_chunks(context, batch, nbytes, "bytes")


def _encoder(step: Step, device: Device) -> Encoder | str:
    """The gathering kernel has given the elements their stored byte order."""
    if decoded_nbytes(step) is None or not isinstance(step.spec, BytesCodec):
        return UNFIT
    return lambda context, batch: batch


def _native_decoder(step: Step, device: Device) -> Decoder | str:
    decoder, unit = _decoder(step, device), swap_unit(stored_dtype(step))
    if isinstance(decoder, str) or not unit:
        return decoder
    nbytes = decoded_nbytes(step) or 0

    def decode(context: BatchContext, batch: Streams | Chunks) -> Chunks:
        plain = unshuffled(context, as_chunks(context, batch, nbytes, "bytes"))
        return rows_as_chunks(context, reversed_units(context, plain.rows, unit))

    return decode


def _native_encoder(step: Step, device: Device) -> Encoder | str:
    encoder, unit = _encoder(step, device), swap_unit(stored_dtype(step))
    if isinstance(encoder, str) or not unit:
        return encoder

    def encode(context: BatchContext, batch: Chunks | Encoded) -> Chunks:
        return rows_as_chunks(context, reversed_units(context, as_rows(context, batch), unit))

    return encode


#: The bytes codec behind filters, which take and give numbers in native byte order.
NATIVE = DeviceCodec(_native_decoder, _native_encoder)
CODECS = {"bytes": DeviceCodec(_decoder, _encoder)}
