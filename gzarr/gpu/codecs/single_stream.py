"""Codecs whose chunks are one stream each, in some envelope: their decoders and encoders are one call for a batch.

A row of the table `_FORMATS` describes a format in both directions. Chunks without the usual envelope are decoded by
the host (`gzarr.gpu.codecs.envelopes`), and so are encoded those that are too large for nvCOMP (LZ4, Zstandard and
Snappy above 16 MiB, GDeflate above 64 KiB). nvCOMP's Deflate encoder takes up to 64 KiB. Its gzip encoder takes any
size, so it compresses larger chunks, and the envelope that it writes is dropped if another one is wanted. nvCOMP's own
formats are bare streams (`gzarr.codecs.nvcomp`). The device encodes plain Zstandard frames: nvCOMP writes no checksum.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array
from gzarr.codecs.nvcomp import PREFIX
from gzarr.codecs.spec import BytesRepr, CodecSpec, Step
from gzarr.cpu.codecs import factory_for
from gzarr.cpu.compiled import library
from gzarr.gpu.codecs import checksums, transfers
from gzarr.gpu.codecs import envelopes as env
from gzarr.gpu.codecs.batch import ALIGNMENT, BatchContext, Chunks, Decoder, DeviceCodec, Encoded, Encoder, Streams
from gzarr.gpu.codecs.envelopes import Bytes, Mask, Sizes, Stored
from gzarr.gpu.codecs.refusing import UNFIT, decoded_nbytes, headers_on_host, refuse
from gzarr.gpu.device.nvcomp_tables import CODECS as NVCOMP
from gzarr.gpu.device.protocol import Device, Table
from gzarr.profiling.recorder import stage

#: Smallest chunk that the device encodes as Zstandard: by the bound that nvCOMP gives for its frames, those of fewer
#: bytes lack their content size, which some readers demand.
_LEAST_ZSTD_NBYTES = 256
#: No time, no hint of the level, an unknown operating system (RFC 1952, 2.3).
_GZIP_HEAD = env.GZIP_START + b"\0\0\0\0\0\xff"


class Cut(NamedTuple):
    """An envelope that the encoder writes and that is dropped.

    Attributes
    ----------
    start : bytes
        How the envelope must begin.
    header, trailer : int
        Bytes before and behind the stream.
    """

    start: bytes
    header: int
    trailer: int


_NOTHING = Cut(b"", 0, 0)


@dataclass(frozen=True, slots=True)
class Envelope:
    """How a chunk is compressed, and what surrounds its stream.

    Attributes
    ----------
    encoder : str
        The device's encoder.
    head : bytes
        Bytes before the stream.
    checksum : str
        Kind of the checksum of the chunk, which follows the stream; none if empty.
    order : str
        Dtype of that checksum as it is stored.
    tail : bytes
        Bytes behind the checksum.
    cut : Cut
        The part of the encoder's output that is dropped.
    """

    encoder: str
    head: bytes = b""
    checksum: str = ""
    order: str = "<u4"
    tail: bytes = b""
    cut: Cut = _NOTHING


#: Makes the envelope that a step's chunks of a size get, or says why the host encodes them.
EnvelopeOf: TypeAlias = Callable[[Step, int], Envelope | str]


@dataclass(frozen=True, slots=True)
class Format:
    """A format of one stream a chunk.

    Attributes
    ----------
    decoder : str
        The device's decoder.
    envelope : EnvelopeOf
        What the encoder writes.
    is_usual : callable or None
        (staging buffer, offsets, sizes, decoded sizes) -> which chunks the device decodes; None: all that have bytes.
    reads : int or None
        Bytes at the start of a chunk that are read on the host; None: all.
    header, trailer : int
        Bytes before and behind the stream of a usual chunk.
    checksum : str
        Kind of the checksum of decoded data; none if empty.
    stored : callable or None
        (staging buffer, offsets, sizes) -> the checksums that usual chunks hold.
    scratch : int
        See `DeviceCodec`.
    typed : bool
        Whether the device's encoder works on numbers instead of bytes.
    """

    decoder: str
    envelope: EnvelopeOf
    is_usual: Callable[[Bytes, Sizes, Sizes, Sizes], Mask] | None = None
    reads: int | None = None
    header: int = 0
    trailer: int = 0
    checksum: str = ""
    stored: Callable[[Bytes, Sizes, Sizes], Stored] | None = None
    scratch: int = 1
    typed: bool = False

    def codec(self) -> DeviceCodec:
        """The entry of the device's table."""
        is_bare = self.is_usual is None
        return DeviceCodec(
            lambda step, device: _decoder(self, step, device),
            lambda step, device: _encoder(self, step, device),
            takes_streams=True,
            scratch=self.scratch,
            # Streams that must be aligned are, behind their header.
            phase=-self.header % ALIGNMENT if NVCOMP[self.decoder].alignment.input > 1 else 0,
            host_round_trip=None if is_bare or self.reads is not None else headers_on_host,
            host_may_lack=is_bare,
        )


# -- decoding ----------------------------------------------------------------------------------------------------


def _decoder(form: Format, step: Step, device: Device) -> Decoder | str:
    nbytes, name, limits = decoded_nbytes(step), step.spec.name, NVCOMP[form.decoder]
    if nbytes is None or form.decoder not in device.decoders or nbytes > limits.max_decompressed_nbytes:
        return UNFIT
    if form.decoder == "zstd" and (problem := library.problem()) is not None:
        return f"compiled code looks at the frames: {problem}"
    on_host = factory_for(step.spec)(step).decode
    # Some decoders may write whole units.
    stride = -(-nbytes // limits.alignment.output) * limits.alignment.output

    def decode(context: BatchContext, batch: Streams) -> Chunks:
        expected = np.full(len(batch), nbytes, np.int64)
        with stage("parse"):
            usual = _usual(form, name, batch, expected)
        here = np.flatnonzero(usual)
        source, encoded = batch.offsets[here] + form.header, batch.sizes[here] - form.header - form.trailer
        sizes = expected[here]
        source = context.device.address(batch.staging_buffer) + source
        rows, places = transfers.new_rows(context, len(batch), stride)
        chunks = Chunks(rows, places, nbytes, rows if stride == nbytes else None)
        target = chunks.addresses[here]
        transfers.decompress(context, name, form.decoder, here, (source, encoded, target, sizes))
        if form.stored is not None:
            which, stored = form.stored(batch.host, batch.offsets[here], batch.sizes[here])
            checksums.expect(context, name, form.checksum, here[which], (target[which], sizes[which]), stored)
        transfers.decode_on_host(context, name, batch, chunks, np.flatnonzero(~usual), on_host)
        return chunks

    return decode


def _usual(form: Format, name: str, batch: Streams, expected: Sizes) -> Mask:
    """Which chunks the device decodes. Raises: CodecError for a bare stream without bytes."""
    if form.is_usual is None:
        refuse(name, batch.sizes == 0, lambda _: "truncated: there are no bytes")
        return np.ones(len(batch), np.bool_)
    if form.reads is None:
        return form.is_usual(batch.host, batch.offsets, batch.sizes, expected)
    heads = np.ascontiguousarray(batch.window(batch.offsets, form.reads)).reshape(-1)
    return form.is_usual(heads, np.arange(len(batch)) * form.reads, batch.sizes, expected)


# -- encoding ----------------------------------------------------------------------------------------------------


def _encoder(form: Format, step: Step, device: Device) -> Encoder | str:
    nbytes, name = decoded_nbytes(step), step.spec.name
    if nbytes is None:
        return UNFIT
    envelope = form.envelope(step, nbytes)
    if isinstance(envelope, str):
        return envelope
    if envelope.encoder not in device.encoders or nbytes > NVCOMP[envelope.encoder].max_compress_nbytes:
        return UNFIT
    typesize = _typesize(step, nbytes) if form.typed else 1
    return lambda context, batch: _enveloped(context, name, batch, envelope, typesize)


def _typesize(step: Step, nbytes: int) -> int:
    """Size of the integers that nvCOMP should take a step's chunks for."""
    itemsize = step.decoded.itemsize if isinstance(step.decoded, BytesRepr) else 1
    return itemsize if itemsize in (2, 4, 8) and nbytes % itemsize == 0 else 1


def _enveloped(context: BatchContext, name: str, batch: Chunks | Encoded, envelope: Envelope, typesize: int) -> Encoded:
    """Compress each chunk into a slot, and put the envelope around the stream there."""
    n, (source, nbytes), cut = len(batch), transfers.byte_ranges(batch), envelope.cut
    head, tail = len(envelope.head), (4 if envelope.checksum else 0) + len(envelope.tail)
    front, behind = max(head - cut.header, 0), max(tail - cut.trailer, 0) + transfers.ROOM
    slots = transfers.new_slots(context, envelope.encoder, n, int(nbytes.max()), front, behind)
    pending = checksums.queue(context, envelope.checksum, source, nbytes) if envelope.checksum else None
    unfinished = pending is not None and not pending.is_finished

    def wanted() -> list[Array]:
        """Pieces of checksums, and the beginning of the encoder's output."""
        pieces = [pending.raw] if pending is not None and unfinished else []
        starts = slots.rows[:, slots.front : slots.front + len(cut.start)]
        return [*pieces, context.device.xp.ascontiguousarray(starts)] if cut.start else pieces

    ranges, encoder = (source, nbytes), envelope.encoder
    sizes, downloaded = transfers.compress(context, name, encoder, np.arange(n), ranges, slots, typesize, wanted)
    if cut.start:
        _check_cut(name, envelope, downloaded[-1], sizes)
    streams, sizes = slots.addresses + cut.header, sizes - cut.header - cut.trailer
    ends = streams + sizes
    pieces: list[transfers.Piece] = [_constant(context, envelope.head, streams - head)] if head else []
    if pending is not None:
        checksums.expect_computed(context, name, pending, np.arange(n))
        sums = checksums.store(context, pending, downloaded[0] if unfinished else None, envelope.order)
        pieces.append((sums, ends, np.full(n, 4, np.int64)))
    if envelope.tail:
        pieces.append(_constant(context, envelope.tail, ends + tail - len(envelope.tail)))
    if pieces:
        transfers.copy_pieces(context, pieces)
    return Encoded(slots.rows, streams - head, head + sizes + tail, transfers.ROOM)


def _check_cut(name: str, envelope: Envelope, starts: NDArray[np.uint8], sizes: Table) -> None:
    """Refuse output of the encoder whose envelope is not the one that is dropped."""
    start, header, trailer = envelope.cut
    bad = (starts != np.frombuffer(start, np.uint8)).any(axis=1) | (sizes <= header + trailer)
    refuse(name, bad, lambda _: f"nvCOMP made a {envelope.encoder} member that is not understood")


def _constant(context: BatchContext, data: bytes, targets: Table) -> transfers.Piece:
    """The same bytes at many places."""
    (at,) = transfers.upload_tables(context, np.frombuffer(data, np.uint8))
    return np.full(targets.size, at, np.int64), targets, np.full(targets.size, len(data), np.int64)


# -- formats -----------------------------------------------------------------------------------------------------


def _bare(encoder: str) -> EnvelopeOf:
    return lambda step, nbytes: Envelope(encoder)


def _is_small(nbytes: int) -> bool:
    """Whether nvCOMP's Deflate encoder takes a chunk."""
    return nbytes <= NVCOMP["deflate"].max_compress_nbytes


def _deflate(step: Step, nbytes: int) -> Envelope:
    cut = Cut(env.GZIP_START, env.GZIP_HEADER, env.GZIP_TRAILER)
    return Envelope("deflate") if _is_small(nbytes) else Envelope("gzip", cut=cut)


def _zlib(step: Step, nbytes: int) -> Envelope:
    return replace(_deflate(step, nbytes), head=env.ZLIB_HEAD, checksum="adler32", order=">u4")


def _gzip(step: Step, nbytes: int) -> Envelope:
    tail = (nbytes & 0xFFFFFFFF).to_bytes(4, "little")
    return Envelope("deflate", _GZIP_HEAD, "crc32", tail=tail) if _is_small(nbytes) else Envelope("gzip")


def _lz4(step: Step, nbytes: int) -> Envelope:
    return Envelope("lz4", nbytes.to_bytes(env.LZ4_HEADER, "little"))


def _zstd(step: Step, nbytes: int) -> Envelope | str:
    if step.spec.configuration().get("checksum"):
        return "nvCOMP writes no checksums into frames"
    return Envelope("zstd") if nbytes >= _LEAST_ZSTD_NBYTES else UNFIT


#: nvCOMP's own formats, by algorithm. Bitcomp and Cascaded count in numbers.
_ALGORITHMS = {
    "ans": Format("ans", _bare("ans")),
    "bitcomp": Format("bitcomp", _bare("bitcomp"), typed=True),
    "cascaded": Format("cascaded", _bare("cascaded"), typed=True),
    "deflate": Format("deflate", _deflate),
    "gdeflate": Format("gdeflate", _bare("gdeflate")),
    "snappy": Format("snappy", _bare("snappy")),
}
_FORMATS = {
    "gzip": Format(
        "deflate",
        _gzip,
        env.is_usual_gzip,
        header=env.GZIP_HEADER,
        trailer=env.GZIP_TRAILER,
        checksum="crc32",
        stored=env.stored_crc32,
    ),
    "lz4": Format("lz4", _lz4, env.is_usual_lz4, reads=env.LZ4_HEADER, header=env.LZ4_HEADER),
    "zlib": Format(
        "deflate",
        _zlib,
        env.is_usual_zlib,
        header=env.ZLIB_HEADER,
        trailer=env.ZLIB_TRAILER,
        checksum="adler32",
        stored=env.stored_adler32,
    ),
    "zstd": Format("zstd", _zstd, env.is_usual_zstd, checksum="xxh64", stored=env.stored_xxh64, scratch=4),
}
_CODECS = {name: form.codec() for name, form in (_ALGORITHMS | _FORMATS).items()}
_UNKNOWN = DeviceCodec(lambda step, device: UNFIT, lambda step, device: UNFIT)


def _of_batch(spec: CodecSpec) -> DeviceCodec:
    """What KvikIO's codec does: one of the algorithms, by its configuration."""
    algorithm = str(spec.configuration().get("algorithm", "")).lower()
    return _CODECS[algorithm] if algorithm in (*_ALGORITHMS, "lz4", "zstd") else _UNKNOWN


CODECS = {
    **{name: _CODECS[name] for name in ("gzip", "zstd")},
    **{f"numcodecs.{name}": _CODECS[name] for name in _FORMATS},
    **{PREFIX + name: _CODECS[name] for name in _ALGORITHMS},
    "numcodecs.nvcomp_batch": DeviceCodec(
        lambda step, device: _of_batch(step.spec).decoder(step, device),
        lambda step, device: _of_batch(step.spec).encoder(step, device),
        takes_streams=True,
        host_round_trip=lambda spec: round_trip(spec) if (round_trip := _of_batch(spec).host_round_trip) else None,
        host_may_lack=True,
    ),
}
