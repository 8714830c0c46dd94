"""nvCOMP's own formats: bare streams of its batched functions. See `gzarr.codecs.nvcomp`."""

from __future__ import annotations

import numpy as np

from gzarr.codecs.nvcomp import PREFIX
from gzarr.codecs.spec import CodecSpec, Step
from gzarr.errors import CodecError
from gzarr.gpu.codecs.batch import Chunks, Streams, Wave
from gzarr.gpu.codecs.deflate import deflate_envelope
from gzarr.gpu.codecs.entry import UNFIT, Decoder, DecoderFactory, DeviceCodec, Encoder, decoded_nbytes
from gzarr.gpu.codecs.lz4 import LZ4
from gzarr.gpu.codecs.single_stream import Envelope, stream_encoder
from gzarr.gpu.codecs.transfers import at_targets, count_rows, decompress, decompress_nbytes, new_chunks
from gzarr.gpu.codecs.zstd import ZSTD
from gzarr.gpu.device.nvcomp_tables import CODECS as NVCOMP
from gzarr.gpu.device.protocol import Device


def _decoder(algorithm: str) -> DecoderFactory:
    """The decoder factory of an algorithm."""
    limits = NVCOMP[algorithm]

    def factory(step: Step, device: Device) -> Decoder | str:
        nbytes, name = decoded_nbytes(step), step.spec.name
        if nbytes is None or algorithm not in device.decoders() or nbytes > limits.max_decompressed_nbytes:
            return UNFIT

        def decode(wave: Wave, batch: Streams) -> Chunks:
            empty = np.flatnonzero(batch.sizes == 0)
            if empty.size:
                raise CodecError(f"{name}: truncated: there are no bytes", index=int(empty[0]), codec=name)
            n = len(batch)
            stride = -(-nbytes // limits.alignment.output) * limits.alignment.output
            sizes = np.full(n, nbytes, np.int64)
            cost = decompress_nbytes(wave, algorithm, batch.offsets, batch.sizes, sizes)
            # Some decoders may write whole units.
            placed = at_targets(wave, limits.alignment.output) if stride == nbytes else None
            wave.require(n, batch.upload_nbytes + count_rows(n, placed) * stride + cost)
            source = wave.device.address(batch.slab) + batch.offsets
            chunks = new_chunks(wave, n, stride, placed)
            tables = (source, batch.sizes, chunks.addresses, sizes)
            decompress(wave, name, algorithm, np.arange(n), tables, verified=batch.verified)
            return chunks if stride == nbytes else Chunks(chunks.owner, chunks.addresses, nbytes)

        return decode

    return factory


def _codec(algorithm: str, *, typed: bool = False) -> DeviceCodec:
    def envelope(nbytes: int) -> Envelope:
        return deflate_envelope(nbytes) if algorithm == "deflate" else Envelope(algorithm)

    encoder = stream_encoder(envelope, typed=typed)
    return DeviceCodec(_decoder(algorithm), encoder, takes_streams=True, host_may_lack=True)


#: By algorithm. Bitcomp and Cascaded count in numbers.
_ALGORITHMS = {
    **{name: _codec(name) for name in ("ans", "deflate", "gdeflate", "snappy")},
    **{name: _codec(name, typed=True) for name in ("bitcomp", "cascaded")},
}
#: The algorithms of KvikIO's codec.
_IN_BATCH = {**_ALGORITHMS, "lz4": LZ4, "zstd": ZSTD}


def _in_batch(spec: CodecSpec) -> DeviceCodec | None:
    return _IN_BATCH.get(str(spec.configuration().get("algorithm", "")).lower())


def _batch_detour(spec: CodecSpec) -> str | None:
    codec = _in_batch(spec)
    return None if codec is None else codec.detour(spec)


def _batch_decoder(step: Step, device: Device) -> Decoder | str:
    codec = _in_batch(step.spec)
    return UNFIT if codec is None else codec.decoder(step, device)


def _batch_encoder(step: Step, device: Device) -> Encoder | str:
    codec = _in_batch(step.spec)
    return UNFIT if codec is None else codec.encoder(step, device)


CODECS = {
    "numcodecs.nvcomp_batch": DeviceCodec(
        _batch_decoder, _batch_encoder, takes_streams=True, detour=_batch_detour, host_may_lack=True
    ),
    **{PREFIX + name: codec for name, codec in _ALGORITHMS.items()},
}
