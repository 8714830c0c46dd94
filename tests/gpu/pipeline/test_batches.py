"""How many chunks batches of reads and writes take; those that do not fit into a pipeline slot are halved."""

import math
from typing import Any

import numpy as np
import pytest
from numcodecs import Blosc, GZip, Zlib, Zstd

import gzarr
from gzarr.codecs.spec import ArrayRepr
from gzarr.errors import CodecError, DeviceError
from gzarr.gpu.backend import DEFAULT_MEMORY_SHARE, GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.pipeline_slots import N_PIPELINE_SLOTS, PipelineSlot
from gzarr.gpu.pipeline.batches import BATCH_NBYTES, BATCH_NCHUNKS, MAX_BATCH_NCHUNKS, NEVER, batch_nchunks, in_batches
from gzarr.storage import MemoryStore
from tests.gpu.counted import CountingDevice

DATA = np.random.default_rng(1).integers(0, 40, (256, 4096)).astype("u1")  # 1 MiB
CHUNKS = (8, 4096)  # 32 of 32 KiB
#: Parts of chunks are placed, whole ones are decoded straight into the result.
PLACED = np.s_[:, :4080]
#: Codecs, and the device memory of a pipeline slot that is too small for the batches that are expected.
CHAINS: dict[str, tuple[dict[str, Any], int]] = {
    "blosc lz4, 1 KiB": ({"compressor": Blosc("lz4", 5, Blosc.NOSHUFFLE, blocksize=1 << 10)}, 600_000),
    "blosc zstd, 1 KiB": ({"compressor": Blosc("zstd", 3, Blosc.NOSHUFFLE, blocksize=1 << 10)}, 1_000_000),
    "blosc zlib, 1 KiB": ({"compressor": Blosc("zlib", 3, Blosc.SHUFFLE, blocksize=1 << 10)}, 600_000),
    "blosclz": ({"compressor": Blosc("blosclz", 5)}, 400_000),
    "zstd": ({"compressor": Zstd(1, checksum=True)}, 500_000),
    "gzip": ({"compressor": GZip(1)}, 400_000),
    "zlib": ({"compressor": Zlib(1)}, 400_000),
    "raw": ({"compressor": None}, 400_000),
}


def opened(options: dict[str, Any], pipeline_slot_nbytes: int) -> tuple[gzarr.Array, CountingDevice]:
    stored = gzarr.create_array(MemoryStore(), data=DATA, chunks=CHUNKS, zarr_format=2, device="cpu", **options)
    device = CountingDevice(EmulatedDevice())
    backend = GpuBackend(
        device, max_device_nbytes=N_PIPELINE_SLOTS * pipeline_slot_nbytes, small_reads=NEVER, small_writes=NEVER
    )
    return gzarr.open_array(stored.store, device=backend), device


@pytest.mark.parametrize("chain", CHAINS)
def test_batches_that_do_not_fit_are_halved(chain: str) -> None:
    array, device = opened(*CHAINS[chain])
    for _ in range(2):
        device.forget()
        np.testing.assert_array_equal(array[PLACED], DATA[PLACED])
        assert device.taken()["launch copy_plain"] > N_PIPELINE_SLOTS
    assert device.inner.memory.peak <= array.backend._pipeline_slots.limit * N_PIPELINE_SLOTS


def test_a_chunk_that_does_not_fit_names_the_remedy() -> None:
    options, _ = CHAINS["zstd"]
    chunk = 8 * 4096
    need = next(n for n in range(4 * chunk, 9 * chunk, 256) if reads(options, n))
    array, _ = opened(options, need - 256)
    with pytest.raises(DeviceError, match="max_device_nbytes"):
        array[:8, :4080]


def reads(options: dict[str, Any], pipeline_slot_nbytes: int) -> bool:
    try:
        return bool((opened(options, pipeline_slot_nbytes)[0][:8, :4080] == DATA[:8, :4080]).all())
    except DeviceError:
        return False


class Tasks:
    """A task whose chunks take memory."""

    def __init__(self, pipeline_slot: PipelineSlot, nbytes: int) -> None:
        self.pipeline_slot, self.nbytes = pipeline_slot, nbytes
        self.tried: list[int] = []
        self.done: list[int] = []

    def __call__(self, context: slice) -> None:
        n = context.stop - context.start
        self.tried.append(n)
        for _ in range(n):
            self.pipeline_slot.memory.take(self.nbytes)
        self.done += range(context.start, context.stop)


def chunk_at(number: int) -> tuple[tuple[int, ...], ArrayRepr]:
    return (number,), ArrayRepr(np.dtype("f4"), (2,))


def test_a_batch_is_tried_twice_and_then_halved() -> None:
    pipeline_slot = PipelineSlot(EmulatedDevice(), 10 << 20)
    tasks = Tasks(pipeline_slot, 1 << 20)
    in_batches(pipeline_slot, 50, (10 << 20) // 50, tasks, chunk_at)
    assert tasks.done == list(range(50))
    assert tasks.tried[:7] == [50, 50, 25, 25, 12, 12, 6]


def test_a_chunk_that_does_not_fit_alone_is_an_error() -> None:
    pipeline_slot = PipelineSlot(EmulatedDevice(), 10 << 20)
    tasks = Tasks(pipeline_slot, 11 << 20)
    with pytest.raises(DeviceError, match=r"chunk \(0,\): 8 bytes of shape \(2,\) .* 1/3 of the cap of"):
        in_batches(pipeline_slot, 3, (10 << 20) // 3, tasks, chunk_at)
    assert tasks.done == []


def test_an_error_of_a_codec_has_its_number_among_all_chunks() -> None:
    pipeline_slot = PipelineSlot(EmulatedDevice(), 10 << 20)

    def task(context: slice) -> None:
        if context.start <= 7 < context.stop:
            raise CodecError("damaged", index=7 - context.start, codec="x")

    with pytest.raises(CodecError) as caught:
        in_batches(pipeline_slot, 10, (10 << 20) // 4, task, chunk_at)
    assert caught.value.index == 7


KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
#: A pipeline slot of a card with 80 GB.
LANE = int(79 * GIB * DEFAULT_MEMORY_SHARE) // N_PIPELINE_SLOTS


def batches(total: int, nbytes: int, pipeline_slot: int = LANE) -> list[int]:
    """Decoded bytes of every batch of a read."""
    n = total // nbytes
    size = batch_nchunks(n, nbytes, 6 * nbytes, pipeline_slot)
    return [min(size, n - start) * nbytes for start in range(0, n, size)]


@pytest.mark.parametrize("nbytes", [4 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, GIB])
@pytest.mark.parametrize("total", [GIB, 16 * GIB])
@pytest.mark.parametrize("pipeline_slot", [4 * MIB, 400 * MIB, LANE])
def test_batches_of_a_read(nbytes: int, total: int, pipeline_slot: int) -> None:
    sizes = batches(total, nbytes, pipeline_slot)
    nchunks = [size // nbytes for size in sizes]
    assert sum(sizes) == total
    assert max(nchunks) - min(nchunks) < len(nchunks)  # about equal
    assert max(nchunks) <= MAX_BATCH_NCHUNKS
    assert max(sizes) * 6 <= pipeline_slot or max(nchunks) == 1
    assert max(sizes) <= max(BATCH_NBYTES, BATCH_NCHUNKS * nbytes)


@pytest.mark.parametrize(
    ("nbytes", "total", "wanted"),
    [
        (64 * KIB, GIB, (11, 1490 * 64 * KIB)),
        (64 * KIB, 128 * MIB, (6, 342 * 64 * KIB)),
        (64 * KIB, 16 * MIB, (1, 16 * MIB)),
        (4 * KIB, GIB, (16, 64 * MIB)),
        (MIB, GIB, (8, 128 * MIB)),
        (MIB, 4 * GIB, (16, 256 * MIB)),
        (16 * MIB, GIB, (1, GIB)),  # 64 streams at once, however little then overlaps
        (16 * MIB, 16 * GIB, (15, 1104 * MIB)),  # as many as fit into a pipeline slot
    ],
)
def test_batches_of_a_large_card(nbytes: int, total: int, wanted: tuple[int, int]) -> None:
    sizes = batches(total, nbytes)
    assert (len(sizes), sizes[0]) == wanted


def test_a_write_has_room_for_its_encoder() -> None:
    backend = GpuBackend(EmulatedDevice(), max_device_nbytes=300 * MIB)
    array = gzarr.create_array(shape=1 << 30, chunks=1 << 16, dtype="f4", compressor=Zstd(), device=backend)
    chain = array._io.only_chain
    read, written = (backend.batch_nchunks(chain, array.nchunks, 1 << 18, writing=w) for w in (False, True))
    assert 2 * written < read
    assert math.isclose(read * (1 << 18) * 6, 100 * MIB, rel_tol=0.1)
