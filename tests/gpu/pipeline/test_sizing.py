"""How many chunks batches take, for reads and writes of every shape; nothing is read here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numcodecs import Blosc, GZip, Zstd

import gzarr
from gzarr.gpu.backend import DEFAULT_MEMORY_SHARE, GpuBackend
from gzarr.gpu.codecs.blosc.parsing import parse_frames
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.hostbuild import find_compiler
from gzarr.gpu.device.pinned import MAX_PINNED_NBYTES
from gzarr.gpu.device.pipeline_slots import N_PIPELINE_SLOTS
from gzarr.gpu.pipeline.sizing import (
    BATCH_NBYTES,
    BATCH_NSTREAMS,
    BATCHES_PER_READ,
    LEAST_SHARE,
    MAX_BATCH_NCHUNKS,
    ChunkCost,
    batch_nchunks,
)

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
#: A pipeline slot of a card with 80 GB.
LANE = int(79 * GIB * DEFAULT_MEMORY_SHARE) // N_PIPELINE_SLOTS


def batches(total: int, nbytes: int, nstreams: int, share: int = 6, pipeline_slot: int = LANE) -> list[int]:
    """Decoded bytes of every batch of a read. share: device memory for each decoded byte."""
    n = total // nbytes
    size = batch_nchunks(n, ChunkCost(nbytes, nstreams, share * nbytes), pipeline_slot)
    return [min(size, n - start) * nbytes for start in range(0, n, size)]


@pytest.mark.parametrize("nbytes", [4 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, GIB])
@pytest.mark.parametrize("nstreams", [0, 1, 8, 128])
@pytest.mark.parametrize("total", [GIB, 16 * GIB])
@pytest.mark.parametrize("pipeline_slot", [4 * MIB, 400 * MIB, LANE])
def test_batches_of_a_read(nbytes: int, nstreams: int, total: int, pipeline_slot: int) -> None:
    sizes = batches(total, nbytes, nstreams, pipeline_slot=pipeline_slot)
    nchunks = [size // nbytes for size in sizes]
    assert sum(sizes) == total
    assert max(nchunks) - min(nchunks) < len(nchunks)  # about equal
    assert max(nchunks) <= MAX_BATCH_NCHUNKS
    assert max(sizes) * 6 <= pipeline_slot or max(nchunks) == 1
    enough = BATCH_NBYTES, BATCH_NSTREAMS * nbytes // nstreams if nstreams else 0
    assert max(sizes) <= max(*enough, nbytes)
    as_much_as_fits = max(nchunks) in (1, pipeline_slot // (6 * nbytes), MAX_BATCH_NCHUNKS) or len(sizes) > 1
    if len(sizes) < BATCHES_PER_READ:
        # More batches would each have little to decode.
        assert as_much_as_fits or total <= max(enough)
        assert total / BATCHES_PER_READ < max(enough) / LEAST_SHARE or max(nchunks) == 1 or total < max(enough)


@pytest.mark.parametrize(
    ("nbytes", "nstreams", "total", "wanted"),
    [
        (64 * KIB, 1, GIB, (9, 1821 * 64 * KIB)),
        (64 * KIB, 1, 128 * MIB, (5, 410 * 64 * KIB)),
        (64 * KIB, 1, 16 * MIB, (1, 16 * MIB)),
        (4 * KIB, 1, GIB, (16, 64 * MIB)),
        (MIB, 8, GIB, (8, 128 * MIB)),  # Blosc with LZ4
        (MIB, 0, GIB, (11, 94 * MIB)),
        (MIB, 1, GIB, (3, 342 * MIB)),  # one stream for each chunk: 256 of them would leave the device half idle
        (MIB, 1, 4 * GIB, (8, 512 * MIB)),
        (16 * MIB, 128, GIB, (8, 128 * MIB)),
        (16 * MIB, 1, GIB, (1, GIB)),  # 64 streams at once, however little then overlaps
        (16 * MIB, 1, 16 * GIB, (15, 1104 * MIB)),  # as many as fit into a pipeline slot
    ],
)
def test_batches_of_a_large_card(nbytes: int, nstreams: int, total: int, wanted: tuple[int, int]) -> None:
    sizes = batches(total, nbytes, nstreams)
    assert (len(sizes), sizes[0]) == wanted


def seconds(total: int, nbytes: int, nstreams: int, batch_nbytes: int) -> float:
    """A model of a read: three slots go through host, upload and decoder, each of which serves one batch at a time.

    Rates are guesses: 25 GB/s from the page cache, 50 over PCIe, both of data compressed to a half; 60 decoded in 2000
    streams; 400 placed; 0.3 ms a batch.
    """
    n, each = -(-total // nbytes), max(batch_nbytes // nbytes, 1)
    pipeline_slots, host, bus, device = [0.0] * N_PIPELINE_SLOTS, 0.0, 0.0, 0.0
    for first in range(0, n, each):
        size = min(each, n - first) * nbytes
        pipeline_slot = pipeline_slots.index(min(pipeline_slots))
        host = max(pipeline_slots[pipeline_slot], host) + max(size / 50e9, size / nbytes * 1e-6) + 1e-4
        bus = max(host, bus) + size / 100e9 + 1e-4
        device = max(bus, device) + size / 60e9 + size / 400e9 + 1e-4
        pipeline_slots[pipeline_slot] = max(device, bus + nbytes / max(nstreams, 1) * BATCH_NSTREAMS / 60e9)
    return max(pipeline_slots)


@pytest.mark.parametrize("total", [256 * MIB, GIB, 4 * GIB])
@pytest.mark.parametrize(("nbytes", "nstreams"), [(64 * KIB, 1), (MIB, 8), (MIB, 1), (4 * MIB, 32), (16 * MIB, 1)])
def test_no_other_size_is_much_better_by_the_model(total: int, nbytes: int, nstreams: int) -> None:
    ours = seconds(total, nbytes, nstreams, batches(total, nbytes, nstreams)[0])
    sizes = [max(size * MIB, nbytes) for size in (8, 16, 32, 64, 128, 256, 512, 1024)]
    others = [seconds(total, nbytes, nstreams, size) for size in sizes]
    assert ours <= 1.35 * min(others)
    if nstreams == 8 and total == GIB:  # one stream of 1 MiB is decoded in 35 ms
        assert ours < 0.85 * seconds(total, nbytes, nstreams, 562 * MIB)


STORED: dict[str, tuple[dict[str, Any], int]] = {
    "raw": ({"compressor": None}, 0),
    "gzip": ({"compressor": GZip()}, 1),
    "zstd": ({"compressor": Zstd()}, 1),
    "blosc lz4": ({"compressor": Blosc("lz4", 5, Blosc.SHUFFLE)}, 8),
    "blosc lz4 9": ({"compressor": Blosc("lz4", 9, Blosc.SHUFFLE)}, 4),
    "blosc zstd": ({"compressor": Blosc("zstd", 5, Blosc.SHUFFLE)}, 4),
    "blosc 64k": ({"compressor": Blosc("lz4", 5, Blosc.NOSHUFFLE, blocksize=1 << 16)}, 16),
}


@pytest.mark.parametrize("codec", STORED)
def test_a_backend_knows_the_streams_of_a_codec(codec: str) -> None:
    options, nstreams = STORED[codec]
    backend = GpuBackend(EmulatedDevice(free=79 * GIB))
    array = gzarr.create_array(shape=(1 << 20,), chunks=1 << 18, dtype="f4", device=backend, **options)
    assert array._io.only_chain.prepared.plan.nstreams == nstreams


@pytest.mark.parametrize("cname", ["lz4", "lz4hc", "zlib", "zstd"])
@pytest.mark.parametrize("clevel", [1, 5, 9])
@pytest.mark.parametrize("blocksize", [0, 1 << 13])
def test_streams_of_blosc_are_guessed_as_c_blosc_makes_them(cname: str, clevel: int, blocksize: int) -> None:
    codec = Blosc(cname, clevel, Blosc.SHUFFLE, blocksize=blocksize)
    for dtype, n in (("i4", 10), ("i4", 5000), ("f8", 100_000), ("i2", 1_000_003), ("u1", 400_000)):
        data = np.sin(np.arange(n)).astype(dtype) if dtype == "f8" else (np.arange(n) // 7 % 100).astype(dtype)
        frame = np.frombuffer(codec.encode(data), np.uint8)
        table = parse_frames(frame, np.zeros(1, np.int64), np.array([frame.size]), data.nbytes)
        found = sum(group.frame.size for group in table.groups)
        backend = GpuBackend(EmulatedDevice())
        array = gzarr.create_array(shape=n, chunks=n, dtype=dtype, zarr_format=2, compressor=codec, device=backend)
        guess = array._io.only_chain.prepared.plan.nstreams
        assert guess == found


def test_batches_fit_under_the_cap_of_pinned_memory_unless_chunks_are_large() -> None:
    for nbytes in (64 * KIB, 256 * KIB, MIB):
        for nstreams in (0, 8, 32):
            assert N_PIPELINE_SLOTS * 1.125 * batches(4 * GIB, nbytes, nstreams)[0] <= MAX_PINNED_NBYTES


def test_a_write_has_room_for_its_encoder() -> None:
    backend = GpuBackend(EmulatedDevice(), max_device_nbytes=300 * MIB)
    array = gzarr.create_array(shape=1 << 30, chunks=1 << 16, dtype="f4", compressor=Zstd(), device=backend)
    chain = array._io.only_chain
    read, written = (backend.batch_nchunks(chain, array.nchunks, 1 << 18, writing=w) for w in (False, True))
    assert 2 * written < read
    assert math.isclose(read * (1 << 18) * 6, 100 * MIB, rel_tol=0.1)
