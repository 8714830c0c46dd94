"""Faults on request: they come where they were asked for, and are gone afterwards."""

from pathlib import Path

import numpy as np
import pytest

import gzarr
from gzarr.errors import ChunkError, DeviceError
from gzarr.testing import OutOfMemoryError, damaged_chunk, out_of_memory

VALUES = np.arange(64.0).reshape(8, 8)


def test_memory_runs_out_when_it_was_asked_to() -> None:
    with gzarr.config.set({"emulated.arrays": "device"}):
        z = gzarr.create_array({}, data=VALUES, chunks=(4, 4), device="emulated")
        z[:]
        with out_of_memory(after=2):
            first, second = z[:], z[:]
            with pytest.raises(DeviceError, match=r"no device memory for 512 bytes: gzarr.testing.out_of_memory"):
                z[:]
            with pytest.raises(MemoryError):
                first + second
            first += second
        assert (z[:].get() == VALUES).all()
    with pytest.raises(ValueError, match="after must be a number of allocations >= 0, got -1"), out_of_memory(-1):
        pass


def test_working_memory_runs_out_too() -> None:
    with gzarr.config.set({"emulated.arrays": "device"}):
        # A limit of its own means memory of its own, which nobody has allocated yet.
        z = gzarr.create_array({}, data=VALUES, chunks=(4, 4), device="emulated", max_device_nbytes=1 << 22)
        with out_of_memory(after=1), pytest.raises(OutOfMemoryError):
            z[:]
        assert (z[:].get() == VALUES).all()


@pytest.mark.parametrize("device", ["cpu", "emulated"])
@pytest.mark.parametrize("options", [{}, {"shards": (8, 4)}, {"compressors": None}], ids=["plain", "shards", "raw"])
def test_a_damaged_chunk_is_noticed(tmp_path: Path, device: str, options: dict) -> None:
    z = gzarr.create_array(tmp_path / "z", data=VALUES, chunks=(2, 4), name="a", device=device, **options)
    with damaged_chunk(z, (3, 1)):
        with pytest.raises(ChunkError, match=r"\(3, 1\)|c/0/1|c/3/1"):
            z[6:]
        assert np.array_equal(np.asarray(z[:6]), VALUES[:6])
    assert np.array_equal(np.asarray(z[:]), VALUES)


def test_what_cannot_be_damaged_is_refused(tmp_path: Path) -> None:
    z = gzarr.create_array(tmp_path, shape=(8, 8), chunks=(2, 2), shards=(4, 4), dtype="u1", compressors=None)
    z[:2] = 1
    for coords, message in [((4, 0), "has no chunk"), ((1,), "has no chunk"), ((3, 0), "is not stored")]:
        with pytest.raises(KeyError, match=message), damaged_chunk(z, coords):
            pass
    assert (z[:2] == 1).all()


@pytest.mark.parametrize("options", [{}, {"shards": (8, 4)}], ids=["plain", "shards"])
def test_what_is_written_to_a_damaged_chunk_stays(tmp_path: Path, options: dict) -> None:
    z = gzarr.create_array(tmp_path / "z", data=VALUES, chunks=(2, 4), device="cpu", **options)
    with damaged_chunk(z, (3, 1)):
        z[:2, 4:] = 5  # of the same shard
    assert (z[:2, 4:] == 5).all()
    assert (z[2:, 4:] == VALUES[2:, 4:]).all()
    with damaged_chunk(z, (3, 1)):
        z[6:, 4:] = 7
    assert (z[6:, 4:] == 7).all()
    with damaged_chunk(z, (3, 1)):
        z.resize((2, 8))
    assert (z[:2, 4:] == 5).all()
