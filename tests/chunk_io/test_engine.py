"""What the engine asks of a store: no more requests and no more bytes than the selection needs."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import gzarr
from gzarr.chunk_io import engine, reference
from gzarr.chunk_io.reference import ReadJob
from gzarr.codecs import BytesCodec, GzipCodec, ShardingCodec, ZstdCodec
from gzarr.concurrency import Turns
from gzarr.cpu.backend import MAX_BATCH_NCHUNKS, CpuBackend
from gzarr.indexing.plan import make_plan
from gzarr.indexing.selection import normalize_basic
from gzarr.storage import CountingStore, LocalStore, MemoryStore, Request
from gzarr.storage.base import Buffer, R, T, host_view
from gzarr.storage.remote import run_together
from gzarr.storage.wrappers import WrapperStore
from tests.support.meeting import Meeting

INDEX_ENTRY_NBYTES = 16
CRC_NBYTES = 4


class ByteCountingStore(CountingStore):
    """Also counts the bytes that were handed out."""

    versions = CountingStore.versions
    nbytes = 0

    def get_one(self, request: Request) -> Buffer | None:
        return self._counted([super().get_one(request)])[0]

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        return self._counted(super().get_many(requests))

    def reset(self) -> None:
        super().reset()
        self.nbytes = 0

    def _counted(self, found: list[Buffer | None]) -> list[Buffer | None]:
        self.nbytes += sum(host_view(item).nbytes for item in found if item is not None)
        return found


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ByteCountingStore:
    return ByteCountingStore(MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "data"))


def made(store: ByteCountingStore, shape: Any, data: Any = None, **kwargs: Any) -> gzarr.Array:
    """An array of ones (or other data), uncompressed unless asked, with the count started anew."""
    kwargs = {"compressor": None, "dtype": "i4"} | kwargs
    if "codecs" in kwargs:
        kwargs.pop("compressor")
    array = gzarr.create_array(store, shape=shape, **kwargs)
    if data is not False:
        array[...] = 1 if data is None else data
    array = gzarr.open_array(store)
    store.reset()
    return array


def keys(store: CountingStore) -> list[str]:
    return sorted(request.key for request in store.requests)


# -- opening ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["r", "r+", "a"])
def test_opening_a_v3_array_takes_one_request(store: ByteCountingStore, mode: str) -> None:
    made(store, 4)
    gzarr.open_array(store, mode=mode)
    assert store.requests == [Request("zarr.json")]
    assert (store.listed, store.sized, store.written) == ([], [], [])


@pytest.mark.parametrize("consolidated", [False, True])
@pytest.mark.parametrize("open_it", [gzarr.open_group, gzarr.open])
def test_opening_a_v3_group_takes_one_request(store: ByteCountingStore, open_it: Any, consolidated: bool) -> None:
    gzarr.open_group(store, mode="w").create_array("a", shape=3)
    if consolidated:
        gzarr.consolidate_metadata(store)
    store.reset()
    open_it(store, mode="r")
    assert set(store.requests) == {Request("zarr.json")}


def test_opening_a_v2_array_of_known_format_takes_one_batch(store: ByteCountingStore) -> None:
    made(store, 4, zarr_format=2)
    gzarr.open_array(store, mode="r", zarr_format=2)
    assert keys(store) == [".zarray", ".zattrs", ".zgroup"]
    assert store.nbatches == 1


# -- chunks ----------------------------------------------------------------------------------------------------------

FORMATS = pytest.mark.parametrize("zarr_format", [2, 3])


def chunk_keys(zarr_format: int, *coords: tuple[int, ...]) -> list[str]:
    prefix, separator = ("", ".") if zarr_format == 2 else ("c/", "/")
    return sorted(prefix + separator.join(map(str, c)) for c in coords)


@FORMATS
@pytest.mark.parametrize(
    ("read", "touched"),
    [
        (lambda z: z[0, 0], [(0, 0)]),
        (lambda z: z[-1], [(3, 0), (3, 1), (3, 2)]),
        (lambda z: z[2:4, 1:7], [(0, 0), (0, 1), (1, 0), (1, 1)]),
        (lambda z: z[::6, 8], [(0, 2), (2, 2)]),
        (lambda z: z[9::-9, :1], [(0, 0), (3, 0)]),
        (lambda z: z[4:4], []),
        (lambda z: z.oindex[[9, 0], 8], [(0, 2), (3, 2)]),
        (lambda z: z.oindex[[0, 1, 2, 0], [0, 3]], [(0, 0)]),
        (lambda z: z.vindex[[0, 9, 1], [0, 8, 1]], [(0, 0), (3, 2)]),
        (lambda z: z[[0, 0, 9], [0, 1, 8]], [(0, 0), (3, 2)]),
        (lambda z: z.get_mask_selection(np.eye(10, 9, dtype=bool) & (np.arange(9) > 6)), [(2, 1), (2, 2)]),
        (lambda z: z.blocks[1, 1:], [(1, 1), (1, 2)]),
    ],
)
def test_reads_fetch_the_chunks_they_touch_once(
    store: ByteCountingStore, zarr_format: int, read: Any, touched: list[tuple[int, int]]
) -> None:
    array = made(store, (10, 9), chunks=(3, 4), zarr_format=zarr_format)
    read(array)
    assert keys(store) == chunk_keys(zarr_format, *touched)
    assert store.nbytes == len(touched) * 3 * 4 * 4
    assert store.listed == []


@FORMATS
def test_aligned_writes_read_nothing(store: ByteCountingStore, zarr_format: int) -> None:
    array = made(store, (9, 8), chunks=(3, 4), zarr_format=zarr_format)
    for write in (
        lambda: array.__setitem__((slice(0, 6), slice(4, 8)), 2),
        lambda: array.__setitem__(..., np.arange(72).reshape(9, 8)),
        lambda: array.blocks.__setitem__((1, 1), 3),
        lambda: array.oindex.__setitem__(([2, 0, 1], slice(0, 4)), 4),
        lambda: array.__setitem__((slice(2, None, -1), slice(3, None, -1)), 5),
    ):
        write()
        assert store.requests == []
    assert array[0, 0] == 5


@FORMATS
def test_an_edge_chunk_is_read_as_others_may_have_appended_to_it(store: ByteCountingStore, zarr_format: int) -> None:
    array = made(store, (10, 9), chunks=(3, 4), zarr_format=zarr_format)
    array[6:, 4:] = 3
    assert keys(store) == sorted(chunk_keys(zarr_format, (2, 2), (3, 1), (3, 2)))
    assert sorted(store.written) == sorted(chunk_keys(zarr_format, (2, 1), (2, 2), (3, 1), (3, 2)))
    assert array[9, 8] == 3


@FORMATS
def test_a_damaged_edge_chunk_is_replaced_by_all_of_its_elements(store: ByteCountingStore, zarr_format: int) -> None:
    array = made(store, (11, 10), chunks=(3, 4), zarr_format=zarr_format)
    (key,) = chunk_keys(zarr_format, (3, 2))
    store[key] = b"no chunk"
    with pytest.raises(gzarr.errors.ChunkError, match=r"chunk \(3, 2\)"):
        array[9, 8] = 2
    array[9:, 8:] = 3
    assert array[9, 8] == 3


@FORMATS
def test_a_partial_write_reads_and_writes_just_its_chunks(store: ByteCountingStore, zarr_format: int) -> None:
    array = made(store, (10, 9), chunks=(3, 4), zarr_format=zarr_format)
    array[0:4, 0] = 3
    assert keys(store) == sorted(store.written) == chunk_keys(zarr_format, (0, 0), (1, 0))


def test_a_write_of_one_field_reads_its_chunks_though_it_covers_them(store: ByteCountingStore) -> None:
    array = made(store, 4, data=np.ones(4, "i4,f4"), chunks=2, dtype="i4,f4")
    array["f0"] = 2
    assert keys(store) == ["c/0", "c/1"]


def test_batches_of_small_chunks_are_fetched_together(store: ByteCountingStore) -> None:
    array = made(store, 100, chunks=1)
    array[:]
    assert len(store.requests) == 100
    assert store.nbatches == -(-100 // MAX_BATCH_NCHUNKS)


# -- chunks of fill value --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("i4", 0),
        ("i4", 7),
        ("f4", np.nan),
        ("f8", -0.0),
        ("c8", complex(1, np.nan)),
        ("M8[s]", "NaT"),
        ("S3", b"ab"),
        ("U2", "x"),
        ("string", "x"),
        ("i4,f4", (1, 2.0)),
        ("?", True),
    ],
)
@pytest.mark.parametrize("shards", [None, 4])
def test_chunks_equal_to_the_fill_value_are_not_stored(
    store: ByteCountingStore, dtype: str, fill: Any, shards: int | None
) -> None:
    array = made(store, 8, data=False, chunks=2, shards=shards, dtype=dtype, fill_value=fill)
    array[:] = array.fill_value
    array[1:3] = array.fill_value
    assert store.written == []
    other = np.zeros(8, array.dtype) if dtype != "string" else np.full(8, "y", object)
    if dtype in ("i4", "f8") and fill == 0:
        other[:] = 1
    array[:] = other
    assert len(store.written) == (2 if shards else 4)
    store.reset()
    array[0:4] = array.fill_value
    assert store.deleted == (["c/0"] if shards else ["c/0", "c/1"])
    assert sorted(k for k in store if k != "zarr.json") == (["c/1"] if shards else ["c/2", "c/3"])
    assert array.nchunks_initialized == 2
    np.testing.assert_array_equal(array[4:], other[4:])


@pytest.mark.parametrize("shards", [None, 4])
def test_empty_chunks_are_stored_if_asked(store: ByteCountingStore, shards: int | None) -> None:
    array = made(store, 8, data=False, chunks=2, shards=shards)
    array = gzarr.open_array(store, write_empty_chunks=True)
    array[:] = 0
    assert array.nchunks_initialized == 4
    array.write_empty_chunks = False
    array[:] = 0
    assert array.nchunks_initialized == 0


def test_v2_arrays_without_a_fill_value_store_zeros(store: ByteCountingStore) -> None:
    array = made(store, 4, data=False, chunks=2, zarr_format=2, fill_value=None)
    array[:] = 0
    assert array.nchunks_initialized == 2


# -- shards ----------------------------------------------------------------------------------------------------------

LOCATIONS = pytest.mark.parametrize("location", ["start", "end"])


def sharded(store: ByteCountingStore, location: str = "end", **kwargs: Any) -> gzarr.Array:
    """Shards of 4 x 4 chunks of 10 x 10 four-byte elements, which all differ."""
    data = np.arange(1, 6401, dtype="i4").reshape(80, 80)
    shards = {"shape": (40, 40), "index_location": location}
    return made(store, (80, 80), data, chunks=(10, 10), shards=shards, **kwargs)


INDEX_NBYTES = 16 * INDEX_ENTRY_NBYTES + CRC_NBYTES
CHUNK_NBYTES = 400


@LOCATIONS
def test_one_chunk_of_a_shard_costs_the_index_and_its_own_bytes(store: ByteCountingStore, location: str) -> None:
    array = sharded(store, location)
    assert array[15, 27] == 15 * 80 + 27 + 1
    assert keys(store) == ["c/0/0"] * 2
    assert store.nbytes == INDEX_NBYTES + CHUNK_NBYTES


@LOCATIONS
def test_the_index_is_read_once(store: ByteCountingStore, location: str) -> None:
    array = sharded(store, location)
    for row in (0, 11, 22, 33):
        array[row, row]
    assert store.nbytes == INDEX_NBYTES + 4 * CHUNK_NBYTES
    assert len(store.requests) == 5
    array[45, 0]  # another shard has another index
    assert store.nbytes == 2 * INDEX_NBYTES + 5 * CHUNK_NBYTES


def test_a_replaced_shard_has_its_index_read_again(store: ByteCountingStore) -> None:
    array = sharded(store)
    array[0, 0]
    gzarr.open_array(store)[0:20, 0:20] = 0
    store.reset()
    assert array[0, 0] == 0
    assert store.nbytes == INDEX_NBYTES
    assert array[39, 39] == 39 * 80 + 39 + 1


def test_chunks_that_lie_together_are_one_request(store: ByteCountingStore) -> None:
    array = sharded(store)
    array[0, 0]
    store.reset()
    np.testing.assert_array_equal(array[10:20, 0:30], np.arange(1, 6401).reshape(80, 80)[10:20, 0:30])
    assert len(store.requests) == 1
    assert store.nbytes == 3 * CHUNK_NBYTES


def test_chunks_that_lie_far_apart_are_not_read_through(store: ByteCountingStore) -> None:
    array = made(store, 4096 * 64, np.arange(4096 * 64), chunks=4096, shards=4096 * 64)
    array[0]
    store.reset()
    array[:: 4096 * 8]
    assert store.nbytes == 8 * 4096 * 4
    assert store.nbatches == 1


def test_a_whole_shard_is_one_request_of_the_whole_object(store: ByteCountingStore) -> None:
    array = sharded(store)
    array[0:40, 40:80]
    assert store.requests == [Request("c/0/1")]
    assert store.nbytes == 16 * CHUNK_NBYTES + INDEX_NBYTES


def test_a_missing_shard_costs_one_request(store: ByteCountingStore) -> None:
    array = made(store, 16, data=False, chunks=2, shards=8)
    assert array[0] == 0
    assert len(store.requests) == 1


def test_a_missing_chunk_costs_nothing_but_the_index(store: ByteCountingStore) -> None:
    array = made(store, 8, [1, 1, 0, 0, 1, 1, 1, 1], chunks=2, shards=8)
    assert array[2] == 0
    assert store.nbytes == 4 * INDEX_ENTRY_NBYTES + CRC_NBYTES


@LOCATIONS
def test_whole_shard_writes_read_nothing(store: ByteCountingStore, location: str) -> None:
    array = sharded(store, location)
    array[40:80, 0:40] = 3
    assert (store.requests, store.written) == ([], ["c/1/0"])


def test_a_shard_covered_as_far_as_the_array_goes_is_read(store: ByteCountingStore) -> None:
    array = made(store, (7, 7), np.ones((7, 7)), chunks=(2, 2), shards=(4, 4))
    array[:4, :4] = 3
    assert store.requests == []
    array[4:, 4:] = 3
    assert keys(store) == ["c/1/1"]
    assert array[6, 6] == 3


def test_a_damaged_shard_is_replaced_by_all_that_the_array_has_of_it(store: ByteCountingStore) -> None:
    array = made(store, 7, chunks=2, shards=4)
    store["c/1"] = b"no shard"
    with pytest.raises(gzarr.errors.ChunkError, match="c/1"):
        array[4:6] = 3
    array[4:] = 3
    assert array[:].tolist() == [1] * 4 + [3] * 3
    array = made(store, 6, chunks=2, shards=4, overwrite=True)
    store["c/1"] = b"no shard"
    array[4:] = 3
    assert array[:].tolist() == [1] * 4 + [3] * 2


def test_every_chunk_of_a_shard_in_part_is_a_partial_write(store: ByteCountingStore) -> None:
    array = made(store, 8, np.arange(1, 9), chunks=2, shards=8)
    array[::2] = 0
    assert keys(store) == ["c/0"]
    assert array[:].tolist() == [0, 2, 0, 4, 0, 6, 0, 8]


@pytest.mark.parametrize("codecs", [[ZstdCodec(3)], [GzipCodec(1)], []])
@LOCATIONS
def test_partial_writes_copy_other_chunks_encoded(store: ByteCountingStore, location: str, codecs: list[Any]) -> None:
    """Were the others encoded anew, chunks written by another implementation would change under its feet."""
    other = ShardingCodec((10, 10), codecs=[BytesCodec(), *codecs], index_location=location)
    array = made(store, (40, 40), np.arange(1600).reshape(40, 40), chunks=(40, 40), codecs=[other])
    before = chunks_of(array)
    array[12, 12] = -1
    after = chunks_of(array)
    assert [coords for coords in before if before[coords] != after[coords]] == [(1, 1)]
    assert store.written == ["c/0/0"]


def chunks_of(array: gzarr.Array) -> dict[tuple[int, ...], bytes | None]:
    """The encoded bytes of every chunk of the first shard."""
    layout = array._io.layout
    coords = list(np.ndindex(*array.cdata_shape))
    found = layout.extract(array.store[layout.key((0, 0))], (0, 0), coords)
    return {c: None if data is None else bytes(data) for c, data in zip(coords, found, strict=True)}


def nested(store: ByteCountingStore, location: str) -> gzarr.Array:
    """Shards of 4 shards of 4 chunks of 16 elements."""
    inner = ShardingCodec((16,), codecs=[BytesCodec()], index_location=location)
    outer = ShardingCodec((64,), codecs=[inner], index_location=location)
    return made(store, 512, np.arange(512), chunks=256, codecs=[outer])


@LOCATIONS
def test_nested_shards_cost_two_indexes_which_are_kept(store: ByteCountingStore, location: str) -> None:
    array = nested(store, location)
    index = 4 * INDEX_ENTRY_NBYTES + CRC_NBYTES
    assert array[40] == 40
    assert store.nbytes == 2 * index + 64
    assert array[0] == 0
    assert store.nbytes == 2 * index + 2 * 64
    assert array[255] == 255
    assert store.nbytes == 3 * index + 3 * 64
    assert array[:40].tolist() == list(range(40))
    assert array[250:260].tolist() == list(range(250, 260))


def test_a_wrapped_shard_is_fetched_whole(store: ByteCountingStore) -> None:
    codecs = [ShardingCodec((2,), codecs=[BytesCodec()]), ZstdCodec(1)]
    array = made(store, 16, np.arange(16), chunks=8, codecs=codecs)
    assert array[3] == 3
    assert store.requests == [Request("c/0")]


def test_rectilinear_shards_are_read_like_regular_ones(store: ByteCountingStore) -> None:
    array = made(store, 640, np.arange(640), chunks=(10,), shards=[[320, 160, 160]])
    assert array[5] == 5
    assert store.nbytes == 32 * INDEX_ENTRY_NBYTES + CRC_NBYTES + 40
    store.reset()
    assert array[0:40].tolist() == list(range(40))
    assert len(store.requests) == 1
    store.reset()
    array[320:480]
    assert store.requests == [Request("c/1")]


# -- resizing --------------------------------------------------------------------------------------------------------


#: The document is read to learn the shape that others may have given the array, and to keep the fields of others.
TO_RESIZE = ["zarr.json", "zarr.json"]


@pytest.mark.parametrize("shards", [None, 4])
def test_growing_asks_for_new_chunks_and_touches_none(store: ByteCountingStore, shards: int | None) -> None:
    """A killed append may have left some there; those at the old edge are covered by the array."""
    array = made(store, 8, chunks=2, shards=shards)
    array.resize(100)
    length = shards or 2
    assert sorted(keys(store)) == sorted([*(f"c/{n}" for n in range(8 // length, 100 // length)), *TO_RESIZE])
    assert (store.written, store.listed, store.deleted) == (["zarr.json"], [], [])


def test_shrinking_reads_only_the_chunks_at_the_new_edge(store: ByteCountingStore) -> None:
    array = made(store, (8, 8), chunks=(2, 2))
    array.resize(3, 8)
    assert keys(store) == ["c/1/0", "c/1/1", "c/1/2", "c/1/3", *TO_RESIZE]
    assert sorted(store.deleted) == sorted(f"c/{i}/{j}" for i in (2, 3) for j in range(4))


def test_appending_whole_chunks_reads_only_the_metadata(store: ByteCountingStore) -> None:
    array = made(store, 4, chunks=2)
    array.append(np.ones(2))
    assert keys(store) == TO_RESIZE
    assert store.written == ["c/2", "zarr.json"]


# -- values ----------------------------------------------------------------------------------------------------------


def test_hdf5_datasets_are_read_chunk_by_chunk(store: ByteCountingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, read = [], h5py.Dataset.__getitem__

    def noted(dataset: Any, key: Any) -> Any:
        assert all(isinstance(item, slice) for item in key)
        taken.append(read(dataset, key).size)
        return read(dataset, key)

    array = made(store, (6, 6), data=False, chunks=(2, 3))
    with h5py.File(BytesIO(), "w") as file:
        source = file.create_dataset("a", data=np.arange(36).reshape(6, 6))
        with monkeypatch.context() as patch:
            patch.setattr(h5py.Dataset, "__getitem__", noted)
            array[...] = source
        assert taken == [6] * 6
        array.oindex[[5, 0, 3], [4, 1]] = file.create_dataset("zeros", data=np.zeros((3, 2), int))
        wanted = source[...]
    wanted[np.ix_([5, 0, 3], [4, 1])] = 0
    assert array[...].tolist() == wanted.tolist()


def test_an_array_is_copied_chunk_by_chunk(store: ByteCountingStore) -> None:
    source = made(store, 1000, np.arange(1000), chunks=100)
    copy = gzarr.create_array(shape=1000, chunks=100, dtype="i4")
    copy[:] = source
    assert keys(store) == sorted(f"c/{i}" for i in range(10))
    assert copy[:].tolist() == list(range(1000))


# -- stores that wait for a server -------------------------------------------------------------------------------------


class WaitingStore(WrapperStore):
    """A store whose answers come once so many requests are under way."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.concurrency = 64
        self.meeting: Meeting | None = None

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        return run_together(self._get, requests)

    def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
        run_together(self._set, list(items))

    def _get(self, request: Request) -> Buffer | None:
        if self.meeting is not None:
            self.meeting.attend()
        return self._store.get_one(request)

    def _set(self, item: tuple[str, Buffer]) -> None:
        if self.meeting is not None:
            self.meeting.attend()
        self._store.set(*item)

    def together(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        return run_together(function, items)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("shards", [None, 64], ids=["chunks", "shards"])
def test_all_objects_are_under_way_at_once(shards: int | None, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where each of them has many chunks, or is a batch of its own."""
    if large:
        monkeypatch.setattr(reference, "WAITING_BATCH_NBYTES", 256)
        monkeypatch.setattr(reference, "PARALLEL_NBYTES", 1)
        monkeypatch.setattr("gzarr.cpu.backend.MAX_BATCH_NCHUNKS", 1)
    store = WaitingStore(MemoryStore())
    n = 16 * (shards or 4)
    array = gzarr.create_array(store, shape=n, chunks=4, shards=shards, dtype="i4", compressors=None)
    store.meeting = Meeting(16)
    array[:] = np.arange(1, n + 1)
    assert store.meeting.met
    store.meeting = Meeting(16)
    assert np.array_equal(array[:], np.arange(1, n + 1))
    assert store.meeting.met


def test_batches_that_wait_are_limited_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "WAITING_BATCH_NBYTES", 256)
    monkeypatch.setattr(reference, "READING_NBYTES", 8 * 256)
    array = gzarr.create_array(WaitingStore(MemoryStore()), shape=1 << 16, chunks=4, shards=64, dtype="i4")
    seen = []
    monkeypatch.setattr(CpuBackend, "run", staticmethod(lambda task, batches, work: seen.append((list(batches), work))))
    engine.read([read_job(array, (slice(None),))])
    ((made_batches, work),) = seen
    assert {len(batch) for batch in made_batches} == {4}  # with 64 chunks, which are a batch wherever they come from
    assert (work.at_once, work.waits) == (2, True)


def test_single_chunks_of_many_arrays_are_limited_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "READING_NBYTES", 8 * 256)
    arrays = [gzarr.create_array(WaitingStore(MemoryStore()), shape=64, chunks=64, dtype="i4") for _ in range(16)]
    seen = []
    monkeypatch.setattr(CpuBackend, "run", staticmethod(lambda task, batches, work: seen.append(work.at_once)))
    engine.read([read_job(array, (slice(None),)) for array in arrays])
    monkeypatch.setattr(engine, "READING_NBYTES", 1)  # less than a chunk
    engine.read([read_job(array, (slice(None),)) for array in arrays])
    assert seen == [8, 1]


@pytest.mark.parametrize("others_hold_all", [False, True])
def test_as_many_objects_are_built_at_once_as_cores(others_hold_all: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they are built from is in memory, too. Batches that are held up for long go on."""
    monkeypatch.setattr(reference, "WAITING_BATCH_NBYTES", 256)
    monkeypatch.setattr(reference, "PARALLEL_NBYTES", 1)
    monkeypatch.setattr("gzarr.cpu.backend.MAX_BATCH_NCHUNKS", 1)
    monkeypatch.setattr(reference, "_builders", Turns(0, 0.001) if others_hold_all else Turns(1, 60))
    under_way, most, build, lock = 0, 0, reference._build, threading.Lock()

    def counted(*given: Any) -> Any:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.002)
        built = build(*given)
        with lock:
            under_way -= 1
        return built

    monkeypatch.setattr(reference, "_build", counted)
    store = WaitingStore(MemoryStore())
    array = gzarr.create_array(store, shape=1024, chunks=4, shards=64, dtype="i4", compressors=None)
    array[:] = np.arange(1, 1025)
    assert np.array_equal(array[:], np.arange(1, 1025))
    assert most == 1 or others_hold_all


# -- several reads ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_threads", [1, 4])
def test_several_reads_run_together(n_threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of arrays in files and in memory, whole and in part, with shards, and of one that is damaged."""
    values = np.arange(10_000, dtype="i4").reshape(100, 100)
    arrays = [
        gzarr.array(values, chunks=(10, 10), store=LocalStore(tmp_path / "a")),
        gzarr.array(values + 1, chunks=(50, 50), store=MemoryStore()),
        gzarr.array(values + 2, chunks=(5, 5), shards=(50, 50), store=LocalStore(tmp_path / "b")),
    ]
    runs, run = [], CpuBackend.run

    def counted(task: Any, batches: Any, work: Any) -> None:
        runs.append(work.nchunks)
        run(task, batches, work)

    monkeypatch.setattr(CpuBackend, "run", staticmethod(counted))
    keys = [(slice(None), slice(None)), (slice(3, 60), slice(0, 5)), (slice(0, 100, 7), slice(9, 99))]
    with gzarr.config.set({"threading.max_workers": n_threads}):
        outs = [read_job(array, key) for array in arrays for key in keys]
        engine.read(outs)
    assert len(runs) == 1
    for out, (array, key) in zip(outs, [(array, key) for array in arrays for key in keys], strict=True):
        assert np.array_equal(out.out, array[key])
    (tmp_path / "a" / "c" / "3" / "3").write_bytes(b"damaged")
    with pytest.raises(gzarr.ChunkError, match="c/3/3"):
        engine.read([read_job(array, keys[0]) for array in arrays])
    engine.read([])


def read_job(array: gzarr.Array, key: Any) -> ReadJob:
    plan = make_plan(normalize_basic(key, array.shape), array._io.layout.grid)
    return ReadJob(array._io, plan, np.empty(plan.shape, array.dtype))


@pytest.mark.parametrize("shards", [None, (4, 4)])
def test_reads_of_chunks_that_are_not_stored_can_be_refused(shards: tuple[int, int] | None) -> None:
    array = gzarr.create_array(shape=(4, 4), chunks=(2, 2), shards=shards, dtype="i4", device="cpu")
    array[:2, :2] = 1
    array = array.with_config({"read_missing_chunks": False})
    array[:1, :1] = 1
    assert array[1, 1] == 1
    assert (array[:2, :2] == 1).all()
    with pytest.raises(gzarr.errors.ChunkNotFoundError, match=r"key 'c/0/[01]', chunk \(0, 1\)"):
        array[...]
