"""The shuffle of numcodecs, which is Blosc's byte shuffle with one block."""

from __future__ import annotations

import numpy as np

from gzarr.codecs.numcodecs import NumcodecsCodec
from gzarr.codecs.spec import Step
from gzarr.gpu.codecs.batch import BYTE_SHUFFLE, Chunks, Encoded, Shuffle, Streams, Wave
from gzarr.gpu.codecs.entry import UNFIT, Decoder, DeviceCodec, Encoder, decoded_nbytes
from gzarr.gpu.codecs.transfers import as_chunks, as_rows, rows_as_chunks, shuffled, unshuffled
from gzarr.gpu.device.protocol import Device


def _sizes(step: Step) -> tuple[int, int] | None:
    """(bytes of a chunk, bytes of an element); None if the device cannot shuffle them."""
    nbytes = decoded_nbytes(step)
    if nbytes is None or not isinstance(step.spec, NumcodecsCodec):
        return None
    typesize = int(step.spec.configuration().get("elementsize", 4))
    return None if typesize > 1 and nbytes % typesize else (nbytes, typesize)


def _decoder(step: Step, device: Device) -> Decoder | str:
    sizes = _sizes(step)
    if sizes is None:
        return UNFIT
    nbytes, typesize = sizes

    def decode(wave: Wave, batch: Streams | Chunks) -> Chunks:
        chunks = as_chunks(wave, batch, nbytes, "shuffle")
        chunks = unshuffled(wave, chunks) if chunks.shuffle is not None else chunks
        n = len(chunks)
        mode, sizes = np.full(n, BYTE_SHUFFLE, np.uint8), np.full(n, typesize, np.int32)
        shuffle = Shuffle(mode, sizes, np.full(n, nbytes, np.int64)) if typesize > 1 else None
        return Chunks(chunks.owner, chunks.addresses, nbytes, chunks.rows, shuffle)

    return decode


def _encoder(step: Step, device: Device) -> Encoder | str:
    sizes = _sizes(step)
    if sizes is None:
        return UNFIT
    nbytes, typesize = sizes

    def encode(wave: Wave, batch: Chunks | Encoded) -> Chunks:
        chunks = rows_as_chunks(wave, as_rows(wave, batch))
        return chunks if typesize < 2 else shuffled(wave, chunks, BYTE_SHUFFLE, typesize, nbytes)

    return encode


CODECS = {"numcodecs.shuffle": DeviceCodec(_decoder, _encoder)}
