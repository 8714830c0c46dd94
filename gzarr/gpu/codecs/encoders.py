"""The device's table of encoders: from the name of a spec to what encodes a whole wave of chunks on the device.

A function takes a wave and a batch (`Chunks` or `Encoded`) and returns the next one: filters give chunks, compressors
and checksums encoded chunks. A factory returns None where the device cannot run the step for chunks like these, or not
with the result that the host has; the step then runs on the host.

Levels of compression mean nothing here: nvCOMP's encoders have none, or others. What is decoded is the same.
What has no encoder and why: single streams above what nvCOMP compresses (LZ4, Zstandard and Snappy 16 MiB, GDeflate 64
KiB), Zstandard with a checksum in the frame, blosc with compressors that nvCOMP lacks (blosclz) or that no reader of
today has (snappy), or with very many short streams, filters whose arithmetic differs between machines
(`gzarr.gpu.codecs.filters_encoding`).
Source: the framings are those of `gzarr.gpu.codecs.frames`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array
from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.numcodecs import NumcodecsCodec
from gzarr.codecs.spec import BytesRepr, Step
from gzarr.errors import CodecError
from gzarr.gpu.codecs import checksums
from gzarr.gpu.codecs.batch import BYTE_SHUFFLE, Chunks, Encoded, Wave
from gzarr.gpu.codecs.blosc_encoding import blosc_encoder
from gzarr.gpu.codecs.compressing import ROOM, Piece, as_rows, byte_ranges, chunks_of, compress, copy_pieces, new_slots
from gzarr.gpu.codecs.decoders import decoded_nbytes
from gzarr.gpu.codecs.dtypes import dtype_in_bytes, swap_unit
from gzarr.gpu.codecs.filters_encoding import encoding_filter_for
from gzarr.gpu.codecs.streams import ALIGNMENT, reversed_units, shuffled, upload_tables
from gzarr.gpu.device.nvcomp_tables import CODECS
from gzarr.gpu.device.protocol import Device, Table

#: Encodes a whole wave on the device.
WaveEncoder: TypeAlias = Callable[[Wave, Chunks | Encoded], Chunks | Encoded]
#: Makes the encoder of a step; None if the device cannot run it.
EncoderFactory: TypeAlias = Callable[[Step, Device], WaveEncoder | None]

#: Smallest chunk that goes into a Zstandard frame of its own: by the bound that nvCOMP gives for them, frames of fewer
#: bytes lack their content size, which some readers demand.
_LEAST_ZSTD = 256
#: What nvCOMP's gzip members begin with (RFC 1952, 2.3: the flags are 0), and their parts.
_GZIP_START, _GZIP_HEADER, _GZIP_TRAILER = b"\x1f\x8b\x08\0", 10, 8
#: Deflate, 32 KiB window, default level, header check (RFC 1950, 2.2).
_ZLIB_HEAD = b"\x78\x9c"
#: Four bytes of time, none; nothing said of level; made on an unknown system (RFC 1952, 2.3).
_GZIP_HEAD = _GZIP_START + b"\0\0\0\0\0\xff"


@dataclass(frozen=True, slots=True)
class Envelope:
    """How a chunk's stream is made, and what surrounds it.

    Attributes:
        encoder: what compresses.
        head: bytes before the stream.
        checksum: kind of the checksum of the raw bytes behind the stream; none if empty.
        order: dtype of that checksum as it is stored.
        tail: bytes behind the checksum.
        cut: whether the encoder makes gzip members, whose header and trailer are dropped.
    """

    encoder: str
    head: bytes = b""
    checksum: str = ""
    order: str = "<u4"
    tail: bytes = b""
    cut: bool = False


def _deflate(nbytes: int) -> Envelope:
    """Bare Deflate. nvCOMP's own encoder takes 64 KiB; its gzip takes any size, in one member."""
    if nbytes <= CODECS["deflate"].max_compress_nbytes:
        return Envelope("deflate")
    return Envelope("gzip", cut=True)


def _gzip(nbytes: int) -> Envelope:
    if nbytes > CODECS["deflate"].max_compress_nbytes:
        return Envelope("gzip")
    return Envelope("deflate", _GZIP_HEAD, "crc32", tail=nbytes.to_bytes(4, "little"))


def _zlib(nbytes: int) -> Envelope:
    return replace(_deflate(nbytes), head=_ZLIB_HEAD, checksum="adler32", order=">u4")


def _lz4(nbytes: int) -> Envelope:
    return Envelope("lz4", nbytes.to_bytes(4, "little"))


def _single(envelope_of: Callable[[int], Envelope], *, typed: bool = False) -> EncoderFactory:
    """The factory of a codec whose chunks are one stream each. typed: whether the encoder counts in numbers."""

    def factory(step: Step, device: Device) -> WaveEncoder | None:
        nbytes, name = decoded_nbytes(step), step.spec.name
        if nbytes is None:
            return None
        envelope = envelope_of(nbytes)
        if envelope.encoder not in device.encoders() or nbytes > CODECS[envelope.encoder].max_compress_nbytes:
            return None
        typesize = _typesize(step, nbytes) if typed else 1

        def encode(wave: Wave, batch: Chunks | Encoded) -> Encoded:
            return _enveloped(wave, name, batch, envelope, typesize)

        return encode

    return factory


def _typesize(step: Step, nbytes: int) -> int:
    """Bytes of the numbers in a step's chunks, if nvCOMP has such integers and the chunks are made of them."""
    itemsize = step.decoded.itemsize if isinstance(step.decoded, BytesRepr) else 1
    return itemsize if itemsize in (2, 4, 8) and nbytes % itemsize == 0 else 1


def _enveloped(wave: Wave, name: str, batch: Chunks | Encoded, envelope: Envelope, typesize: int) -> Encoded:
    """Compress each chunk and put the envelope around it, where the stream was written."""
    n, (source, nbytes) = len(batch), byte_ranges(batch)
    before, after = (_GZIP_HEADER, _GZIP_TRAILER) if envelope.cut else (0, 0)
    head, tail = len(envelope.head), (4 if envelope.checksum else 0) + len(envelope.tail)
    front, behind = max(head - before, 0), max(tail - after, 0) + ROOM
    slots = new_slots(wave, envelope.encoder, n, int(nbytes.max()), front, behind)
    pending = checksums.queue(wave, envelope.checksum, source, nbytes) if envelope.checksum else None
    unfinished = pending is not None and not pending.is_finished

    def wanted() -> list[Array]:
        """Pieces of checksums, and the beginning of each gzip member."""
        pieces = [pending.raw] if pending is not None and unfinished else []
        starts = slots.rows[:, slots.front : slots.front + len(_GZIP_START)]
        return [*pieces, wave.device.xp.ascontiguousarray(starts)] if envelope.cut else pieces

    ranges, encoder = (source, nbytes), envelope.encoder
    sizes, found = compress(wave, name, encoder, np.arange(n), ranges, slots, typesize, wanted)
    if envelope.cut:
        _check_gzip(name, found[-1], sizes)
    streams, sizes = slots.addresses + before, sizes - before - after
    ends = streams + sizes
    pieces: list[Piece] = [_constant(wave, envelope.head, streams - head)] if head else []
    if pending is not None:
        sums = checksums.store(wave, pending, found[0] if unfinished else None, envelope.order)
        pieces.append((sums, ends, np.full(n, 4, np.int64)))
    if envelope.tail:
        pieces.append(_constant(wave, envelope.tail, ends + tail - len(envelope.tail)))
    if pieces:
        copy_pieces(wave, pieces)
    return Encoded(slots.rows, streams - head, head + sizes + tail, ROOM)


def _check_gzip(name: str, starts: NDArray[np.uint8], sizes: Table) -> None:
    """Refuse gzip members whose headers are not of the length that is cut off."""
    bad = (starts != np.frombuffer(_GZIP_START, np.uint8)).any(axis=1) | (sizes <= _GZIP_HEADER + _GZIP_TRAILER)
    if bad.any():
        i = int(bad.argmax())
        raise CodecError(f"{name}: nvCOMP made a gzip member that is not understood", index=i, codec=name)


def _constant(wave: Wave, data: bytes, targets: Table) -> Piece:
    """The same bytes at many places."""
    (at,) = upload_tables(wave, np.frombuffer(data, np.uint8))
    return np.full(targets.size, at, np.int64), targets, np.full(targets.size, len(data), np.int64)


def _zstd(step: Step, device: Device) -> WaveEncoder | None:
    """Plain frames: nvCOMP writes no checksum."""
    spec = step.spec
    config = (
        spec.configuration() if isinstance(spec, NumcodecsCodec) else {"checksum": getattr(spec, "checksum", False)}
    )
    nbytes = decoded_nbytes(step)
    if config.get("checksum") or nbytes is None or nbytes < _LEAST_ZSTD:
        return None
    return _ZSTD(step, device)


def _nvcomp_batch(step: Step, device: Device) -> WaveEncoder | None:
    """The codec that KvikIO had: see `gzarr.codecs.nvcomp`."""
    if not isinstance(step.spec, NumcodecsCodec):
        return None
    algorithm = str(step.spec.configuration().get("algorithm", "")).lower()
    factory = {"lz4": _LZ4, "zstd": _zstd}.get(algorithm) or ENCODERS.get(f"nvcomp.{algorithm}")
    return None if factory is None else factory(step, device)


def _checksum(kind: str, location: str) -> EncoderFactory:
    """The factory of a codec that puts a checksum of four bytes before ("start") or behind ("end") its data."""

    def factory(step: Step, device: Device) -> WaveEncoder | None:
        at = location
        if isinstance(step.spec, NumcodecsCodec):
            at = step.spec.configuration().get("location") or location
        if step.decoded.nbytes == 0 or at not in ("start", "end"):
            return None
        skip = 4 if at == "start" else 0

        def encode(wave: Wave, batch: Chunks | Encoded) -> Encoded:
            source, nbytes = byte_ranges(batch)
            pending = checksums.queue(wave, kind, source, nbytes)
            found = None if pending.is_finished else wave.device.download(pending.raw)
            sums, four = checksums.store(wave, pending, found), np.full(len(batch), 4, np.int64)
            if isinstance(batch, Encoded) and not skip and batch.room >= 4:
                copy_pieces(wave, [(sums, source + nbytes, four)])
                return replace(batch, sizes=nbytes + 4, room=batch.room - 4)
            owner, places = _new_places(wave, nbytes + 4)
            payload = (source, places + skip, nbytes)
            copy_pieces(wave, [payload, (sums, places + (0 if skip else nbytes), four)])
            return Encoded(owner, places, nbytes + 4, ROOM)

        return encode

    return factory


def _new_places(wave: Wave, sizes: Table) -> tuple[Array, Table]:
    """Device memory for encoded chunks of known sizes, with room behind each. Returns: (the memory, addresses)."""
    ends = np.cumsum(-(-(sizes + ROOM) // ALIGNMENT) * ALIGNMENT)
    memory = wave.device.empty(int(ends[-1]))
    wave.kept.append(memory)
    return memory, wave.device.address(memory) + np.concatenate([[0], ends[:-1]]).astype(np.int64)


def _bytes(step: Step, device: Device) -> WaveEncoder | None:
    """Chunks as they come: whoever makes them gives their elements the byte order that the codec stores."""
    if decoded_nbytes(step) is None or not isinstance(step.spec, BytesCodec):
        return None
    return lambda wave, batch: batch


def swapped(step: Step, encoder: WaveEncoder) -> WaveEncoder:
    """The bytes codec behind filters, which give native numbers."""
    unit = swap_unit(dtype_in_bytes(step))
    if not unit:
        return encoder
    return lambda wave, batch: chunks_of(wave, reversed_units(wave, as_rows(wave, encoder(wave, batch)), unit))


def _shuffle(step: Step, device: Device) -> WaveEncoder | None:
    """The shuffle of numcodecs is Blosc's byte shuffle with one block."""
    nbytes = decoded_nbytes(step)
    if nbytes is None or not isinstance(step.spec, NumcodecsCodec):
        return None
    typesize = int(step.spec.configuration().get("elementsize", 4))
    if typesize > 1 and nbytes % typesize:
        return None

    def encode(wave: Wave, batch: Chunks | Encoded) -> Chunks:
        chunks = chunks_of(wave, as_rows(wave, batch))
        return chunks if typesize < 2 else shuffled(wave, chunks, BYTE_SHUFFLE, typesize, nbytes)

    return encode


def _filter(step: Step, device: Device) -> WaveEncoder | None:
    function = encoding_filter_for(step)
    nbytes, encoded = decoded_nbytes(step), step.encoded.nbytes
    if isinstance(function, str) or nbytes is None or encoded is None:
        return None
    name = step.spec.name

    def encode(wave: Wave, batch: Chunks | Encoded) -> Chunks:
        chunks = chunks_of(wave, function(wave, as_rows(wave, batch)))
        if chunks.nbytes != encoded:
            raise CodecError(f"{name}: expected {encoded} encoded bytes, got {chunks.nbytes}", codec=name)
        return chunks

    return encode


_LZ4, _ZSTD, _GZIP = _single(_lz4), _single(lambda _: Envelope("zstd")), _single(_gzip)
_CRC32C = _checksum("crc32c", "end")

#: Name of a codec -> factory. What is not here runs on the host.
ENCODERS: dict[str, EncoderFactory] = {
    "blosc": blosc_encoder,
    "bytes": _bytes,
    "cast_value": _filter,
    "crc32c": _CRC32C,
    "gzip": _GZIP,
    "numcodecs.adler32": _checksum("adler32", "start"),
    "numcodecs.astype": _filter,
    "numcodecs.bitround": _filter,
    "numcodecs.blosc": blosc_encoder,
    "numcodecs.crc32": _checksum("crc32", "start"),
    "numcodecs.crc32c": _CRC32C,
    "numcodecs.delta": _filter,
    "numcodecs.fixedscaleoffset": _filter,
    "numcodecs.fletcher32": _checksum("fletcher32", "end"),
    "numcodecs.gzip": _GZIP,
    "numcodecs.lz4": _LZ4,
    "numcodecs.nvcomp_batch": _nvcomp_batch,
    "numcodecs.packbits": _filter,
    "numcodecs.quantize": _filter,
    "numcodecs.shuffle": _shuffle,
    "numcodecs.zlib": _single(_zlib),
    "numcodecs.zstd": _zstd,
    "nvcomp.ans": _single(lambda _: Envelope("ans")),
    "nvcomp.bitcomp": _single(lambda _: Envelope("bitcomp"), typed=True),
    "nvcomp.cascaded": _single(lambda _: Envelope("cascaded"), typed=True),
    "nvcomp.deflate": _single(_deflate),
    "nvcomp.gdeflate": _single(lambda _: Envelope("gdeflate")),
    "nvcomp.snappy": _single(lambda _: Envelope("snappy")),
    "scale_offset": _filter,
    "transpose": _filter,
    "zstd": _zstd,
}
