"""A changed payload is an error on the device whenever the format has a checksum, as it is on the CPU."""

import zlib
from typing import Any

import numcodecs
import numpy as np
import pytest
from hypothesis import given

import gzarr
from gzarr import codecs
from gzarr.cpu.codecs.nvcomp import installed
from gzarr.errors import ChunkError, CodecError
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.codecs import checksums
from gzarr.gpu.codecs.transfers import ROOM
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.pipeline.batches import NEVER
from tests.gpu.codecs.encoding import chunks_of, encode, encode_on_host, read_back, spec_of
from tests.gpu.kernels.launching import STREAMS, checksums_of, streams_of

DATA = np.random.default_rng(1).integers(0, 1000, (8, 12)).astype("i4")
#: Name -> keywords, what the device must have launched to see the damage.
CHAINS = {
    "gzip": ({"compressors": codecs.GzipCodec(0)}, "crc32"),
    "zlib": ({"zarr_format": 2, "compressor": numcodecs.Zlib(0)}, "weighted_sums"),
    "zstd": ({"compressors": codecs.ZstdCodec(1, checksum=True)}, "xxh64"),
    "blosc-zlib": ({"compressors": codecs.BloscCodec("zlib", 9)}, "weighted_sums"),
    "crc32": ({"zarr_format": 2, "compressor": numcodecs.CRC32()}, "crc32"),
    "crc32 at the end": ({"zarr_format": 2, "compressor": numcodecs.CRC32(location="end")}, "crc32"),
    "adler32": ({"zarr_format": 2, "compressor": numcodecs.Adler32()}, "weighted_sums"),
    "fletcher32": ({"zarr_format": 2, "compressor": numcodecs.Fletcher32()}, "weighted_sums"),
    "crc32c at the start": ({"compressors": codecs.NumcodecsCodec("crc32c", {"location": "start"})}, "crc32c"),
    "fletcher32, lz4": (
        {"compressors": [codecs.NumcodecsCodec("fletcher32"), codecs.NumcodecsCodec("lz4")]},
        "weighted_sums",
    ),
    "crc32, zstd, adler32": (
        {"compressors": [codecs.NumcodecsCodec("crc32"), codecs.ZstdCodec(1), codecs.NumcodecsCodec("adler32")]},
        "weighted_sums",
    ),
}


@given(STREAMS)
def test_crc32_of_streams_of_any_length_and_alignment(drawn: list[tuple[int, int, str]]) -> None:
    data = streams_of(drawn)
    assert checksums_of("crc32", data) == [zlib.crc32(d.tobytes()) for d in data]


def test_the_first_chunk_that_differs_is_named() -> None:
    items = np.array([5, 2, 9])
    with pytest.raises(CodecError, match="zlib: expected checksum 0x00000002, got 0x00000003") as caught:
        checksums.compare("zlib", items, np.array([1, 2, 4]), np.array([0, 3, 5]))
    assert caught.value.index == 2
    checksums.compare("zlib", items, np.array([1, 2, 4]), np.array([1, 2, 4]))


@pytest.mark.parametrize("chain", CHAINS)
def test_every_change_of_a_chunk_is_seen_or_does_not_matter(chain: str) -> None:
    keywords, kernel = CHAINS[chain]
    stored = gzarr.array(np.tile(DATA, (1, 20)), chunks=(3, 100), store={}, **keywords)
    device = EmulatedDevice()
    z = gzarr.open_array(stored.store, device=GpuBackend(device))
    assert {row.where for row in z.placement} == {"emulated"}
    np.testing.assert_array_equal(z[:], stored[:])
    assert kernel in device.launches
    key = "1.1" if stored.zarr_format == 2 else "c/1/1"
    whole = stored.store[key]
    positions = [*range(min(len(whole), 24)), *range(24, len(whole), 37), *range(len(whole) - 8, len(whole))]
    for position in positions:
        changed = bytearray(whole)
        changed[position] ^= 0x11
        stored.store[key] = bytes(changed)
        try:
            found = z[3:6, 100:200]
        except ChunkError as error:
            assert error.chunk_coords == (1, 1)  # noqa: PT017
            assert error.codec  # noqa: PT017
        else:
            np.testing.assert_array_equal(found, np.tile(DATA, (1, 20))[3:6, 100:200])
    stored.store[key] = whole
    np.testing.assert_array_equal(z[:], np.tile(DATA, (1, 20)))


class Failing(EmulatedDevice):
    """A device on which nvCOMP cannot compute some checksums, and leaves what was in memory before."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self._status = status

    def crc(self, *args: Any) -> Any:
        found = super().crc(*args)
        found.statuses[-1:] = self._status
        return found


@pytest.mark.parametrize("chain", ["crc32", "crc32c at the start", "gzip"])
def test_a_checksum_that_could_not_be_computed_is_an_error_although_memory_holds_the_right_one(chain: str) -> None:
    stored = gzarr.array(DATA, chunks=(8, 3), store={}, **CHAINS[chain][0])
    z = gzarr.open_array(stored.store, device=GpuBackend(Failing(0), small_reads=NEVER, small_writes=NEVER))
    np.testing.assert_array_equal(z[:], DATA)
    z = gzarr.open_array(stored.store, device=GpuBackend(Failing(1000), small_reads=NEVER, small_writes=NEVER))
    before = dict(stored.store)
    with pytest.raises(ChunkError, match="the checksum could not be computed") as caught:
        _ = z[:]
    assert caught.value.chunk_coords == (0, 3)
    with pytest.raises(ChunkError, match="the checksum could not be computed"):
        z[:] = DATA + 1
    assert dict(stored.store) == before


def test_no_data_has_a_checksum_too() -> None:
    stored = gzarr.array(np.zeros((0, 3)), chunks=(1, 3), zarr_format=2, compressor=numcodecs.CRC32())
    assert gzarr.open_array(stored.store, device=GpuBackend(EmulatedDevice()))[:].shape == (0, 3)


# -- codecs that are checksums -----------------------------------------------------------------------------------

CHECKSUMS = [
    codecs.Crc32cCodec(),
    *(spec_of(name) for name in ("crc32c", "crc32", "adler32", "fletcher32")),
    *(spec_of(name, location=at) for name in ("crc32c", "crc32", "adler32") for at in ("start", "end")),
]


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
    packed = [codecs.NvcompSnappyCodec(), *specs] if "snappy" in installed() else [spec_of("lz4"), *specs]
    for where in ("cpu", "emulated"):
        found = encode(EmulatedDevice(), packed, chunks)
        assert np.array_equal(read_back(packed, chunks, found, where), chunks)


def test_compressors_behind_checksums() -> None:
    chunks = chunks_of(1000)
    specs = [codecs.Crc32cCodec(), spec_of("shuffle", elementsize=2), spec_of("zlib"), codecs.Crc32cCodec()]
    found = encode(EmulatedDevice(), specs, chunks)
    for where in ("cpu", "emulated"):
        assert np.array_equal(read_back(specs, chunks, found, where), chunks)
