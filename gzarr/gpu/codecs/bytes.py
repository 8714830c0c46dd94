"""Codecs that only move bytes: the bytes codec, and the shuffle of numcodecs, which is Blosc's with one block.

The bytes codec passes chunks on; next to filters, it also reverses the bytes of elements that are not native.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.numcodecs import NumcodecsCodec
from gzarr.codecs.spec import ArrayRepr, Step
from gzarr.gpu.codecs.batch import BatchContext, Chunks, Decoder, DeviceCodec, Encoded, Encoder, Streams, swap_unit
from gzarr.gpu.codecs.filters import Filter, filter_codec
from gzarr.gpu.codecs.refusing import UNFIT, decoded_nbytes
from gzarr.gpu.codecs.transfers import as_chunks, plain_chunks, reversed_units, shuffled, unshuffled
from gzarr.gpu.device.protocol import Device
from gzarr.gpu.kernels import BYTE_SHUFFLED
from gzarr.gpu.kernels.parts import same_shuffles


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


def _native(step: Step, direction: str) -> Filter | str:
    """The reversal of bytes, in either direction alike, which makes numbers native or gives them their stored order."""
    unit = swap_unit(stored_dtype(step))
    if not isinstance(step.spec, BytesCodec):
        return UNFIT
    return lambda context, rows: reversed_units(context, rows, unit) if unit else rows


def _shuffled(step: Step) -> tuple[Decoder | str, Encoder | str]:
    nbytes, typesize = decoded_nbytes(step), int(step.spec.configuration().get("elementsize", 4))
    if nbytes is None or not isinstance(step.spec, NumcodecsCodec) or (typesize > 1 and nbytes % typesize):
        return UNFIT, UNFIT

    def decode(context: BatchContext, batch: Streams | Chunks) -> Chunks:
        chunks = as_chunks(context, batch, nbytes, "shuffle")
        chunks = unshuffled(context, chunks) if chunks.shuffle is not None else chunks
        shuffle = same_shuffles(len(chunks), BYTE_SHUFFLED, typesize, nbytes, nbytes) if typesize > 1 else None
        return replace(chunks, nbytes=nbytes, shuffle=shuffle)

    def encode(context: BatchContext, batch: Chunks | Encoded) -> Chunks:
        chunks = plain_chunks(context, batch)
        return chunks if typesize < 2 else shuffled(context, chunks, BYTE_SHUFFLED, typesize, nbytes)

    return decode, encode


#: The bytes codec behind filters, which take and give numbers in native byte order.
NATIVE = filter_codec(_native)
CODECS = {
    "bytes": DeviceCodec(_decoder, _encoder),
    "numcodecs.shuffle": DeviceCodec(lambda step, device: _shuffled(step)[0], lambda step, device: _shuffled(step)[1]),
}
