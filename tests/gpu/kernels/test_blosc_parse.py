"""blosc_parse finds the streams of sound frames, and refuses damaged ones without reading beside them."""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numcodecs import blosc

from gzarr.gpu.kernels import BLOSC_ERRORS, prefix_sums
from tests.gpu.kernels.launching import DEVICE, HAS_COMPILER, NO_COMPILER, at_offset
from tests.gpu.kernels.reference import Stream, blosc_frame, header_of, parse

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason=NO_COMPILER)

Counts = tuple[int, int]


def run(frames: list[bytes], counts: list[Counts], n_threads: int | None = None) -> list[list[Stream]]:
    """The kernel's rows for each frame, each of which ends where its memory ends."""
    memory = [at_offset(np.frombuffer(f, np.uint8), i % 5) for i, f in enumerate(frames)]
    address = np.array([m.ctypes.data for m in memory], np.uint64)
    nbytes = np.array([m.size for m in memory], np.int64)
    blocks, streams = (prefix_sums(np.array([c[i] for c in counts], np.int64)) for i in (0, 1))
    n = int(streams[-1])
    found, csize = np.full(n, 77, np.uint64), np.full(n, 77, np.int64)
    raw, error = np.full(n, 77, np.uint8), np.full(n, 77, np.uint8)
    threads = int(blocks[-1]) if n_threads is None else n_threads
    DEVICE.launch("blosc_parse", threads, (len(frames), address, nbytes, blocks, streams, found, csize, raw, error))
    rows = []
    for i, (first, last) in enumerate(pairwise(streams)):
        columns = (column[first:last].tolist() for column in (found, csize, raw, error))
        table = zip(*columns, strict=True)
        rows.append([Stream(a - int(address[i]) if a else 0, n, bool(r), int(e)) for a, n, r, e in table])
        assert set(raw[first:last].tolist()) <= {0, 1}
    return rows


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    dtype = np.dtype(draw(st.sampled_from(["u1", "i2", "f4", "f8", "c16", "S3", "S17"])))
    n = draw(st.sampled_from([1, 8, 129, 1000, 4096, 20001]))
    raw = np.random.default_rng(n).integers(0, 256, n * dtype.itemsize, np.uint8)
    if draw(st.booleans()):
        raw = np.sort(raw)
    name = draw(st.sampled_from(["lz4", "zstd", "zlib", "blosclz"]))
    level = draw(st.sampled_from([0, 1, 5, 9]))
    how = draw(st.sampled_from([blosc.NOSHUFFLE, blosc.SHUFFLE, blosc.BITSHUFFLE]))
    blocksize = draw(st.sampled_from([0, 256, 1000, 4096, 30000]))
    trailing = bytes(draw(st.sampled_from([0, 0, 5])))
    return blosc_frame(raw.view(dtype), name, level, how, blocksize) + trailing


@given(st.lists(frames(), max_size=4), st.sampled_from([None, None, 1]))
def test_sound_frames(made: list[bytes], n_threads: int | None) -> None:
    counts = [header_of(f).counts() for f in made]
    rows = run(made, counts, n_threads)
    assert rows == [parse(f, c) for f, c in zip(made, counts, strict=True)]
    assert all(row.error == 0 for streams in rows for row in streams)


@given(frames(), st.data())
def test_damaged_frames(made: bytes, data: st.DataObject) -> None:
    """Flipped and overwritten bytes, most of them in the header and the tables, and frames cut short."""
    counts = header_of(made).counts()
    damaged = bytearray(made)
    at_most = min(len(made) - 1, data.draw(st.sampled_from([15, 15 + 4 * counts[0], len(made) - 1])))
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, at_most))] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 255]))
    if data.draw(st.booleans()):
        tables = 16 + 4 * counts[0]
        where = data.draw(st.integers(0, max(min(tables, len(made) - 4), 0)))
        number = data.draw(st.sampled_from([0, 1, -1, len(made), len(made) - 4, len(made) - 3, 2**31 - 1, -(2**31)]))
        damaged[where : where + 4] = struct.pack("<i", number)
    cut = data.draw(st.sampled_from([len(damaged), len(damaged), len(damaged) - 1, 17, 16, 15, 0]))
    frame = bytes(damaged[:cut])
    sound, found, sound_again = run([made, frame, made], [counts] * 3)
    assert found == parse(frame, counts)
    assert sound == sound_again == parse(made, counts)


@given(frames(), st.integers(0, 40), st.integers(0, 200))
def test_counts_that_do_not_fit_the_frame(made: bytes, n_blocks: int, n_streams: int) -> None:
    """Every row gets an error, however the wrong counts divide; a frame without blocks has no thread to write rows."""
    n_streams = n_streams if n_blocks else 0
    (found,) = run([made], [(n_blocks, n_streams)])
    assert found == parse(made, (n_blocks, n_streams))


def test_each_error() -> None:
    values = np.arange(40000, dtype=np.int32)  # three blocks of 64 KiB, the smallest that c-blosc splits
    made = blosc_frame(values, "lz4", 5, blosc.SHUFFLE, 4096)
    counts = header_of(made).counts()
    (first,) = struct.unpack_from("<i", made, 16)

    def patched(at: int, data: bytes) -> bytes:
        return made[:at] + data + made[at + len(data) :]

    cases = {
        0: made,
        1: made[:-1],
        2: patched(0, b"\3"),
        3: patched(8, struct.pack("<I", 8192)),
        4: patched(16, struct.pack("<i", len(made) - 3)),
        5: patched(first, struct.pack("<i", len(made))),
    }
    assert cases.keys() == BLOSC_ERRORS.keys()
    for error, frame in cases.items():
        (rows,) = run([frame], [counts])
        assert rows[0].error == error
        if error in (4, 5):  # one bad block leaves the others
            assert {row.error for row in rows} == {0, error}


def test_no_frames() -> None:
    assert run([], [], n_threads=3) == []
