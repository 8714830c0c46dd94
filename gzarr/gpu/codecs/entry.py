"""Entries of the device's table of codecs: both directions of each codec, and what planning must know about it.

A *decoder* takes a batch and a batch (`Streams` or `Chunks`) and returns the next batch; an *encoder* takes `Chunks` or
`Encoded`. Filters return chunks, compressors and checksums return encoded chunks. Both work on a whole batch at once.

Compression levels have no effect on the device: nvCOMP's encoders have none, or others. The decoded data is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from gzarr.codecs.spec import CodecSpec, Step
from gzarr.gpu.codecs.batch import BatchContext, Chunks, Encoded, Streams
from gzarr.gpu.device.protocol import Device

Decoder: TypeAlias = Callable[[BatchContext, Any], Streams | Chunks]
Encoder: TypeAlias = Callable[[BatchContext, Any], Chunks | Encoded]
#: Makes the function of a step when an array is opened, or returns a phrase that says why the host runs the step.
DecoderFactory: TypeAlias = Callable[[Step, Device], Decoder | str]
EncoderFactory: TypeAlias = Callable[[Step, Device], Encoder | str]

#: Largest stream that every decoder takes (nvCOMP counts some sizes in 31 bits).
MAX_STREAM_NBYTES = 2**31 - 1
#: The reason for the host to run a step if there is no better one.
UNFIT = "the device cannot run it for this data type, size or configuration"


def headers_on_host(spec: CodecSpec) -> str | None:
    """The `DeviceCodec.host_round_trip` of codecs whose headers are read on the host."""
    return f"headers of {spec.name} are read on the host"


def no_host_round_trip(spec: CodecSpec) -> str | None:
    """The `DeviceCodec.host_round_trip` of codecs that need at most a few bytes of each chunk on the host."""
    return None


@dataclass(frozen=True, slots=True)
class DeviceCodec:
    """A codec on the device.

    Attributes
    ----------
    decoder : DecoderFactory
        Makes the decoder of a step.
    encoder : EncoderFactory
        Makes the encoder of a step.
    takes_streams : bool
        Whether the decoder takes encoded streams only, which come from a store or from the host. If a chain has two
        such codecs, the host runs the outer one.
    scratch : int
        Bytes of temporary device memory for each decoded byte.
    phase : int
        Where encoded chunks should begin, modulo `gzarr.gpu.codecs.batch.ALIGNMENT`, so that the stream behind
        their header is aligned.
    host_round_trip : callable
        Why encoded chunks must pass through host memory to be decoded, as a phrase; None if they need not, which is
        the default. A decoder that uses `Streams.host` has `headers_on_host`: a staging buffer that is only on the
        device would be downloaded.
    is_suffix : bool
        Whether the codec only appends bytes to a chunk, so that the codec before it decides `phase` and
        `host_round_trip`.
    host_may_lack : bool
        Whether the host may lack the library for this codec.
    """

    decoder: DecoderFactory
    encoder: EncoderFactory
    takes_streams: bool = False
    scratch: int = 1
    phase: int = 0
    host_round_trip: Callable[[CodecSpec], str | None] = no_host_round_trip
    is_suffix: bool = False
    host_may_lack: bool = False


def decoded_nbytes(step: Step) -> int | None:
    """Decoded size of a step's chunks, if the device can hold such a stream."""
    nbytes = step.decoded.nbytes
    return nbytes if nbytes is not None and 0 < nbytes <= MAX_STREAM_NBYTES else None
