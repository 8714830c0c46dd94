"""Writes by tables store what the reference path stores, byte for byte, and leave it what it should look at."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.write import LoopWrite
from gzarr.errors import GzarrError
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.pipeline.batches import NEVER
from gzarr.gpu.pipeline.eligibility import DeviceJobs
from gzarr.gpu.pipeline.write_job import DeviceWrite
from gzarr.storage import LocalStore, MemoryStore
from tests.cpu.compiled.looping import files
from tests.gpu.counted import CountingDevice, on_device
from tests.support.threads import side_by_side

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")

SHAPE, CHUNK, SHARD = (100, 80), (10, 8), (30, 24)
INNER: list[Any] = [BytesCodec(), ZstdCodec(1)]
CHAINS: dict[str, dict[str, Any]] = {
    "zstd": {"chunks": CHUNK, "codecs": INNER},
    "plain": {"chunks": CHUNK, "codecs": [BytesCodec()]},
    "plain big-endian": {"chunks": CHUNK, "codecs": [BytesCodec("big")]},
    "blosc": {"chunks": CHUNK, "codecs": [BytesCodec(), BloscCodec("lz4", 5, "shuffle", 4)]},
    "transposed with checksum": {"chunks": CHUNK, "codecs": [TransposeCodec((1, 0)), *INNER, Crc32cCodec()]},
    "v2": {"chunks": CHUNK, "zarr_format": 2, "compressor": numcodecs.Blosc("zstd", 5, numcodecs.Blosc.BITSHUFFLE)},
    "v2 in Fortran order": {"chunks": CHUNK, "zarr_format": 2, "order": "F", "compressor": numcodecs.Zstd(1)},
    "shards": {"chunks": SHARD, "codecs": [ShardingCodec(CHUNK, [*INNER, Crc32cCodec()])]},
    "shards of plain": {"chunks": SHARD, "codecs": [ShardingCodec(CHUNK, [BytesCodec()], index_location="start")]},
    "transposed shards": {"chunks": SHARD, "codecs": [TransposeCodec((1, 0)), ShardingCodec(CHUNK[::-1], INNER)]},
}


@pytest.fixture(scope="module")
def device() -> CountingDevice:
    return CountingDevice()


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was decided on every write."""
    return watch(monkeypatch)


def watch(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    decisions: list[Any] = []
    take = DeviceJobs.take_write

    def noted(self: DeviceJobs, *args: Any, **keywords: Any) -> Any:
        decisions.append(take(self, *args, **keywords))
        return decisions[-1]

    monkeypatch.setattr(DeviceJobs, "take_write", noted)
    return decisions


def opened(path: Any, device: Any, **options: Any) -> gzarr.Array:
    return gzarr.open_array(path, device=GpuBackend(device, small_reads=NEVER, small_writes=NEVER, **options))


def made(path: Any, device: Any, chain: str = "zstd", dtype: str = "<i4", fill: Any = 0, **options: Any) -> gzarr.Array:
    gzarr.create_array(path, shape=SHAPE, dtype=dtype, fill_value=fill, **CHAINS[chain])
    return opened(path, device, **options)


def both_ways(folder: Path, write: Callable[[Path], None]) -> dict[str, bytes]:
    """The files that a function leaves, which must be those that it leaves by the reference path."""
    found = []
    for by_tables in (True, False):
        path = folder / str(by_tables)
        with pytest.MonkeyPatch.context() as patch:
            if not by_tables:
                patch.setattr(DeviceJobs, "take_write", lambda *_, **__: "this is the reference")
            write(path)
        found.append(files(path))
    assert found[0] == found[1]
    return found[0]


def is_chunk(path: str) -> bool:
    return path[-1].isdigit()


# -- what is stored --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chain", CHAINS)
@settings(max_examples=2)
@given(data=st.data())
def test_any_write_leaves_the_files_of_the_reference_path(
    chain: str, tmp_path_factory: pytest.TempPathFactory, device: CountingDevice, data: st.DataObject
) -> None:
    dtype = data.draw(st.sampled_from(["<i4", ">f4", "u1", "<f8"]))
    given_dtype = data.draw(st.sampled_from([dtype, dtype, "<i2", np.dtype(dtype).newbyteorder().str]))
    keep_empty, on_host = data.draw(st.booleans()), data.draw(st.booleans())
    model = np.random.default_rng(data.draw(st.integers(0, 9))).integers(1, 99, SHAPE).astype(given_dtype)
    model[:40, 16:40] = 0
    keys = []
    for n in SHAPE:
        low, high = data.draw(st.tuples(st.integers(0, n // 4), st.integers(n // 2, n)))
        keys.append(data.draw(st.sampled_from([slice(low, high), slice(None), slice(low, high, 2)])))
    rows = data.draw(st.lists(st.integers(0, SHAPE[0] - 1), min_size=1, max_size=60, unique=True))
    if data.draw(st.booleans()):
        model = np.asfortranarray(model)

    def write(path: Path) -> None:
        array = made(path, device, chain, dtype)
        give = np.asarray if on_host else on_device
        with gzarr.config.set({"array.write_empty_chunks": keep_empty}):
            array[tuple(keys)] = give(model[tuple(keys)])
            array.oindex[rows] = give(model[rows])
            array[...] = give(model)
            array[30:90, 8:] = give(np.zeros((60, 72), given_dtype))
            array[5:95] = give(model[0])
            array[:, 10:] = 77.7

    both_ways(tmp_path_factory.mktemp("writes"), write)


@pytest.mark.parametrize("on_host", [False, True], ids=["value on the device", "value on the host"])
@pytest.mark.parametrize("chain", CHAINS)
def test_whole_chunks_are_written_by_tables(
    chain: str, on_host: bool, tmp_path: Path, device: CountingDevice, taken: list[Any]
) -> None:
    array = made(tmp_path, device, chain)
    model = np.arange(1, 8001, dtype="i4").reshape(SHAPE)
    array[...] = model if on_host else on_device(model)
    if on_host and "plain" in chain:
        assert [type(job) for job in taken] == [LoopWrite]
    else:
        (job,) = taken
        assert isinstance(job, DeviceWrite)
        assert sum(piece.whole.sum() for piece in job.batches) == (9 if "shards" in chain else 100)
    assert (array.to("cpu")[...] == model).all()
    row = {row.step: row for row in array.placement}["bulk writes"]
    assert (row.where, row.why) == (device.name, "by tables")


def test_a_write_in_many_batches(tmp_path: Path, device: CountingDevice, taken: list[Any]) -> None:
    """Also with batches that do not fit at first, and shards that do not fit at all."""
    model = np.arange(1, 8001, dtype="i4").reshape(SHAPE)
    for chain in ("zstd", "shards"):
        for cap in (3 * 400_000, 3 * 1_500_000):
            path = tmp_path / f"{chain}{cap}"
            array = made(path, device, chain, max_device_nbytes=cap)
            array[...] = on_device(model)
            assert isinstance(taken[-1], DeviceWrite)
            assert len(list(taken[-1].batches)) > 1
            assert (array.to("cpu")[...] == model).all()


def test_what_is_empty_is_deleted(tmp_path: Path, device: CountingDevice) -> None:
    for chain in ("zstd", "shards"):
        array = made(tmp_path / chain, device, chain)
        array[...] = on_device(np.ones(SHAPE, "i4"))
        assert [path for path in files(tmp_path / chain) if is_chunk(path)]
        array[:90, :72] = on_device(np.zeros((90, 72), "i4"))
        assert (array.to("cpu")[...] == np.pad(np.zeros((90, 72)), ((0, 10), (0, 8)), constant_values=1)).all()
        array[...] = on_device(np.zeros(SHAPE, "i4"))
        assert not [path for path in (tmp_path / chain).rglob("*") if path.name != "zarr.json"]


def test_other_stores_are_given_whole_chunks(device: CountingDevice, taken: list[Any]) -> None:
    model = np.arange(8000, dtype="i4").reshape(SHAPE)
    model[:20] = 0
    found = []
    for store in (MemoryStore(), MemoryStore()):
        array = made(store, device)
        array[...] = on_device(np.ones(SHAPE, "i4"))
        array[...] = on_device(model) if not found else model
        found.append({key: bytes(value) for key, value in store.items()})
        assert (array.to("cpu")[...] == model).all()
    assert found[0] == found[1]
    assert all(isinstance(job, DeviceWrite) and job.array.into is None for job in taken)


# -- what is left ----------------------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_replaced_is_an_error_of_the_reference(tmp_path: Path, device: CountingDevice) -> None:
    """A directory is in the place of a chunk; the others are stored."""
    said = []
    for by_tables in (True, False):
        path = tmp_path / str(by_tables)
        array = made(path, device)
        (path / "c" / "3" / "3").mkdir(parents=True)
        (path / "c" / "3" / "3" / "x").write_bytes(b"")
        with pytest.MonkeyPatch.context() as patch:
            if not by_tables:
                patch.setattr(DeviceJobs, "take_write", lambda *_, **__: "this is the reference")
            with pytest.raises(GzarrError) as error:
                array[...] = on_device(np.ones(SHAPE, "i4"))
        said.append(f"{type(error.value).__name__}: {error.value}".replace(str(path), ""))
        assert not [name for name in files(path) if "tmp" in name]
    assert said[0] == said[1]


def test_chunks_that_the_encoder_refuses_give_the_error_of_the_reference_path(
    tmp_path: Path, device: CountingDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gzarr.errors import CodecError

    array = made(tmp_path, device)
    compress = device.compress
    calls = []

    def refuse(encoder: str, source: Any, *args: Any) -> Any:
        calls.append(source.size)
        if len(calls) == 1:
            raise CodecError("made to fail", index=3, codec="zstd")
        return compress(encoder, source, *args)

    monkeypatch.setattr(device, "compress", refuse)
    array[...] = on_device(np.full(SHAPE, 7, "i4"))
    assert len(calls) > 1
    assert (array.to("cpu")[...] == 7).all()


def test_a_locked_object_is_waited_for(tmp_path: Path, device: CountingDevice) -> None:
    for chain, coords in (("zstd", (2, 2)), ("shards", (1, 1))):
        array = made(tmp_path / chain, device, chain)
        store = LocalStore(tmp_path / chain)
        key = array._io.layout.key(coords)
        model = np.arange(1, 8001, dtype="i4").reshape(SHAPE)
        locked, go = threading.Event(), threading.Event()

        def hold(store: LocalStore = store, key: str = key, locked: Any = locked, go: Any = go) -> None:
            with store.locked([key]):
                locked.set()
                go.wait(60)

        holder = threading.Thread(target=hold)
        holder.start()
        assert locked.wait(60)
        writer = threading.Thread(target=array.__setitem__, args=(..., on_device(model)))
        writer.start()
        writer.join(0.5)
        assert writer.is_alive()
        go.set()
        writer.join(60)
        holder.join(60)
        assert (array.to("cpu")[...] == model).all()


def test_writers_beside_each_other_lose_nothing(tmp_path: Path, device: CountingDevice) -> None:
    for chain in ("zstd", "shards"):
        array = made(tmp_path / chain, device, chain)
        keys = [np.s_[:50], np.s_[50:]]

        def write(key: Any, array: gzarr.Array = array) -> None:
            for n in range(1, 6):
                array[key] = on_device(np.full((50, 80), n, "i4"))

        side_by_side(write, keys)
        assert (array.to("cpu")[...] == 5).all()


@pytest.mark.parametrize("chain", ["zstd", "shards"])
def test_what_reaches_beyond_the_array_keeps_what_others_have_appended(
    chain: str, tmp_path: Path, device: CountingDevice, taken: list[Any]
) -> None:
    gzarr.create_array(tmp_path, shape=(85, 75), dtype="i4", **CHAINS[chain])
    array = opened(tmp_path, device)
    other = gzarr.open_array(tmp_path, "r+")
    other.resize((100, 80))
    other[...] = 9
    array[...] = on_device(np.full((85, 75), 1, "i4"))
    assert isinstance(taken[0], DeviceWrite)
    expected = np.full((100, 80), 9)
    expected[:85, :75] = 1
    assert (gzarr.open_array(tmp_path)[...] == expected).all()


@pytest.mark.parametrize("chain", ["shards", "shards of plain", "transposed shards"])
def test_shards_that_are_covered_in_part_keep_their_other_chunks(
    chain: str, tmp_path: Path, device: CountingDevice, taken: list[Any]
) -> None:
    """Also some that are not there, and one that becomes empty."""
    model = np.random.default_rng(4).integers(1, 99, SHAPE, "i4")
    new = model + 100
    new[3:30, 5:24] = 0
    expected = model.copy()

    def write(path: Path) -> None:
        array = made(path, device, chain)
        with gzarr.config.set({"cpu.native": False}):
            array[:60] = model[:60]
            array[:30, :24] = np.where(np.indices((30, 24)).sum(axis=0) < 3, 0, 0)
        array[3:97, 5:75] = on_device(new[3:97, 5:75])
        expected[:] = 0
        expected[:60] = model[:60]
        expected[:30, :24] = 0
        expected[3:97, 5:75] = new[3:97, 5:75]
        assert (gzarr.open_array(path)[...] == expected).all()

    found = both_ways(tmp_path, write)
    assert not [path for path in found if path.endswith("0/0")]
    (job,) = [job for job in taken if isinstance(job, DeviceWrite)]
    assert [piece.whole.sum() for piece in job.batches] == [4]


@pytest.mark.parametrize("damage", ["truncated", "index", "chunk"])
def test_damaged_shards_are_merged_as_by_the_reference(damage: str, tmp_path: Path, device: CountingDevice) -> None:
    said = []
    for by_tables in (True, False):
        path = tmp_path / str(by_tables)
        array = made(path, device, "shards")
        array[...] = on_device(np.arange(1, 8001, dtype="i4").reshape(SHAPE))
        shard = path / "c" / "1" / "1"
        whole = bytearray(shard.read_bytes())
        whole[{"truncated": 0, "index": -9, "chunk": 60}[damage]] ^= 0xFF
        shard.write_bytes(whole[:50] if damage == "truncated" else whole)
        error = None
        with pytest.MonkeyPatch.context() as patch:
            if not by_tables:
                patch.setattr(DeviceJobs, "take_write", lambda *_, **__: "this is the reference")
            try:
                array[5:95, 5:75] = on_device(np.full((90, 70), 7, "i4"))  # covers all of it
                array[33:58, 25:47] = on_device(np.full((25, 22), 8, "i4"))  # not its first chunk
            except GzarrError as raised:
                error = f"{type(raised).__name__}: {raised}".replace(str(path), "")
        said.append((error, files(path)))
    assert said[0] == said[1]


# -- who decides -----------------------------------------------------------------------------------------------------


@pytest.fixture
def reasons(monkeypatch: pytest.MonkeyPatch, device: CountingDevice) -> Iterator[Callable[..., str]]:
    taken = watch(monkeypatch)

    def why(path: Any, value: Any = None, key: Any = ..., **how: Any) -> str:
        gzarr.create_array(path, **{"shape": SHAPE, "dtype": "i4", "chunks": CHUNK, **how})
        array = opened(path, device)
        array[key] = on_device(np.ones(SHAPE, "i4")[key]) if value is None else value
        assert isinstance(taken[-1], str)
        return taken[-1]

    return why


def test_what_the_reference_path_does(reasons: Callable[..., str], tmp_path: Path) -> None:
    names = iter(map(str, range(99)))

    def why(*args: Any, **how: Any) -> str:
        return reasons(tmp_path / next(names), *args, **how)

    assert "too few chunks" in why(key=np.s_[:10, :8])
    assert "encoded" in why(codecs=[BytesCodec(), GzipCodec(1), BloscCodec()]) or "host" in why(
        compressors=numcodecs.BZ2(1)
    )
    assert "read by the reference path" in why(gzarr.array(np.ones(SHAPE, "i4"), chunks=(50, 50)))
    assert "differ in shape" in why(chunks=((40, 60), (8,) * 10))
    assert "nested" in why(chunks=SHARD, codecs=[ShardingCodec(SHARD, [ShardingCodec(CHUNK, INNER)])])
    assert "does not expose local files" in reasons(MemoryStore(), **CHAINS["shards"])
    with gzarr.config.set({"cpu.native": False}):
        assert "disabled" in why()
