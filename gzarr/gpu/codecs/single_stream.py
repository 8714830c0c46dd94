"""Codecs whose chunks are one stream each, in some envelope: their decoders and encoders are one call for a wave.

A family gives the parser that strips the envelope and the `Envelope` that the encoder adds. The host encodes chunks
that are too large for nvCOMP (LZ4, Zstandard and Snappy above 16 MiB, GDeflate above 64 KiB).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array
from gzarr.codecs.spec import BytesRepr, Step
from gzarr.cpu.codecs import factory_for
from gzarr.errors import CodecError
from gzarr.gpu.codecs import checksums
from gzarr.gpu.codecs.batch import Chunks, Encoded, Streams, Wave
from gzarr.gpu.codecs.compressing import ROOM, Piece, compress, copy_pieces, new_slots
from gzarr.gpu.codecs.entry import UNFIT, Decoder, DecoderFactory, Encoder, EncoderFactory, decoded_nbytes
from gzarr.gpu.codecs.headers import Stored, StreamTable
from gzarr.gpu.codecs.transfers import (
    at_targets,
    byte_ranges,
    count_rows,
    decode_on_host,
    decompress,
    decompress_nbytes,
    new_chunks,
    upload_tables,
)
from gzarr.gpu.device.nvcomp_tables import CODECS as NVCOMP
from gzarr.gpu.device.protocol import Device, Table
from gzarr.profiling.recorder import stage

#: Reads the framing of all chunks of a slab: (slab, offsets, sizes, decoded size) -> table of the bare streams.
FrameParser: TypeAlias = Callable[..., StreamTable]


class Checksum(NamedTuple):
    """A checksum of decoded data that envelopes hold.

    Attributes
    ----------
    kind : str
        See `gzarr.gpu.codecs.checksums.queue`.
    stored : callable
        (slab, offsets, sizes) -> the checksums that chunks hold.
    """

    kind: str
    stored: Callable[..., Stored]


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


def stream_decoder(
    decoder: str, parse: FrameParser, *, header_nbytes: int | None = None, checksum: Checksum | None = None
) -> DecoderFactory:
    """The decoder factory of a codec.

    decoder: the device's decoder. parse: strips the envelopes. header_nbytes: how much of a chunk it reads; None: all.
    """

    def factory(step: Step, device: Device) -> Decoder | str:
        nbytes = decoded_nbytes(step)
        if nbytes is None or decoder not in device.decoders():
            return UNFIT
        on_host = factory_for(step.spec)(step).decode
        name = step.spec.name

        def decode(wave: Wave, batch: Streams) -> Chunks:
            headers = batch.host if header_nbytes is None else batch.sparse(header_nbytes)
            table = parsed(name, parse, headers, batch.offsets, batch.sizes, nbytes)
            here = np.flatnonzero(~table.to_host)
            sizes = np.full(here.size, nbytes, np.int64)
            cost = decompress_nbytes(wave, decoder, table.source[here], table.nbytes[here], sizes)
            n, placed = len(batch), at_targets(wave, NVCOMP[decoder].alignment.output)
            wave.require(n, batch.upload_nbytes + (count_rows(n, placed) + n - here.size) * nbytes + cost)
            source = wave.device.address(batch.slab) + table.source[here]
            chunks = new_chunks(wave, n, nbytes, placed)
            target = chunks.addresses[here]
            tables = (source, table.nbytes[here], target, sizes)
            decompress(wave, name, decoder, here, tables, verified=batch.verified)
            if checksum is not None:
                which, stored = checksum.stored(batch.host, batch.offsets[here], batch.sizes[here])
                ranges = (target[which], sizes[which])
                checksums.expect(wave, name, checksum.kind, here[which], ranges, stored)
            decode_on_host(wave, batch, chunks, np.flatnonzero(table.to_host), on_host)
            return chunks

        return decode

    return factory


def parsed(name: str, parse: Callable[..., Any], *args: Any) -> Any:
    """Call a parser. Its errors get the name that the codec has in the metadata."""
    try:
        with stage("parse"):
            return parse(*args)
    except CodecError as error:
        error.codec = name
        raise


def stream_encoder(envelope_of: Callable[[int], Envelope], *, typed: bool = False) -> EncoderFactory:
    """The encoder factory of a codec.

    envelope_of: takes the size of a chunk. typed: whether the device's encoder works on numbers instead of bytes.
    """

    def factory(step: Step, device: Device) -> Encoder | str:
        nbytes, name = decoded_nbytes(step), step.spec.name
        if nbytes is None:
            return UNFIT
        envelope = envelope_of(nbytes)
        if envelope.encoder not in device.encoders() or nbytes > NVCOMP[envelope.encoder].max_compress_nbytes:
            return UNFIT
        typesize = _typesize(step, nbytes) if typed else 1

        def encode(wave: Wave, batch: Chunks | Encoded) -> Encoded:
            return _enveloped(wave, name, batch, envelope, typesize)

        return encode

    return factory


def _typesize(step: Step, nbytes: int) -> int:
    """Size of the integers that nvCOMP should take a step's chunks for."""
    itemsize = step.decoded.itemsize if isinstance(step.decoded, BytesRepr) else 1
    return itemsize if itemsize in (2, 4, 8) and nbytes % itemsize == 0 else 1


def _enveloped(wave: Wave, name: str, batch: Chunks | Encoded, envelope: Envelope, typesize: int) -> Encoded:
    """Compress each chunk into a slot, and put the envelope around the stream there."""
    n, (source, nbytes), cut = len(batch), byte_ranges(batch), envelope.cut
    head, tail = len(envelope.head), (4 if envelope.checksum else 0) + len(envelope.tail)
    front, behind = max(head - cut.header, 0), max(tail - cut.trailer, 0) + ROOM
    slots = new_slots(wave, envelope.encoder, n, int(nbytes.max()), front, behind)
    pending = checksums.queue(wave, envelope.checksum, source, nbytes) if envelope.checksum else None
    unfinished = pending is not None and not pending.is_finished

    def wanted() -> list[Array]:
        """Pieces of checksums, and the beginning of the encoder's output."""
        pieces = [pending.raw] if pending is not None and unfinished else []
        starts = slots.rows[:, slots.front : slots.front + len(cut.start)]
        return [*pieces, wave.device.xp.ascontiguousarray(starts)] if cut.start else pieces

    ranges, encoder = (source, nbytes), envelope.encoder
    sizes, downloaded = compress(wave, name, encoder, np.arange(n), ranges, slots, typesize, wanted)
    if cut.start:
        _check_cut(name, envelope, downloaded[-1], sizes)
    streams, sizes = slots.addresses + cut.header, sizes - cut.header - cut.trailer
    ends = streams + sizes
    pieces: list[Piece] = [_constant(wave, envelope.head, streams - head)] if head else []
    if pending is not None:
        checksums.expect_computed(wave, name, pending, np.arange(n))
        sums = checksums.store(wave, pending, downloaded[0] if unfinished else None, envelope.order)
        pieces.append((sums, ends, np.full(n, 4, np.int64)))
    if envelope.tail:
        pieces.append(_constant(wave, envelope.tail, ends + tail - len(envelope.tail)))
    if pieces:
        copy_pieces(wave, pieces)
    return Encoded(slots.rows, streams - head, head + sizes + tail, ROOM)


def _check_cut(name: str, envelope: Envelope, starts: NDArray[np.uint8], sizes: Table) -> None:
    """Refuse output of the encoder whose envelope is not the one that is dropped."""
    start, header, trailer = envelope.cut
    bad = (starts != np.frombuffer(start, np.uint8)).any(axis=1) | (sizes <= header + trailer)
    if bad.any():
        text = f"{name}: nvCOMP made a {envelope.encoder} member that is not understood"
        raise CodecError(text, index=int(bad.argmax()), codec=name)


def _constant(wave: Wave, data: bytes, targets: Table) -> Piece:
    """The same bytes at many places."""
    (at,) = upload_tables(wave, np.frombuffer(data, np.uint8))
    return np.full(targets.size, at, np.int64), targets, np.full(targets.size, len(data), np.int64)
