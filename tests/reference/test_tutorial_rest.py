"""The tutorial's sections on strings, chunks, synchronization, pickling, dates and tips, scaled down."""

import pickle
import threading
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from numcodecs import blosc

import gzarr as zarr


@pytest.mark.usefixtures("zarr_format")
def test_strings_of_fixed_length():
    z = zarr.zeros(10, dtype="S6")
    z[0] = b"Hello"
    z[1] = b"world!"
    assert z.dtype == "S6"
    assert z[:].tolist() == [b"Hello", b"world!"] + [b""] * 8
    greetings = ["¡Hola mundo!", "Hej Världen!", "Xin chào thế giới", "こんにちは世界", "เฮลโลเวิลด์"]
    z = zarr.array(greetings * 100, dtype="U20")
    assert (z.shape, z.dtype) == ((500,), np.dtype("<U20"))
    assert z[:].tolist() == greetings * 100


@pytest.mark.usefixtures("zarr_format")
@pytest.mark.parametrize(
    ("chunks", "shape"),
    [
        ((100, None), (100, 10000)),
        ((None, 100), (10000, 100)),
        ((100, -1), (100, 10000)),
        ((1000, 1000), (1000, 1000)),
        (True, (625, 625)),
        (False, (10000, 10000)),
        (100, (100, 100)),
    ],
)
def test_chunk_shapes(chunks, shape):
    assert zarr.zeros((10000, 10000), chunks=chunks, dtype="i4").chunks == shape


def test_memory_layout_of_chunks(zarr_format):
    a = np.arange(1_000_000, dtype="i4").reshape(1000, 1000).T
    c = zarr.array(a, chunks=(100, 100))
    f = zarr.array(a, chunks=(100, 100), order="F")
    assert "Order              : C" in repr(c.info)
    assert "Order              : F" in repr(f.info)
    assert np.array_equal(c[:], f[:])
    if zarr_format == 2:  # without the byte shuffle of format 2's default compressor the order matters little
        assert f.nbytes_stored < c.nbytes_stored


@pytest.mark.usefixtures("zarr_format")
@pytest.mark.parametrize("write_empty_chunks", [True, False])
def test_empty_chunks(write_empty_chunks):
    data = np.random.default_rng(0).integers(0, 255, 64 * 256)
    with TemporaryDirectory() as store:
        arr = zarr.open(
            store,
            shape=data.shape,
            chunks=64,
            dtype="uint8",
            write_empty_chunks=write_empty_chunks,
            fill_value=0,
            mode="w",
        )
        arr[:] = 100
        arr[:] = data
        assert arr.nchunks_initialized == 256
        arr[:] = arr.fill_value
        assert arr.nchunks_initialized == (256 if write_empty_chunks else 0)


@pytest.mark.usefixtures("zarr_format")
def test_rechunking_by_copying():
    a = zarr.zeros((50, 50), chunks=(50, 1), dtype="uint16", store="a.zarr")
    a[:] = np.arange(2500).reshape(50, 50)
    b = zarr.array(a, chunks=(1, 50), store="b.zarr")
    c = zarr.array(a[...], chunks=(25, 50), store="c.zarr")
    assert (b.chunks, b.dtype, c.chunks) == ((1, 50), np.uint16, (25, 50))
    assert np.array_equal(b[:], a[:])
    assert np.array_equal(c[:], a[:])


@pytest.mark.usefixtures("zarr_format")
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_synchronizers(kind):
    synchronizer = zarr.ThreadSynchronizer() if kind == "threads" else zarr.ProcessSynchronizer("data/example.sync")
    z = zarr.open_array(
        "data/example", mode="w", shape=(60, 16), chunks=(20, 16), dtype="i4", synchronizer=synchronizer
    )
    assert z.synchronizer is synchronizer

    def write(column):
        z[:, column] = column + 1

    threads = [threading.Thread(target=write, args=(column,)) for column in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.array_equal(z[:], np.tile(np.arange(1, 17), (60, 1)))


@pytest.mark.usefixtures("zarr_format")
def test_pickles():
    z1 = zarr.array(np.random.default_rng(0).integers(0, 9, 100_000))
    s = pickle.dumps(z1)
    assert len(s) > 5000  # "relatively large because data have been pickled"
    z2 = pickle.loads(s)
    assert z1 == z2
    assert np.all(z1[:] == z2[:])
    z3 = zarr.open("walnuts.zarr", mode="w", shape=100_000, dtype="i8")
    z3[:] = np.arange(100_000)
    s = pickle.dumps(z3)
    assert len(s) < 500  # "small because no data have been pickled"; names of modules and options are
    z4 = pickle.loads(s)
    assert z3 == z4
    assert np.all(z3[:] == z4[:])


@pytest.mark.usefixtures("zarr_format")
def test_dates_and_durations():
    z = zarr.array(["2007-07-13", "2006-01-13", "2010-08-13"], dtype="M8[D]")
    assert repr(z[:]) == "array(['2007-07-13', '2006-01-13', '2010-08-13'], dtype='datetime64[D]')"
    assert z[0] == np.datetime64("2007-07-13")
    assert isinstance(z[0], np.datetime64)
    z[0] = "1999-12-31"
    assert repr(z[:]) == "array(['1999-12-31', '2006-01-13', '2010-08-13'], dtype='datetime64[D]')"
    assert zarr.array([1, 2, 90], dtype="m8[s]")[2] == np.timedelta64(90, "s")


@pytest.mark.usefixtures("zarr_format")
def test_copying_large_arrays():
    z1 = zarr.empty((1000, 1000), chunks=(100, 100), dtype="i4")
    z1[:] = 42
    counted = zarr.storage.CountingStore(zarr.MemoryStore())
    z2 = zarr.empty_like(z1, store=counted)
    z2[:] = z1
    assert np.all(z2[:] == 42)
    assert z2.chunks == (100, 100)


@pytest.mark.usefixtures("zarr_format")
def test_configuring_blosc(monkeypatch):
    before = blosc.set_nthreads(2)
    data = np.arange(100_000)
    try:
        for use_threads in (True, False, None):
            monkeypatch.setattr(blosc, "use_threads", use_threads)
            z = zarr.array(data, chunks=10_000, compressor=zarr.Blosc(cname="lz4"))
            assert np.array_equal(z[:], data)
    finally:
        assert blosc.set_nthreads(before) == 2
