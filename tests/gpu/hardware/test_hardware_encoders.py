"""Chunks encoded on CUDA are decoded on the host, by libraries that know nothing of a GPU, and on the device."""

import zlib
from typing import Any

import numpy as np
import pytest
from numcodecs.blosc import decompress as blosc_decompress

from gzarr import codecs
from gzarr.codecs.numcodecs import NumcodecsCodec
from gzarr.codecs.nvcomp import BY_NAME
from gzarr.cpu.codecs.frames import content_size
from gzarr.cpu.codecs.nvcomp import installed
from gzarr.gpu.device import nvcomp
from gzarr.gpu.device.nvcomp_tables import CODECS, bound_compress_temp_nbytes
from tests.gpu.codecs.encoding import copied_bytes_of, encode, encode_on_host, read_back
from tests.gpu.hardware.opening import cuda_backend, pipeline_slot_of
from tests.gpu.kernels.reference import header_of

pytestmark = pytest.mark.gpu

CNAMES = {"lz4": 1, "lz4hc": 1, "zlib": 3, "zstd": 4}
STREAMS: dict[str, Any] = {
    "zstd": codecs.ZstdCodec(),
    "gzip": codecs.GzipCodec(),
    "lz4": NumcodecsCodec("lz4", {}),
    "zlib": NumcodecsCodec("zlib", {}),
    **{f"nvcomp.{name}": BY_NAME[f"nvcomp.{name}"]() for name in sorted(installed())},
}
SIZES = (256, 4099, 65536, 65537, 200_000)


def samples(nbytes: int) -> np.ndarray:
    """Chunks that compress well, somewhat and not at all: uint8 (5, nbytes)."""
    rng = np.random.default_rng(nbytes)
    smooth = (np.arange(-(-nbytes // 4), dtype=np.int32) * 3 // 7).view(np.uint8)[:nbytes]
    noise = rng.integers(0, 256, nbytes, np.uint8)
    sparse = np.where(noise < 20, noise, 0).astype(np.uint8)
    return np.stack([smooth, np.zeros(nbytes, np.uint8), noise, sparse, smooth[::-1]])


def encode_on(cuda: Any, specs: list[Any], chunks: np.ndarray) -> list[bytes]:
    return encode(cuda.CudaDevice(), specs, chunks, fetch=copied_bytes_of)


def check(cuda: Any, specs: list[Any], chunks: np.ndarray) -> list[bytes]:
    """The host and the device decode what the device encoded. Returns: the encoded chunks."""
    found = encode_on(cuda, specs, chunks)
    for where in ("cpu", cuda_backend(cuda)):
        assert np.array_equal(read_back(specs, chunks, found, where), chunks)
    return found


@pytest.mark.parametrize("name", STREAMS)
def test_encoded_streams(cuda: Any, name: str) -> None:
    page = CODECS["gdeflate"].max_compress_nbytes
    for nbytes in SIZES:
        if name != "nvcomp.gdeflate" or nbytes <= page:
            check(cuda, [STREAMS[name]], samples(nbytes))
            check(cuda, [STREAMS[name], codecs.Crc32cCodec()], samples(nbytes)[:1])


@pytest.mark.parametrize("shuffle", [0, 1, 2])
@pytest.mark.parametrize("cname", CNAMES)
def test_encoded_blosc_frames(cuda: Any, cname: str, shuffle: int) -> None:
    for nbytes, typesize, blocksize in ((1 << 18, 4, 0), (70_004, 2, 0), (40_000, 8, 4096), (999, 3, 0)):
        spec = codecs.BloscCodec(cname, 5, shuffle, typesize, blocksize)
        chunks = samples(nbytes)
        for frame, chunk in zip(check(cuda, [spec], chunks), chunks, strict=True):
            assert bytes(blosc_decompress(frame)) == chunk.tobytes()
            header = header_of(frame)
            assert (header.nbytes, header.cbytes, header.flags >> 5) == (nbytes, len(frame), CNAMES[cname])
            assert chunk.any() or len(frame) < nbytes // 2


@pytest.mark.parametrize("nbytes", [1, 1001, 1 << 17])
def test_checksums_are_those_of_the_host(cuda: Any, nbytes: int) -> None:
    chunks = samples(nbytes)
    for spec in (codecs.Crc32cCodec(), *(NumcodecsCodec(name, {}) for name in ("crc32", "adler32", "fletcher32"))):
        assert encode_on(cuda, [spec], chunks) == encode_on_host([spec], chunks)


FILTERS: list[tuple[Any, str]] = [
    (NumcodecsCodec("delta", {"dtype": "<i4"}), "<i4"),
    (NumcodecsCodec("delta", {"dtype": ">u2"}), ">u2"),
    (NumcodecsCodec("delta", {"dtype": "<f8"}), "<f8"),
    (NumcodecsCodec("fixedscaleoffset", {"offset": -1.5, "scale": 37, "dtype": "<f8"}), "<f8"),
    (NumcodecsCodec("quantize", {"digits": 3, "dtype": "<f8"}), "<f8"),
    (NumcodecsCodec("bitround", {"keepbits": 7}), "<f4"),
    (NumcodecsCodec("bitround", {"keepbits": 3}), "<f2"),
    (NumcodecsCodec("packbits", {}), "?"),
    (NumcodecsCodec("astype", {"encode_dtype": "<f4", "decode_dtype": "<i8"}), "<i8"),
    (NumcodecsCodec("shuffle", {"elementsize": 8}), "<f8"),
    (codecs.ScaleOffsetCodec(offset=3.25, scale=7), "<f8"),
    (codecs.CastValueCodec("float64"), "<u4"),
]


@pytest.mark.parametrize(("spec", "dtype"), FILTERS, ids=str)
def test_encoding_filters_give_the_bytes_of_the_host(cuda: Any, spec: Any, dtype: str) -> None:
    rng = np.random.default_rng(3)
    values = rng.integers(0, 2, (3, 40, 24)) if dtype == "?" else rng.normal(0, 100, (3, 40, 24))
    chunks = abs(values).astype(dtype) if "u" in dtype else values.astype(dtype)
    if dtype == "<f8":
        chunks[0, 0, :6] = [5e-324, 1e-310, -0.0, 2.5, 3.5, 1e300]
    assert encode_on(cuda, [spec], chunks) == encode_on_host([spec], chunks)


def test_frames_are_plain(cuda: Any) -> None:
    """Zstandard frames hold their content size; gzip is one member, however large the chunk."""
    for nbytes in SIZES:
        found = encode_on(cuda, [codecs.ZstdCodec()], samples(nbytes))
        assert [content_size(data) for data in found] == [nbytes] * len(found)
        for data in encode_on(cuda, [codecs.GzipCodec()], samples(nbytes)):
            decoder = zlib.decompressobj(31)
            assert len(decoder.decompress(data)) == nbytes
            assert decoder.eof
            assert decoder.unused_data == b""


@pytest.mark.parametrize("dtype", ["u1", "<i2", "<f4", "<f8"])
@pytest.mark.parametrize("algorithm", ["ans", "bitcomp", "cascaded"])
def test_formats_that_only_a_gpu_has(cuda: Any, algorithm: str, dtype: str) -> None:
    spec = BY_NAME[f"nvcomp.{algorithm}"]()
    for nbytes in (1000, 65536, 200_000):
        chunks = samples(nbytes).view(dtype)
        found = encode_on(cuda, [spec], chunks)
        back = read_back([spec], chunks, found, cuda_backend(cuda))
        assert back.tobytes() == chunks.tobytes()


@pytest.mark.parametrize("n", [1, 100])
def test_scratch_for_zstd_is_what_the_tables_guess_or_less(cuda: Any, n: int) -> None:
    device = cuda.CudaDevice()
    with pipeline_slot_of(device):
        for nbytes in (1 << 12, 1 << 16, 1 << 20):
            asked = nvcomp.compress_temp_nbytes("zstd", n, nbytes, n * nbytes)
            assert asked <= bound_compress_temp_nbytes("zstd", n, nbytes)
