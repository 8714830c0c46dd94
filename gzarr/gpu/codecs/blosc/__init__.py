"""Blosc on the device: frames are taken apart into streams that batched decoders take, and put together again.

The host decodes and encodes blosclz, which nvCOMP lacks, and encodes with snappy, which no reader of today has, and
chunks of very many short streams.
"""

from dataclasses import replace

import numpy as np

from gzarr.codecs.spec import Step
from gzarr.cpu.codecs import factory_for
from gzarr.cpu.compiled import library
from gzarr.gpu.codecs import checksums
from gzarr.gpu.codecs.batch import BatchContext, Chunks, Decoder, DeviceCodec, Encoded, Encoder, Streams
from gzarr.gpu.codecs.blosc import parsing
from gzarr.gpu.codecs.blosc.framing import frame_of, framed
from gzarr.gpu.codecs.blosc.parsing import BloscStreams, parse_frames
from gzarr.gpu.codecs.envelopes import ZLIB_HEADER, ZLIB_TRAILER, stored_adler32, stored_xxh64
from gzarr.gpu.codecs.refusing import UNFIT, decoded_nbytes, headers_on_host
from gzarr.gpu.codecs.transfers import copy_streams, decode_on_host, decompress, new_rows, plain_chunks
from gzarr.gpu.device.protocol import Device, Table
from gzarr.gpu.kernels import PLAIN
from gzarr.gpu.kernels.parts import Shuffles
from gzarr.profiling.recorder import stage

#: The device's decoder for each of blosc's compressors.
_DECODERS = {parsing.LZ4: "lz4", parsing.SNAPPY: "snappy", parsing.DEFLATE: "deflate", parsing.ZSTD: "zstd"}


def _decoder(step: Step, device: Device) -> Decoder | str:
    nbytes = decoded_nbytes(step)
    if nbytes is None:
        return UNFIT
    if (problem := library.problem()) is not None:
        return f"compiled code takes frames apart: {problem}"
    on_host, name = factory_for(step.spec)(step).decode, step.spec.name
    missing = [number for number, decoder in _DECODERS.items() if decoder not in device.decoders]

    def decode(context: BatchContext, batch: Streams) -> Chunks:
        with stage("parse"):
            table = parse_frames(batch.host, batch.offsets, batch.sizes, nbytes)
        to_host, groups = table.to_host, list(table.groups)
        for number in missing:
            to_host[groups[number].frame] = True
        if missing and to_host.any():
            groups = [streams.take(~to_host[streams.frame]) for streams in groups]
        mode = np.where(to_host, PLAIN, table.shuffle).astype(np.uint8)
        base = context.device.address(batch.staging_buffer)
        rows, places = new_rows(context, len(batch), nbytes)
        chunks = Chunks(rows, places, nbytes, rows)
        for number, streams in enumerate(groups):
            if not streams.source.size:
                continue
            source, target = base + streams.source, chunks.addresses[streams.frame] + streams.dest
            if number == parsing.RAW:
                copy_streams(context, source, target, streams.csize)
            else:
                tables = (source, streams.csize, target, streams.nbytes)
                decompress(context, name, _DECODERS[number], streams.frame, tables)
                _expect_checksums(context, number, batch, streams, target)
        decode_on_host(context, name, batch, chunks, np.flatnonzero(to_host), on_host)
        shuffles = Shuffles(mode, table.typesize, table.blocksize, np.full(len(batch), nbytes, np.int64))
        return replace(chunks, shuffle=shuffles) if mode.any() else chunks

    return decode


def _expect_checksums(context: BatchContext, number: int, batch: Streams, streams: BloscStreams, target: Table) -> None:
    """Those of zlib streams, and of Zstandard frames that have one (c-blosc writes none)."""
    if number == parsing.DEFLATE:
        starts, sizes = streams.source - ZLIB_HEADER, streams.csize + ZLIB_HEADER + ZLIB_TRAILER
        kind, (which, stored) = "adler32", stored_adler32(batch.host, starts, sizes)
    elif number == parsing.ZSTD:
        kind, (which, stored) = "xxh64", stored_xxh64(batch.host, streams.source, streams.csize)
    else:
        return
    checksums.expect(context, "blosc", kind, streams.frame[which], (target[which], streams.nbytes[which]), stored)


def _encoder(step: Step, device: Device) -> Encoder | str:
    frame = frame_of(step)
    if frame is None or (frame.encoder and (frame.encoder not in device.encoders or frame.is_chopped)):
        return UNFIT
    name = step.spec.name

    def encode(context: BatchContext, batch: Chunks | Encoded) -> Encoded:
        return framed(context, name, frame, plain_chunks(context, batch))

    return encode


_BLOSC = DeviceCodec(_decoder, _encoder, takes_streams=True, scratch=4, host_round_trip=headers_on_host)
CODECS = {"blosc": _BLOSC, "numcodecs.blosc": _BLOSC}
