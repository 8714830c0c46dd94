"""The compiled loop and the reference path agree: on NumPy's values, on the bytes that are stored, and on errors.

Every layout that the loop knows is tried in every kind of store: small chunks, and large ones of which only some
blocks, or the beginning, are decoded.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, ShardingCodec, TransposeCodec, ZstdCodec
from gzarr.config import config
from gzarr.cpu.compiled import eligibility, library
from gzarr.cpu.compiled import read as compiled_read
from gzarr.errors import GzarrError
from gzarr.storage import LocalStore, MemoryStore, Request, Store, WrapperStore
from gzarr.storage.base import Buffer
from tests.cpu.compiled.looping import CHAINS, CHUNK, DTYPES, KEYS, SHAPE, read, wanted
from tests.cpu.compiled.looping import values as small_values
from tests.properties.cases import as_array, basic_keys, coordinate_keys, orthogonal_index, orthogonal_keys, same

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")


class Waiting(WrapperStore):
    """A store that takes many requests at once: its chunks come in batches."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.concurrency = 8


class Changeable(WrapperStore):
    """Gives memory that could change."""

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        return [None if item is None else memoryview(bytearray(item)) for item in super().get_many(requests)]


#: Makes a store of a folder. What lies in the folder, or was put into the store, is the same in all of them.
STORES: dict[str, Callable[[Path], Store]] = {
    "files": LocalStore,
    "memory": lambda _: MemoryStore(),
    "waiting": lambda _: Waiting(MemoryStore()),
    "changeable": lambda _: Changeable(MemoryStore()),
}


class Layout(NamedTuple):
    """Codecs of chunks of a shape, and the data types of arrays that are stored so."""

    codecs: list[Any]
    shape: tuple[int, ...] = SHAPE
    chunks: tuple[int, ...] = CHUNK
    dtypes: Sequence[Any] = DTYPES


def large(*codecs: Any, dtype: str = "<i4", chunks: tuple[int, ...] = (130, 200, 5)) -> Layout:
    return Layout([*codecs], (270, 230, 8), chunks, (dtype,))


BLOSC = BloscCodec("lz4", 5, "shuffle", 4, 1 << 14)
NESTED = ShardingCodec((10, 5, 3), [ShardingCodec((5, 5, 1), [BytesCodec(), ZstdCodec(1)])])
SMALL = {name: Layout(codecs) for name, codecs in CHAINS.items()} | {"nested shards": Layout([NESTED])}
LARGE = {
    "large": large(BytesCodec()),
    "large blosc": large(BytesCodec(), BLOSC),
    "large blosc of transposed": large(TransposeCodec((2, 0, 1)), BytesCodec("big"), BLOSC, dtype=">f8"),
    "large blosc in shards": large(ShardingCodec((130, 200, 5), [BytesCodec(), BLOSC]), chunks=(260, 400, 10)),
    "large zstd": large(BytesCodec(), ZstdCodec(1)),
    "large zstd with checksums": large(BytesCodec(), ZstdCodec(1, checksum=True), Crc32cCodec()),
    "large zstd in shards": large(ShardingCodec((130, 200, 5), [BytesCodec(), ZstdCodec(1)]), chunks=(260, 400, 10)),
}
LAYOUTS = SMALL | LARGE
#: Layouts and kinds of stores: files and memory for all. Large chunks are not read by batches.
PAIRS = [(name, kind) for name in LAYOUTS for kind in ("files", "memory")]
PAIRS += [(name, kind) for number, name in enumerate(SMALL) for kind in [("waiting", "changeable")[number % 2]]]


@pytest.fixture(autouse=True, scope="module")
def few_chunks_are_enough() -> Iterator[None]:
    """The loop does what it would save too little on, in batches of few chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eligibility, "MIN_SAVED", -1_000_000)
        for name in ("_MIN_NCHUNKS", "_MIN_NCHUNKS_OF_SHARD", "STORE_NCHUNKS", "_FEW_NCHUNKS"):
            patch.setattr(compiled_read, name, 2)
        patch.setattr("gzarr.indexing.tables._MAX_KEPT_SPANS", 4)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("either")


def values(layout: Layout, dtype: Any) -> np.ndarray:
    return small_values(dtype, layout.shape)


def created(store: Store, layout: Layout, dtype: Any, **more: Any) -> gzarr.Array:
    fill = 7 if np.dtype(dtype).kind in "iufc" else None
    return gzarr.create_array(
        store, shape=layout.shape, chunks=layout.chunks, dtype=dtype, fill_value=fill, codecs=layout.codecs, **more
    )


def filled(store: Store, layout: Layout, dtype: Any, *, missing: bool) -> tuple[gzarr.Array, np.ndarray]:
    """An array and what it holds. missing: whether its first objects are not there."""
    array, model = created(store, layout, dtype), values(layout, dtype)
    if missing:
        model[: layout.chunks[0], : layout.chunks[1]] = array.fill_value
    array[...] = model
    return array, model


@cache
def made(name: str, kind: str, which: int, missing: bool, folder: Path) -> tuple[gzarr.Array, np.ndarray]:
    layout = LAYOUTS[name]
    store = STORES[kind](folder / f"{name}-{kind}-{which}-{missing}")
    return filled(store, layout, layout.dtypes[which], missing=missing)


# -- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), PAIRS)
@settings(max_examples=3)
@given(data=st.data())
def test_reads_give_what_numpy_gives(name: str, kind: str, folder: Path, data: st.DataObject) -> None:
    layout = LAYOUTS[name]
    which, missing = data.draw(st.integers(0, len(layout.dtypes) - 1)), data.draw(st.booleans())
    array, model = made(name, kind, which, missing, folder)
    boxes = data.draw(basic_keys(layout.shape)), data.draw(basic_keys(layout.shape))
    for key, found in zip(boxes, gzarr.read_many([(array, key) for key in boxes]), strict=True):
        same(array[key], model[key])
        same(found, model[key])
    outer = data.draw(orthogonal_keys(layout.shape))
    index, shape = orthogonal_index(outer, layout.shape)
    same(array.oindex[outer], as_array(model[index]).reshape(shape))
    points = data.draw(coordinate_keys(layout.shape))
    same(array.vindex[points], model[points])
    out = np.zeros((*layout.shape[:0:-1], 2 * layout.shape[0]), model.dtype).T[::-2]
    array.get_basic_selection(..., out=out)
    same(out, model)
    if model.dtype.names:
        fields = data.draw(st.sampled_from(["a", "b", ["a", "c"]]))
        same(array.get_basic_selection(boxes[0], fields=fields), model[fields][boxes[0]])
        same(array.get_coordinate_selection(points, fields=fields), model[fields][points])


@pytest.mark.parametrize(
    ("name", "kind"), [pair for pair in PAIRS if pair[1] != "waiting" and pair[0] != "nested shards"]
)
def test_the_loop_does_it(name: str, kind: str, folder: Path) -> None:
    array, model = made(name, kind, 0, False, folder)
    for on in (True, False):
        with config.set({"cpu.native": on}), gzarr.profile() as profile:
            for kind_of_key in KEYS:
                same(read(kind_of_key, array), wanted(kind_of_key, model))
        assert not on or profile.stages["loop"].chunks >= array.nchunks
        assert ("loop" in profile.stages) == on


# -- bytes -----------------------------------------------------------------------------------------------------------


def stored_bytes(array: gzarr.Array) -> dict[str, bytes]:
    return {key: bytes(array.store[key]) for key in sorted(array.store.list_prefix())}


@pytest.mark.parametrize("kind", ["files", "changeable"])
@pytest.mark.parametrize("name", SMALL)
@settings(max_examples=2)
@given(data=st.data())
def test_writes_store_the_same_bytes(
    name: str, kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whole arrays and parts, over what is there or missing; values of any layout, and those of the fill value."""
    layout, folder = LAYOUTS[name], tmp_path_factory.mktemp("written")
    dtype, keep_empty = data.draw(st.sampled_from(layout.dtypes)), data.draw(st.booleans())
    box, outer = data.draw(basic_keys(layout.shape)), data.draw(orthogonal_keys(layout.shape))
    index, shape = orthogonal_index(outer, layout.shape)
    points = data.draw(coordinate_keys(layout.shape))
    first = data.draw(st.booleans())
    new = values(layout, dtype)[::-1, :, ::-1] if data.draw(st.booleans()) else values(layout, dtype)[::-1].copy()
    found = []
    for on in (True, False):
        with config.set({"cpu.native": on, "threading.max_workers": data.draw(st.sampled_from([1, 2]))}):
            array = created(STORES[kind](folder / str(on)), layout, dtype, write_empty_chunks=keep_empty)
            fill = np.asarray(array.fill_value, new.dtype)
            now = np.full(layout.shape, fill, new.dtype)
            steps: list[dict[str, bytes]] = []
            if first:
                array[...] = now[...] = values(layout, dtype)
            array[box] = now[box] = new[box]
            steps.append(stored_bytes(array))
            array.oindex[outer], now[index] = new[index].reshape(shape), new[index]
            array.vindex[points] = now[points] = new[points]
            if new.dtype.names:
                array["b", 3:60] = now["b"][3:60] = new["b"][3:60]
            same(array[...], now)
            array[layout.chunks[0] :] = now[layout.chunks[0] :] = fill
            same(array[...], now)
            steps.append(stored_bytes(array))
            array[...] = new.astype(new.dtype.newbyteorder())
            same(array[...], new)
            steps.append(stored_bytes(array))
            array[...] = fill
            found.append([*steps, stored_bytes(array)])
    assert found[0] == found[1]
    assert keep_empty or list(found[0][-1]) == ["zarr.json"]


# -- errors ----------------------------------------------------------------------------------------------------------

READS: list[Callable[[gzarr.Array], Any]] = [
    lambda array: array[...],
    lambda array: array[3],
    lambda array: array[40:70:3, :30],
    lambda array: array.oindex[[3, 60, 5], :, [2, 0]],
    lambda array: array.vindex[[3, 69, 3, 25], [44, 0, 1, 20], [0, 1, 2, 1]],
    lambda array: read("copies", array),
]


def damaged(data: bytes, how: st.DataObject) -> bytes:
    kind = how.draw(st.sampled_from(["cut", "longer", "flip", "header", "table", "noise", "empty"]))
    changed = bytearray(data)
    at = how.draw(st.integers(0, max(len(data) - 1, 0)))
    if kind == "cut":
        return data[:at]
    if kind == "longer":
        return data + how.draw(st.binary(min_size=1, max_size=8))
    if kind in ("noise", "empty"):
        return how.draw(st.binary(max_size=len(data) if kind == "noise" else 0))
    if kind == "table" and len(data) > 80:  # of the blocks of Blosc, or of a shard
        at = 4 * how.draw(st.integers(4, 19))
        number = how.draw(st.sampled_from([0, 16, len(data) - 1, len(data), 1 << 31, (1 << 32) - 1]))
        changed[at : at + 4] = number.to_bytes(4, "little")
        return bytes(changed)
    if kind == "header":  # and indexes at the end
        at = how.draw(st.sampled_from([at % 20, -1 - at % 40])) % max(len(data), 1)
    if changed:
        changed[at] ^= how.draw(st.integers(1, 255))
    return bytes(changed)


def outcome(array: gzarr.Array, call: Callable[[gzarr.Array], Any]) -> Any:
    """What a call gives, or the error that it raises, as something to compare."""
    try:
        return np.asarray(call(array)).tobytes()
    except GzarrError as error:
        # Whether an index is read by itself or with its shard, it may be too short.
        text = str(error).replace(str(array.store), "").partition("the shard is truncated")[0]
        return type(error), text, vars(error).get("chunk_coords"), vars(error).get("codec")


def laid_over(array: gzarr.Array) -> bytes:
    """Write a part of every chunk. Returns: what is stored then, or what it raises."""
    before = stored_bytes(array)
    try:
        array[1::4, 1:-1] = np.zeros((), array.dtype)
    except GzarrError:
        after = stored_bytes(array)
        assert all(after[key] == data or array.store[key] for key, data in before.items())
        raise
    return repr(stored_bytes(array)).encode()


@pytest.mark.parametrize(("name", "kind"), [pair for pair in PAIRS if pair[1] in ("files", "memory")])
@settings(max_examples=4)
@given(data=st.data())
def test_damage_has_the_same_outcome(name: str, kind: str, folder: Path, data: st.DataObject) -> None:
    """The loop may pass by what is damaged in blocks that nobody wants, and then gives what was written.

    Indexes of shards may have been cached before.
    """
    array, _ = made(name, "memory", 0, False, folder)
    sound = stored_bytes(array)
    key = data.draw(st.sampled_from([key for key in sound if key != "zarr.json"]))
    changed, first = damaged(sound[key], data), data.draw(st.sampled_from([None, *READS]))
    found: list[list[Any]] = []
    for on in (True, False):
        store = STORES[kind](folder / f"damaged-{name}-{kind}")
        store.clear()
        store.set_many(sound.items())
        with config.set({"cpu.native": on, "threading.max_workers": 1}):
            again = gzarr.open_array(store, mode="r+")
            if first is not None:
                first(again)
            store.set_many([(key, changed)])
            found.append([*(outcome(again, read) for read in READS), outcome(again, laid_over)])
    written = [outcome(array, read) for read in READS]
    for ours, theirs, right in zip(*found, [*written, None], strict=True):
        assert ours == theirs or (name in LARGE and ours == right)
