"""A profile counts its own reads and writes, on any thread, and nothing else; nothing is counted without one."""

import asyncio
import contextvars
import threading
from itertools import pairwise

import numpy as np
import pytest
from numcodecs import Blosc

import gzarr
from gzarr.cpu.compiled import library
from gzarr.gpu.device.hostbuild import find_compiler
from gzarr.profiling import recorder, report
from gzarr.profiling.recorder import Row, Stage
from gzarr.storage import MemoryStore

DATA = np.random.default_rng(0).integers(0, 1000, (64, 48)).astype("i4")
DEVICES = ["cpu", "emulated"] if find_compiler() else ["cpu"]
COMPRESSORS = {"none": None, "blosc": Blosc("lz4", 5, Blosc.SHUFFLE), "default": "auto"}
WAIT_S = 300
#: The stage that places many chunks of a memory store.
PLACED = "place" if library.loop() is None else "loop"


def stored(device: str = "cpu", **options) -> gzarr.Array:
    options.setdefault("chunks", (16, 16))
    return gzarr.create_array(data=DATA, device=device, **options)


def check(p: report.Profile) -> None:
    """What holds for every profile."""
    on_host = [row for row in p.timeline if ", " not in row.thread]
    assert p.timeline == sorted(p.timeline, key=lambda row: row.start)
    for thread in {row.thread for row in on_host}:
        rows = [row for row in on_host if row.thread == thread]
        assert all(row.start <= row.end for row in rows)
        assert all(one.end <= two.start for one, two in pairwise(rows))
    for name, stage in p.stages.items():
        mine = [row for row in on_host if row.stage == name]
        assert stage.seconds == pytest.approx(sum(row.end - row.start for row in mine))
        assert stage.batches == len({row.batch for row in mine}) <= stage.calls <= len(mine)
    assert p.busy_s > 0
    assert p.overlap == p.busy_s / p.span_s


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_a_read_is_counted_stage_by_stage(device, compressor) -> None:
    array = stored(device, compressor=COMPRESSORS[compressor])
    with gzarr.config.set({"cpu.native": False}), gzarr.profile() as p:
        np.testing.assert_array_equal(array[:40], DATA[:40])
        assert not p.stages
    check(p)
    nbytes = sum(len(array.store[f"c/{i}/{j}"]) for i in range(3) for j in range(3))
    assert {"locate", "read", "decode", "place"} <= set(p.stages)
    assert (p.stages["read"].chunks, p.stages["read"].bytes_out) == (9, nbytes)
    decode, place = p.stages["decode"], p.stages["place"]
    assert (decode.chunks, decode.bytes_in, decode.bytes_out) == (9, nbytes, 9 * 1024)
    assert (place.chunks, place.bytes_in, place.bytes_out) == (9, 9 * 1024, 40 * 48 * 4)
    assert list(p.stages) == sorted(p.stages, key=report._ORDER.index)
    timed = {name for name, stage in p.stages.items() if stage.device_seconds is not None}
    assert timed == (set() if device == "cpu" else set(p.stages) & {"upload", "parse", "decode", "place"})
    assert p.timeline[0].stage == "locate"
    lines = str(p).splitlines()
    assert [line.split()[:2] for line in lines[1 : 1 + len(p.stages)]] == [
        [n, str(s.calls)] for n, s in p.stages.items()
    ]


@pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")
def test_reads_of_chunks_in_memory_are_counted() -> None:
    array = stored(compressor=COMPRESSORS["blosc"])
    with gzarr.profile() as p:
        np.testing.assert_array_equal(array[:40], DATA[:40])
    check(p)
    nbytes = sum(len(array.store[f"c/{i}/{j}"]) for i in range(3) for j in range(3))
    assert set(p.stages) == {"loop", "read"}
    assert (p.stages["read"].chunks, p.stages["read"].bytes_out) == (9, nbytes)
    assert (p.stages["loop"].chunks, p.stages["loop"].bytes_out) == (9, 40 * 48 * 4)


@pytest.mark.parametrize("device", DEVICES)
def test_shards_points_and_missing_chunks(device) -> None:
    array = stored(device, shards=(32, 16))
    array[:16, :16] = 0
    with gzarr.profile() as p:
        found = array.vindex[[1, 20, 20], [2, 3, 40]]
    np.testing.assert_array_equal(found, [0, *DATA[[20, 20], [3, 40]]])
    check(p)
    assert p.stages["place"].chunks == 3
    assert p.stages["place"].bytes_out == 3 * 4
    assert (p.stages["decode"].chunks, p.stages["decode"].bytes_out) == (2, 2048)


@pytest.mark.parametrize("device", DEVICES)
def test_a_write_is_counted_stage_by_stage(device) -> None:
    array = stored(device)
    with gzarr.config.set({"cpu.native": False}), gzarr.profile() as p:
        array[8:40] = DATA[8:40] + 1
    check(p)
    assert {"load old", "encode", "store", "build"} <= set(p.stages)
    assert p.stages["load old"].bytes_out > 0
    encode = p.stages["encode"]
    assert (encode.chunks, encode.bytes_in) == (9, 9 * 1024)
    assert 0 < encode.bytes_out == sum(len(array.store[f"c/{i}/{j}"]) for i in range(3) for j in range(3))
    assert p.stages["store"].bytes_in == encode.bytes_out
    assert not {"read", "place"} & set(p.stages)


def test_threads_of_the_pool_count_and_other_threads_do_not() -> None:
    data = np.zeros((8, 1 << 16), "i4")
    data += np.arange(8, dtype="i4")[:, None] + 1
    store = MeetingStore()
    array = gzarr.create_array(store, data=data, chunks=(1, 1 << 16))
    other = stored()
    store.meeting = threading.Barrier(2)
    with gzarr.config.set({"threading.max_workers": 2}), gzarr.profile() as p:
        bystander = threading.Thread(target=lambda: other[:])
        bystander.start()
        np.testing.assert_array_equal(array[:], data)
        bystander.join(WAIT_S)
    check(p)
    assert p.stages["read"].chunks == p.stages[PLACED].chunks == 8
    assert len({row.thread for row in p.timeline}) == 2
    assert p.stages["read"].batches >= 2
    assert p.overlap_s("read", "read") > 0


@pytest.mark.parametrize("device", DEVICES)
def test_reads_that_a_store_makes_count(device) -> None:
    inner = stored()

    class Store(MemoryStore):
        def get_many(self, requests):
            inner[:16]
            return super().get_many(requests)

    array = gzarr.create_array(Store(), data=DATA, chunks=(16, 16), device=device)
    with gzarr.profile() as p:
        thread = threading.Thread(target=contextvars.copy_context().run, args=(array.__getitem__, slice(None)))
        thread.start()
        thread.join(WAIT_S)
    check(p)
    assert p.stages["read"].chunks == 12 + 3 * p.stages["read"].calls // 2
    assert p.stages["read"].batches == p.stages["read"].calls > 1


class MeetingStore(MemoryStore):
    """The first two readers of chunks wait for each other."""

    meeting: threading.Barrier | None = None
    to_come = 2

    def get_many(self, requests):
        if self.meeting is not None and self.to_come:
            self.to_come -= 1
            self.meeting.wait(WAIT_S)
        return super().get_many(requests)


def test_a_profile_within_another_counts_in_both() -> None:
    array = stored()
    with gzarr.profile() as outer:
        array[:16]
        with gzarr.profile() as inner:
            array[:32]
        array[:16]
    assert [p.stages["read"].chunks for p in (outer, inner)] == [12, 6]
    assert outer.stages["read"].batches == 3
    assert {row.batch for row in inner.timeline} == {0}
    assert {row.batch for row in outer.timeline} == {0, 1, 2}
    check(outer)
    check(inner)


@pytest.mark.parametrize("device", DEVICES)
def test_coroutines_count_their_own(device) -> None:
    array = stored(device)

    async def profiled(n: int) -> report.Profile:
        with gzarr.profile() as p:
            await asyncio.gather(*(array.aread(slice(0, 16)) for _ in range(n)))
        return p

    async def both() -> list[report.Profile]:
        return await asyncio.gather(profiled(1), profiled(4))

    with gzarr.profile() as around:
        found = asyncio.run(both())
    assert [p.stages["read"].chunks for p in found] == [3, 12]
    assert around.stages["read"].chunks == 15
    for p in found:
        check(p)


def test_nothing_is_noted_without_a_profile_nor_after_it() -> None:
    array = stored()
    assert recorder.recorder_for("cpu") is None
    assert recorder.recorder_for("cuda:0") is None
    assert recorder.stage("read") is recorder.stage("decode")
    array.store["c/0/0"] = b"damage"
    with pytest.raises(gzarr.ChunkError), gzarr.profile() as p:
        array[:]
    assert p.stages["read"].calls >= 1
    check(p)
    assert recorder.active.get() is None
    assert recorder._here.top is None
    before = len(p.timeline)
    array[16:]
    assert len(p.timeline) == before
    with gzarr.profile() as p:
        pass
    assert str(p) == "nothing was read or written"
    assert p.overlap == 0


def test_rows_are_limited_and_sums_are_not(monkeypatch) -> None:
    monkeypatch.setattr(recorder, "MAX_ROWS", 5)
    array = stored()
    with gzarr.profile() as p:
        for _ in range(4):
            array[:]
    assert len(p.timeline) == 5 < p.n_rows
    assert p.stages["read"].chunks == 48
    # The work of a single thread takes no longer than the profile, whichever rows are kept.
    assert p.busy_s <= p.span_s
    monkeypatch.setattr(report, "MAX_ROWS", 5)
    assert str(p).splitlines()[-1].endswith(f"the first 5 of {p.n_rows} stretches")


@pytest.mark.skipif(library.status() != "on", reason="the compiled loop is not there")
@pytest.mark.parametrize("how", ["files", "shards", "points", "left"])
def test_the_compiled_loop_counts_what_it_does(how, tmp_path) -> None:
    data = np.random.default_rng(1).integers(1, 1000, (70, 64)).astype("i4")
    shards = {"shards": (80, 64)} if how == "shards" else {}
    path = tmp_path / "a"
    array = gzarr.create_array(path, data=data, chunks=(10, 8), compressors=gzarr.codecs.ZstdCodec(1), **shards)
    array[20:30, 8:16] = 0  # no chunk is stored
    files = [p for p in path.rglob("*") if p.is_file() and p.name != "zarr.json"]
    encoded = sum(p.stat().st_size for p in files) - (64 * 16 + 4 if how == "shards" else 0)
    if how == "left":  # the first of a piece
        (path / "c/0/0").write_bytes(b"damage")
    with gzarr.config.set({"threading.max_workers": 1}), gzarr.profile() as p:
        if how == "points":
            array.vindex[[3, 60] * 30, [1] * 60]
        elif how == "left":
            with pytest.raises(gzarr.ChunkError):
                array[3:68, 1:]
        else:
            array[3:68, 1:]
    check(p)
    loop = p.stages["loop"]
    counts = loop.chunks, loop.bytes_in, loop.bytes_out
    match how:
        case "points":
            encoded = sum((path / f"c/{row}/0").stat().st_size for row in (0, 6))
            assert counts == (2, encoded, 60 * 4)
        case "left":
            assert 0 < loop.chunks < 56
            assert 0 < loop.bytes_in < encoded
            assert 0 < loop.bytes_out < loop.chunks * 10 * 8 * 4
        case _:
            assert counts == (56, encoded, 65 * 63 * 4)


def test_cached_chunks_are_not_read_again() -> None:
    array = gzarr.open_array(stored().store, mode="r", chunk_cache=1 << 20)
    array[:]
    with gzarr.profile() as p:
        array[:]
    assert "read" not in p.stages


def test_overlap_is_that_of_different_batches() -> None:
    rows = [
        Row("read", 0, "a", 0.0, 1.0),
        Row("decode", 0, "a", 1.0, 4.0),
        Row("read", 1, "b", 1.0, 2.0),
        Row("decode", 1, "b", 2.0, 3.0),
        Row("read", 2, "c", 2.5, 3.5),
        Row("place", 0, "a", 4.0, 5.0),
        Row("read", 3, "b", 4.5, 6.0),
    ]
    p = report.Profile(timeline=rows)
    assert p.overlap_s("read", "decode") == pytest.approx(2.0)
    assert p.overlap_s("read", ("decode", "place")) == pytest.approx(2.5)
    assert p.overlap_s("decode", "decode") == pytest.approx(1.0)
    assert (p.overlap_s("read", "read"), p.overlap_s("read", "check")) == (0, 0)


def test_rates_go_by_the_larger_time_and_size() -> None:
    assert Stage(seconds=2.0, bytes_in=10, bytes_out=40).bytes_per_s == 20
    assert Stage(seconds=2.0, device_seconds=4.0, bytes_in=40, bytes_out=4).bytes_per_s == 10
    assert Stage(bytes_in=40).bytes_per_s == 0
