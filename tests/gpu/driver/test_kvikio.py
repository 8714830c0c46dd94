"""KvikIO reads what the CPU reads: in its compatibility mode, and by the driver's cuFile."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numcodecs import LZ4, Blosc, Zstd

import gzarr
from gzarr.gpu.reading.select import choose_reader
from gzarr.storage import LocalStore
from tests.gpu.driver import driver
from tests.gpu.hardware.opening import cuda_backend

kvikio: Any = pytest.importorskip("kvikio")
pytest.importorskip("kvikio.defaults")

DATA = np.random.default_rng(0).integers(0, 100, (600, 500)).astype("i4")
CAP_NBYTES = 3 << 20
COMPRESSORS = {"none": None, "lz4": LZ4(), "blosc": Blosc("lz4", 5, Blosc.SHUFFLE), "zstd": Zstd()}
MEMORY = Path("/dev/shm")


@pytest.fixture(params=["ON", "OFF"])
def by_cufile(request: pytest.FixtureRequest) -> Iterator[bool]:
    """KvikIO with its compatibility mode or without. Whether cuFile reads."""
    before = {name: kvikio.defaults.get(name) for name in ("compat_mode", "gds_threshold")}
    kvikio.defaults.set({"compat_mode": kvikio.CompatMode[request.param], "gds_threshold": 0})
    yield request.param == "OFF"
    kvikio.defaults.set(before)


def opened(cuda: Any, store: LocalStore | Path, cap_nbytes: int = CAP_NBYTES) -> gzarr.Array:
    array = gzarr.open_array(store, mode="r", device=cuda_backend(cuda, reader="kvikio", max_device_nbytes=cap_nbytes))
    array.backend._reader._min_file_nbytes = 0
    return array


def test_the_choice_of_a_reader(by_cufile: bool) -> None:
    """The host reads if GPUDirect Storage is not there."""
    _, choice = choose_reader("auto")
    assert choice.name == ("kvikio" if by_cufile else "host")
    assert by_cufile or "not active" in choice.why


@pytest.mark.parametrize("shards", [None, (300, 500)])
@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_reads_are_those_of_the_cpu(cuda: Any, tmp_path: Path, by_cufile: bool, compressor: str, shards: Any) -> None:
    store = LocalStore(tmp_path)
    options = {"chunks": (60, 50), "shards": shards, "compressor": COMPRESSORS[compressor], "device": "cpu"}
    written = gzarr.create_array(store, data=DATA, **options)
    array = opened(cuda, store)
    driver.cufile_nbytes()
    for selection in (np.s_[:], np.s_[5:500:3, ::-7], np.s_[:60]):
        np.testing.assert_array_equal(array[selection].get(), DATA[selection])
    straight = compressor in ("none", "lz4")
    assert (driver.cufile_nbytes() > 0) == (by_cufile and straight)
    written[:] = DATA + 1
    np.testing.assert_array_equal(array[:].get(), DATA + 1)


def test_chunks_that_are_ranges_of_files_of_other_formats(cuda: Any, tmp_path: Path, by_cufile: bool) -> None:
    """They go straight to the device, and files that are replaced are noticed."""
    np.save(tmp_path / "a.npy", np.tile(DATA, (4, 1)))
    array = opened(cuda, tmp_path / "a.npy", 64 << 20)
    driver.cufile_nbytes()
    for selection in (np.s_[:], np.s_[5:500:3, ::-7], np.s_[:60]):
        np.testing.assert_array_equal(array[selection].get(), np.tile(DATA, (4, 1))[selection])
    assert (driver.cufile_nbytes() > 0) == by_cufile
    np.save(tmp_path / "a.npy", np.tile(DATA, (4, 1)) + 1)
    with pytest.raises(gzarr.errors.ReplacedError, match=r"a\.npy"):
        array[:]


def test_a_file_that_is_cut_off_is_damage(cuda: Any, tmp_path: Path, by_cufile: bool) -> None:
    store = LocalStore(tmp_path)
    gzarr.create_array(store, data=DATA, chunks=(60, 50), compressor=None, device="cpu")
    array, path = opened(cuda, store), tmp_path / "c" / "3" / "4"
    array[:]
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 3])
    with pytest.raises(gzarr.ChunkError) as caught:
        array[:]
    assert caught.value.chunk_coords == (3, 4)
    path.write_bytes(good)
    np.testing.assert_array_equal(array[:].get(), DATA)


@pytest.mark.skipif(not MEMORY.is_dir(), reason="no tmpfs at /dev/shm")
def test_files_that_cufile_reads_as_zeros_are_read_on_the_host(cuda: Any, by_cufile: bool) -> None:
    store = LocalStore(MEMORY / f"gzarr-test-{os.getpid()}")
    try:
        gzarr.create_array(store, data=DATA, chunks=(60, 50), compressor=None, device="cpu", overwrite=True)
        array = opened(cuda, store)
        np.testing.assert_array_equal(array[:].get(), DATA)
        assert ("read on the host" in array.backend._reader.note) == by_cufile
    finally:
        store.clear()
        Path(store.root).rmdir()


@pytest.mark.parametrize("call", ["cuFileHandleRegister", "cuFileRead"])
def test_a_call_that_fails_leaves_the_batch_to_the_host(cuda: Any, tmp_path: Path, call: str, by_cufile: bool) -> None:
    store = LocalStore(tmp_path)
    gzarr.create_array(store, data=DATA, chunks=(60, 50), compressor=None, device="cpu")
    array = opened(cuda, store)
    with driver.failing(call, 1):
        np.testing.assert_array_equal(array[:].get(), DATA)
    assert (array.backend._reader.failure is not None) == by_cufile
