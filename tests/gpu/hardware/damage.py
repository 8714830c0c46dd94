"""Damaged input on CUDA; run by `test_hardware_damage.py`, each test in a process of its own."""

from typing import Any

import numpy as np
import pytest
from numcodecs import LZ4, Blosc, GZip, Zlib, Zstd

import gzarr
from gzarr.gpu.backend import GpuBackend
from tests.contracts.test_backend import test_a_damaged_chunk_is_named_by_its_position  # noqa: F401
from tests.gpu.hardware.opening import cuda_backend, on_cuda

pytestmark = pytest.mark.gpu
DATA = np.random.default_rng(0).integers(0, 1000, (53, 41)).astype("i4")
CODECS = {
    "none": None,
    "zstd": Zstd(3),
    "blosc-lz4": Blosc("lz4", 5, Blosc.SHUFFLE),
    "blosc-zstd": Blosc("zstd", 5, Blosc.SHUFFLE),
    "lz4": LZ4(),
    "zlib": Zlib(),
    "gzip": GZip(),
}


@pytest.fixture
def backend(cuda: Any) -> GpuBackend:
    return cuda_backend(cuda)


@pytest.mark.parametrize("codec", CODECS)
def test_a_truncated_chunk_is_named_and_the_device_goes_on(cuda: Any, codec: str) -> None:
    stored = gzarr.create_array(data=DATA, chunks=(10, 7), compressor=CODECS[codec])
    good = stored.store["c/2/3"]
    stored.store["c/2/3"] = good[: len(good) // 2]
    array = on_cuda(stored, cuda)
    with pytest.raises(gzarr.ChunkError, match=r"c/2/3.*\(2, 3\)"):
        array[:]
    stored.store["c/2/3"] = good
    np.testing.assert_array_equal(array[:].get(), DATA)


def test_flipped_bits_of_lz4_give_an_error_or_a_result_and_the_device_goes_on(cuda: Any) -> None:
    """nvCOMP promises a status for damaged input for LZ4 alone."""
    stored = gzarr.create_array(data=DATA, chunks=(10, 7), compressor=Blosc("lz4", 5, Blosc.NOSHUFFLE))
    array = on_cuda(stored, cuda)
    good, rng = stored.store["c/2/3"], np.random.default_rng(1)
    for _ in range(50):
        bad = np.frombuffer(good, np.uint8).copy()
        bad[rng.integers(16, bad.size)] ^= 1 << rng.integers(0, 8)
        stored.store["c/2/3"] = bad.tobytes()
        try:
            array[:]
        except gzarr.ChunkError as error:
            assert error.chunk_coords == (2, 3)  # noqa: PT017
    stored.store["c/2/3"] = good
    np.testing.assert_array_equal(array[:].get(), DATA)
