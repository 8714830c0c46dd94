"""The bytes that a write moves between host and device: none twice, and none that is not needed."""

import numpy as np
import pytest

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.pipeline.batches import NEVER
from gzarr.storage import MemoryStore
from tests.gpu.counted import CountingDevice, on_device

DATA = np.cumsum(np.random.default_rng(3).integers(0, 3, (64, 512)), axis=1).astype("i4")
CHUNKS = (16, 64)  # 32 of 4 KiB
N, DECODED = 32, DATA.nbytes
#: Tables of a launch, for each chunk: addresses, spans and sizes. For each copy: rounding up to 16.
TABLE_NBYTES = 226


@pytest.fixture
def device() -> CountingDevice:
    return CountingDevice()


def made(device: CountingDevice, data=None, **keywords) -> gzarr.Array:
    array = gzarr.create_array(MemoryStore(), shape=DATA.shape, dtype="i4", chunks=CHUNKS, **keywords)
    if data is not None:
        array[:] = data
    device.forget()
    return gzarr.open_array(array.store, device=GpuBackend(device, small_reads=NEVER, small_writes=NEVER))


def stored_nbytes(array: gzarr.Array) -> int:
    """Bytes of the chunks."""
    return sum(len(array.store[key]) for key in array.store if key.startswith("c/"))


def test_a_partial_write(device):
    z = made(device, DATA)
    before = stored_nbytes(z)
    z[8:56, 32:480] = on_device(DATA[8:56, 32:480] + 1)
    assert device.launches.count("zstd") == 1  # decoded in one call, chunks in the middle not at all
    batches = "copy_plain", "find_written", "copy_streams"  # one of whole chunks, one of the others
    assert sorted(device.kernels) == sorted([*batches, *batches])
    outer = N - 2 * 6
    tables = device.taken()["uploads"] * 4096
    assert sum(device.up) <= before * outer / N * 1.5 + tables
    expected = DATA.copy()
    expected[8:56, 32:480] += 1
    assert np.array_equal(z.to("cpu")[:], expected)


def test_a_value_on_the_host_goes_up_once_and_only_what_is_needed(device):
    z = made(device)
    z[5:30, 100:300] = DATA[5:30, 100:300]
    value = [n for n in device.up if n >= 25 * 200 * 4]
    assert len(value) == 1
    assert value[0] <= 25 * 200 * 4 + 16 * N
    device.forget()
    z[:] = 7
    assert max(device.up[:2]) <= N * TABLE_NBYTES  # broadcast there
    device.forget()
    z[:] = np.broadcast_to(DATA[:, :1], DATA.shape)
    assert max(device.up[:2]) <= N * TABLE_NBYTES
    assert np.array_equal(z.to("cpu")[:], np.broadcast_to(DATA[:, :1], DATA.shape))


def test_a_value_on_the_device_of_another_dtype_or_layout_stays_there(device):
    z = made(device, compressors=None)
    for value in (DATA.astype("f4")[::-1], np.asfortranarray(DATA)):
        here = on_device(value) if value.dtype == "i4" else on_device(value.astype("i8"))
        device.forget()
        z[:] = here
        assert device.down == [N, DECODED]
        assert sum(device.up) <= 2 * N * TABLE_NBYTES
        assert np.array_equal(z.to("cpu")[:], value)


def test_empty_chunks_do_not_come_down(device):
    z = made(device, compressors=None)
    value = np.zeros_like(DATA)
    value[20, 70] = 1
    z[:] = on_device(value)
    assert device.down == [N, 4096]
    device.forget()
    z[:] = on_device(np.zeros_like(DATA))
    assert device.down == [N]
    assert stored_nbytes(z) == 0
    made(device, compressors=gzarr.codecs.BloscCodec("lz4", typesize=4))[:] = on_device(value)
    assert device.launches.count("copy_streams") == 1  # of the frame: the chunk is encoded where it is
