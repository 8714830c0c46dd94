"""Blosc frames that the device makes: what c-blosc reads, laid out by its rules."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numcodecs.blosc import Blosc
from numcodecs.blosc import decompress as blosc_decompress

import gzarr
from gzarr import codecs
from gzarr.codecs.chain import prepare
from gzarr.codecs.numcodecs import NumcodecsCodec
from gzarr.codecs.spec import ArrayRepr
from gzarr.cpu.codecs.compressors import blosc_encoder as cpu_encoder
from gzarr.gpu.codecs.blosc.framing import STREAM_NBYTES, Frame, frame_of
from gzarr.gpu.device.emulated import EmulatedDevice
from tests.gpu.codecs.encoding import encode, read_back, stays_on_host, steps_of
from tests.gpu.kernels.reference import Shuffle, decoded_streams, header_of, shuffled, streams_of

CNAMES = ("lz4", "lz4hc", "zstd", "zlib")
NUMBER = {"lz4": 1, "lz4hc": 1, "zlib": 3, "zstd": 4}


def spec_of(cname: str, shuffle: int = 1, typesize: int = 4, blocksize: int = 0, clevel: int = 5) -> Any:
    return codecs.BloscCodec(cname, clevel, shuffle, typesize, blocksize)


def chunks_of(nbytes: int, kinds: str = "szn") -> np.ndarray:
    """Smooth, zero and random chunks: uint8 (n, nbytes)."""
    rng = np.random.default_rng(nbytes)
    made = {
        "s": lambda: (np.arange(-(-nbytes // 4), dtype=np.int32) * 3 // 7).view(np.uint8)[:nbytes],
        "z": lambda: np.zeros(nbytes, np.uint8),
        "n": lambda: rng.integers(0, 256, nbytes, np.uint8),
    }
    return np.stack([made[kind]() for kind in kinds])


def check(spec: Any, chunks: np.ndarray) -> list[bytes]:
    """Everyone decodes the frames, and they conform. Returns: the frames."""
    found = encode(EmulatedDevice(), [spec], chunks)
    for frame, chunk in zip(found, chunks, strict=True):
        assert bytes(blosc_decompress(frame)) == chunk.tobytes()
        conforms(spec, frame, chunk)
    for where in ("cpu", "emulated"):
        assert np.array_equal(read_back([spec], chunks, found, where), chunks)
    return found


def conforms(spec: Any, frame: bytes, chunk: np.ndarray) -> None:
    """The header says what c-blosc's does; streams are where they must be, and none grew."""
    header = header_of(frame)
    reference = header_of(bytes(cpu_encoder(Blosc(spec.cname, 5, 0), spec.typesize)(chunk.tobytes())))
    assert (header.version, header.version_lz) == (reference.version, reference.version_lz) == (2, 1)
    assert header.typesize == reference.typesize
    assert header.flags >> 5 == NUMBER[spec.cname]
    assert (header.nbytes, header.cbytes) == (chunk.size, len(frame))
    assert 0 < header.blocksize <= chunk.size
    assert len(frame) <= chunk.size + 16
    if header.is_memcpy:
        assert frame[16:] == chunk.tobytes()
        return
    streams = [data for data, _ in streams_of(frame)]
    assert all(streams)
    assert 16 + 4 * len(header.block_sizes()) + sum(4 + len(data) for data in streams) == len(frame)
    how = header.shuffle()
    expected = shuffled(chunk, Shuffle(how.mode, how.typesize, header.blocksize))
    assert np.array_equal(decoded_streams(frame), expected)


@pytest.mark.parametrize("nbytes", [4, 508, 512, 4096, 65536, 262144, 300_004])
@pytest.mark.parametrize("shuffle", [0, 1, 2])
@pytest.mark.parametrize("cname", CNAMES)
def test_every_compressor_and_shuffle(cname: str, shuffle: int, nbytes: int) -> None:
    check(spec_of(cname, shuffle), chunks_of(nbytes))


@settings(max_examples=25)
@given(st.data())
def test_any_frame(data: st.DataObject) -> None:
    typesize = data.draw(st.sampled_from([1, 2, 3, 4, 7, 8, 12, 16, 17, 32, 255, 300]))
    items = data.draw(st.one_of(st.integers(1, 300), st.integers(1, 20_000)))
    nbytes = min(items * typesize, 200_000) + data.draw(st.sampled_from([0, 0, 0, 1]))
    blocksize = data.draw(st.sampled_from([0, 0, 1, 129, 256, 1000, 4096, 30_000, 65_536, 1 << 20]))
    spec = spec_of(data.draw(st.sampled_from(CNAMES)), data.draw(st.integers(0, 2)), typesize, blocksize)
    frame = frame_of(steps_of([spec], np.zeros(nbytes, np.uint8))[-1])
    if frame is None:
        assert spec.cname == "zlib"
        assert blocksize > STREAM_NBYTES
        return
    if frame.is_chopped:
        assert frame.size.max() <= 4096
        assert stays_on_host(spec, np.zeros(nbytes, np.uint8))
        return
    check(spec, chunks_of(nbytes, data.draw(st.text("szn", min_size=1, max_size=4))))


@pytest.mark.parametrize("dtype", ["u1", "<i2", ">f4", "<c16", "V3", "V17", "V300"])
@pytest.mark.parametrize("shuffle", [-1, 0, 1, 2])
def test_the_codec_of_numcodecs_takes_the_element_size_of_the_data(dtype: str, shuffle: int) -> None:
    values = np.arange(3 * 500 * np.dtype(dtype).itemsize, dtype=np.uint32).astype(np.uint8).view(dtype).reshape(3, 500)
    for config in ({"shuffle": shuffle}, {"cname": "zstd", "clevel": 1, "shuffle": shuffle, "blocksize": 1000}):
        spec = NumcodecsCodec("blosc", config)
        found = encode(EmulatedDevice(), [spec], values)
        for frame, row in zip(found, values, strict=True):
            stored = row.astype(row.dtype.newbyteorder("<"))
            assert bytes(blosc_decompress(frame)) == stored.tobytes()
            theirs = cpu_encoder(Blosc(**{"cname": "lz4", **config}), row.dtype.itemsize)(stored.tobytes())
            ours, theirs = header_of(frame), header_of(bytes(theirs))
            assert (ours.typesize, ours.flags >> 5) == (theirs.typesize, theirs.flags >> 5)
            if not theirs.is_memcpy and theirs.typesize > 1:
                assert ours.flags & 5 == theirs.flags & 5


def test_levels_mean_nothing_but_for_none() -> None:
    chunks = chunks_of(70_000)
    frames = [encode(EmulatedDevice(), [spec_of("lz4", clevel=level)], chunks) for level in (1, 9)]
    assert frames[0] == frames[1]
    device = EmulatedDevice()
    for frame, chunk in zip(encode(device, [spec_of("lz4", clevel=0)], chunks), chunks, strict=True):
        assert header_of(frame).is_memcpy
        assert bytes(blosc_decompress(frame)) == chunk.tobytes()
    assert device.launches == ["copy_streams"]


def test_streams_that_do_not_become_smaller_are_stored_and_so_are_frames() -> None:
    """Three bytes of four are noise: three splits of each block are stored, one is not."""
    mixed = np.random.default_rng(0).integers(0, 256, (2, 1 << 16, 4), np.uint8)
    mixed[:, :, 3] = 7
    for cname in ("lz4", "zlib"):
        for frame in check(spec_of(cname, 1), mixed.reshape(2, -1)):
            assert [len(data) == nbytes for data, nbytes in streams_of(frame)] == [True, True, True, False]
    for frame in check(spec_of("lz4", 1), chunks_of(1 << 18, "nn")):
        assert header_of(frame).is_memcpy


@pytest.mark.parametrize(("cname", "envelope"), [("lz4", 0), ("zlib", 6), ("zstd", 0)])
def test_a_stream_as_long_as_its_bytes_is_stored(cname: str, envelope: int) -> None:
    """Whoever decodes takes a stream of that length for stored bytes."""

    class Padding(EmulatedDevice):
        def encode(self, encoder: str, data: bytes) -> bytes:
            encoded = super().encode(encoder, data)
            return encoded.ljust(len(data) - envelope, b"?") if any(data) else encoded

    chunks = chunks_of(2 * STREAM_NBYTES, "sn")
    chunks[:, :STREAM_NBYTES] = 0
    for frame, chunk in zip(encode(Padding(), [spec_of(cname, 0, 1)], chunks), chunks, strict=True):
        assert bytes(blosc_decompress(frame)) == chunk.tobytes()
        assert len(frame) < 1.1 * STREAM_NBYTES
        assert frame[-STREAM_NBYTES:] == chunk[-STREAM_NBYTES:].tobytes()


def frame_for(cname: str, nbytes: int, typesize: int, blocksize: int = 0) -> Frame | None:
    chunk = ArrayRepr(np.dtype("u1"), (nbytes,))
    return frame_of(prepare([codecs.BytesCodec(), spec_of(cname, 1, typesize, blocksize)], chunk)[-1])


@settings(max_examples=200)
@given(st.sampled_from(CNAMES), st.integers(1, 1 << 26), st.integers(1, 64))
def test_streams_are_about_64_kib(cname: str, items: int, typesize: int) -> None:
    """None is longer; but for the last ones of a chunk none is much shorter, unless the chunk is."""
    nbytes = min(items * typesize, (1 << 27) // typesize * typesize)
    frame = frame_for(cname, nbytes, typesize)
    assert frame is not None
    assert frame.size.sum() == nbytes
    assert frame.size.max() <= STREAM_NBYTES
    assert frame.blocksize in (nbytes, frame.blocksize // (8 * typesize) * 8 * typesize)  # bits of eight elements
    if nbytes > 4 * STREAM_NBYTES * typesize:
        assert np.sort(frame.size)[1] > STREAM_NBYTES // 2
    assert (frame.splits == typesize) == (
        typesize == 1 or (cname != "zstd" and frame.blocksize >= 128 * typesize <= 2048)
    )


@pytest.mark.parametrize("wanted", [1, 100, 129, 512, 1000, 4096, 30_000, 1 << 16, 1 << 18, 1 << 20, 1 << 30])
@pytest.mark.parametrize("typesize", [1, 2, 3, 4, 8, 16, 17, 100])
@pytest.mark.parametrize("cname", ["lz4", "zlib", "zstd"])
def test_the_blocks_asked_for_are_those_of_c_blosc(cname: str, typesize: int, wanted: int) -> None:
    nbytes = typesize * 30_000
    frame = frame_for(cname, nbytes, typesize, wanted)
    made = Blosc(cname, 5, 1, wanted)
    header = header_of(bytes(cpu_encoder(made, typesize)(bytes(nbytes))))
    if frame is None:  # nvCOMP takes no such streams of deflate
        assert cname == "zlib"
        assert header.blocksize > STREAM_NBYTES
    else:
        assert frame.blocksize == header.blocksize
        assert (frame.splits > 1) == (typesize > 1 and not header.flags & 16)


@pytest.mark.parametrize(
    ("cname", "nbytes", "blocksize"),
    [
        ("snappy", 4096, 0),
        ("blosclz", 4096, 0),
        ("zlib", 1 << 22, 1 << 20),  # streams of 256 KiB
        ("zstd", 1 << 25, 1 << 25),
        ("lz4", (1 << 31) - 16, 0),
    ],
)
def test_what_runs_on_the_host(cname: str, nbytes: int, blocksize: int) -> None:
    assert frame_for(cname, nbytes, 4, blocksize) is None


@pytest.mark.parametrize(("cname", "blocksize"), [("lz4", 128), ("zstd", 1000)])
def test_chunks_of_very_many_short_streams_are_written_all_the_same(cname: str, blocksize: int) -> None:
    """Compressors take 32 KiB and more for each stream, however short: for these chunks above the cap."""
    data = np.arange(1 << 18, dtype="f8")
    codec = Blosc(cname, 5, 0, blocksize)
    array = gzarr.create_array(
        {}, data=data[::-1], chunks=data.size, compressor=codec, zarr_format=2, device="emulated"
    )
    array[5:] = data[5:]
    assert np.array_equal(array[5:], data[5:])
    (row,) = (row for row in array.placement if "blosc" in row.step)
    assert row.where == "emulated"  # reads need no such memory
    assert "encoded on the host" in row.why


def test_a_device_without_the_compressor_leaves_it_to_the_host() -> None:
    poor = EmulatedDevice()
    poor.encoders = frozenset({"lz4"})
    assert stays_on_host(spec_of("zstd"), np.zeros(4096, np.uint8), poor)
    assert not stays_on_host(spec_of("zstd"), np.zeros(4096, np.uint8))
