"""Checksums of byte ranges on the device, for envelopes of compressed streams and as codecs of their own.

The kinds are CRC-32, crc32c, Adler-32, Fletcher-32, and the XXH64 of Zstandard frames. Decoders on a GPU verify no
checksums, and may decode damaged streams "successfully". `queue` starts the checksums of many ranges in stream order.
Its result is downloaded when the batch is done and finished by `Pending.values` on the host, which combines the pieces
of the sums (1/64 of the bytes).

Source: RFC 1950 (Adler-32), RFC 1952 (CRC-32), RFC 8878, 3.1.1 (content checksum); numcodecs for the Fletcher-32 of
HDF5: two sums of big-endian words modulo 65535; the result is 65535, not 0, if a sum that is not zero is a multiple.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array
from gzarr.codecs.numcodecs import NumcodecsCodec
from gzarr.codecs.spec import Step
from gzarr.errors import CodecError
from gzarr.gpu.codecs.batch import BatchContext, Chunks, Decoder, DeviceCodec, Encoded, Encoder, Streams
from gzarr.gpu.codecs.refusing import UNFIT, refuse
from gzarr.gpu.codecs.transfers import ROOM, byte_ranges, copy_pieces, new_places, unshuffled, upload_tables
from gzarr.gpu.device.nvcomp_tables import status_text
from gzarr.gpu.device.protocol import Table
from gzarr.gpu.kernels import PIECE_NBYTES, piece_starts
from gzarr.profiling.recorder import stage

ADLER_MODULUS, FLETCHER_MODULUS = 65521, 65535


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """Checksums that the device is computing.

    Attributes
    ----------
    raw : Array
        Its result, on the device.
    values : callable
        Turns the downloaded ``raw`` into one uint32 for each range.
    statuses : Array or None
        int32 on the device, 0 for each range whose checksum could be computed; None if all can be.
    """

    raw: Array
    values: Callable[[NDArray[Any]], NDArray[np.uint32]]
    statuses: Array | None = None

    @property
    def is_finished(self) -> bool:
        """Whether ``raw`` holds the checksums themselves: uint32, one for each range."""
        return self.values is _unchanged


def queue(context: BatchContext, kind: str, source: Table, nbytes: Table) -> Pending:
    """Start the checksums of at least one byte range.

    kind: "crc32", "crc32c", "adler32", "fletcher32" or "xxh64". source: addresses. nbytes: sizes.
    """
    if kind in ("crc32", "crc32c"):
        computed = context.device.crc(kind, source, nbytes)
        return Pending(computed.sums, _unchanged, computed.statuses)
    if kind == "xxh64":
        hashes = _uint64(context, source.size)
        tables = upload_tables(context, source.astype(np.uint64), nbytes)
        context.device.launch("xxh64", 4 * source.size, (source.size, *tables, hashes))
        return Pending(hashes, lambda raw: raw.astype(np.uint32))  # the low half
    word = 1 if kind == "adler32" else 2
    starts = piece_starts(nbytes)
    sums = _uint64(context, 2 * int(starts[-1]))
    tables = upload_tables(context, source.astype(np.uint64), nbytes, starts)
    context.device.launch("weighted_sums", int(starts[-1]), (source.size, *tables, word, sums))
    combine = _adler32 if kind == "adler32" else _fletcher32
    return Pending(sums, lambda raw: combine(raw.reshape(-1, 2), starts, nbytes))


def store(context: BatchContext, pending: Pending, raw: NDArray[Any] | None, order: str = "<u4") -> Table:
    """Addresses of the four bytes of each checksum on the device, as they are stored.

    raw: ``pending.raw`` downloaded; None if the checksums are finished, so that they need not leave the device.
    order: dtype of a stored checksum; finished ones are little-endian.
    """
    if raw is None:
        context.held.append(pending.raw)
        return context.device.address(pending.raw) + 4 * np.arange(pending.raw.size, dtype=np.int64)
    values = pending.values(raw).astype(order)
    (at,) = upload_tables(context, values)
    return at + 4 * np.arange(values.size, dtype=np.int64)


def expect_computed(context: BatchContext, codec: str, pending: Pending, items: Table) -> None:
    """Check, when the batch is done, that the device could compute checksums. items: the chunk of each, for errors."""
    if pending.statuses is not None:
        context.checks.append((pending.statuses, lambda statuses: _check_statuses(codec, items, statuses)))


def _check_statuses(codec: str, items: Table, statuses: NDArray[Any]) -> None:
    """Raise CodecError(index) if a checksum could not be computed."""
    why = "the checksum could not be computed"
    refuse(codec, statuses != 0, lambda i: f"{why}: {status_text(int(statuses[i]))}", items)


def expect(
    context: BatchContext, codec: str, kind: str, items: Table, ranges: tuple[Table, Table], stored: NDArray[Any]
) -> None:
    """Check, when the batch is done, that byte ranges have their stored checksums.

    items: the chunk of the batch that each range belongs to, for errors. ranges: addresses and sizes.
    """
    if not items.size:
        return
    pending = queue(context, kind, *ranges)
    expect_computed(context, codec, pending, items)
    context.checks.append((pending.raw, lambda raw: compare(codec, items, stored, pending.values(raw))))


def verify(
    context: BatchContext, codec: str, kind: str, items: Table, ranges: tuple[Table, Table], stored: NDArray[Any]
) -> None:
    """Check the same at once, which waits for the device. For encoded bytes, before they are decoded."""
    pending = queue(context, kind, *ranges)
    with stage("check"):
        if pending.statuses is None:
            raw = context.device.download(pending.raw)
        else:
            raw, statuses = context.device.download_all([pending.raw, pending.statuses])
            _check_statuses(codec, items, statuses)
        compare(codec, items, stored, pending.values(raw))


def compare(codec: str, items: Table, stored: NDArray[Any], computed: NDArray[Any]) -> None:
    """Raise CodecError(index) for the first chunk whose checksum is not the stored one."""

    def text(i: int) -> str:
        return f"expected checksum {int(stored[i]):#010x}, got {int(computed[i]):#010x}: the data is damaged"

    refuse(codec, computed.astype(np.uint32) != stored.astype(np.uint32), text, items)


def _uint64(context: BatchContext, n: int) -> Array:
    return context.empty(8 * n).view(np.uint64)


def _unchanged(raw: NDArray[Any]) -> NDArray[np.uint32]:
    return raw.astype(np.uint32, copy=False)


def _per_stream(values: NDArray[np.uint64], starts: Table, modulus: int) -> NDArray[np.uint64]:
    """Sums of the values of each stream's pieces, which are below the modulus; 0 for streams without pieces."""
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)])
    return np.asarray((sums[starts[1:]] - sums[starts[:-1]]) % np.uint64(modulus))


def _both_sums(
    sums: NDArray[np.uint64], starts: Table, nwords: Table, piece_words: int, modulus: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The sum of each stream's words, and of its words times their distance from the end, by the modulus."""
    stream = np.repeat(np.arange(nwords.size), np.diff(starts))
    ends = (np.arange(stream.size) - starts[:-1][stream] + 1) * piece_words
    after = np.maximum(nwords[stream] - ends, 0).astype(np.uint64)
    m = np.uint64(modulus)
    plain = sums[:, 0] % m
    weighted = (sums[:, 1] + plain * (after % m)) % m
    return _per_stream(plain, starts, modulus), _per_stream(weighted, starts, modulus)


def _adler32(sums: NDArray[np.uint64], starts: Table, nbytes: Table) -> NDArray[np.uint32]:
    plain, weighted = _both_sums(sums, starts, nbytes, PIECE_NBYTES, ADLER_MODULUS)
    m = np.uint64(ADLER_MODULUS)
    low, high = (plain + np.uint64(1)) % m, (weighted + nbytes.astype(np.uint64)) % m
    return (high << np.uint64(16) | low).astype(np.uint32)


def _fletcher32(sums: NDArray[np.uint64], starts: Table, nbytes: Table) -> NDArray[np.uint32]:
    plain, weighted = _both_sums(sums, starts, (nbytes + 1) // 2, PIECE_NBYTES // 2, FLETCHER_MODULUS)
    nonzero = _per_stream((sums[:, 0] != 0).astype(np.uint64), starts, 1 << 62) != 0
    # Folding carries into the low half never turns another sum into zero.
    low, high = (np.where(nonzero & (part == 0), np.uint64(FLETCHER_MODULUS), part) for part in (plain, weighted))
    return (high << np.uint64(16) | low).astype(np.uint32)


# -- codecs that are checksums -----------------------------------------------------------------------------------


def _codec(kind: str, location: str, *, is_suffix: bool = False) -> DeviceCodec:
    """A codec that puts a checksum of four bytes before its data (location "start") or behind it ("end")."""

    def made(make: Callable[[Step, str, int], Any], step: Step) -> Any:
        skip = _skip(step, location)
        return UNFIT if skip is None else make(step, kind, skip)

    return DeviceCodec(
        lambda step, device: made(_decoder, step), lambda step, device: made(_encoder, step), is_suffix=is_suffix
    )


def _skip(step: Step, location: str) -> int | None:
    """Bytes before the data; None if the device does not run the step."""
    if isinstance(step.spec, NumcodecsCodec):
        location = step.spec.configuration().get("location") or location
    return None if step.decoded.nbytes == 0 else {"start": 4, "end": 0}.get(location)


def _decoder(step: Step, kind: str, skip: int) -> Decoder:
    nbytes, name = step.decoded.nbytes, step.spec.name

    def decode(context: BatchContext, batch: Streams | Chunks) -> Streams | Chunks:
        if isinstance(batch, Chunks):
            return _checked_chunks(context, unshuffled(context, batch), kind, name, skip)
        sizes = batch.sizes - 4
        want = "more than 4" if nbytes is None else nbytes + 4
        bad = (sizes < 1) if nbytes is None else (sizes != nbytes)
        refuse(name, bad, lambda i: f"expected {want} bytes, got {batch.sizes[i]}")
        stored = batch.window(batch.offsets + (0 if skip else sizes), 4).view("<u4").reshape(-1)
        offsets = batch.offsets + skip
        # Before anything is decoded, as damaged streams may make decoders read and write out of bounds.
        ranges = context.device.address(batch.staging_buffer) + offsets, sizes
        verify(context, name, kind, np.arange(len(batch)), ranges, stored)
        return replace(batch, offsets=offsets, sizes=sizes)

    return decode


def _checked_chunks(context: BatchContext, chunks: Chunks, kind: str, name: str, skip: int) -> Chunks:
    """Verify and strip checksums of decoded chunks, which are on the device only."""
    nbytes = chunks.nbytes - 4
    if nbytes < 1 or chunks.rows is None:
        raise CodecError(f"{name}: {chunks.nbytes} bytes are too few for a checksum and data", codec=name)
    column = slice(0, 4) if skip else slice(nbytes, None)
    columns = context.device.xp.ascontiguousarray(chunks.rows[:, column])
    stored = context.device.download(columns).reshape(-1).view("<u4")
    ranges = (chunks.addresses + skip, np.full(len(chunks), nbytes, np.int64))
    verify(context, name, kind, np.arange(len(chunks)), ranges, stored)
    return Chunks(chunks.owner, chunks.addresses + skip, nbytes)


def _encoder(step: Step, kind: str, skip: int) -> Encoder:
    name = step.spec.name

    def encode(context: BatchContext, batch: Chunks | Encoded) -> Encoded:
        source, nbytes = byte_ranges(batch)
        pending = queue(context, kind, source, nbytes)
        expect_computed(context, name, pending, np.arange(len(batch)))
        downloaded = None if pending.is_finished else context.device.download(pending.raw)
        sums, four = store(context, pending, downloaded), np.full(len(batch), 4, np.int64)
        if isinstance(batch, Encoded) and not skip and batch.room >= 4:
            copy_pieces(context, [(sums, source + nbytes, four)])
            return replace(batch, sizes=nbytes + 4, room=batch.room - 4)
        owner, places = new_places(context, nbytes + 4 + ROOM)
        copy_pieces(context, [(source, places + skip, nbytes), (sums, places + (0 if skip else nbytes), four)])
        return Encoded(owner, places, nbytes + 4, ROOM)

    return encode


_CRC32C = _codec("crc32c", "end", is_suffix=True)
CODECS = {
    "crc32c": _CRC32C,
    "numcodecs.adler32": _codec("adler32", "start"),
    "numcodecs.crc32": _codec("crc32", "start"),
    "numcodecs.crc32c": _CRC32C,
    "numcodecs.fletcher32": _codec("fletcher32", "end"),
}
