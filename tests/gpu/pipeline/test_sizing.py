"""How many chunks batches take, for reads and writes of every shape; nothing is read here."""

from __future__ import annotations

import math

import pytest
from numcodecs import Zstd

import gzarr
from gzarr.gpu.backend import DEFAULT_MEMORY_SHARE, GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.hostbuild import find_compiler
from gzarr.gpu.device.pipeline_slots import N_PIPELINE_SLOTS
from gzarr.gpu.pipeline.batches import BATCH_NBYTES, BATCH_NCHUNKS, MAX_BATCH_NCHUNKS, batch_nchunks

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")

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
