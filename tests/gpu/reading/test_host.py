"""Readers bring the same bytes as the store, whatever the chunks are stored in, and notice files that change."""

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from numcodecs import CRC32C, LZ4, Adler32, Blosc, Delta, GZip, Shuffle, Zlib, Zstd

import gzarr
from gzarr.codecs import NvcompDeflateCodec
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.codecs.batch import Streams, spread_out
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.pipeline_slots import N_PIPELINE_SLOTS
from gzarr.gpu.reading.kvikio import KvikioReader
from gzarr.storage import LocalStore
from tests.gpu.direct_files import DirectFiles

DATA = np.random.default_rng(0).integers(0, 1000, (53, 41)).astype("i4")
CHUNKS = (10, 7)
#: Codecs, and whether chunks go straight to the device.
CODECS = {
    "none": ({"compressor": None}, True),
    "big endian": ({"compressor": None, "dtype": ">i4"}, True),
    "lz4": ({"compressor": LZ4()}, True),
    "lz4, delta": ({"compressor": LZ4(), "filters": [Delta("i4")]}, True),
    "lz4, crc32c": ({"compressor": [LZ4(), CRC32C()]}, True),
    "blosc lz4": ({"compressor": Blosc("lz4", 5, Blosc.SHUFFLE)}, False),
    "blosc lz4hc bits": ({"compressor": Blosc("lz4hc", 5, Blosc.BITSHUFFLE)}, False),
    "blosc stored": ({"compressor": Blosc("lz4", 0)}, False),
    "blosc zstd": ({"compressor": Blosc("zstd", 5)}, False),
    "blosclz": ({"compressor": Blosc("blosclz", 5)}, False),
    "zstd": ({"compressor": Zstd(1)}, False),
    "zlib": ({"compressor": Zlib()}, False),
    "gzip": ({"compressor": GZip()}, False),
    "shuffle": ({"filters": [Shuffle(4)], "compressor": None}, True),
    "delta": ({"filters": [Delta("i4")], "compressor": None}, True),
    "adler32": ({"filters": [Adler32()], "compressor": None}, True),
    "nvcomp.deflate": ({"compressor": NvcompDeflateCodec()}, True),
}
SELECTIONS = (np.s_[:], np.s_[3:40:3, ::-2], np.s_[5, 7], np.s_[..., 3])


@pytest.fixture
def device() -> EmulatedDevice:
    return EmulatedDevice()


@pytest.fixture
def direct() -> DirectFiles:
    return DirectFiles()


def create(where: Path, **options) -> gzarr.Array:
    compressor = options.get("compressor")
    if isinstance(compressor, list):
        options = {"compressors": compressor}
    return gzarr.create_array(LocalStore(where), data=DATA, chunks=CHUNKS, **options)


def opened(where: Path, device: EmulatedDevice, reader, **options) -> gzarr.Array:
    return gzarr.open_array(LocalStore(where), mode="r", device=GpuBackend(device, reader=reader, **options))


def copy_on_host(streams: Streams) -> np.ndarray:
    assert streams.copy is not None, "a decoder without a host round trip downloads encoded chunks"
    return streams.copy


@pytest.mark.parametrize("layout", ["chunks", "shards"])
@pytest.mark.parametrize("codecs", CODECS)
def test_both_readers_give_the_answers_of_the_cpu(tmp_path, device, direct, codecs, layout, monkeypatch) -> None:
    options, straight = CODECS[codecs]
    if straight:
        monkeypatch.setattr(Streams, "host", property(copy_on_host))
    shards = {"shards": (30, 21)} if layout == "shards" else {}
    create(tmp_path / "a", **options, **shards)
    for reader in ("host", direct.reader()):
        array = opened(tmp_path / "a", device, reader)
        for selection in SELECTIONS:
            np.testing.assert_array_equal(array[selection], DATA[selection])
        points = [3, 1, 30, 3], [2, 2, 40, 1]
        np.testing.assert_array_equal(array.vindex[points], DATA[points])
    assert bool(direct.reads) == straight
    assert direct.under_way == 0
    host_round_trip = [row.why for row in array.placement if "read on the host" in row.why]
    assert len(host_round_trip) == (not straight)


def test_missing_chunks_are_filled(tmp_path, device, direct) -> None:
    stored = gzarr.create_array(LocalStore(tmp_path / "a"), shape=(20, 20), chunks=(5, 5), dtype="f4", compressor=None)
    stored[7:12, 3] = 5
    for reader in ("host", direct.reader()):
        np.testing.assert_array_equal(opened(tmp_path / "a", device, reader)[:], stored[:])
    assert len(direct.wanted) == 2


def test_all_reads_of_a_batch_are_under_way_at_once(tmp_path, device, direct) -> None:
    create(tmp_path / "a", compressor=None)
    deadline = time.monotonic() + 60

    def delay() -> None:
        while direct.most_under_way <= 4 and time.monotonic() < deadline:  # the pool has four threads
            time.sleep(0.001)

    array = opened(tmp_path / "a", device, direct.reader())
    np.testing.assert_array_equal(array[:11], DATA[:11])  # the first file is compared with the host before others
    direct.delay = delay
    np.testing.assert_array_equal(array[:], DATA)
    assert direct.most_under_way > 4
    assert time.monotonic() < deadline


def test_a_batch_of_many_files_opens_some_at_a_time(tmp_path, device, direct) -> None:
    data = np.arange(1, 701, dtype="i4")
    gzarr.create_array(LocalStore(tmp_path / "a"), data=data, chunks=1, compressor=None)
    reader = direct.reader()
    np.testing.assert_array_equal(opened(tmp_path / "a", device, reader)[:], data)
    assert device.launches == ["copy_plain"]  # one batch
    assert (direct.opened, len(direct.wanted), reader.failure) == (700, 700, None)
    assert direct.most_open == 64
    assert direct.opened == direct.closed


def test_neighbours_in_a_shard_are_read_together(tmp_path, device, direct) -> None:
    create(tmp_path / "a", compressor=None, shards=(60, 42))
    array = opened(tmp_path / "a", device, direct.reader())
    np.testing.assert_array_equal(array[:10], DATA[:10])
    assert len(direct.wanted) == 1
    assert direct.wanted[0][2] == 6 * 280


def test_whole_shards_go_straight_to_the_device_too(tmp_path, device, direct) -> None:
    create(tmp_path / "a", compressor=None, shards=(30, 21))
    np.testing.assert_array_equal(opened(tmp_path / "a", device, direct.reader())[:], DATA)
    assert sum(nbytes for _, _, nbytes in direct.wanted) == 6 * 6 * 280


def test_a_staging_buffer_fits_whatever_was_read_before(tmp_path, device, direct) -> None:
    """Small reads leave small blocks in a pipeline slot. None holds the staging buffer of a large one."""
    nbytes = 1 << 20
    backend = GpuBackend(device, reader=direct.reader(), max_device_nbytes=11 * N_PIPELINE_SLOTS * nbytes)
    for n in (1, 2, 3, 4, 5):
        store = LocalStore(tmp_path / str(n))
        data = np.arange(n * nbytes // 8)
        gzarr.create_array(store, data=data, chunks=data.size, compressor=None)
        np.testing.assert_array_equal(gzarr.open_array(store, mode="r", device=backend)[:], data)
    assert len(direct.wanted) == 5
    assert device.memory.peak <= 22 * nbytes


def test_encoded_streams_begin_where_their_decoder_wants(tmp_path, device) -> None:
    """zlib's and gzip's headers are odd, and yet nothing is copied to where Deflate can be read."""
    for compressor in (Zlib(), GZip()):
        where = tmp_path / compressor.codec_id
        create(where, compressor=compressor)
        device.launches.clear()
        np.testing.assert_array_equal(opened(where, device, "host")[:], DATA)
        assert "copy_streams" not in device.launches
        assert device.launches.count("deflate") == 1


def test_places_leave_room_behind_every_stream() -> None:
    sizes = np.array([0, 1, 16, 100, 17])
    for phase in (0, 6, 14):
        offsets, total = spread_out(sizes, phase)
        ends = offsets + sizes
        assert (offsets % 16 == phase).all()
        assert (ends[:-1] <= offsets[1:]).all()
        assert total >= ends[-1] + 2
    assert spread_out(np.zeros(0, np.int64), 0)[0].size == 0


# -- files that change -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["replaced", "overwritten"])
@pytest.mark.parametrize("codecs", ["none", "lz4"])
def test_changed_files_are_read_anew(tmp_path, device, direct, codecs, how) -> None:
    create(tmp_path / "a", **CODECS[codecs][0])
    array = opened(tmp_path / "a", device, direct.reader())
    np.testing.assert_array_equal(array[:], DATA)
    if how == "replaced":
        gzarr.open_array(LocalStore(tmp_path / "a"), mode="r+")[:] = DATA + 1
    else:
        changed = gzarr.create_array(LocalStore(tmp_path / "b"), data=DATA + 1, chunks=CHUNKS, **CODECS[codecs][0])
        for path in (tmp_path / "a" / "c").rglob("*"):
            if path.is_file():
                path.write_bytes(changed.store[str(path.relative_to(tmp_path / "a"))])
                os.utime(path, ns=(1, 1))
    np.testing.assert_array_equal(array[:], DATA + 1)


def test_a_shard_that_is_replaced_between_reads_is_read_with_its_new_index(tmp_path, device, direct) -> None:
    create(tmp_path / "a", compressor=LZ4(), shards=(60, 42))
    array = opened(tmp_path / "a", device, direct.reader())
    for change in range(4):
        gzarr.open_array(LocalStore(tmp_path / "a"), mode="r+")[:] = DATA * (change % 2) + change
        np.testing.assert_array_equal(array[:10], DATA[:10] * (change % 2) + change)


@pytest.mark.parametrize("reader", ["host", "direct"])
def test_files_replaced_all_the_time_are_never_mixed(tmp_path, device, direct, reader) -> None:
    store = LocalStore(tmp_path / "a")
    stored = gzarr.create_array(store, data=np.zeros((4, 1000), "i8"), chunks=(1, 1000), compressor=None)
    array = opened(tmp_path / "a", device, direct.reader() if reader == "direct" else "host")
    stop = threading.Event()

    def replace() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            stored[:] = number

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        for _ in range(150):
            for row in array[:]:
                assert (row == row[0]).all()
    finally:
        stop.set()
        writer.join()


# -- trouble -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reader", ["host", "direct"])
@pytest.mark.parametrize("codecs", ["none", "lz4", "lz4, crc32c", "blosc lz4", "zstd"])
def test_damaged_chunks_are_named(tmp_path, device, direct, codecs, reader) -> None:
    create(tmp_path / "a", **CODECS[codecs][0])
    path = tmp_path / "a" / "c" / "2" / "3"
    good = path.read_bytes()
    array = opened(tmp_path / "a", device, direct.reader() if reader == "direct" else "host")
    for size in (0, 1, 3, 15, 16, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:size])
        with pytest.raises(gzarr.ChunkError, match=r"c/2/3") as caught:
            array[:]
        assert caught.value.chunk_coords == (2, 3)
    path.write_bytes(good)
    np.testing.assert_array_equal(array[:], DATA)


@pytest.mark.parametrize("reader", ["host", "direct"])
def test_a_truncated_shard_is_named(tmp_path, device, direct, reader) -> None:
    create(tmp_path / "a", compressor=None, shards=(60, 42))
    array = opened(tmp_path / "a", device, direct.reader() if reader == "direct" else "host")
    np.testing.assert_array_equal(array[:10], DATA[:10])
    path = tmp_path / "a" / "c" / "0" / "0"
    data = path.read_bytes()
    path.write_bytes(data[:1000] + data[-1000:])
    with pytest.raises(gzarr.ChunkError, match=r"c/0/0"):
        array[:]


def test_a_directory_instead_of_a_chunk_is_what_the_store_says(tmp_path, device, direct) -> None:
    create(tmp_path / "a", compressor=None)
    path = tmp_path / "a" / "c" / "1" / "1"
    path.unlink()
    path.mkdir()
    expected = gzarr.open_array(LocalStore(tmp_path / "a"), mode="r")[:]
    for reader in ("host", direct.reader()):
        np.testing.assert_array_equal(opened(tmp_path / "a", device, reader)[:], expected)


class BreakingFile:
    """Fails the reads of one file; those of the others are still under way by then."""

    def __init__(self, file, log: list[str]) -> None:
        self.file = file
        self.log = log

    def fileno(self) -> int:
        return self.file.fileno()

    def pread(self, buf, size=None, file_offset=0):
        if Path(self.file.path).parts[-2:] == ("2", "3"):
            self.log.append("refused")
            raise RuntimeError("cuFile does not want to")
        return self.file.pread(buf, size, file_offset)

    def close(self) -> None:
        self.file.close()


def test_a_read_that_fails_is_done_by_the_host_when_the_others_are_done(tmp_path, device, direct) -> None:
    create(tmp_path / "a", compressor=None)
    log: list[str] = []
    array = opened(tmp_path / "a", device, KvikioReader(lambda path: BreakingFile(direct(path), log), 0))
    np.testing.assert_array_equal(array[:], DATA)
    assert log == ["refused"]
    assert array.backend._reader.failure == "cuFile does not want to"
    assert direct.under_way == 0
    assert len(direct.reads) > 3
