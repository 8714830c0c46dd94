"""What the device encodes, everyone decodes: numcodecs, the CPU's codecs and the device's own decoders."""

from __future__ import annotations

import ctypes
import gzip
import zlib
from types import SimpleNamespace
from typing import Any

import numcodecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gzarr import codecs
from gzarr.codecs.chain import prepare
from gzarr.codecs.numcodecs import NumcodecsCodec
from gzarr.codecs.nvcomp import BY_NAME
from gzarr.codecs.spec import ArrayRepr
from gzarr.cpu.backend import CpuBackend
from gzarr.cpu.codecs.nvcomp import host_decoders, installed_decoders
from gzarr.errors import CodecError, DeviceError
from gzarr.gpu.codecs.batch import Chunks, Wave
from gzarr.gpu.codecs.compressing import ROOM, as_rows
from gzarr.gpu.codecs.decoders import TABLE
from gzarr.gpu.codecs.encoders import ENCODERS
from gzarr.gpu.device import nvcomp
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.hostbuild import find_compiler
from gzarr.gpu.device.memory import OverLimitError
from gzarr.gpu.device.protocol import Outcome
from tests.gpu.codecs.encoding import bytes_of, chunks_on, encode, encoders_of, read_back, steps_of
from tests.gpu.counted import CountingDevice

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")

INSTALLED = sorted(installed_decoders())


def spec_of(name: str, **config: Any) -> Any:
    return NumcodecsCodec(name, config)


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
    **{f"nvcomp.{name}": (BY_NAME[f"nvcomp.{name}"](), host_decoders()[name]) for name in INSTALLED},
    **{f"nvcomp_batch {name}": (batch_spec(name), host_decoders()[name]) for name in INSTALLED},
}
#: Around the sizes at which something changes, and at no multiple of anything.
SIZES = (1, 7, 255, 256, 4099, 65536, 65537, 131072, 200001)


def chunks_of(nbytes: int) -> np.ndarray:
    """Chunks that compress well, somewhat and not at all: uint8 (4, nbytes)."""
    rng = np.random.default_rng(nbytes)
    smooth = (np.arange(nbytes) // 37 % 251).astype(np.uint8)
    noise = rng.integers(0, 256, nbytes, np.uint8)
    return np.stack([smooth, np.zeros(nbytes, np.uint8), noise, np.where(noise < 40, noise, 3).astype(np.uint8)])


def is_encoded(name: str, nbytes: int) -> bool:
    """Whether the device takes such chunks."""
    return not ("zstd" in name and nbytes < 256) and not ("gdeflate" in name and nbytes > 1 << 16)


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("name", STREAMS)
def test_streams_are_decoded_by_everyone(name: str, nbytes: int) -> None:
    spec, decode = STREAMS[name]
    chunks = chunks_of(nbytes)
    if not is_encoded(name, nbytes):
        assert encoders_of(steps_of([spec], chunks[0]), EmulatedDevice())[-1] is None
        return
    found = encode(EmulatedDevice(), [spec], chunks)
    for data, chunk in zip(found, chunks, strict=True):
        bare = name.startswith("nvcomp") and "lz4" not in name and "zstd" not in name
        assert bytes(decode(data, nbytes) if bare else decode(data)) == chunk.tobytes()
    for where in ("cpu", "emulated"):
        assert np.array_equal(read_back([spec], chunks, found, where), chunks)


def test_envelopes_hold_what_their_formats_say() -> None:
    chunks = chunks_of(5000)
    for data, chunk in zip(encode(EmulatedDevice(), [codecs.GzipCodec()], chunks), chunks, strict=True):
        assert data[:4] == b"\x1f\x8b\x08\0"
        assert data[-8:-4] == zlib.crc32(chunk).to_bytes(4, "little")
        assert data[-4:] == (5000).to_bytes(4, "little")
    for data, chunk in zip(encode(EmulatedDevice(), [spec_of("zlib")], chunks), chunks, strict=True):
        assert int.from_bytes(data[:2], "big") % 31 == 0
        assert data[-4:] == zlib.adler32(chunk).to_bytes(4, "big")


@settings(max_examples=15)
@given(st.integers(256, 70000), st.integers(1, 5), st.sampled_from(sorted(STREAMS)), st.integers(0, 99))
def test_chunks_of_any_size_and_number(nbytes: int, n: int, name: str, seed: int) -> None:
    if not is_encoded(name, nbytes):
        return
    rng = np.random.default_rng(seed)
    chunks = np.repeat(rng.integers(0, 9, (n, nbytes), np.uint8), rng.integers(1, 9), axis=1)[:, :nbytes]
    found = encode(EmulatedDevice(), [STREAMS[name][0]], chunks)
    assert np.array_equal(read_back([STREAMS[name][0]], chunks, found, "emulated"), chunks)


# -- checksums -------------------------------------------------------------------------------------------------------

CHECKSUMS = [
    codecs.Crc32cCodec(),
    *(spec_of(name) for name in ("crc32c", "crc32", "adler32", "fletcher32")),
    *(spec_of(name, location=at) for name in ("crc32c", "crc32", "adler32") for at in ("start", "end")),
]


def encode_on_host(specs: list[Any], chunks: np.ndarray) -> list[bytes]:
    """What the CPU's codecs make."""
    steps = steps_of(specs, chunks[0])
    chain = CpuBackend().prepare(steps, ArrayRepr(chunks.dtype, chunks[0].shape))
    return [bytes(memoryview(data)) for data in chain.encode(list(chunks))]


@pytest.mark.parametrize("nbytes", [1, 5, 4099, 65536])
@pytest.mark.parametrize("spec", CHECKSUMS, ids=str)
def test_checksums_are_those_of_the_host(spec: Any, nbytes: int) -> None:
    chunks = chunks_of(nbytes)
    assert encode(EmulatedDevice(), [spec], chunks) == encode_on_host([spec], chunks)
    compressed = encode(EmulatedDevice(), [spec_of("lz4"), spec], chunks)
    plain = encode(EmulatedDevice(), [spec_of("lz4")], chunks)
    assert compressed == encode_on_host_bytes(spec, plain)
    for where in ("cpu", "emulated"):
        assert np.array_equal(read_back([spec_of("lz4"), spec], chunks, compressed, where), chunks)


def encode_on_host_bytes(spec: Any, items: list[bytes]) -> list[bytes]:
    return [encode_on_host([spec], np.frombuffer(data, np.uint8)[None])[0] for data in items]


def test_checksums_upon_checksums_find_room() -> None:
    """The room behind a chunk lasts for some; then chunks move. Others stand before their data."""
    chunks = chunks_of(1001)
    specs = [spec_of("fletcher32")] * 2 + [spec_of("crc32")] + [codecs.Crc32cCodec()] * (ROOM // 4 + 2)
    assert encode(EmulatedDevice(), specs, chunks) == encode_on_host(specs, chunks)
    packed = [codecs.NvcompSnappyCodec(), *specs] if "snappy" in INSTALLED else [spec_of("lz4"), *specs]
    for where in ("cpu", "emulated"):
        found = encode(EmulatedDevice(), packed, chunks)
        assert np.array_equal(read_back(packed, chunks, found, where), chunks)


def test_compressors_behind_checksums() -> None:
    chunks = chunks_of(1000)
    specs = [codecs.Crc32cCodec(), spec_of("shuffle", elementsize=2), spec_of("zlib"), codecs.Crc32cCodec()]
    found = encode(EmulatedDevice(), specs, chunks)
    for where in ("cpu", "emulated"):
        assert np.array_equal(read_back(specs, chunks, found, where), chunks)


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
def test_a_wave_takes_few_launches_and_one_wait(specs: list[Any], launches: list[str], waits: int) -> None:
    for n in (1, 50):
        device = CountingDevice(EmulatedDevice())
        encode(device, specs, np.repeat(chunks_of(40000)[:1], n, axis=0))
        assert (device.launches, len(device.down)) == (launches, waits)


@pytest.mark.parametrize("spec", [codecs.ZstdCodec(), codecs.BloscCodec("lz4"), spec_of("zlib")], ids=str)
def test_all_memory_is_the_lane_s(spec: Any) -> None:
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


class FailingDevice(EmulatedDevice):
    """An encoder that fails for some streams, or answers oddly."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.change = change

    def compress(self, *args: Any) -> Outcome:
        outcome = super().compress(*args)
        self.change(SimpleNamespace(statuses=outcome.statuses, sizes=outcome.sizes, target=args[3]))
        return outcome


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


def test_the_emulated_device_refuses_what_nvcomp_refuses() -> None:
    device = EmulatedDevice()
    memory = device.upload(np.zeros(1 << 18, np.uint8))
    at = np.array([device.address(memory)])
    at += -at % 16
    n, out = np.array([4096]), at + (1 << 17)
    room = device.compress_max_nbytes("zstd", 4096)
    device.compress("zstd", at, n, out, room)
    with pytest.raises(DeviceError, match=r"outputs of \d+ bytes for chunks of 4096, which may take"):
        device.compress("zstd", at, n, out, room - 1)
    with pytest.raises(DeviceError, match="a chunk is not aligned to 4 bytes"):
        device.compress("zstd", at + 2, n, out, room)
    with pytest.raises(DeviceError, match="an output is not aligned to 8 bytes"):
        device.compress("deflate", at, n, out + 4, 4 * room)
    with pytest.raises(DeviceError, match="a batch of 0 streams"):
        device.compress("zstd", at[:0], n[:0], out[:0], room)
    with pytest.raises(DeviceError, match="cannot compress a chunk of 65537 bytes; the limit is 65536"):
        device.compress("deflate", at, np.array([65537]), out, 1 << 20)


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
    chunk = ArrayRepr(np.dtype("u1"), (nbytes,))
    assert encoders_of(prepare([codecs.BytesCodec(), spec], chunk), EmulatedDevice())[-1] is None


def test_compressors_of_what_varies_in_size_run_on_the_host() -> None:
    steps = steps_of([codecs.ZstdCodec(), codecs.GzipCodec()], np.zeros(4096, "u1"))
    assert [encoder is None for encoder in encoders_of(steps, EmulatedDevice())] == [False, False, True]


def test_what_is_decoded_on_the_device_can_be_encoded_there() -> None:
    assert set(ENCODERS) == set(TABLE)


# -- formats that no host library makes ------------------------------------------------------------------------------


class StandIn(EmulatedDevice):
    """Has encoders of formats that no host makes: their streams are the chunks with some bytes around them."""

    def __init__(self) -> None:
        super().__init__()
        self.typesizes: list[int] = []

    def encoders(self) -> frozenset[str]:
        return super().encoders() | {"ans", "bitcomp", "cascaded"}

    def encode(self, encoder: str, data: bytes) -> bytes:
        return b"<" + data + b">"

    def compress(self, *args: Any) -> Outcome:
        self.typesizes.append(args[-1])
        return super().compress(*args)


@pytest.mark.parametrize("dtype", ["u1", "<i2", ">f4", "<f8", "<c16", "V3"])
@pytest.mark.parametrize("algorithm", ["ans", "bitcomp", "cascaded"])
def test_encoders_of_numbers_get_whole_aligned_numbers(algorithm: str, dtype: str) -> None:
    values = np.arange(3 * 37 * np.dtype(dtype).itemsize, dtype=np.uint8).view(dtype).reshape(3, 37)
    device = StandIn()
    found = encode(device, [BY_NAME[f"nvcomp.{algorithm}"]()], values)
    stored = values.astype(values.dtype.newbyteorder("<"))
    assert found == [b"<" + row.tobytes() + b">" for row in stored]
    itemsize = np.dtype(dtype).itemsize
    typed = algorithm != "ans" and itemsize in (2, 4, 8)
    assert device.typesizes == [itemsize if typed else 1]
    assert nvcomp.CODECS[algorithm].compress_bound(values[0].nbytes) > values[0].nbytes


# -- small things ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["<i4", ">i4", "u1"])
@pytest.mark.parametrize("endian", ["little", "big", None])
def test_bytes_behind_filters_swaps(endian: str | None, dtype: str) -> None:
    values = (np.arange(60).reshape(3, 20) * 77).astype(dtype)
    specs = [spec_of("delta", dtype=dtype), codecs.BytesCodec(endian)]
    assert encode(EmulatedDevice(), specs, values) == encode_on_host(specs, values)


def test_chunks_that_lie_apart_become_rows() -> None:
    device = EmulatedDevice()
    chunks = chunks_on(device, chunks_of(99))
    apart = Chunks(chunks.owner, chunks.addresses[::2], 99)
    rows = as_rows(Wave(device), apart)
    assert np.array_equal(rows, chunks_of(99)[::2])
    assert bytes_of(Wave(device), chunks) == [row.tobytes() for row in chunks_of(99)]
