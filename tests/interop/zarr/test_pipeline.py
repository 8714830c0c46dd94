"""zarr-python with gzarr's pipeline gives what it gives with its own: arrays of every kind, every kind of selection."""

import asyncio
import logging
import pickle
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numcodecs
import numpy as np
import pytest

from tests.support.processes import run_python

pytest.importorskip("zarr", minversion="3.1")
import zarr
from zarr.codecs import BloscCodec, BytesCodec, TransposeCodec, ZstdCodec
from zarr.storage import LocalStore, MemoryStore, WrapperStore, ZipStore

import gzarr
from gzarr.devices import backend_for
from gzarr.interop.zarr import CodecPipeline, arrays, install

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

SHAPE = (23, 17)
RECORD = np.dtype([("a", "<i4"), ("b", "<f8"), ("c", "<i4")])
SELECTIONS = {
    "all": lambda a: a[...],
    "window": lambda a: a[3:20, 5:6],
    "strided": lambda a: a[1:22:3, ::9],
    "row": lambda a: a[7],
    "element": lambda a: a[-1, -1],
    "empty": lambda a: a[4:4, :],
}
ADVANCED = {
    "orthogonal": ("oindex", ([3, 1, 22, 3], slice(2, 15))),
    "lists": ("oindex", ([0, 9, 10], [16, 2])),
    "mask": ("oindex", (np.arange(23) % 3 == 0, 4)),
    "points": ("vindex", ([22, 0, 5, 5], [0, 16, 3, 3])),
}


@pytest.fixture(autouse=True)
def pipeline(caplog):
    caplog.set_level(logging.DEBUG, "gzarr.interop.zarr")
    install()
    yield
    zarr.config.reset()


@pytest.fixture(params=["local", "memory", "wrapped", "zip"])
def store(request, tmp_path):
    if request.param == "local":
        return LocalStore(tmp_path / "x.zarr")
    if request.param == "zip":
        return ZipStore(tmp_path / "x.zip", mode="w")
    return WrapperStore(MemoryStore()) if request.param == "wrapped" else MemoryStore()


def create(store=None, **how):
    return zarr.create_array(store={} if store is None else store, **{"shape": SHAPE, "chunks": (5, 4), **how})


def own(array):
    """The same array with zarr-python's own pipeline."""
    with zarr.config.set({"codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline"}):
        return zarr.open_array(array.store_path, mode="r")


def agree(array, expected):
    np.testing.assert_array_equal(own(array)[...], expected)
    for select in SELECTIONS.values():
        np.testing.assert_array_equal(select(array), select(expected))
    for how, selection in ADVANCED.values():
        np.testing.assert_array_equal(getattr(array, how)[selection], getattr(own(array), how)[selection])


def numbers(dtype="i4"):
    return np.arange(np.prod(SHAPE)).reshape(SHAPE).astype(dtype)


def is_gzarrs(caplog):
    return not caplog.records


@pytest.mark.parametrize(
    "how",
    [
        {"zarr_format": 2},
        {"zarr_format": 2, "order": "F"},
        {"shards": (10, 8)},
        {"filters": [TransposeCodec(order=(1, 0))], "serializer": BytesCodec(endian="big")},
        {"compressors": [BloscCodec(), ZstdCodec()], "fill_value": 3},
    ],
)
def test_every_selection_of_every_layout(how, caplog):
    array, expected = create(dtype="i4", **how), numbers()
    array[...] = expected
    agree(array, expected)
    array[3:20, 5:6] = expected[3:20, 5:6] = 7
    array[2] = expected[2] = np.arange(17)
    array.oindex[[3, 1], 2:15] = expected[[3, 1], 2:15] = np.ones((2, 13))
    array.vindex[[22, 0], [0, 16]] = expected[[22, 0], [0, 16]] = [8, 9]
    agree(array, expected)
    assert is_gzarrs(caplog)


def test_any_store(store, caplog):
    array = create(store, dtype="f4", chunks=(5, 4), shards=(10, 8))
    array[...] = numbers()
    np.testing.assert_array_equal(array[7:9, 3], numbers()[7:9, 3])
    np.testing.assert_array_equal(array[...], numbers())
    assert is_gzarrs(caplog)


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (str, ["a", "", "longer", "ü"]),
        ("S3", [b"a", b"", b"abc", b"z"]),
        ("datetime64[s]", ["2001-01-01", "NaT", "1999-12-31", "1970-01-01"]),
        (RECORD, [(1, 2.5, 3), (4, 5.5, 6), (7, 8.5, 9), (0, 0, 0)]),
    ],
)
def test_elements_that_are_no_numbers(dtype, values, zarr_format, caplog):
    array = create(shape=5, chunks=3, dtype=dtype, zarr_format=zarr_format)
    array[:4] = np.array(values, array.dtype)
    np.testing.assert_array_equal(array[:], own(array)[:])
    assert array[2] == own(array)[2]
    assert is_gzarrs(caplog)


@pytest.mark.parametrize("dtype", [">i4", ">M8[s]"])
def test_big_endian_elements(dtype, zarr_format):
    values = np.arange(5, dtype=">i8").view(dtype) if dtype[1] in "mM" else np.arange(5).astype(dtype)
    array = create(data=values, shape=None, chunks=3, zarr_format=zarr_format)
    assert array[:].astype(">i8").tolist() == own(array)[:].astype(">i8").tolist() == values.astype(">i8").tolist()


def test_fields_that_are_known_by_their_dtype():
    array = create(shape=5, chunks=3, dtype=RECORD)
    array[:] = values = np.array([(i, i / 2, -i) for i in range(5)], RECORD)
    np.testing.assert_array_equal(array.get_basic_selection(slice(1, 5), fields="b"), values["b"][1:5])
    np.testing.assert_array_equal(array.get_basic_selection(slice(1, 5), fields=["c", "a"]), values[["c", "a"]][1:5])


@pytest.mark.skipif("array.rectilinear_chunks" not in zarr.config, reason="zarr-python 3.1 has no rectilinear chunks")
def test_rectilinear_chunks(caplog):
    with zarr.config.set({"array.rectilinear_chunks": True}):
        array = create(dtype="i4", chunks=([10, 4, 9], 4))
        array[...] = expected = numbers()
        agree(array, expected)
        array.resize((30, 17))
        array[20:, 3] = np.arange(10)
        np.testing.assert_array_equal(array[...], own(array)[...])
    assert is_gzarrs(caplog)


def test_an_array_without_axes(caplog):
    for zarr_format in (2, 3):
        array = create(shape=(), chunks=(), dtype="f4", zarr_format=zarr_format)
        array[...] = 5
        assert (array[...], array[()]) == (5, 5)
    assert is_gzarrs(caplog)


@pytest.mark.parametrize("shards", [None, (10, 8)])
def test_a_resized_array(shards):
    """zarr-python keeps the pipeline: gzarr must not go by the shape that the array had."""
    results = []
    for opened in (create, lambda **how: own_writable(create(**how))):
        array = opened(dtype="i4", shards=shards)
        array[...] = numbers()
        array.resize((7, 15))
        array[5:, 10:] = 1
        array.resize((40, 30))
        array[20:, 14:] = 2
        results.append(array[...])
    np.testing.assert_array_equal(*results)


def own_writable(array):
    with zarr.config.set({"codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline"}):
        return zarr.open_array(array.store_path, mode="r+")


def test_chunks_of_fill_value_are_not_stored():
    kept, dropped = create(dtype="i4", config={"write_empty_chunks": True}), create(dtype="i4")
    for array in (kept, dropped):
        array[...] = 0
    assert (kept.nchunks_initialized, dropped.nchunks_initialized) == (25, 0)


def test_errors_are_those_of_zarr(caplog):
    array = create(dtype="i4")
    array[...] = 1
    key = array.metadata.encode_chunk_key((0, 0))
    zarr.core.sync.sync(array.store.set(key, zarr.core.buffer.cpu.Buffer.from_bytes(b"damage")))
    with pytest.raises(Exception) as expected:
        own(array)[...]
    with pytest.raises(type(expected.value), match=str(expected.value)):
        array[...]
    assert "chunk (0, 0)" in caplog.text


@pytest.mark.parametrize("use", [lambda a: a[:30], lambda a: a.__setitem__(slice(3, 30), 1)], ids=["read", "write"])
def test_damage_that_zarr_python_does_not_find_is_an_error(use, tmp_path):
    array = create(tmp_path, shape=40, chunks=20, dtype="i4", compressors=[BloscCodec()])
    array[:] = np.arange(40)
    chunk = tmp_path / "c/0"
    chunk.write_bytes(half := chunk.read_bytes()[:48])
    with pytest.raises(gzarr.ChunkError, match="expected 96 encoded bytes, got 48"):
        use(array)
    assert chunk.read_bytes() == half
    array[:20] = 7  # replaces it
    assert array[:30].tolist() == [7] * 20 + list(range(20, 30))


@pytest.mark.parametrize("value", [300, np.int64(300), np.float64("nan"), np.datetime64("2020-01-01"), np.array(300)])
def test_scalars_become_what_zarr_makes_of_them(value):
    """NumPy's wrap around, where gzarr's own arrays refuse them as NumPy's do."""
    results = []
    for path in ("zarr.core.codec_pipeline.BatchedCodecPipeline", "gzarr.interop.zarr.CodecPipeline"):
        with zarr.config.set({"codec_pipeline.path": path}), np.errstate(invalid="ignore"):
            array = create(dtype="i1")
            try:
                array[3:9] = value
                array.oindex[[0, 20]] = value
                results.append(array[...].tolist())
            except (OverflowError, ValueError, TypeError) as error:
                results.append(str(error))
    assert results[0] == results[1]


def test_codecs_of_other_packages_and_trusted_pickles_are_left_to_zarr(monkeypatch, caplog):
    class Other(ZstdCodec):
        pass

    monkeypatch.setattr(numcodecs.pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)
    for codec, zarr_format in ((Other(), 3), (numcodecs.Pickle(), 2)):
        array = create(dtype="i4", compressors=codec, zarr_format=zarr_format)
        array[...] = numbers()
        np.testing.assert_array_equal(array[...], numbers())
        assert "NotHandledError" in repr(array._async_array.codec_pipeline._bound)
    assert not is_gzarrs(caplog)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_arrays_that_are_alike_share_what_is_prepared_and_nothing_else(zarr_format, tmp_path, monkeypatch, caplog):
    """The same directory in turn holds arrays that differ in one thing each, also in bits that compare equal."""
    made = []
    prepare = arrays.prepare_array
    monkeypatch.setattr(arrays, "prepare_array", lambda meta, *how: made.append(meta) or prepare(meta, *how))
    one = {"shape": (4,), "chunks": (2,), "dtype": "f8", "fill_value": 0.0, "compressors": None}
    zstd = numcodecs.Zstd if zarr_format == 2 else ZstdCodec
    checked = [{"compressors": zstd(level=3, checksum=checksum)} for checksum in (False, True)]
    other = [{"fill_value": -0.0}, {"dtype": ">f8"}, {"chunks": (4,)}, *checked, {}]
    for changed in other:
        zarr.create_array(tmp_path, **one | changed, zarr_format=zarr_format, overwrite=True)[2:] = [3, 4]
        for _ in range(2):  # the second one is opened with what was prepared for the first
            read = zarr.open_array(tmp_path, mode="r")[:]
            assert read.tolist() == [0, 0, 3, 4]
            assert np.signbit(read[0]) == np.signbit((one | changed)["fill_value"])
    assert len(made) == len(other)
    for n in range(2):  # a relative path means another directory
        (tmp_path / f"in{n}").mkdir()
        monkeypatch.chdir(tmp_path / f"in{n}")
        zarr.create_array("x.zarr", **one, zarr_format=zarr_format)[:] = n
        assert zarr.open_array("x.zarr", mode="r")[:].tolist() == [n] * 4
    assert not caplog.records


class Other(numcodecs.Zlib):
    """A codec that looks like one of numcodecs, and does something else."""

    __repr__ = numcodecs.Zlib.__repr__

    def encode(self, buf):
        return bytes(super().encode(buf))[::-1]

    def decode(self, buf, out=None):
        return super().decode(bytes(buf)[::-1], out)


def test_nothing_is_shared_by_codecs_that_only_look_alike(tmp_path):
    codecs = [numcodecs.Categorize(list(labels), "U1", "u1") for labels in ("abcd", "abcz")]
    for codec in codecs:
        made = {"chunks": (4,), "dtype": "U1", "compressors": None, "filters": [codec], "fill_value": ""}
        zarr.create_array(tmp_path, shape=(4,), **made, zarr_format=2, overwrite=True)[:] = codec.labels
        assert zarr.open_array(tmp_path, mode="r")[:].tolist() == list(codec.labels)
    for codec in (numcodecs.Zlib(1), Other(1)):
        made = {"shape": (4,), "chunks": (4,), "dtype": "i4", "compressors": codec, "zarr_format": 2}
        zarr.create_array(tmp_path, **made, overwrite=True)[:] = range(4)
        assert codec.decode((tmp_path / "0").read_bytes()) == np.arange(4, dtype="i4").tobytes()


def test_reads_of_many_files_or_much_of_a_shard_do_not_stop_the_event_loop(tmp_path, monkeypatch):
    threads = []
    to_thread = asyncio.to_thread
    monkeypatch.setattr("gzarr.interop.zarr.arrays._QUICK_S", np.inf)
    for name, chunks, shards, n in (("files", (1,), None, 500), ("shard", (100,), (100_000,), 90_000)):
        array = zarr.create_array(tmp_path / name, shape=(100_000,), chunks=chunks, shards=shards, dtype="i1")
        array[:10] = 1
        threads.clear()
        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "to_thread", lambda *args: (threads.append(args[0]), to_thread(*args))[1])
            assert array[:n].sum() == 10
            assert len(threads) == 1
            assert array[1] == 1  # at once
            assert len(threads) == 1


def test_a_directory_that_is_moved(tmp_path):
    store = LocalStore(tmp_path / "old")
    if not hasattr(store, "move"):
        pytest.skip("stores of this zarr-python stay where they are")
    array = create(store, dtype="i4")
    array[...] = numbers()
    zarr.core.sync.sync(store.move(str(tmp_path / "new")))
    np.testing.assert_array_equal(array[...], numbers())
    array[3, 3] = 1
    assert own(array)[3, 3] == 1


def test_another_event_loop(store, caplog):
    async def run():
        array = await zarr.api.asynchronous.create_array(store=store, shape=9, chunks=2, dtype="i4")
        await array.setitem(slice(None), np.arange(9))
        return await array.getitem(slice(1, 8))

    np.testing.assert_array_equal(asyncio.run(run()), np.arange(1, 8))
    assert is_gzarrs(caplog)


class Slow(WrapperStore):
    """Its reads and writes wait until 30 of them have been under way at once, if there is an event for that."""

    under_way, met = 0, None

    async def _slowly(self, coroutine):
        self.under_way += 1
        if self.met is not None:
            if self.under_way == 30:
                self.met.set()
            await asyncio.wait_for(self.met.wait(), 60)
        self.under_way -= 1
        return await coroutine

    async def get(self, *args, **how):
        return await self._slowly(super().get(*args, **how))

    async def set(self, *args, **how):
        return await self._slowly(super().set(*args, **how))


@pytest.mark.parametrize(("chunks", "shards"), [((5, 4), None), (SHAPE, None), ((5, 4), (10, 8))])
def test_reads_and_writes_of_many_arrays_wait_for_the_store_together(shards, chunks, caplog):
    plain = MemoryStore()
    for number in range(40):
        create(plain, name=str(number), dtype="i4", chunks=chunks, shards=shards)
    store = Slow(plain)
    arrays = [zarr.open_array(store, path=str(number))._async_array for number in range(40)]

    async def run():
        store.met = asyncio.Event()
        await asyncio.gather(*(array.setitem((slice(0, 5), slice(0, 4)), 1 + n) for n, array in enumerate(arrays)))
        store.met = asyncio.Event()
        found = await asyncio.gather(*(array.getitem((slice(0, 5), slice(0, 4))) for array in arrays))
        assert [np.unique(values).tolist() for values in found] == [[1 + n] for n in range(40)]

    asyncio.run(run())
    assert is_gzarrs(caplog)


def test_small_chunks_are_read_and_written_without_a_thread_while_that_is_quick(monkeypatch, tmp_path):
    array = create(tmp_path / "x.zarr", dtype="i4")
    array[...] = numbers()
    threads = []
    to_thread = asyncio.to_thread
    monkeypatch.setattr(asyncio, "to_thread", lambda *args: (threads.append(args[0]), to_thread(*args))[1])
    for quick_s in (np.inf, 0):
        monkeypatch.setattr("gzarr.interop.zarr.arrays._QUICK_S", quick_s)
        assert [array[3, i] for i in range(4)] == [51, 52, 53, 54]  # the first decides about the next
        threads.clear()
        assert array[9, 9] == 162
        array[9, 9] = 162
        array[:5, :4] = numbers()[:5, :4]
        array[:, :] = numbers()  # of many chunks
        assert len(threads) == (1 if quick_s else 4), threads
    np.testing.assert_array_equal(own(array)[...], numbers())


def test_a_chunk_that_is_locked_is_written_by_a_thread(monkeypatch, tmp_path):
    array = create(tmp_path / "x.zarr", dtype="i4")
    array[...] = numbers()
    monkeypatch.setattr("gzarr.interop.zarr.arrays._QUICK_S", np.inf)
    assert array[3, 3] == 54
    with ThreadPoolExecutor() as pool:
        with gzarr.LocalStore(tmp_path / "x.zarr").locked(["c/0/0"]):
            done = pool.submit(array.__setitem__, (3, 3), 5)
            assert array[9, 9] == 162  # the event loop goes on
            assert not done.done()
        done.result(60)
    assert array[3, 3] == 5


def test_pickled_arrays_keep_the_pipeline(tmp_path):
    array = create(tmp_path / "x.zarr", dtype="i4")
    array[...] = numbers()
    copy = pickle.loads(pickle.dumps(array))
    assert type(copy._async_array.codec_pipeline) is CodecPipeline
    np.testing.assert_array_equal(copy[...], numbers())


def test_zarr_loads_the_class_without_the_rest_of_gzarr():
    code = "import sys, gzarr.interop.zarr; print({'gzarr.chunk_io', 'gzarr.devices'} & set(sys.modules))"
    assert run_python(code).strip() == "set()"


def test_install_refuses_devices_that_it_does_not_know():
    with pytest.raises(ValueError, match="'auto', 'cpu', 'cuda'; got 'gpu'"):
        install("gpu")


def test_chunks_in_memory_are_written_without_an_event_loop(monkeypatch, caplog):
    array = create(dtype="i4")
    monkeypatch.setattr(MemoryStore, "set", None)
    array[...] = numbers()
    array[:5, :4] = 0
    assert own(array)[3:6, :3].tolist() == [[0] * 3, [0] * 3, numbers()[5, :3].tolist()]
    assert is_gzarrs(caplog)


@pytest.mark.parametrize("local", [True, False])
def test_chunks_lie_in_a_shard_as_zarr_puts_them(local, tmp_path):
    """The order is free, but whoever reads neighbours in one request counts on it."""
    shards = []
    for name, writable in (("a", lambda array: array), ("b", own_writable)):
        store = LocalStore(tmp_path / name) if local else MemoryStore()
        array = writable(create(store, shape=(12, 12), chunks=(2, 3), shards=(12, 12), dtype="i4", compressors=None))
        array[2:9, 3:12] = np.arange(63).reshape(7, 9)
        array[0] = 5
        shards.append(zarr.core.sync.sync(store.get("c/0/0", zarr.core.buffer.default_buffer_prototype())).to_bytes())
    assert shards[0] == shards[1]


def test_buffers_of_a_gpu_are_read_into_and_written_from(monkeypatch, caplog):
    """The emulated device stands for it, and arrays that behave as CuPy's for what is in the buffers."""
    backend, asked = backend_for("emulated"), []
    monkeypatch.setattr("gzarr.interop.zarr.arrays.backend_for", lambda name: (asked.append(name), backend)[1])

    class DeviceArray(np.ndarray):
        device = SimpleNamespace(id=1)

    class NDBuffer(zarr.core.buffer.cpu.NDBuffer):
        def as_ndarray_like(self):
            return self._data.view(DeviceArray)

    class Buffer(zarr.core.buffer.cpu.Buffer):
        pass

    NDBuffer.__module__ = Buffer.__module__ = "zarr.core.buffer.gpu"
    prototype = zarr.core.buffer.BufferPrototype(buffer=Buffer, nd_buffer=NDBuffer)
    array, expected = create(dtype="f4"), numbers("f4")
    array.set_basic_selection((slice(3, 20), slice(2, 9)), expected[3:20, 2:9], prototype=prototype)
    np.testing.assert_array_equal(own(array)[3:20, 2:9], expected[3:20, 2:9])
    read = array.get_basic_selection((slice(3, 20), slice(2, 9)), prototype=prototype)
    assert type(read) is DeviceArray
    np.testing.assert_array_equal(read, expected[3:20, 2:9])
    assert set(asked) == {"cuda:1"}
    assert is_gzarrs(caplog)


@pytest.mark.parametrize("how", [{}, {"compressors": None}, {"chunks": (2,), "shards": (4,)}])
@pytest.mark.parametrize("select", [slice(None), slice(3, None), 5])
def test_writes_leave_what_zarr_python_leaves_past_the_end(how, select, tmp_path):
    found = []
    for path in ("gzarr.interop.zarr.CodecPipeline", "zarr.core.codec_pipeline.BatchedCodecPipeline"):
        with zarr.config.set({"codec_pipeline.path": path}):
            array = zarr.create_array(
                tmp_path, **{"shape": (10,), "chunks": (4,), "dtype": "i4", "overwrite": True, **how}
            )
        array[:] = 1
        array.resize((6,))
        array[select] = 2
        array.resize((10,))
        found.append(array[:])
    np.testing.assert_array_equal(*found)


def test_single_slow_reads_do_not_make_a_store_slow(monkeypatch):
    array = create(dtype="i4")
    array[3, 3]
    bound = array.async_array.codec_pipeline.bound() if hasattr(array, "async_array") else None
    bound = bound or array._async_array.codec_pipeline.bound()
    needs_no_loop = bound.stores.need_no_loop
    monkeypatch.setattr("gzarr.interop.zarr.arrays._QUICK_S", 60)
    array[3, 3]
    assert bound.is_quick == needs_no_loop
    monkeypatch.setattr("gzarr.interop.zarr.arrays._QUICK_S", 0)
    array[3, 3]
    assert bound.is_quick == needs_no_loop
    for _ in range(4):
        array[3, 3]
    assert not bound.is_quick
