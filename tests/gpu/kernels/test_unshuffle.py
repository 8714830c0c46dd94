"""unshuffle undoes Blosc's filters, and shuffle does what they do: on frames of numcodecs, and on other sizes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numcodecs import blosc

from gzarr.gpu.kernels import BIT_SHUFFLED, BYTE_SHUFFLED, PLAIN, unit_starts
from gzarr.gpu.kernels.parts import shuffling
from tests.gpu.kernels.launching import DEVICE, at_offset, make_sources, shuffles
from tests.gpu.kernels.reference import Shuffle, blosc_frame, decoded_streams, header_of, shuffled, unshuffled


def launched(kernel: str, chunks: list[np.ndarray], how: list[Shuffle], offset: int = 0) -> list[np.ndarray]:
    results = [at_offset(np.full(c.size, 0xA5, np.uint8), offset) for c in chunks]
    sources = make_sources(chunks, how)
    targets = np.array([r.ctypes.data for r in results], np.uint64)
    if kernel == "unshuffle":
        starts = unit_starts(sources.nbytes)
        DEVICE.launch(kernel, int(starts[-1]), (len(chunks), sources.address, targets, starts, *sources.how))
        return results
    keys = [(*shuffle, chunk.size) for chunk, shuffle in zip(chunks, how, strict=True)]
    for key in {key for key in keys if key[0] != PLAIN and key[-1]}:
        some, last = [i for i, other in enumerate(keys) if other == key], shuffling(*key)
        DEVICE.launch(kernel, len(some) * last[-3], (len(some), sources.address[some], targets[some], *last))
    return results


def check(plain: list[np.ndarray], how: list[Shuffle], at: int = 0, offset: int = 0) -> None:
    """Both directions. at, offset: bytes from where memory is aligned to where sources and results begin."""
    stored = [shuffled(p, h) for p, h in zip(plain, how, strict=True)]
    found = launched("unshuffle", [at_offset(one, at) for one in stored], how, offset)
    assert [f.tobytes() for f in found] == [p.tobytes() for p in plain]
    found = launched("shuffle", [at_offset(one, at) for one in plain], how, offset)
    for given_, made, wanted in zip(how, found, stored, strict=True):
        assert given_.mode == PLAIN or made.tobytes() == wanted.tobytes()


def noise(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, n, np.uint8)


@given(st.data())
def test_any_sizes(data: st.DataObject) -> None:
    plain, how = [], []
    for _ in range(data.draw(st.integers(0, 5))):
        n = data.draw(st.one_of(st.integers(0, 40), st.integers(0, 3000), st.integers(2000, 20000)))
        plain.append(noise(n, data.draw(st.integers(0, 99))))
        how.append(data.draw(shuffles(n, data.draw(st.sampled_from([1, 2, 3, 4, 8, 16])))))
    check(plain, how, data.draw(st.sampled_from([0, 0, 1, 4, 8])), data.draw(st.sampled_from([0, 0, 2, 3])))


@pytest.mark.parametrize("typesize", [1, 2, 3, 4, 6, 7, 8, 12, 16, 17, 18, 255])
@pytest.mark.parametrize("mode", [PLAIN, BYTE_SHUFFLED, BIT_SHUFFLED])
def test_each_item_size_in_one_launch(mode: int, typesize: int) -> None:
    """Whole blocks, short last blocks, tails, blocks whose items are no multiple of eight, blocks below one item."""
    lengths = [typesize * items + tail for items in (0, 1, 7, 8, 16, 40, 129, 512) for tail in (0, typesize // 2)]
    plain = [noise(n, n) for n in lengths for _ in range(3)]
    check(
        plain,
        [Shuffle(mode, typesize, size) for n in lengths for size in (max(n, 1), 16 * typesize, 24 * typesize + 1)],
    )


@given(st.data())
def test_frames_of_numcodecs(data: st.DataObject) -> None:
    """What numcodecs compresses comes back from its streams, decompressed one by one."""
    dtype = np.dtype(data.draw(st.sampled_from(["u1", "i2", "f4", "f8", "c16", "S3", "S7", "S17"])))
    n = data.draw(st.sampled_from([1, 7, 8, 100, 129, 1000, 4096, 20001]))
    raw = noise(n * dtype.itemsize, n) if data.draw(st.booleans()) else np.arange(n * dtype.itemsize) // 7
    values = np.ascontiguousarray(raw.astype(np.uint8)).view(dtype)
    name = data.draw(st.sampled_from(["lz4", "lz4hc", "zstd", "zlib"]))
    how = data.draw(st.sampled_from([blosc.NOSHUFFLE, blosc.SHUFFLE, blosc.BITSHUFFLE]))
    blocksize = data.draw(st.sampled_from([0, 0, 256, 1000, 4096, 30000]))
    frame = blosc_frame(values, name, data.draw(st.sampled_from([0, 1, 5, 9])), how, blocksize)
    (found,) = launched("unshuffle", [decoded_streams(frame)], [header_of(frame).shuffle()])
    assert found.tobytes() == values.tobytes() == bytes(blosc.decompress(frame))


@given(st.data())
def test_the_reference_undoes_itself(data: st.DataObject) -> None:
    n = data.draw(st.integers(0, 2000))
    how = data.draw(shuffles(n, data.draw(st.sampled_from([1, 2, 4, 8]))))
    plain = noise(n, 5)
    assert np.array_equal(unshuffled(shuffled(plain, how), how), plain)


def test_the_reference_is_blosc() -> None:
    """The shuffles of the reference are those in a frame, for every mode and several blocks with a short last one."""
    values = np.arange(40001, dtype=np.int32)  # blocks of 64 KiB
    for mode in (blosc.NOSHUFFLE, blosc.SHUFFLE, blosc.BITSHUFFLE):
        frame = blosc_frame(values, "lz4", 5, mode, 4096)
        how = header_of(frame).shuffle()
        assert how.mode == mode
        assert np.array_equal(shuffled(values.view(np.uint8), how), decoded_streams(frame))
