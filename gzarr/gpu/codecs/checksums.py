"""Checksums of byte ranges on the device: CRC-32, crc32c, Adler-32, Fletcher-32, and the XXH64 of Zstandard frames.

Decoders on a GPU verify none of the checksums that compressed formats end with, and may decode damage "successfully".
`queue` starts a checksum of many ranges in stream order; what it returns is downloaded when the wave is done and
finished by `Pending.values` on the host, where the pieces of the sums are put together (1/64 of the bytes).

Source: RFC 1950 (Adler-32), RFC 1952 (CRC-32), RFC 8878, 3.1.1 (content checksum); Fletcher-32 as numcodecs has it
from HDF5: two sums of big-endian words modulo 65535, written as 65535 where a sum that is not zero would give 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array
from gzarr.errors import CodecError
from gzarr.gpu.codecs.batch import Wave
from gzarr.gpu.codecs.streams import upload_tables
from gzarr.gpu.device.protocol import Table
from gzarr.gpu.kernels import PIECE_NBYTES, piece_starts
from gzarr.profiling.recorder import stage

ADLER_MODULUS, FLETCHER_MODULUS = 65521, 65535


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """Checksums that the device is computing.

    Attributes:
        raw: what it makes, on the device.
        values: turns the downloaded ``raw`` into one uint32 for each range.
    """

    raw: Array
    values: Callable[[NDArray[Any]], NDArray[np.uint32]]

    @property
    def is_finished(self) -> bool:
        """Whether ``raw`` is the checksums themselves: uint32, one for each range."""
        return self.values is _as_they_are


def queue(wave: Wave, kind: str, source: Table, nbytes: Table) -> Pending:
    """Start the checksums of byte ranges, at least one.

    kind: "crc32", "crc32c", "adler32", "fletcher32" or "xxh64". source: addresses. nbytes: sizes.
    """
    if kind in ("crc32", "crc32c"):
        return Pending((wave.device.crc32 if kind == "crc32" else wave.device.crc32c)(source, nbytes), _as_they_are)
    if kind == "xxh64":
        hashes = _uint64(wave, source.size)
        tables = upload_tables(wave, source.astype(np.uint64), nbytes)
        wave.device.launch("xxh64", source.size, (source.size, *tables, hashes))
        return Pending(hashes, lambda found: found.astype(np.uint32))  # the low half
    word = 1 if kind == "adler32" else 2
    starts = piece_starts(nbytes)
    sums = _uint64(wave, 2 * int(starts[-1]))
    tables = upload_tables(wave, source.astype(np.uint64), nbytes, starts)
    wave.device.launch("weighted_sums", int(starts[-1]), (source.size, *tables, word, sums))
    combine = _adler32 if kind == "adler32" else _fletcher32
    return Pending(sums, lambda found: combine(found.reshape(-1, 2), starts, nbytes))


def store(wave: Wave, pending: Pending, found: NDArray[Any] | None, order: str = "<u4") -> Table:
    """Where the four bytes of each checksum lie on the device, as they are stored.

    found: ``pending.raw`` downloaded; None if the checksums are finished, which then never leave the device.
    order: dtype of a stored checksum; finished ones are little-endian.
    """
    if found is None:
        wave.kept.append(pending.raw)
        return wave.device.address(pending.raw) + 4 * np.arange(pending.raw.size, dtype=np.int64)
    values = pending.values(found).astype(order)
    (at,) = upload_tables(wave, values)
    return at + 4 * np.arange(values.size, dtype=np.int64)


def expect(
    wave: Wave, codec: str, kind: str, items: Table, ranges: tuple[Table, Table], stored: NDArray[np.uint32]
) -> None:
    """Demand, when the wave is done, that byte ranges have the checksums that were stored with them.

    items: the chunk of the wave that each range belongs to, for errors. ranges: addresses and sizes.
    """
    if not items.size:
        return
    pending = queue(wave, kind, *ranges)
    wave.kept.append(pending.raw)
    wave.checks.append((pending.raw, lambda found: compare(codec, items, stored, pending.values(found))))


def verify(
    wave: Wave, codec: str, kind: str, items: Table, ranges: tuple[Table, Table], stored: NDArray[np.uint32]
) -> None:
    """The same at once: waits for the device. For encoded bytes, before a decoder gets them."""
    pending = queue(wave, kind, *ranges)
    with stage("check"):
        compare(codec, items, stored, pending.values(wave.device.download(pending.raw)))


def compare(codec: str, items: Table, stored: NDArray[Any], found: NDArray[Any]) -> None:
    """Raise CodecError(index) for the first chunk whose checksum is another."""
    bad = np.flatnonzero(found.astype(np.uint32) != stored.astype(np.uint32))
    if bad.size:
        i = int(bad[items[bad].argmin()])
        text = f"{codec}: expected checksum {int(stored[i]):#010x}, got {int(found[i]):#010x}: the data is damaged"
        raise CodecError(text, index=int(items[i]), codec=codec)


def _uint64(wave: Wave, n: int) -> Array:
    made = wave.device.empty(8 * n).view(np.uint64)
    wave.kept.append(made)
    return made


def _as_they_are(found: NDArray[Any]) -> NDArray[np.uint32]:
    return found.astype(np.uint32, copy=False)


def _per_stream(values: NDArray[np.uint64], starts: Table, modulus: int) -> NDArray[np.uint64]:
    """Sums of the pieces' values, each below the modulus, by stream; streams without pieces give 0."""
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)])
    return np.asarray((sums[starts[1:]] - sums[starts[:-1]]) % np.uint64(modulus))


def _both_sums(
    sums: NDArray[np.uint64], starts: Table, nwords: Table, piece_words: int, modulus: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """(sum of the words, sum of the words times their distance from the end) of each stream, by the modulus."""
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
    # Folding carries back into the low half never makes a sum zero that was not.
    low, high = (np.where(nonzero & (part == 0), np.uint64(FLETCHER_MODULUS), part) for part in (plain, weighted))
    return (high << np.uint64(16) | low).astype(np.uint32)
