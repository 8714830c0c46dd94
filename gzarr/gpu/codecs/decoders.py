"""The device's table of codecs: from the name of a spec to what decodes a whole wave of chunks on the device.

A function takes a wave and a batch (`Streams` or `Chunks`) and returns the next one. A factory returns None where the
device cannot run the step for chunks like these; the step then runs on the host (`gzarr.gpu.pipeline.placement`).
Source: the framings are those of `gzarr.gpu.codecs.frames` and `gzarr.gpu.codecs.blosc_frames`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from gzarr.codecs import nvcomp
from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.numcodecs import NumcodecsCodec
from gzarr.codecs.spec import Step
from gzarr.cpu.codecs import factory_for
from gzarr.errors import CodecError
from gzarr.gpu.codecs import blosc_frames, checksums, frames
from gzarr.gpu.codecs.batch import BYTE_SHUFFLE, Chunks, Shuffle, Streams, Wave
from gzarr.gpu.codecs.blosc_on_device import parse_blosc
from gzarr.gpu.codecs.filters import filter_for
from gzarr.gpu.codecs.streams import copy_streams, decode_on_host, decompress, new_rows, unshuffled
from gzarr.gpu.device.nvcomp_tables import CODECS
from gzarr.gpu.device.protocol import Device, Table
from gzarr.profiling.recorder import stage

Batch: TypeAlias = Streams | Chunks
#: Decodes a whole wave on the device.
WaveDecoder: TypeAlias = Callable[[Wave, Any], Batch]
WaveFactory: TypeAlias = Callable[[Step, Device], WaveDecoder | None]
#: Reads the framing of all chunks of a slab: (slab, offsets, sizes, decoded size) -> where the bare streams are.
FrameParser: TypeAlias = Callable[..., frames.StreamTable]

#: Largest stream that every decoder takes (nvCOMP counts some sizes in 31 bits).
MAX_STREAM_NBYTES = 2**31 - 1


def decoded_nbytes(step: Step) -> int | None:
    """Decoded size of a step's chunks, if the device can hold such a stream."""
    nbytes = step.decoded.nbytes
    return nbytes if nbytes is not None and 0 < nbytes <= MAX_STREAM_NBYTES else None


def _framed(decoder: str, parse: FrameParser, kind: str = "") -> WaveFactory:
    """The factory of a codec whose chunks are one stream each in some envelope, with a checksum of a kind."""

    def factory(step: Step, device: Device) -> WaveDecoder | None:
        nbytes = decoded_nbytes(step)
        if nbytes is None or decoder not in device.decoders():
            return None
        on_host = factory_for(step.spec)(step).decode
        name = step.spec.name

        def decode(wave: Wave, batch: Streams) -> Chunks:
            headers = batch.sparse(4) if decoder == "lz4" else batch.host
            table = _named(name, parse, headers, batch.offsets, batch.sizes, nbytes)
            rows, addresses = new_rows(wave, len(batch), nbytes)
            here = np.flatnonzero(~table.to_host)
            source = wave.device.address(batch.slab) + table.source[here]
            sizes = np.full(here.size, nbytes, np.int64)
            decompress(wave, name, decoder, here, (source, table.nbytes[here], addresses[here], sizes))
            if kind:
                which, stored = frames.checksums(kind, batch.host, batch.offsets[here], batch.sizes[here])
                ranges = (addresses[here][which], sizes[which])
                checksums.expect(wave, name, kind, here[which], ranges, stored)
            decode_on_host(wave, batch, rows, np.flatnonzero(table.to_host), on_host)
            return Chunks(rows, addresses, nbytes, rows)

        return decode

    return factory


def _named(name: str, parse: Callable[..., Any], *args: Any) -> Any:
    """What a parser makes of all chunks; its errors get the name that the codec has in the metadata."""
    try:
        with stage("parse"):
            return parse(*args)
    except CodecError as error:
        error.codec = name
        raise


def _refuse_more_than_a_frame(name: str, claimed: Table, batch: Streams) -> None:
    """Bytes behind a Blosc frame, which the parser does not look at, mean that something is wrong, as on the CPU."""
    bad = np.flatnonzero(claimed != batch.sizes)
    if bad.size:
        i = int(bad[0])
        text = f"{name}: too long: expected {claimed[i]} encoded bytes, got {batch.sizes[i]}"
        raise CodecError(text, index=i, codec=name)


def _bare(decoder: str) -> WaveFactory:
    """The factory of a codec whose chunks are bare streams of nvCOMP."""

    def factory(step: Step, device: Device) -> WaveDecoder | None:
        nbytes, name = decoded_nbytes(step), step.spec.name
        limits = CODECS[decoder]
        if nbytes is None or decoder not in device.decoders() or nbytes > limits.max_decompressed_nbytes:
            return None

        def decode(wave: Wave, batch: Streams) -> Chunks:
            empty = np.flatnonzero(batch.sizes == 0)
            if empty.size:
                raise CodecError(f"{name}: truncated: there are no bytes", index=int(empty[0]), codec=name)
            n = len(batch)
            stride = -(-nbytes // limits.alignment.output) * limits.alignment.output
            rows, addresses = new_rows(wave, n, stride)
            streams = (wave.device.address(batch.slab) + batch.offsets, batch.sizes, addresses)
            decompress(wave, name, decoder, np.arange(n), (*streams, np.full(n, nbytes, np.int64)))
            return Chunks(rows, addresses, nbytes, rows if stride == nbytes else None)

        return decode

    return factory


def _nvcomp_batch(step: Step, device: Device) -> WaveDecoder | None:
    """The codec that KvikIO had: see `gzarr.codecs.nvcomp`."""
    if not isinstance(step.spec, NumcodecsCodec):
        return None
    algorithm = str(step.spec.configuration().get("algorithm", "")).lower()
    factory = {"lz4": _LZ4, "zstd": _ZSTD}.get(algorithm) or TABLE.get(f"nvcomp.{algorithm}")
    return None if factory is None else factory(step, device)


def _blosc(step: Step, device: Device) -> WaveDecoder | None:
    nbytes = decoded_nbytes(step)
    if nbytes is None:
        return None
    on_host, name = factory_for(step.spec)(step).decode, step.spec.name
    decoders = {
        blosc_frames.LZ4: "lz4",
        blosc_frames.SNAPPY: "snappy",
        blosc_frames.DEFLATE: "deflate",
        blosc_frames.ZSTD: "zstd",
    }
    missing = [number for number, decoder in decoders.items() if decoder not in device.decoders()]

    def decode(wave: Wave, batch: Streams) -> Chunks:
        table = _named(name, parse_blosc, wave, batch, nbytes)
        _refuse_more_than_a_frame(name, table.cbytes, batch)
        rows, addresses = new_rows(wave, len(batch), nbytes)
        base = wave.device.address(batch.slab)
        to_host = table.to_host.copy()
        to_host[table.streams.frame[np.isin(table.streams.decoder, missing)]] = True
        for number, decoder in {blosc_frames.RAW: "", **decoders}.items():
            streams = table.streams.take(table.group(number))
            streams = streams.take(~to_host[streams.frame])
            source, target = base + streams.source, addresses[streams.frame] + streams.dest
            if number == blosc_frames.RAW:
                copy_streams(wave, source, target, streams.csize)
            else:
                decompress(wave, name, decoder, streams.frame, (source, streams.csize, target, streams.nbytes))
                _expect_blosc_checksums(wave, number, batch, streams, target)
        decode_on_host(wave, batch, rows, np.flatnonzero(to_host), on_host)
        mode = np.where(to_host, 0, table.shuffle).astype(np.uint8)
        shuffle = Shuffle(mode, table.typesize, table.blocksize) if mode.any() else None
        return Chunks(rows, addresses, nbytes, rows, shuffle)

    return decode


def _expect_blosc_checksums(
    wave: Wave, number: int, batch: Streams, streams: blosc_frames.BloscStreams, target: Table
) -> None:
    """Those of zlib streams, and of Zstandard frames that have one (c-blosc writes none)."""
    if not streams.source.size:  # the bytes may not be on the host
        return
    if number == blosc_frames.DEFLATE:
        starts, sizes = streams.source - frames.ZLIB_HEADER, streams.csize + frames.ZLIB_HEADER + frames.ZLIB_TRAILER
        which, stored = frames.checksums("adler32", batch.host, starts, sizes)
        checksums.expect(wave, "blosc", "adler32", streams.frame[which], (target[which], streams.nbytes[which]), stored)
    elif number == blosc_frames.ZSTD:
        which, stored = frames.checksums("xxh64", batch.host, streams.source, streams.csize)
        checksums.expect(wave, "blosc", "xxh64", streams.frame[which], (target[which], streams.nbytes[which]), stored)


def _checksum(kind: str, location: str) -> WaveFactory:
    """The factory of a codec that puts a checksum of four bytes before ("start") or behind ("end") its data."""

    def factory(step: Step, device: Device) -> WaveDecoder | None:
        at = location
        if isinstance(step.spec, NumcodecsCodec):
            at = step.spec.configuration().get("location") or location
        nbytes, name = step.decoded.nbytes, step.spec.name
        if nbytes == 0 or at not in ("start", "end"):
            return None
        skip = 4 if at == "start" else 0

        def decode(wave: Wave, batch: Batch) -> Batch:
            if isinstance(batch, Chunks):
                return _checked_chunks(wave, unshuffled(wave, batch), kind, name, skip)
            sizes = batch.sizes - 4
            bad = np.flatnonzero((sizes < 1) if nbytes is None else (sizes != nbytes))
            if bad.size:
                size, want = int(batch.sizes[bad[0]]), "more than 4" if nbytes is None else nbytes + 4
                raise CodecError(f"{name}: expected {want} bytes, got {size}", index=int(bad[0]), codec=name)
            stored = batch.window(batch.offsets + (0 if skip else sizes), 4).view("<u4").reshape(-1)
            offsets = batch.offsets + skip
            # Before anything is decoded: damaged streams may make decoders read and write out of bounds.
            ranges = (wave.device.address(batch.slab) + offsets, sizes)
            checksums.verify(wave, name, kind, np.arange(len(batch)), ranges, stored)
            return replace(batch, offsets=offsets, sizes=sizes)

        return decode

    return factory


def _checked_chunks(wave: Wave, chunks: Chunks, kind: str, name: str, skip: int) -> Chunks:
    """The checksum within another codec: the bytes are on the device only."""
    nbytes = chunks.nbytes - 4
    if nbytes < 1 or chunks.rows is None:
        raise CodecError(f"{name}: {chunks.nbytes} bytes are too few for a checksum and data", codec=name)
    column = slice(0, 4) if skip else slice(nbytes, None)
    stored = wave.device.download(wave.device.xp.ascontiguousarray(chunks.rows[:, column])).reshape(-1).view("<u4")
    ranges = (chunks.addresses + skip, np.full(len(chunks), nbytes, np.int64))
    checksums.verify(wave, name, kind, np.arange(len(chunks)), ranges, stored)
    return Chunks(chunks.owner, chunks.addresses + skip, nbytes)


def _bytes(step: Step, device: Device) -> WaveDecoder | None:
    nbytes = decoded_nbytes(step)
    if nbytes is None or not isinstance(step.spec, BytesCodec):
        return None

    def decode(wave: Wave, batch: Batch) -> Chunks:
        if isinstance(batch, Chunks):
            return batch
        bad = np.flatnonzero(batch.sizes != nbytes)
        if bad.size:
            got = int(batch.sizes[bad[0]])
            raise CodecError(f"bytes: expected {nbytes} bytes, got {got}", index=int(bad[0]), codec="bytes")
        return Chunks(batch.slab, wave.device.address(batch.slab) + batch.offsets, nbytes)

    return decode


def _shuffle(step: Step, device: Device) -> WaveDecoder | None:
    """The shuffle of numcodecs is Blosc's byte shuffle with one block."""
    nbytes = decoded_nbytes(step)
    if nbytes is None or not isinstance(step.spec, NumcodecsCodec):
        return None
    typesize = int(step.spec.configuration().get("elementsize", 4))
    if nbytes % typesize:
        return None

    def decode(wave: Wave, batch: Batch) -> Chunks:
        chunks = _as_chunks(wave, batch, nbytes, "shuffle")
        chunks = unshuffled(wave, chunks) if chunks.shuffle is not None else chunks
        n = len(chunks)
        mode, sizes = np.full(n, BYTE_SHUFFLE, np.uint8), np.full(n, typesize, np.int32)
        shuffle = Shuffle(mode, sizes, np.full(n, nbytes, np.int64)) if typesize > 1 else None
        return Chunks(chunks.owner, chunks.addresses, nbytes, chunks.rows, shuffle)

    return decode


def _filter(step: Step, device: Device) -> WaveDecoder | None:
    function = filter_for(step)
    nbytes, encoded = decoded_nbytes(step), step.encoded.nbytes
    if isinstance(function, str) or nbytes is None or encoded is None:
        return None
    name = step.spec.name

    def decode(wave: Wave, batch: Batch) -> Chunks:
        chunks = unshuffled(wave, _as_chunks(wave, batch, encoded, name))
        rows = function(wave, chunks.rows)
        wave.kept.append(rows)
        n, size = rows.shape
        if size != nbytes:
            raise CodecError(f"{name}: expected {nbytes} decoded bytes, got {size}", codec=name)
        return Chunks(rows, wave.device.address(rows) + np.arange(n, dtype=np.int64) * size, size, rows)

    return decode


def _as_chunks(wave: Wave, batch: Batch, nbytes: int, codec: str) -> Chunks:
    if isinstance(batch, Chunks):
        return batch
    bad = np.flatnonzero(batch.sizes != nbytes)
    if bad.size:
        got = int(batch.sizes[bad[0]])
        raise CodecError(f"{codec}: expected {nbytes} bytes, got {got}", index=int(bad[0]), codec=codec)
    return Chunks(batch.slab, wave.device.address(batch.slab) + batch.offsets, nbytes)


_LZ4 = _framed("lz4", frames.parse_lz4)
_ZSTD = _framed("zstd", frames.parse_zstd, "xxh64")
_GZIP = _framed("deflate", frames.parse_gzip, "crc32")
_CRC32C = _checksum("crc32c", "end")

#: Codecs that read the framing of chunks, which must be on the host.
FRAMED = frozenset(
    {"blosc", "gzip", "zstd", "numcodecs.blosc", "numcodecs.gzip", "numcodecs.lz4", "numcodecs.zlib", "numcodecs.zstd"}
    | {"numcodecs.nvcomp_batch", *nvcomp.BY_NAME}
)

#: Name of a codec -> factory. What is not here runs on the host.
TABLE: dict[str, WaveFactory] = {
    "blosc": _blosc,
    "bytes": _bytes,
    "cast_value": _filter,
    "crc32c": _CRC32C,
    "gzip": _GZIP,
    "numcodecs.adler32": _checksum("adler32", "start"),
    "numcodecs.astype": _filter,
    "numcodecs.bitround": _filter,
    "numcodecs.blosc": _blosc,
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
    "numcodecs.zlib": _framed("deflate", frames.parse_zlib, "adler32"),
    "numcodecs.zstd": _ZSTD,
    **{f"nvcomp.{name}": _bare(name) for name in ("ans", "bitcomp", "cascaded", "deflate", "gdeflate", "snappy")},
    "scale_offset": _filter,
    "transpose": _filter,
    "zstd": _ZSTD,
}
