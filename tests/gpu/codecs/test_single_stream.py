"""Streams that the device makes are decoded by numcodecs, the CPU's codecs and the device's own decoders."""

import ctypes
import gzip
import zlib
from typing import Any

import numcodecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gzarr import codecs
from gzarr.codecs.nvcomp import BY_NAME
from gzarr.cpu.codecs.nvcomp import ALGORITHMS, installed
from gzarr.errors import CodecError
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.memory import OverLimitError
from tests.gpu.codecs.encoding import (
    FailingDevice,
    chunks_of,
    encode,
    encoders_of,
    read_back,
    spec_of,
    stays_on_host,
    steps_of,
)
from tests.gpu.counted import CountingDevice

INSTALLED = sorted(installed())


def batch_spec(algorithm: str) -> Any:
    return spec_of("nvcomp_batch", algorithm=algorithm)


#: Codecs of one stream a chunk, and how others decode them.
STREAMS: dict[str, tuple[Any, Any]] = {
    "zstd": (codecs.ZstdCodec(3), numcodecs.Zstd().decode),
    "gzip": (codecs.GzipCodec(5), gzip.decompress),
    "numcodecs.zstd": (spec_of("zstd", level=1), numcodecs.Zstd().decode),
    "numcodecs.gzip": (spec_of("gzip", level=1), numcodecs.GZip().decode),
    "numcodecs.zlib": (spec_of("zlib", level=1), numcodecs.Zlib().decode),
    "numcodecs.lz4": (spec_of("lz4", acceleration=1), numcodecs.LZ4().decode),
    "nvcomp_batch lz4": (batch_spec("lz4"), numcodecs.LZ4().decode),
    "nvcomp_batch zstd": (batch_spec("Zstd"), numcodecs.Zstd().decode),
    **{f"nvcomp.{name}": (BY_NAME[f"nvcomp.{name}"](), ALGORITHMS[name].decode) for name in INSTALLED},
    **{f"nvcomp_batch {name}": (batch_spec(name), ALGORITHMS[name].decode) for name in INSTALLED},
}
#: Around the sizes at which something changes, and at no multiple of anything.
SIZES = (1, 7, 255, 256, 4099, 65536, 65537, 131072, 200001)


def is_encoded(name: str, nbytes: int) -> bool:
    """Whether the device takes such chunks."""
    return not ("zstd" in name and nbytes < 256) and not ("gdeflate" in name and nbytes > 1 << 16)


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("name", STREAMS)
def test_streams_are_decoded_by_everyone(name: str, nbytes: int) -> None:
    spec, decode = STREAMS[name]
    chunks = chunks_of(nbytes)
    if not is_encoded(name, nbytes):
        assert stays_on_host(spec, chunks[0])
        return
    found = encode(EmulatedDevice(), [spec], chunks)
    for data, chunk in zip(found, chunks, strict=True):
        bare = name.startswith("nvcomp") and "lz4" not in name and "zstd" not in name
        assert bytes(decode(data, nbytes) if bare else decode(data)) == chunk.tobytes()
    for where in ("cpu", "emulated"):
        assert np.array_equal(read_back([spec], chunks, found, where), chunks)


@settings(max_examples=15)
@given(st.integers(256, 70000), st.integers(1, 5), st.sampled_from(sorted(STREAMS)), st.integers(0, 99))
def test_chunks_of_any_size_and_number(nbytes: int, n: int, name: str, seed: int) -> None:
    if not is_encoded(name, nbytes):
        return
    rng = np.random.default_rng(seed)
    chunks = np.repeat(rng.integers(0, 9, (n, nbytes), np.uint8), rng.integers(1, 9), axis=1)[:, :nbytes]
    found = encode(EmulatedDevice(), [STREAMS[name][0]], chunks)
    assert np.array_equal(read_back([STREAMS[name][0]], chunks, found, "emulated"), chunks)


def test_envelopes_hold_what_their_formats_say() -> None:
    chunks = chunks_of(5000)
    for data, chunk in zip(encode(EmulatedDevice(), [codecs.GzipCodec()], chunks), chunks, strict=True):
        assert data[:4] == b"\x1f\x8b\x08\0"
        assert data[-8:-4] == zlib.crc32(chunk).to_bytes(4, "little")
        assert data[-4:] == (5000).to_bytes(4, "little")
    for data, chunk in zip(encode(EmulatedDevice(), [spec_of("zlib")], chunks), chunks, strict=True):
        assert int.from_bytes(data[:2], "big") % 31 == 0
        assert data[-4:] == zlib.adler32(chunk).to_bytes(4, "big")


def test_gzip_members_of_another_form_are_refused() -> None:
    def name_a_file(found: Any) -> None:
        ctypes.memset(int(found.target[1]) + 3, 8, 1)

    with pytest.raises(CodecError, match=r"zlib: nvCOMP made a gzip member that is not understood") as caught:
        encode(FailingDevice(name_a_file), [spec_of("zlib")], chunks_of(100_000))
    assert caught.value.index == 1

    def empty(found: Any) -> None:
        found.sizes[2] = 18

    with pytest.raises(CodecError, match=r"zlib: nvCOMP made a gzip member that is not understood") as caught:
        encode(FailingDevice(empty), [spec_of("zlib")], chunks_of(100_000))
    assert caught.value.index == 2


# -- launches, waits, memory -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("specs", "launches", "waits"),
    [
        ([codecs.ZstdCodec()], ["compress zstd"], 1),
        ([spec_of("lz4")], ["compress lz4", "copy_streams"], 1),
        ([codecs.GzipCodec()], ["crc32", "compress deflate", "copy_streams"], 1),
        ([spec_of("zlib")], ["weighted_sums", "compress deflate", "copy_streams"], 1),
        ([codecs.BloscCodec("lz4", shuffle="shuffle", typesize=4)], ["shuffle", "compress lz4", "copy_streams"], 1),
        ([codecs.BloscCodec("zstd", shuffle="noshuffle", typesize=4)], ["compress zstd", "copy_streams"], 1),
        (
            [codecs.BloscCodec("zlib", shuffle="bitshuffle", typesize=4)],
            ["shuffle", "weighted_sums", "compress deflate", "copy_streams"],
            1,
        ),
        ([codecs.ZstdCodec(), codecs.Crc32cCodec()], ["compress zstd", "crc32c", "copy_streams"], 1),
        ([codecs.Crc32cCodec()], ["crc32c", "copy_streams"], 0),
        ([spec_of("adler32")], ["weighted_sums", "copy_streams"], 1),
        ([], [], 0),
    ],
    ids=str,
)
def test_a_batch_takes_few_launches_and_one_wait(specs: list[Any], launches: list[str], waits: int) -> None:
    for n in (1, 50):
        device = CountingDevice(EmulatedDevice())
        encode(device, specs, np.repeat(chunks_of(40000)[:1], n, axis=0))
        assert (device.launches, len(device.down)) == (launches, waits)


@pytest.mark.parametrize("spec", [codecs.ZstdCodec(), codecs.BloscCodec("lz4"), spec_of("zlib")], ids=str)
def test_all_memory_is_the_pipeline_slot_s(spec: Any) -> None:
    chunks = chunks_of(1 << 16)
    device = EmulatedDevice()
    encode(device, [spec], chunks)
    assert device.memory.peak >= chunks.nbytes
    with pytest.raises(OverLimitError):
        encode(EmulatedDevice(), [spec], chunks, limit=int(1.5 * chunks.nbytes))


def test_payload_does_not_leave_the_device() -> None:
    device = EmulatedDevice()
    downloaded = []

    def download_all(arrays: Any) -> Any:
        downloaded.extend(array.nbytes for array in arrays)
        return EmulatedDevice.download_all(device, arrays)

    device.download_all = device.download = download_all
    chunks = np.repeat(chunks_of(1 << 16), 5, axis=0)
    encode(device, [codecs.BloscCodec("lz4", typesize=4, shuffle="shuffle"), codecs.Crc32cCodec()], chunks)
    assert 0 < sum(downloaded) < chunks.nbytes // 1000


# -- what fails ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "name", "streams"),
    [(codecs.ZstdCodec(), "zstd", 1), (spec_of("lz4"), "numcodecs.lz4", 1), (codecs.BloscCodec("zstd"), "blosc", 4)],
)
def test_what_is_not_compressed_is_named(spec: Any, name: str, streams: int) -> None:
    chunks = chunks_of(streams << 16)

    def fail(found: Any) -> None:
        found.statuses[2 * streams + streams // 2] = 19
        found.statuses[-1] = 10

    with pytest.raises(CodecError, match=rf"{name}: .*not be compressed.*nvCOMP status 19") as caught:
        encode(FailingDevice(fail), [spec], chunks)
    assert (caught.value.index, caught.value.codec) == (2, name)

    def grow(found: Any) -> None:
        found.sizes[-1] = 1 << 30

    with pytest.raises(CodecError, match=rf"{name}: .*1073741824 bytes, but \d+ is the most") as caught:
        encode(FailingDevice(grow), [spec], chunks)
    assert caught.value.index == 3


# -- what the device does not take -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "nbytes"),
    [
        (codecs.ZstdCodec(checksum=True), 4096),
        (spec_of("zstd", level=1, checksum=True), 4096),
        (codecs.ZstdCodec(), (1 << 24) + 1),
        (spec_of("lz4"), (1 << 24) + 1),
        (codecs.NvcompSnappyCodec(), (1 << 24) + 1),
        (codecs.NvcompGdeflateCodec(), (1 << 16) + 1),
        (codecs.NvcompAnsCodec(), 4096),
        (batch_spec("unheard of"), 4096),
        (spec_of("crc32", location="middle"), 4096),
        (spec_of("jenkins_lookup3"), 4096),
        (spec_of("shuffle", elementsize=3), 4096),
        (spec_of("bz2"), 4096),
    ],
    ids=str,
)
def test_what_runs_on_the_host(spec: Any, nbytes: int) -> None:
    assert stays_on_host(spec, np.zeros(nbytes, "u1"))


def test_compressors_of_what_varies_in_size_run_on_the_host() -> None:
    steps = steps_of([codecs.ZstdCodec(), codecs.GzipCodec()], np.zeros(4096, "u1"))
    assert [isinstance(encoder, str) for encoder in encoders_of(steps, EmulatedDevice())] == [False, False, True]
