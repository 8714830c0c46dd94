"""What the device's table of codecs holds: both directions of each codec, and what planning asks about it.

A *decoder* takes a wave and a batch (`Streams` or `Chunks`) and returns the next one; an *encoder* takes `Chunks` or
`Encoded`. Filters give chunks, compressors and checksums encoded chunks. Both work on all chunks of a wave at once.

Levels of compression mean nothing on the device: nvCOMP's encoders have none, or others. What is decoded is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from gzarr.codecs.spec import CodecSpec, Step
from gzarr.errors import CodecError
from gzarr.gpu.codecs.batch import Chunks, Encoded, Streams, Wave
from gzarr.gpu.device.protocol import Device

Decoder: TypeAlias = Callable[[Wave, Any], Streams | Chunks]
Encoder: TypeAlias = Callable[[Wave, Any], Chunks | Encoded]
#: Makes the function of a step, once, when an array is opened; or says in a phrase why the host runs the step.
DecoderFactory: TypeAlias = Callable[[Step, Device], Decoder | str]
EncoderFactory: TypeAlias = Callable[[Step, Device], Encoder | str]

#: Largest stream that every decoder takes (nvCOMP counts some sizes in 31 bits).
MAX_STREAM_NBYTES = 2**31 - 1
#: Why the host runs a step, where nothing better can be said.
UNFIT = "the device cannot run it for this data type, size or configuration"


def headers_on_host(spec: CodecSpec) -> str | None:
    """The detour of codecs whose headers are read on the host."""
    return f"headers of {spec.name} are read on the host"


def no_detour(spec: CodecSpec) -> str | None:
    """The detour of codecs that need no more than a few bytes of each chunk on the host: none."""
    return None


@dataclass(frozen=True, slots=True)
class DeviceCodec:
    """A codec on the device.

    Attributes:
        decoder: makes its decoder.
        encoder: makes its encoder.
        takes_streams: whether decoding needs encoded streams of any size, as they come from a store or the host. Of
            two such codecs in a chain, the host runs the outer one.
        scratch: bytes of temporary device memory for each decoded byte.
        phase: where in a multiple of `gzarr.gpu.codecs.transfers.ALIGNMENT` encoded chunks should begin, so that the
            stream behind their header is aligned.
        detour: why encoded chunks must pass through host memory to be decoded, in a phrase; None if they need not.
        is_suffix: whether it only puts bytes behind a chunk, so that `phase` and `detour` are those of the codec
            before it.
        host_may_lack: whether the library that the host would need may be missing.
    """

    decoder: DecoderFactory
    encoder: EncoderFactory
    takes_streams: bool = False
    scratch: int = 1
    phase: int = 0
    detour: Callable[[CodecSpec], str | None] = headers_on_host
    is_suffix: bool = False
    host_may_lack: bool = False


def decoded_nbytes(step: Step) -> int | None:
    """Decoded size of a step's chunks, if the device can hold such a stream."""
    nbytes = step.decoded.nbytes
    return nbytes if nbytes is not None and 0 < nbytes <= MAX_STREAM_NBYTES else None


def as_chunks(wave: Wave, batch: Streams | Chunks, nbytes: int, codec: str) -> Chunks:
    """A batch as chunks of one size. Raises: CodecError(index) for a stream of another size."""
    if isinstance(batch, Chunks):
        return batch
    bad = np.flatnonzero(batch.sizes != nbytes)
    if bad.size:
        got = int(batch.sizes[bad[0]])
        raise CodecError(f"{codec}: expected {nbytes} bytes, got {got}", index=int(bad[0]), codec=codec)
    return Chunks(batch.slab, wave.device.address(batch.slab) + batch.offsets, nbytes)
