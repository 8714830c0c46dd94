"""Reads by tables give what NumPy gives, however chunks are stored, and leave to the reference path what is odd."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numcodecs import LZ4, Blosc, Delta, Zlib, Zstd

import gzarr
from gzarr.errors import ChunkError, DeviceError
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.pipeline_slots import N_PIPELINE_SLOTS
from gzarr.gpu.pipeline import eligibility, read_job
from gzarr.gpu.pipeline.eligibility import DeviceJobs
from gzarr.storage import LocalStore

DATA = np.cumsum(np.random.default_rng(5).integers(0, 9, (70, 60)), axis=0).astype("i4")
CHAINS: dict[str, dict[str, Any]] = {
    "none": {"compressor": None},
    "zstd": {"compressor": Zstd(1)},
    "blosc": {"compressor": Blosc("lz4", 5, Blosc.SHUFFLE)},
    "bits": {"compressor": Blosc("lz4", 5, Blosc.BITSHUFFLE)},
    "lz4": {"compressor": LZ4()},
    "zlib": {"compressor": Zlib(1)},
    "delta": {"compressor": Zstd(1), "filters": [Delta("<i4")], "zarr_format": 2},
    "F": {"compressor": Zstd(1), "order": "F", "zarr_format": 2},
    "big": {"compressor": Zstd(1), "dtype": ">i4", "zarr_format": 2},
}


def stored(where: Path, data: np.ndarray = DATA, **options: Any) -> gzarr.Array:
    return gzarr.create_array(LocalStore(where), data=data, **{"chunks": (7, 11), **options}, device="cpu")


def opened(array: gzarr.Array, device: Any = None, **options: Any) -> gzarr.Array:
    return gzarr.open_array(array.store, mode="r", device=GpuBackend(device or EmulatedDevice(), **options))


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The reads that were taken, or why they were not."""
    taken: list[Any] = []
    take = DeviceJobs.take_read
    monkeypatch.setattr(DeviceJobs, "take_read", lambda *args: taken.append(take(*args)) or taken[-1])
    return taken


@pytest.mark.parametrize(
    ("chain", "shards"),
    [(name, None) for name in CHAINS] + [(name, (21, 33)) for name in CHAINS if "zarr_format" not in CHAINS[name]],
)
def test_all_chains_are_read(tmp_path: Path, jobs: list[Any], chain: str, shards: Any) -> None:
    array = stored(tmp_path, **CHAINS[chain], **({} if shards is None else {"shards": shards}))
    for cap in (None, N_PIPELINE_SLOTS * 30_000):
        array_here = opened(array, max_device_nbytes=cap)
        np.testing.assert_array_equal(array_here[:], DATA)
        np.testing.assert_array_equal(array_here[5:66:3, 40:2:-7], DATA[5:66:3, 40:2:-7])
        out = np.empty(DATA.shape, "f8")
        np.testing.assert_array_equal(array_here.get_basic_selection(..., out=out), DATA)
    assert not any(isinstance(job, str) for job in jobs)


slices = st.builds(slice, st.integers(-80, 80), st.integers(-80, 80), st.sampled_from([None, 1, 2, 5, -1, -3]))
indices = st.lists(st.integers(-60, 59), max_size=9)


@pytest.mark.parametrize("shards", [None, (21, 22)])
def test_selections_are_those_of_numpy(tmp_path: Path, jobs: list[Any], shards: Any) -> None:
    array = stored(tmp_path, shards=shards, fill_value=7)
    array[14:21, 22:33] = 7
    expected = array[:]
    here = opened(array)

    @settings(max_examples=60, deadline=None)
    @given(st.tuples(slices, slices), st.tuples(indices, st.one_of(indices, slices)), st.booleans())
    def check(basic: Any, orthogonal: Any, by_tables: bool) -> None:
        rows, columns = (np.arange(n)[index] for n, index in zip(expected.shape, orthogonal, strict=True))
        with gzarr.config.set({"cpu.native": by_tables}):
            np.testing.assert_array_equal(here[basic], expected[basic])
            np.testing.assert_array_equal(here.oindex[orthogonal], expected[np.ix_(rows, columns)])

    check()
    assert any(not isinstance(job, str) for job in jobs)


@pytest.mark.parametrize("shards", [None, (21, 22)])
def test_missing_chunks_are_filled_in_the_same_launch(tmp_path: Path, shards: Any) -> None:
    array = gzarr.create_array(
        LocalStore(tmp_path), shape=(70, 60), chunks=(7, 11), shards=shards, dtype="i4", fill_value=3, device="cpu"
    )
    array[30:, 30:] = DATA[30:, 30:]
    device = EmulatedDevice()
    np.testing.assert_array_equal(opened(array, device)[:], array[:])
    assert device.launches.count("copy_plain") == 1
    device.launches.clear()
    assert (opened(array, device)[:28, :22] == 3).all()
    assert device.launches == ["copy_plain"]


@pytest.mark.parametrize("shards", [None, (21, 22)])
@pytest.mark.parametrize("chain", ["none", "zstd", "blosc", "lz4", "zlib"])
def test_damage_has_the_error_of_the_reference_path(tmp_path: Path, chain: str, shards: Any) -> None:
    array = stored(tmp_path, shards=shards, **CHAINS[chain])
    path = tmp_path / "c" / "1" / "1"
    whole = path.read_bytes()
    for damaged in (
        whole[:25],
        whole[: len(whole) // 2],
        b"",
        b"\xff" * len(whole),
        whole[:40] + bytes(40) + whole[80:],
    ):
        path.write_bytes(damaged)
        answers = []
        for native in (True, False):
            with gzarr.config.set({"cpu.native": native}):
                try:
                    answers.append(gzarr_bytes(opened(array)))
                except ChunkError as error:
                    answers.append(repr(error))
        assert answers[0] == answers[1]


def gzarr_bytes(array: gzarr.Array) -> bytes:
    values: np.ndarray = array[:]
    return values.tobytes()


def test_the_parts_of_a_damaged_batch_are_read_again(tmp_path: Path) -> None:
    """The device refuses a frame that libzstd reads: a frame behind it. The others of its batch are right, too."""
    array = stored(tmp_path, **CHAINS["zstd"])
    path = tmp_path / "c" / "1" / "1"
    path.write_bytes(path.read_bytes() + b"\x50\x2a\x4d\x18\x02\0\0\0ab")
    np.testing.assert_array_equal(opened(array)[:], DATA)
    path.unlink()
    path.mkdir()
    np.testing.assert_array_equal(opened(array)[:], array[:])


@pytest.mark.parametrize("change", [lambda data: data * 300, lambda data: data + b"x"])
def test_files_of_a_known_size_are_not_asked_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any
) -> None:
    """And those that are larger, and take the room of others, are errors all the same."""
    array = stored(tmp_path, compressor=None)
    monkeypatch.setattr(read_job, "fetch", None)
    np.testing.assert_array_equal(opened(array)[:], DATA)
    path = next(path for path in tmp_path.rglob("*") if path.is_file() and path.name == "3")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ChunkError, match="expected 308 bytes, got"):
        opened(array)[:]


def test_a_chunk_that_grows_all_the_time_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = opened(stored(tmp_path))
    fetch = read_job.DeviceRead._fetch

    def growing(self: Any, pipeline_slot: Any, wanted: Any) -> Any:
        batch = fetch(self, pipeline_slot, wanted)
        batch.offsets[-1] = -1
        batch.sizes[-1] = 1 << 20
        return batch

    monkeypatch.setattr(read_job.DeviceRead, "_fetch", growing)
    np.testing.assert_array_equal(array[:], DATA)


@pytest.mark.parametrize("nbytes", [300, 1_000, 3_000])
def test_batches_that_do_not_fit_are_cut_in_the_order_of_the_staging_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nbytes: int
) -> None:
    array = stored(tmp_path, **CHAINS["blosc"])
    here = opened(array, max_device_nbytes=N_PIPELINE_SLOTS * nbytes * 16)
    monkeypatch.setattr(eligibility, "batch_nchunks", lambda *_: 1000)
    monkeypatch.setattr(read_job, "read_memory", lambda *_: 1)
    np.testing.assert_array_equal(here[:], DATA)


def test_a_chunk_that_fits_nowhere_is_named(tmp_path: Path) -> None:
    array = stored(tmp_path, chunks=(70, 30))
    with pytest.raises(DeviceError, match=r"chunk \(0, .\): 8400 bytes .* raise max_device_nbytes"):
        opened(array, max_device_nbytes=3 * N_PIPELINE_SLOTS)[:]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_all_pieces_of_a_shard_are_of_one_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    for name, data in (("a", DATA), ("b", DATA + 1)):
        stored(tmp_path / name, data, shards=(70, 66))
    array = gzarr.open_array(LocalStore(tmp_path / "a"), mode="r")
    here = opened(array)
    monkeypatch.setattr(eligibility, "batch_nchunks", lambda *_: 20)
    pieces: list[int] = []
    fetch = read_job.DeviceRead._fetch

    def counted(self: Any, *args: Any) -> Any:
        batch = fetch(self, *args)
        pieces.append(batch.sizes.size)
        if len(pieces) == n:
            (tmp_path / "b" / "c" / "0" / "0").replace(tmp_path / "a" / "c" / "0" / "0")
        return batch

    monkeypatch.setattr(read_job.DeviceRead, "_fetch", counted)
    assert len(np.unique(here[:] - DATA)) == 1
    assert len(pieces) >= 3
    np.testing.assert_array_equal(here[:], DATA + 1)


def test_a_shard_with_a_bad_index_is_left_whole(tmp_path: Path) -> None:
    array = stored(tmp_path, shards=(21, 33))
    path = tmp_path / "c" / "1" / "0"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ChunkError, match="c/1/0"):
        opened(array)[:]
    shutil.rmtree(tmp_path / "c" / "1")
    assert (opened(array)[21:42] == 0).all()
