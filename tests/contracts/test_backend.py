"""What every backend must do, run over each of them; the rules are in the docstrings of gzarr.backend.Backend."""

import threading
import time
import weakref
import zlib
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from gzarr.backend import Backend, Chain, Work, run_ahead
from gzarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    NumcodecsCodec,
    ShardingCodec,
    TransposeCodec,
    VLenBytesCodec,
    VLenUTF8Codec,
    ZstdCodec,
)
from gzarr.codecs.chain import prepare
from gzarr.codecs.spec import ArrayRepr, CodecSpec
from gzarr.concurrency import Pool
from gzarr.config import config
from gzarr.cpu.backend import CpuBackend
from gzarr.errors import CodecError, UnknownCodecError
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.indexing.grid import RegularAxis
from gzarr.indexing.plan import Part, make_plan
from gzarr.indexing.selection import (
    Selection,
    normalize_basic,
    normalize_coordinates,
    normalize_mask,
    normalize_orthogonal,
)
from gzarr.storage import CountingStore, MemoryStore, Request
from gzarr.storage.base import host_view
from tests.support.meeting import Meeting, while_patient

BACKENDS: dict[str, Callable[[], Backend]] = {
    "cpu": CpuBackend,
    "emulated": lambda: GpuBackend(EmulatedDevice()),
    "emulated arrays": lambda: GpuBackend(EmulatedDevice(arrays="device")),
}

STRUCT = np.dtype([("a", "<i4"), ("b", "<f4"), ("c", "u1", (2,))])
DTYPES = ("|b1", "|i1", ">u2", "<i4", "<u8", "<f2", ">f4", "<f8", "<c8", "<M8[s]", ">m8[D]", "|S3", "<U2", STRUCT)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    return BACKENDS[request.param]()


def test_arrays_are_those_of_the_array_module(backend: Backend) -> None:
    made = backend.empty((2, 3), np.dtype("f4"))
    made[...] = 4
    assert type(made) is backend.xp.ndarray
    assert type(backend.xp.rint(made)) is backend.xp.ndarray


def test_the_memory_of_a_call_is_measured(backend: Backend) -> None:
    def call() -> Any:
        one = backend.xp.full(1 << 18, 3, "u1")
        for _ in range(3):
            one = one + one
        return one

    result, nbytes = backend.measured(call)
    assert int(result[5]) == 24
    assert nbytes is not None
    assert 2 << 18 <= nbytes < 2.2 * (1 << 18)


def chain_for(
    backend: Backend, shape: tuple[int, ...], dtype: Any = "<i4", fill: Any = 0, codecs: Sequence[CodecSpec] = ()
) -> Chain:
    dtype = np.dtype(dtype)
    if fill is not None and not dtype.hasobject:
        fill = np.asarray(fill, dtype)[()]
    chunk = ArrayRepr(dtype, shape, fill)
    endian: Any = "big" if dtype.byteorder == ">" else "little"
    return backend.prepare(prepare(codecs or (BytesCodec(endian),), chunk), chunk)


def sample(dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    numbers = np.arange(1, 1 + int(np.prod(shape, dtype=int))).reshape(shape)
    dtype = np.dtype(dtype)
    if dtype.names is not None:
        out = np.zeros(shape, dtype)
        for name in dtype.names:
            out[name] = numbers.reshape(numbers.shape + (1,) * len(dtype[name].shape)) % 100
        return out
    return (numbers % 100).astype(dtype)


def host(array: Any) -> np.ndarray:
    return np.asarray(array.get() if hasattr(array, "get") else array)


def parts_of(selection: Selection, shape: tuple[int, ...], chunk: tuple[int, ...]) -> list[Part]:
    return list(make_plan(selection, tuple(RegularAxis(n, c) for n, c in zip(shape, chunk, strict=True))).parts())


def whole(shape: tuple[int, ...], chunk: tuple[int, ...]) -> list[Part]:
    return parts_of(normalize_basic((), shape), shape, chunk)


def encoded(backend: Backend, chain: Chain, *chunks: np.ndarray) -> list[bytes]:
    """Chunks, each a value of its own, as they are stored."""
    found = []
    for chunk in chunks:
        value = backend.asarray(chunk, chunk.dtype)
        found += backend.merge_and_encode(chain, [None], value, [covering(chain)], None, keep_empty=True)
    return [bytes(host_view(data)) for data in found]


def covering(chain: Chain) -> Part:
    """The part of a chunk that is all of it, and all of the value."""
    every = tuple(slice(0, n, 1) for n in chain.chunk.shape)
    return Part((0,) * len(every), every, every, full=True)


def merged(
    backend: Backend, chain: Chain, before: Sequence[Any], value: Any, parts: Sequence[Part], fields: Any = None
) -> list[Any]:
    """New contents of chunks, decoded; None for those that now hold the fill value."""
    found = backend.merge_and_encode(
        chain, before, backend.asarray(value, value.dtype), parts, fields, keep_empty=False
    )
    assert len(found) == len(parts)
    return [None if data is None else host(backend.decode(chain, [bytes(host_view(data))])[0]) for data in found]


# -- arrays ----------------------------------------------------------------------------------------------------------


def test_it_says_what_it_is(backend: Backend) -> None:
    assert backend.device.partition(":")[0] in ("cpu", "cuda", "emulated")


def test_a_batch_has_at_least_one_chunk_however_large(backend: Backend) -> None:
    for known, writing in product((chain_for(backend, (16, 16)), None), (False, True)):
        assert backend.batch_nchunks(known, 100, 1 << 40, writing=writing) == 1
        assert backend.batch_nchunks(known, 100, 1 << 10, writing=writing) >= 1


def test_empty_arrays_have_their_shape_and_dtype(backend: Backend) -> None:
    for shape, dtype in product([(), (0,), (3,), (2, 0, 4), (2, 3, 4)], ["<i4", "<f8", "|b1", "<c8"]):
        made = backend.empty(shape, np.dtype(dtype))
        assert (made.shape, made.dtype) == (shape, dtype)
        made[...] = 1
        assert (host(made) == 1).all()
    assert backend.empty((3,), np.dtype(object)).tolist() == [None] * 3


def test_values_become_arrays(backend: Backend) -> None:
    dtype = np.dtype("<i2")
    assert host(backend.asarray([1, 2], dtype)).dtype == dtype
    assert host(backend.asarray(7, dtype)).tolist() == 7
    array = np.arange(3, dtype="<f8")
    assert host(backend.asarray(array, dtype)).dtype == array.dtype
    assert host(backend.asarray("1999-12-31", np.dtype("M8[D]"))) == np.datetime64("1999-12-31")
    assert host(backend.asarray((1, 2.5, [3, 4]), STRUCT)).dtype == STRUCT
    with pytest.raises(OverflowError):
        backend.asarray(40000, dtype)
    with pytest.raises(ValueError):
        backend.asarray("seven", dtype)


# -- rows and streams ------------------------------------------------------------------------------------------------


def on_device(backend: Backend, array: np.ndarray) -> Any:
    """A copy of an array in the backend's memory."""
    made = backend.empty(array.shape, array.dtype)
    made[:] = array if isinstance(made, np.ndarray) else backend.xp.asarray(array)
    return made


CASTS = [("<i4", "<i4"), ("|u1", "<f4"), ("|b1", "<i8"), ("<f8", "<f2"), ("<i8", "<f4"), ("<c8", "<c8"), ("<f4", "<f8")]


@pytest.mark.parametrize(("dtype", "wanted"), CASTS)
def test_rows_are_taken_in_any_order_and_cast(backend: Backend, dtype: str, wanted: str) -> None:
    for row in ((), (3,), (5, 7), (2, 3, 4)):
        rows = sample(dtype, (9, *row))
        pool = on_device(backend, rows)
        for slots in ([], [4], [8, 0, 8, 3, 3, 1], list(range(9))):
            out = backend.empty((len(slots), *row), np.dtype(wanted))
            backend.take(pool, np.array(slots, np.int64), out)
            np.testing.assert_array_equal(host(out), rows[slots].astype(wanted))
            assert out.dtype == wanted


@pytest.mark.parametrize("dtype", ["<M8[s]", "<U2", STRUCT, object])
def test_rows_that_no_device_has_are_taken_on_the_host(backend: Backend, dtype: Any) -> None:
    rows = np.array(["a", None, ("b",)], object) if dtype is object else sample(dtype, (3,))
    out = backend.empty((4,), np.dtype(dtype))
    backend.take(rows, np.array([2, 0, 2, 1]), out)
    np.testing.assert_array_equal(host(out), rows[[2, 0, 2, 1]])


def test_work_on_a_stream_of_its_own_is_handed_over_by_marks(backend: Backend) -> None:
    chain = chain_for(backend, (4, 6))
    data = sample("<i4", (12, 6))
    stored = encoded(backend, chain, *data.reshape(3, 4, 6))
    outside = backend.current_stream()
    begun = backend.record()
    with backend.own_stream():
        backend.wait(begun)
        assert (backend.current_stream() == outside) is (outside is None)
        out, batch = (backend.empty((12, 6), np.dtype("<i4")) for _ in range(2))
        backend.place(chain, stored, whole((12, 6), (4, 6)), out, None)
        backend.take(out, np.arange(11, -1, -1), batch)
        done = backend.record()
    backend.wait(done)
    backend.wait(None)
    assert backend.current_stream() == outside
    np.testing.assert_array_equal(host(batch), data[::-1])
    with backend.own_stream():
        backend.wait(backend.record(outside))


@pytest.mark.parametrize(
    "dtype", ["<i4", "<M8[s]", STRUCT, "<f2", np.dtype({"names": ["x"], "formats": ["i2"], "offsets": [3]})]
)
@pytest.mark.parametrize("shape", [(4, 3), (5,), (0, 3)])
def test_an_owner_lives_as_long_as_any_view(backend: Backend, shape: tuple[int, ...], dtype: Any) -> None:
    class Owner:
        pass

    memory = backend.empty(shape, np.dtype(dtype))
    owner = Owner()
    alive = weakref.ref(owner)
    array = backend.owned_by(memory, owner)
    assert (array.shape, array.dtype) == (shape, memory.dtype)
    array[:] = 0
    np.testing.assert_array_equal(host(memory), np.zeros(shape, dtype))
    views = [array[1:], array.reshape(-1)[:]]
    views.append(views[0][::-1])
    del owner, array
    while views:
        assert alive() is not None
        views.pop()
    assert alive() is None


# -- chains ----------------------------------------------------------------------------------------------------------


def test_a_chain_says_where_each_codec_runs(backend: Backend) -> None:
    chain = chain_for(backend, (4,), codecs=[BytesCodec(), ZstdCodec(1), Crc32cCodec()])
    assert [p.step for p in chain.placement][:3] == ["bytes", "zstd", "crc32c"]
    assert all(p.where and p.why for p in chain.placement)
    assert chain.chunk.shape == (4,)


def test_an_unknown_codec_is_refused(backend: Backend) -> None:
    class Unknown(BytesCodec):
        name = "no-such-codec"

    with pytest.raises(UnknownCodecError, match="no-such-codec"):
        chain_for(backend, (4,), codecs=[Unknown("little")])


# -- loading ---------------------------------------------------------------------------------------------------------


def test_load_fetches_requests_and_passes_bytes_on(backend: Backend) -> None:
    store = CountingStore(MemoryStore({"a": b"0123456789", "b": b"xyz"}))
    wanted = [Request("b"), None, b"here", Request("a", 2, 3), Request("missing"), Request("a", 6, 4)]
    found = backend.load(store, wanted)
    assert [None if item is None else bytes(host_view(item)) for item in found] == [
        b"xyz", None, b"here", b"234", None, b"6789"
    ]  # fmt: skip
    assert store.nbatches == 1
    assert backend.load(store, []) == []


@pytest.mark.parametrize("short", [Request("a", 8, 3), Request("a", 20, 1), Request("missing", 0, 1)])
def test_load_names_the_item_that_is_short(backend: Backend, short: Request) -> None:
    store = MemoryStore({"a": b"0123456789"})
    with pytest.raises(CodecError, match=r"outside the shard|was deleted") as caught:
        backend.load(store, [Request("a"), None, short])
    assert caught.value.index == 2


# -- decoding and encoding -------------------------------------------------------------------------------------------

CHAINS: dict[str, list[CodecSpec]] = {
    "bytes": [BytesCodec()],
    "transposed": [TransposeCodec((1, 0)), BytesCodec()],
    "zstd": [BytesCodec(), ZstdCodec(1)],
    "gzip, checked": [BytesCodec(), GzipCodec(1), Crc32cCodec()],
    "blosc": [BytesCodec(), BloscCodec("lz4", 5, "shuffle", 4)],
    "lz4": [BytesCodec(), NumcodecsCodec("lz4")],
    "delta": [NumcodecsCodec("delta", {"dtype": "<i4"}), BytesCodec(), NumcodecsCodec("zlib")],
    "shards as a codec": [ShardingCodec((2, 3))],
}


@pytest.mark.parametrize("codecs", CHAINS.values(), ids=CHAINS)
def test_batches_come_back(backend: Backend, codecs: list[CodecSpec]) -> None:
    chain = chain_for(backend, (4, 6), codecs=codecs)
    chunks = [sample("<i4", (4, 6)) * factor for factor in (1, -3, 1000)]
    value = backend.asarray(np.concatenate(chunks), np.dtype("<i4"))
    parts = whole((12, 6), (4, 6))
    for n in (0, 1, 3):
        data = backend.merge_and_encode(chain, [None] * n, value, parts[:n], None, keep_empty=True)
        assert len(data) == n
        kept = [bytes(host_view(item)) for item in data]
        found = backend.decode(chain, data)
        assert [host(chunk).tolist() for chunk in found] == [chunk.tolist() for chunk in chunks[:n]]
        backend.merge_and_encode(
            chain, [None], backend.asarray(chunks[1], chunks[1].dtype), parts[:1], None, keep_empty=True
        )
        assert [bytes(host_view(item)) for item in data] == kept


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 2)])
def test_every_dtype_comes_back(backend: Backend, dtype: Any, shape: tuple[int, ...]) -> None:
    chain = chain_for(backend, shape, dtype, None)
    chunk = sample(dtype, shape)
    (found,) = backend.decode(chain, encoded(backend, chain, chunk))
    assert host(found).shape == shape
    assert host(found).astype(chunk.dtype).tobytes() == chunk.tobytes()


def test_objects_come_back(backend: Backend) -> None:
    chunk = np.empty((2, 2), object)
    for items, codec in ((["a", "żółć", "", "b\0"], VLenUTF8Codec()), ([b"a", b"\0", b"", b"bb"], VLenBytesCodec())):
        chunk[...] = np.array(items, object).reshape(2, 2)
        chain = chain_for(backend, (2, 2), object, items[2], codecs=[codec])
        (found,) = backend.decode(chain, encoded(backend, chain, chunk))
        assert host(found).tolist() == chunk.tolist()


def test_decoded_chunks_may_be_changed(backend: Backend) -> None:
    for codecs in CHAINS.values():
        chain = chain_for(backend, (4, 6), codecs=codecs)
        (data,) = encoded(backend, chain, sample("<i4", (4, 6)))
        first, second = backend.decode(chain, [data, data])
        first[...] = 0
        assert host(second).tolist() == sample("<i4", (4, 6)).tolist()
        assert host(backend.decode(chain, [data])[0]).tolist() == sample("<i4", (4, 6)).tolist()


def test_decoding_a_missing_chunk_gives_its_fill_value(backend: Backend) -> None:
    chain = chain_for(backend, (2,), "<f4", np.nan)
    (data,) = encoded(backend, chain, sample("<f4", (2,)))
    missing, there = backend.decode(chain, [None, data])
    assert np.isnan(host(missing)).all()
    missing[...] = 1
    assert host(there).tolist() == [1, 2]
    assert host(backend.decode(chain_for(backend, (2,), "<f4", None), [None])[0]).tolist() == [0, 0]
    objects = chain_for(backend, (2,), object, None, codecs=[VLenUTF8Codec()])
    assert host(backend.decode(objects, [None])[0]).tolist() == [None, None]


def test_encoding_leaves_the_value_as_it_is(backend: Backend) -> None:
    for codecs in CHAINS.values():
        chain = chain_for(backend, (4, 6), codecs=codecs)
        given = backend.asarray(sample("<i4", (4, 6)), np.dtype("<i4"))
        backend.merge_and_encode(chain, [None], given, [covering(chain)], None, keep_empty=True)
        assert host(given).tolist() == sample("<i4", (4, 6)).tolist()


def test_chunks_that_are_views_are_encoded_by_value(backend: Backend) -> None:
    chain = chain_for(backend, (2, 3))
    wanted = encoded(backend, chain, sample("<i4", (2, 3)))
    backwards = sample("<i4", (2, 3))[::-1].copy()[::-1]
    read_only = np.broadcast_to(np.int32(5), (2, 3))
    assert encoded(backend, chain, np.asfortranarray(sample("<i4", (2, 3))), backwards) == wanted * 2
    assert encoded(backend, chain, read_only) == [np.full(6, 5, "<i4").tobytes()]
    words = chain_for(backend, (2, 3), object, "", codecs=[VLenUTF8Codec()])
    single = np.empty((), object)
    single[()] = "word"
    (found,) = backend.decode(words, encoded(backend, words, np.broadcast_to(single, (2, 3))))
    assert host(found).tolist() == [["word"] * 3] * 2


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_damaged_chunk_is_named_by_its_position(backend: Backend, position: int) -> None:
    damage: list[tuple[list[CodecSpec], Callable[[bytes], bytes]]] = [
        ([BytesCodec()], lambda data: data[:-1]),
        ([BytesCodec()], lambda data: data + b"\0"),
        ([BytesCodec(), Crc32cCodec()], lambda data: bytes([data[0] ^ 1]) + data[1:]),
        ([BytesCodec(), ZstdCodec(1)], lambda data: data[: len(data) // 2]),
        ([BytesCodec(), GzipCodec(1)], lambda _: zlib.compress(b"not this")),
        ([BytesCodec(), BloscCodec("lz4", 5, "shuffle", 4)], lambda _: b""),
    ]
    for codecs, harm in damage:
        chain = chain_for(backend, (4, 6), codecs=codecs)
        data: list[Any] = encoded(backend, chain, *[sample("<i4", (4, 6))] * 3)
        data[position] = harm(data[position])
        with pytest.raises(CodecError) as caught:
            backend.decode(chain, data)
        assert caught.value.index == position
        assert caught.value.codec in {spec.name for spec in codecs}
        parts = whole((12, 6), (4, 6))
        with pytest.raises(CodecError) as caught:
            backend.place(chain, data, parts, backend.empty((12, 6), np.dtype("<i4")), None)
        assert caught.value.index == position


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_damaged_old_chunk_is_named_by_its_position(backend: Backend, position: int) -> None:
    for codecs in ([BytesCodec()], [BytesCodec(), ZstdCodec(1)], [BytesCodec(), Crc32cCodec()]):
        chain = chain_for(backend, (4, 6), codecs=codecs)
        (good,) = encoded(backend, chain, sample("<i4", (4, 6)))
        parts = parts_of(normalize_basic((slice(None), 3), (16, 6)), (16, 6), (4, 6))
        before: list[Any] = [good, good, good, None]
        before[position] = good[: len(good) // 2]
        value = backend.asarray(sample("<i4", (16, 1)), np.dtype("<i4"))
        with pytest.raises(CodecError) as caught:
            backend.merge_and_encode(chain, before, value, parts, None, keep_empty=False)
        assert caught.value.index == position


def test_a_chunk_that_cannot_be_encoded_is_named_by_its_position(backend: Backend) -> None:
    chain = chain_for(backend, (1,), object, "", codecs=[VLenUTF8Codec()])
    value = np.array(["a", "", b"\xff"], object)
    for keep_empty in (True, False):
        with pytest.raises(CodecError) as caught:
            backend.merge_and_encode(chain, [None] * 3, value, whole((3,), (1,)), None, keep_empty=keep_empty)
        assert (caught.value.index, caught.value.codec) == (2, "vlen-utf8")


# -- placing ---------------------------------------------------------------------------------------------------------

SHAPE, CHUNK = (7, 5), (3, 2)
SELECTIONS: dict[str, Selection] = {
    "everything": normalize_basic((), SHAPE),
    "a box": normalize_basic((slice(1, 6), slice(1, 4)), SHAPE),
    "steps": normalize_basic((slice(0, None, 2), slice(1, None, 3)), SHAPE),
    "an element": normalize_basic((6, 4), SHAPE),
    "nothing": normalize_basic((slice(3, 3), slice(None)), SHAPE),
    "lists": normalize_orthogonal(([6, 0, 3, 3], [4, 1]), SHAPE),
    "a list": normalize_orthogonal(([6, 0, 3], slice(None)), SHAPE),
    "points": normalize_coordinates(([6, 0, 3, 0], [4, 1, 1, 1]), SHAPE),
    "one point": normalize_coordinates((6, 4), SHAPE),
}


def taken(selection: Selection, data: np.ndarray) -> np.ndarray:
    """What a plan's parts should bring together, element by element."""
    if hasattr(selection, "coords"):
        return data[selection.coords]
    rows = [np.arange(a.start, a.start + a.step * a.size, a.step) if hasattr(a, "step") else a for a in selection.axes]
    return data[np.ix_(*rows)]


@pytest.mark.parametrize("dtype", ["|b1", "<i4", ">f8", "<c8", "|S3", STRUCT], ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_parts_are_placed(backend: Backend, dtype: Any, order: str) -> None:
    data, chain, buffers = stored_array(backend, dtype, order)
    for name, selection in SELECTIONS.items():
        wanted = taken(selection, data)
        out = backend.empty(wanted.shape, data.dtype)
        parts = parts_of(selection, SHAPE, CHUNK)
        backend.place(chain, [buffers[part.coords] for part in parts], parts, out, None)
        np.testing.assert_array_equal(host(out), wanted, name)


def stored_array(backend: Backend, dtype: Any, order: str = "C") -> tuple[np.ndarray, Chain, dict[Any, bytes | None]]:
    """An array of 7 x 5, its chain, and its encoded chunks of 3 x 2, the second of which is missing."""
    data = sample(dtype, SHAPE)
    endian: Any = "big" if data.dtype.byteorder == ">" else "little"
    fill = sample(dtype, (50,))[49]
    codecs = [*([TransposeCodec((1, 0))] if order == "F" else []), BytesCodec(endian), ZstdCodec(1)]
    chain = chain_for(backend, CHUNK, dtype, fill, codecs)
    data[0:3, 2:4] = fill
    buffers: dict[Any, bytes | None] = {}
    for part in whole(SHAPE, CHUNK):
        chunk = np.full(CHUNK, fill, data.dtype)
        chunk[part.inside] = data[part.out]
        (buffers[part.coords],) = encoded(backend, chain, chunk)
    buffers[0, 1] = None
    return data, chain, buffers


@pytest.mark.parametrize("fields", ["a", "c", ["b"], ["c", "a"]])
def test_fields_are_placed(backend: Backend, fields: Any) -> None:
    data, chain, buffers = stored_array(backend, STRUCT)
    single = isinstance(fields, str)
    names = [(name, STRUCT[name]) for name in fields]
    for selection in SELECTIONS.values():
        wanted = taken(selection, data)[fields]
        shape = wanted.shape[: -len(STRUCT[fields].shape) or None] if single else wanted.shape
        out = backend.empty(shape, STRUCT[fields] if single else np.dtype(names))
        parts = parts_of(selection, SHAPE, CHUNK)
        backend.place(chain, [buffers[part.coords] for part in parts], parts, out, fields)
        for name in [fields] if single else fields:
            np.testing.assert_array_equal(*(host(a) if single else host(a)[name] for a in (out, wanted)))


def test_results_of_another_dtype_are_cast(backend: Backend) -> None:
    data, chain, buffers = stored_array(backend, "<i4")
    parts = whole(SHAPE, CHUNK)
    for dtype in ("<f8", "<i2", "<c8"):
        out = backend.empty(SHAPE, np.dtype(dtype))
        backend.place(chain, [buffers[part.coords] for part in parts], parts, out, None)
        assert host(out).tolist() == data.astype(dtype).tolist()


def test_results_may_be_views(backend: Backend) -> None:
    data, chain, buffers = stored_array(backend, "<i4")
    parts = whole(SHAPE, CHUNK)
    around = backend.empty((20, 15), np.dtype("<i4"))
    around[...] = -1
    out = around[13::-2, 2:12:2]
    backend.place(chain, [buffers[part.coords] for part in parts], parts, out, None)
    assert host(out).tolist() == data.tolist()
    assert int((host(around) == -1).sum()) == 20 * 15 - 35


def test_arrays_without_axes(backend: Backend) -> None:
    chain = chain_for(backend, (), "<f4", 2.5)
    (data,) = encoded(backend, chain, np.array(7, "<f4"))
    (part,) = parts_of(normalize_basic((), ()), (), ())
    (point,) = parts_of(normalize_mask(np.array(True), ()), (), ())
    for buffer, wanted in ((data, 7), (None, 2.5)):
        out = backend.empty((), np.dtype("<f4"))
        backend.place(chain, [buffer], [part], out, None)
        assert host(out)[()] == wanted
        points = backend.empty((1,), np.dtype("<f4"))
        backend.place(chain, [buffer], [point], points, None)
        assert host(points).tolist() == [wanted]
    for old in (None, data):
        (chunk,) = merged(backend, chain, [old], np.array([9], "<f4"), [point])
        assert chunk[()] == 9


# -- merging and encoding --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["<i4", ">f8", "<c16", "|b1", "|S3", STRUCT], ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_value_is_laid_over_chunks(backend: Backend, dtype: Any, order: str) -> None:
    data, chain, buffers = stored_array(backend, dtype, order)
    fill = np.full(CHUNK, chain.chunk.fill_value, chain.chunk.dtype)
    for (name, selection), there in product(SELECTIONS.items(), (True, False)):
        value = sample(dtype, taken(selection, data).shape)[..., ::-1]
        before = value.copy()
        parts = parts_of(selection, SHAPE, CHUNK)
        old = [buffers[part.coords] if there else None for part in parts]
        found = merged(backend, chain, old, value, parts)
        for part, buffer, chunk in zip(parts, old, found, strict=True):
            expected = host(backend.decode(chain, [buffer])[0])
            expected[part.inside] = value[part.out]
            assert chunk is None or chunk.dtype == chain.chunk.dtype
            np.testing.assert_array_equal(fill if chunk is None else chunk, expected, name)
        np.testing.assert_array_equal(value, before)


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("fields", ["a", "c", ["b"], ["c", "a"]])
def test_new_fields_leave_the_others_alone(backend: Backend, fields: Any, there: bool) -> None:
    fill = np.array((7, 8.5, [9, 10]), STRUCT)[()]
    chain = chain_for(backend, (3,), STRUCT, fill)
    expected = sample(STRUCT, (3,)) if there else np.full(3, fill, STRUCT)
    old = encoded(backend, chain, expected)[0] if there else None
    value = sample(STRUCT, (13,))[10:][fields]
    (chunk,) = merged(backend, chain, [old], value, whole((3,), (3,)), fields)
    for name in [fields] if isinstance(fields, str) else fields:
        expected[name] = value if isinstance(fields, str) else value[name]
    np.testing.assert_array_equal(chunk, expected)


def test_edges_are_padded_with_the_fill_value(backend: Backend) -> None:
    chain = chain_for(backend, (4,), "<i4", 9)
    chunks = merged(backend, chain, [None, None], np.arange(6, dtype="i8"), whole((6,), (4,)))
    assert [chunk.tolist() for chunk in chunks] == [[0, 1, 2, 3], [4, 5, 9, 9]]
    chain = chain_for(backend, (4,), "<i4", None)
    assert merged(backend, chain, [None], np.arange(2), whole((2,), (4,)))[0].tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("dtype", ["|b1", "<i2", ">u4", "<f4", "<f8", "<c8"])
@pytest.mark.filterwarnings("ignore:Casting complex")
def test_values_of_another_dtype_are_cast_as_numpy_does(backend: Backend, dtype: str) -> None:
    chain = chain_for(backend, (4,), dtype, 0, [BytesCodec("big" if dtype[0] == ">" else "little"), ZstdCodec(1)])
    for given in ("|b1", "|i1", "<u2", "<i8", "<f4", ">f8", "<c16"):
        value = np.array([1, 0, 100, 3.5, -2 if given[1] in "ifc" else 2, 7]).astype(given)
        value = value.astype("i4").astype(given) if np.dtype(dtype).kind in "iu" else value
        expected = np.zeros(8, dtype)
        expected[1:7] = value
        parts = parts_of(normalize_basic(slice(1, 7), (8,)), (8,), (4,))
        found = merged(backend, chain, [None, None], value, parts)
        assert np.concatenate(found).tolist() == expected.tolist(), given


def test_the_last_of_several_values_for_an_element_stays(backend: Backend) -> None:
    chain = chain_for(backend, (4, 4), "<i4", -1)
    rows, columns = [2, 0, 2, 2, 1], [3, 3, 0]
    value = np.arange(15, dtype="<i4").reshape(5, 3)
    expected = np.full((4, 4), -1)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            expected[row, column] = value[i, j]
    parts = parts_of(normalize_orthogonal((rows, columns), (4, 4)), (4, 4), (4, 4))
    assert merged(backend, chain, [None], value, parts)[0].tolist() == expected.tolist()
    expected[...] = -1
    expected[2, 3], expected[0, 1] = 4, 2
    parts = parts_of(normalize_coordinates(([2, 0, 0, 2, 2], [3, 1, 1, 3, 3]), (4, 4)), (4, 4), (4, 4))
    assert merged(backend, chain, [None], np.arange(5, dtype="<i4"), parts)[0].tolist() == expected.tolist()


def test_values_may_be_broadcast(backend: Backend) -> None:
    chain = chain_for(backend, (3, 2), codecs=[BytesCodec(), ZstdCodec(1)])
    everything, lists = (
        normalize_basic((), SHAPE),
        normalize_orthogonal(([6, 0, 3, 3, 1, 2, 4], [4, 1, 1, 0, 2]), SHAPE),
    )
    for value in (np.int32(7), np.arange(5, dtype="<i4"), np.arange(7, dtype="<i4")[:, None]):
        for selection in (everything, lists):
            given = np.broadcast_to(value, SHAPE)
            parts = parts_of(selection, SHAPE, CHUNK)
            for part, chunk in zip(parts, merged(backend, chain, [None] * len(parts), given, parts), strict=True):
                expected = np.zeros(CHUNK, "<i4")
                expected[part.inside] = given[part.out]
                assert (np.zeros(CHUNK, "<i4") if chunk is None else chunk).tolist() == expected.tolist()


def test_values_may_be_anything_that_gives_its_parts(backend: Backend) -> None:
    class Lazy:
        shape, dtype = SHAPE, np.dtype("<i4")

        def __getitem__(self, key: Any) -> np.ndarray:
            return sample("<i4", SHAPE)[key]

    chain = chain_for(backend, CHUNK, "<i8", codecs=[BytesCodec(), ZstdCodec(1)])
    parts = whole(SHAPE, CHUNK)
    found = backend.merge_and_encode(chain, [None] * len(parts), Lazy(), parts, None, keep_empty=False)
    for part, data in zip(parts, found, strict=True):
        chunk = host(backend.decode(chain, [data])[0])
        assert chunk[part.inside].tolist() == sample("<i4", SHAPE)[part.out].tolist()


def test_objects_are_taken_as_they_are(backend: Backend) -> None:
    chain = chain_for(backend, (), object, b"", codecs=[VLenBytesCodec()])
    value = np.empty((), object)
    value[()] = b"\0"
    assert merged(backend, chain, [None], value, whole((), ()))[0][()] == b"\0"


# -- fill values -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "fill", "other"),
    [
        ("|b1", True, False),
        ("|u1", 0, 1),
        (">i2", 300, 301),
        ("<f2", np.nan, 0.0),
        ("<f4", 0.0, -0.0),
        ("<f8", np.nan, -np.nan),
        (">f8", np.nan, -np.nan),
        ("<c8", complex(0, np.nan), 0),
        ("<c16", 0, complex(0, -0.0)),
        (">c16", 1j, complex(-0.0, 1)),
        ("<M8[s]", "NaT", 0),
        ("|S3", b"ab", b"ac"),
        (">U2", "a", "b"),
        ("|V5", b"12345", b"12340"),
        (STRUCT, (1, np.nan, [0, 0]), (1, np.nan, [0, 1])),
    ],
    ids=str,
)
def test_chunks_equal_to_fill_bit_for_bit_are_none(backend: Backend, dtype: Any, fill: Any, other: Any) -> None:
    dtype = np.dtype(dtype)
    for shape in ((), (1,), (3, 4), (5, 7)):
        chain = chain_for(backend, shape, dtype, fill)
        full = np.full(shape, chain.chunk.fill_value, dtype)
        different = np.full(shape, np.asarray(other, dtype), dtype)
        inside, at_the_end = full.copy(), full.copy()
        inside.reshape(-1)[inside.size // 2] = np.asarray(other, dtype)
        at_the_end.reshape(-1)[-1] = np.asarray(other, dtype)
        for chunk in (full, different, inside, at_the_end, full.T.copy().T):
            is_fill = chunk.tobytes() == full.tobytes()
            (found,) = merged(backend, chain, [None], chunk, [covering(chain)])
            assert (found is None) == is_fill
            assert encoded(backend, chain, chunk)
            assert found is None or found.tobytes() == chunk.tobytes()


def test_chunks_that_come_to_hold_the_fill_value_are_none(backend: Backend) -> None:
    for codecs in ([BytesCodec()], [BytesCodec(), ZstdCodec(1)]):
        chain = chain_for(backend, (4,), "<i4", 7, codecs)
        old = encoded(backend, chain, np.array([7, 7, 1, 7], "<i4"))[0]
        parts = parts_of(normalize_basic((slice(2, None, 4),), (12,)), (12,), (4,))
        found = merged(backend, chain, [old, None, old], np.array([7, 7, 2], "<i4"), parts)
        assert (found[:2], found[2].tolist()) == ([None, None], [7, 7, 2, 7])


def test_nothing_is_fill_where_it_is_undefined(backend: Backend) -> None:
    chain = chain_for(backend, (2,), "<i4", None)
    (found,) = merged(backend, chain, [None], np.zeros(2, "<i4"), [covering(chain)])
    assert found.tolist() == [0, 0]


def test_fill_values_of_objects(backend: Backend) -> None:
    chain = chain_for(backend, (2,), object, "", codecs=[VLenUTF8Codec()])
    value = np.array(["", "", "", "a", "a", ""], object)
    found = merged(backend, chain, [None] * 3, value, whole((6,), (2,)))
    assert [None if chunk is None else chunk.tolist() for chunk in found] == [None, ["", "a"], ["a", ""]]


# -- running ---------------------------------------------------------------------------------------------------------

#: Small chunks, which are timed before threads are used, and large ones.
SIZES = pytest.mark.parametrize("work", [Work(1000, 0, 1), Work(1000, 1 << 30, 1)])


@SIZES
def test_every_batch_is_run_once(backend: Backend, work: Work) -> None:
    done: list[int] = []
    backend.run(done.append, iter(range(1000)), work)
    assert sorted(done) == list(range(1000))
    backend.run(done.append, [], work)
    assert len(done) == 1000


@SIZES
def test_batches_are_pulled_as_they_are_needed(backend: Backend, work: Work) -> None:
    """A plan may have more batches than memory: they are made a few at a time."""
    pulled = done = furthest = 0
    lock = threading.Lock()

    def batches() -> Any:
        nonlocal pulled
        for number in range(500):
            pulled += 1
            yield number

    def task(_: int) -> None:
        nonlocal done, furthest
        with lock:
            furthest = max(furthest, pulled - done)
            done += 1

    backend.run(task, batches(), work)
    assert done == 500
    assert furthest < 100


@SIZES
def test_a_failure_stops_the_run_and_is_raised(backend: Backend, work: Work) -> None:
    done: list[int] = []

    def task(number: int) -> None:
        if number == 5:
            raise KeyError("the fifth")

    with pytest.raises(KeyError, match="the fifth"):
        backend.run(task, while_patient(), work)
    backend.run(done.append, [-1], work)
    assert done == [-1]


def test_failures_beside_the_first_are_told_of() -> None:
    """The CPU backend runs batches side by side."""
    both = threading.Barrier(2)

    def task(number: int) -> None:
        both.wait(timeout=60)
        raise ValueError(f"batch {number}")

    with config.set(threading__max_workers=2), pytest.raises(ValueError, match="batch") as caught:
        CpuBackend().run(task, iter(range(10)), Work(10, 1 << 30, 1))
    assert len(caught.value.__notes__) == 1
    assert "batch" in caught.value.__notes__[0]


@pytest.mark.parametrize(("limit_s", "n_threads"), [(0.0, 2), (60.0, 1)])
def test_threads_are_used_if_chunks_take_long(monkeypatch: pytest.MonkeyPatch, limit_s: float, n_threads: int) -> None:
    """The CPU backend times the first batch on the caller's thread."""
    monkeypatch.setattr("gzarr.cpu.threads.THREADED_CHUNK_S", limit_s)
    used: list[int] = []
    meeting = Meeting(2)

    def task(_: int) -> None:
        used.append(threading.get_ident())
        time.sleep(0.001)
        if len(used) > 1 and n_threads > 1:
            meeting.attend()

    with config.set(threading__max_workers=2):
        CpuBackend().run(task, iter(range(50)), Work(50, 1000, 1))
    assert used[0] == threading.get_ident()
    assert len(set(used[1:])) == n_threads


@pytest.mark.parametrize(("chunk_s", "n_threads"), [(1e-3, 2), (1e-6, 1)])
def test_no_batch_is_timed_where_it_is_known_what_a_chunk_takes(chunk_s: float, n_threads: int) -> None:
    used: list[int] = []
    meeting = Meeting(2)

    def task(_: int) -> None:
        used.append(threading.get_ident())
        if n_threads > 1:
            meeting.attend()

    with config.set(threading__max_workers=2):
        CpuBackend().run(task, iter(range(2)), Work(2, 1000, 1, unlocked=True, chunk_s=chunk_s))
    assert len(set(used)) == n_threads


def test_no_thread_is_woken_beside_a_single_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a chunk took before: a small read of large chunks may come after one of all their elements."""
    monkeypatch.delattr("gzarr.cpu.threads.run_in_threads")
    done: list[int] = []
    with config.set(threading__max_workers=2):
        CpuBackend().run(done.append, iter([1]), Work(4, 1000, 8, unlocked=True, chunk_s=1.0))
    assert done == [1]


def test_what_ran_ahead_is_dropped_before_its_end_is_told(backend: Backend) -> None:
    """Its thread may keep what it was given for a while."""

    class Keeping(Pool):
        def submit(self, task: Callable[[], object], most: int) -> None:
            self.kept = task
            task()

    class Task:
        def __call__(self) -> None:
            pass

    pool, task = Keeping(), Task()
    gone = weakref.ref(task)
    wait = run_ahead(backend, pool, 1, task)
    del task
    wait()
    assert pool.kept
    assert gone() is None


@SIZES
def test_a_run_within_a_run_ends(backend: Backend, work: Work) -> None:
    """Copying one array to another reads the one within the tasks that write the other."""
    done: list[tuple[int, int]] = []

    def outer(number: int) -> None:
        backend.run(lambda inner: done.append((number, inner)), range(3), work)

    backend.run(outer, range(50), work)
    assert sorted(done) == [(i, j) for i in range(50) for j in range(3)]
