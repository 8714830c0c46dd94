"""Reads arrays with KvikIO itself, in a process whose CUDA driver is ``fake_cuda.c``: run by ``test_kvikio.py``."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numcodecs import LZ4, Blosc, Zstd

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.reading.select import choose_reader
from gzarr.storage import LocalStore

DATA = np.random.default_rng(0).integers(0, 100, (600, 500)).astype("i4")


class FakeCudaDevice(EmulatedDevice):
    """The emulated device, in memory that the stand-in for the driver calls a device's."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.driver.fake_alloc.restype = ctypes.c_void_p
        self.driver.fake_alloc.argtypes = [ctypes.c_size_t]
        self.driver.fake_copied.restype = ctypes.c_long

    def allocate(self, nbytes: int) -> Any:
        memory = self.driver.fake_alloc(max(nbytes, 1))
        whole = (ctypes.c_uint8 * max(nbytes, 1)).from_address(memory)
        return self.memory.count(np.frombuffer(whole, np.uint8)[:nbytes])


def main(folder: Path) -> None:
    reader, choice = choose_reader("auto")
    assert choice.name == "host", choice  # compatibility mode: no GPUDirect Storage
    assert "not active" in choice.why, choice
    reader, choice = choose_reader("kvikio")
    assert choice.name == "kvikio"
    reader._min_file_nbytes = 0  # type: ignore[attr-defined]
    device = FakeCudaDevice()
    for number, compressor in enumerate((None, LZ4(), Blosc("lz4", 5, Blosc.SHUFFLE), Zstd())):
        for shards in (None, (300, 500)):
            store = LocalStore(folder / f"{number}{shards is None}")
            written = gzarr.create_array(store, data=DATA, chunks=(60, 50), shards=shards, compressor=compressor)
            backend = GpuBackend(device, reader=reader, max_device_nbytes=1 << 21)
            array = gzarr.open_array(store, mode="r", device=backend)
            before = device.driver.fake_copied()
            for selection in (np.s_[:], np.s_[5:500:3, ::-7], np.s_[:60]):
                np.testing.assert_array_equal(array[selection], DATA[selection])
            copied = device.driver.fake_copied() - before
            straight = not isinstance(compressor, Zstd)
            assert (copied > 0) == straight, (compressor, copied)
            written[:] = DATA + 1
            np.testing.assert_array_equal(array[:], DATA + 1)
            if straight and shards is None:
                truncate(folder / f"{number}{shards is None}" / "c" / "3" / "4", array)
            backend.release()  # the next one has a cap of its own
    assert device.memory.peak <= 1 << 21
    reader.files.close()  # type: ignore[attr-defined]
    print("all read with KvikIO")


def truncate(path: Path, array: gzarr.Array) -> None:
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 3])
    with pytest.raises(gzarr.ChunkError) as caught:
        array[:]
    assert caught.value.chunk_coords == (3, 4)
    path.write_bytes(good)
    np.testing.assert_array_equal(array[:], DATA + 1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
