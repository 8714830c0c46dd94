"""Real frames of every codec, decoded on CUDA: of numcodecs, zlib and zstd, whole arrays and bare streams."""

import zlib
from typing import Any

import numpy as np
import pytest
from numcodecs import LZ4, Blosc, Delta, FixedScaleOffset, GZip, PackBits, Quantize, Shuffle, Zlib, Zstd

import gzarr
from gzarr.gpu.device.nvcomp_tables import CODECS
from tests.gpu.hardware.opening import on_cuda, pipeline_slot_of

pytestmark = pytest.mark.gpu

SHUFFLES = {"": Blosc.NOSHUFFLE, " byte": Blosc.SHUFFLE, " bit": Blosc.BITSHUFFLE}
COMPRESSORS: dict[str, Any] = {
    **{
        f"blosc {name}{how}": Blosc(name, 5, shuffle)
        for name in ("lz4", "lz4hc", "zstd", "zlib", "blosclz")
        for how, shuffle in SHUFFLES.items()
    },
    "none": None,
    "lz4": LZ4(),
    "zlib": Zlib(),
    "gzip": GZip(),
    "zstd": Zstd(3),
    "zstd, checksum": Zstd(3, checksum=True),
}


def field(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Smooth data with noise in its last digits, as measurements have."""
    rows = np.add.outer(*(np.sin(np.linspace(0, 20, n)) for n in shape))
    noise = np.random.default_rng(0).normal(0, 0.01, shape)
    return (1000 * (rows + noise)).astype(dtype)


@pytest.mark.parametrize("dtype", ["f4", "i2", "u1", ">f8"])
@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_arrays(cuda: Any, compressor: str, dtype: str) -> None:
    data = field((311, 257), dtype)
    for chunks in ((64, 64), (311, 257), (10, 300)):
        stored = gzarr.create_array(data=data, chunks=chunks, compressor=COMPRESSORS[compressor], zarr_format=2)
        array = on_cuda(stored, cuda)
        for key in (np.s_[:], np.s_[3:200:7, ::-2], np.s_[17, 5:90]):
            np.testing.assert_array_equal(cuda.cupy.asnumpy(array[key]), data[key])
        rows, columns = np.arange(0, 311, 3), np.arange(0, 208, 2)
        np.testing.assert_array_equal(array.vindex[rows, columns].get(), data[rows, columns])


@pytest.mark.parametrize(
    ("filters", "dtype"),
    [
        ([Delta("i4")], "i4"),
        ([Delta("i4"), Shuffle(4)], "i4"),
        ([FixedScaleOffset(offset=0, scale=10, dtype="f8", astype="i4")], "f8"),
        ([Quantize(3, "f8", "f4")], "f8"),
        ([PackBits()], "bool"),
    ],
    ids=str,
)
def test_filters(cuda: Any, filters: list[Any], dtype: str) -> None:
    stored = gzarr.create_array(
        data=field((100, 90), dtype), chunks=(30, 30), filters=filters, compressor=Zlib(), zarr_format=2
    )
    np.testing.assert_array_equal(
        on_cuda(stored, cuda)[:].get(), gzarr.open_array(stored.store, mode="r", device="cpu")[:]
    )


def test_shards_with_checksums(cuda: Any) -> None:
    data = field((300, 200), "f4")
    codecs = [gzarr.codecs.BytesCodec(), gzarr.codecs.ZstdCodec(3), gzarr.codecs.Crc32cCodec()]
    stored = gzarr.create_array(
        data=data, chunks=(150, 100), codecs=[gzarr.codecs.ShardingCodec((50, 50), codecs=codecs)]
    )
    np.testing.assert_array_equal(on_cuda(stored, cuda)[:].get(), data)


def bare_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


BARE = {
    "lz4": lambda data: bytes(LZ4().encode(data))[4:],
    "zstd": lambda data: bytes(Zstd(3).encode(data)),
    "deflate": bare_deflate,
}


@pytest.mark.parametrize("n", [1, 7, 300])
@pytest.mark.parametrize("decoder", BARE)
def test_bare_streams(cuda: Any, decoder: str, n: int) -> None:
    """Of 1 byte to 1 MiB, at addresses of the least alignment that the decoder is said to take."""
    device, rng = cuda.CudaDevice(), np.random.default_rng(n)
    plain = [np.repeat(rng.integers(0, 99, size // 4 + 1, np.uint8), 4)[:size].tobytes() for size in sizes(rng, n)]
    packed = [BARE[decoder](data) for data in plain]
    step = CODECS[decoder].alignment.input
    places = np.cumsum([0, *(-(-(len(p) + 1) // step) * step + step for p in packed)])
    staging_buffer = np.zeros(places[-1] + 64, np.uint8)
    for data, at in zip(packed, places[:-1], strict=True):
        staging_buffer[at : at + len(data)] = np.frombuffer(data, np.uint8)
    capacity = np.array([len(p) for p in plain], np.int64)
    targets = np.cumsum([0, *capacity])
    with pipeline_slot_of(device):
        source, out = device.upload(staging_buffer), device.empty(int(targets[-1]) + 64)
        nbytes = np.array([len(p) for p in packed], np.int64)
        tables = device.address(source) + places[:-1], nbytes, device.address(out) + targets[:-1], capacity
        outcome = device.decompress(decoder, *tables)
        assert device.download(outcome.statuses).tolist() == [0] * n
        assert device.download(outcome.sizes).tolist() == capacity.tolist()
        assert device.download(out)[: targets[-1]].tobytes() == b"".join(plain)


def sizes(rng: np.random.Generator, n: int) -> list[int]:
    return [1 << 20] if n == 1 else [1, *(int(2**x) for x in rng.uniform(0, 18, n - 1))]


def test_checksums(cuda: Any) -> None:
    device, data = cuda.CudaDevice(), np.arange(1000, dtype=np.uint8)
    import google_crc32c

    starts, nbytes = np.array([0, 1, 3, 500]), np.array([1000, 0, 17, 500])
    with pipeline_slot_of(device):
        there = device.upload(data)
        crc32c, crc32 = (device.crc(kind, device.address(there) + starts, nbytes) for kind in ("crc32c", "crc32"))
        found, plain = device.download(crc32c.sums), device.download(crc32.sums)
        assert not device.download(crc32c.statuses).any()
        assert not device.download(crc32.statuses).any()
    ranges = [data[a : a + n].tobytes() for a, n in zip(starts, nbytes, strict=True)]
    assert found.tolist() == [google_crc32c.value(each) for each in ranges]
    assert plain.tolist() == [zlib.crc32(each) for each in ranges]
