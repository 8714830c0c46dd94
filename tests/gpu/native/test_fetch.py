"""What the compiled loop fetches is what the layout and the store give for every part; what is odd is left."""

import os
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, ZstdCodec
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.shards import ReadShards
from gzarr.errors import CodecError
from gzarr.gpu.native.fetch import ALIGNMENT, LEFT, MISSING, Fetch, Fetched, Wanted, fetch, make_fetch
from gzarr.indexing.copies import Plan, make_batches
from gzarr.indexing.plan import BoxPlan, make_plan
from gzarr.indexing.selection import normalize
from gzarr.storage.base import Request, host_view, token_of

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")

SHAPE, CHUNK, SHARD = (47, 37), (4, 6), (12, 18)
INNER: list[Any] = [BytesCodec(), ZstdCodec(1)]
LAYOUTS: dict[str, dict[str, Any]] = {
    "files": {"chunks": CHUNK},
    "files of v2": {"chunks": CHUNK, "zarr_format": 2},
    "shards": {"chunks": SHARD, "codecs": [ShardingCodec(CHUNK, INNER)]},
    "nested shards": {"chunks": SHARD, "codecs": [ShardingCodec((12, 6), [ShardingCodec(CHUNK, INNER)])]},
    "index of big numbers": {
        "chunks": SHARD,
        "codecs": [ShardingCodec(CHUNK, INNER, index_codecs=[BytesCodec("big")])],
    },
}


def make(folder: Path, name: str, *, missing: float = 0.0, seed: int = 0) -> gzarr.Array:
    """An array in which each chunk is missing with a probability."""
    random = np.random.default_rng(seed)
    array = gzarr.create_array(folder, shape=SHAPE, dtype="i4", fill_value=0, **LAYOUTS[name])
    values = random.integers(1, 2**30, SHAPE, "i4")
    for i in range(0, SHAPE[0], CHUNK[0]):
        for j in range(0, SHAPE[1], CHUNK[1]):
            if random.random() < missing:
                values[i : i + CHUNK[0], j : j + CHUNK[1]] = 0
    array[...] = values
    return array


def layout_of(array: gzarr.Array) -> Any:
    return array._io.layout


def source_of(array: gzarr.Array) -> Fetch:
    source = make_fetch(array._io.store, layout_of(array))
    assert isinstance(source, Fetch), source
    return source


def wanted_by(array: gzarr.Array, plan: BoxPlan) -> Wanted:
    """All chunks of a plan as one table."""
    layout = layout_of(array)
    batches = make_batches(plan, layout.objects, 1 << 20)
    assert batches.n == 1
    table = batches.table(0)
    shards = ReadShards(array._io.store, layout, batches).find(0, table) if table.owners is not None else None
    return Wanted(np.ascontiguousarray(table.coords), shards)


def plan_of(array: gzarr.Array, key: Any = ...) -> tuple[BoxPlan, Wanted]:
    plan = make_plan(normalize(key, array.shape), layout_of(array).grid)
    assert isinstance(plan, BoxPlan)
    return plan, wanted_by(array, plan)


def staging_buffer_of(nbytes: int) -> np.ndarray:
    memory = np.full(nbytes + ALIGNMENT, 0xAA, np.uint8)
    start = -memory.__array_interface__["data"][0] % ALIGNMENT
    return memory[start : start + nbytes]


def by_reference(array: gzarr.Array, plan: Plan) -> list[tuple[Any, bytes | int | None]]:
    """Every part of a plan by shard, with its bytes, None if it is missing, or LEFT if that is an error."""
    layout, store, found = layout_of(array), array._io.store, []
    for owner, parts in plan.groups(layout.objects):
        coords = [part.coords for part in parts]
        token = token_of(store, layout.key(owner)) if layout.objects is not layout.grid else None
        try:
            located = layout.locate(store, owner, token).located(layout.key(owner), coords)
        except CodecError:
            found += [(at, LEFT) for at in coords]
            continue
        for at, item in zip(coords, located, strict=True):
            data = store.get_one(item) if isinstance(item, Request) else item
            found.append((at, None if data is None else bytes(host_view(data))))
    return found


def answers(wanted: Wanted, fetched: Fetched, staging_buffer: np.ndarray, phase: int = 0) -> list[tuple[Any, Any]]:
    """The same of what was fetched."""
    found: list[tuple[Any, Any]] = []
    rows = zip(map(tuple, wanted.coords.tolist()), fetched.offsets.tolist(), fetched.sizes.tolist(), strict=True)
    for at, start, size in rows:
        if size < 0:
            assert start == -1
            found.append((at, {MISSING: None, LEFT: LEFT}[size]))
        else:
            assert start >= 0
            assert (start - phase) % ALIGNMENT == 0
            assert start + size + ALIGNMENT <= staging_buffer.size
            found.append((at, staging_buffer[start : start + size].tobytes()))
    return found


def everything(array: gzarr.Array, key: Any = ..., *threads: int) -> tuple[list[Any], list[Any]]:
    plan, wanted = plan_of(array, key)
    staging_buffer = staging_buffer_of(1 << 20)
    fetched = fetch(source_of(array), wanted, staging_buffer, 0, *threads)
    return answers(wanted, fetched, staging_buffer), by_reference(array, plan)


# -- what is fetched -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAYOUTS)
@settings(max_examples=15)
@given(data=st.data())
def test_some_chunks_are_what_the_reference_path_reads(
    name: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    array = make(tmp_path_factory.mktemp("some"), name, missing=0.4, seed=data.draw(st.integers(0, 99)))
    rows = st.lists(st.integers(0, SHAPE[0] - 1), min_size=1, max_size=9)
    step = data.draw(st.sampled_from([1, 1, 3, 9]))
    key = data.draw(st.one_of(st.just(np.s_[2:45:step, 3:]), st.just(np.s_[...]), rows))
    plan = make_plan(normalize(key, SHAPE), layout_of(array).grid)
    assert isinstance(plan, BoxPlan)
    phase = data.draw(st.integers(0, ALIGNMENT - 1))
    staging_buffer, n_threads = staging_buffer_of(1 << 18), data.draw(st.sampled_from([1, 2, 3]))
    wanted = wanted_by(array, plan)
    fetched = fetch(source_of(array), wanted, staging_buffer, phase, n_threads)
    assert answers(wanted, fetched, staging_buffer, phase) == by_reference(array, plan)
    if wanted.shards is not None:  # each shard is opened once
        owners = [owner for owner, _ in plan.groups(layout_of(array).objects)]
        assert [shard.key for shard in wanted.shards.shards] == list(map(layout_of(array).key, owners))
    assert (staging_buffer[int((fetched.offsets + fetched.sizes).max()) :] == 0xAA).all()


@pytest.mark.parametrize("name", LAYOUTS)
def test_threads_share_a_staging_buffer(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gzarr.gpu.native.fetch._MIN_PIECE", 2)
    array = make(tmp_path, name, missing=0.2)
    found, wanted = everything(array, ..., 4)
    assert found == wanted
    assert everything(array, ..., 4, 1)[0] == wanted  # shards are cut
    assert any(item is None for _, item in wanted)


def test_chunks_without_room_have_their_sizes(tmp_path: Path) -> None:
    for name in LAYOUTS:
        array = make(tmp_path / name, name, missing=0.2)
        plan, wanted = plan_of(array)
        source, sizes = source_of(array), [-1 if b is None else len(b) for _, b in by_reference(array, plan)]
        asked = fetch(source, wanted, staging_buffer_of(0))
        assert asked.sizes.tolist() == sizes
        assert (asked.offsets == -1).all()
        staging_buffer = staging_buffer_of(1000)
        some = fetch(source, wanted, staging_buffer, 3)
        assert some.sizes.tolist() == sizes
        fits = some.offsets >= 0
        assert 0 < fits.sum() < (some.sizes > 0).sum()
        read = [(at, b) for (at, b), fit in zip(by_reference(array, plan), fits, strict=True) if fit]
        only = Fetched(some.offsets[fits], some.sizes[fits])
        assert answers(Wanted(wanted.coords[fits]), only, staging_buffer, 3) == read


def test_a_buffer_is_filled_to_its_end(tmp_path: Path) -> None:
    array = make(tmp_path, "files")
    _, wanted = plan_of(array)
    source, n = source_of(array), len(wanted.coords)
    sizes = fetch(source, wanted, staging_buffer_of(0)).sizes
    used = int((-(-(sizes + 5) // ALIGNMENT) * ALIGNMENT).sum()) + ALIGNMENT
    assert (fetch(source, wanted, staging_buffer_of(used), 5).offsets >= 0).sum() == n
    assert (fetch(source, wanted, staging_buffer_of(used - 1), 5).offsets < 0).sum() == 1


def test_chunks_far_apart_and_out_of_order_and_shared(tmp_path: Path) -> None:
    """A shard as others may write it: gaps of all sizes, chunks in any order, two with the same bytes."""
    array = make(tmp_path, "shards")
    path = tmp_path / layout_of(array).key((0, 0))
    random = np.random.default_rng(1)
    body, index = bytearray(), np.full((9, 2), 2**64 - 1, "<u8")
    for i in random.permutation(8):
        body += bytes(int(random.integers(0, 40_000)))
        data = random.bytes(int(random.integers(0, 5000)))
        index[i] = len(body), len(data)
        body += data
    index[8] = index[3]
    store(path, body, index)
    assert_same(array)


def store(path: Path, body: bytes | bytearray, index: np.ndarray) -> None:
    encoded = index.tobytes()
    path.write_bytes(body + encoded + google_crc32c.value(encoded).to_bytes(4, "little"))


def assert_same(array: gzarr.Array) -> list[Any]:
    found, wanted = everything(array)
    assert found == wanted
    return wanted


# -- what is left ----------------------------------------------------------------------------------------------------


def test_empty_and_missing_files(tmp_path: Path) -> None:
    for name in ("files", "shards"):
        array = make(tmp_path / name, name)
        key = layout_of(array).key
        (tmp_path / name / key((0, 0))).write_bytes(b"")
        (tmp_path / name / key((1, 1))).unlink()
        found = dict(assert_same(array))
        assert found[0, 0] == (b"" if name == "files" else LEFT)
        assert found[(1, 1) if name == "files" else (3, 3)] is None


@pytest.mark.parametrize("name", ["files", "shards"])
def test_what_is_no_regular_file_is_left(name: str, tmp_path: Path) -> None:
    array = make(tmp_path, name)
    _, wanted = plan_of(array)
    for coords, replace in (((0, 0), Path.mkdir), ((1, 1), os.mkfifo), ((2, 1), loop_of_links)):
        path = tmp_path / layout_of(array).key(coords)
        path.unlink()
        replace(path)
    staging_buffer = staging_buffer_of(1 << 18)
    for room in (staging_buffer, staging_buffer[:0]):
        found = fetch(source_of(array), wanted, room)
        each = 1 if name == "files" else 9
        assert (found.sizes == LEFT).sum() == 3 * each


def loop_of_links(path: Path) -> None:
    path.symlink_to(path)


def test_damaged_and_truncated_shards(tmp_path: Path) -> None:
    array = make(tmp_path, "shards", missing=0.3)
    path = tmp_path / layout_of(array).key((0, 0))
    whole = path.read_bytes()
    for nbytes in (len(whole) - 1, len(whole) // 2, 148, 147, 1):
        path.write_bytes(whole[:nbytes])
        for (at, item), (_, expected) in zip(*everything(array), strict=True):
            assert item in (
                (expected, LEFT) if max(at) < 3 else (expected,)
            )  # the loop may read what was cut off in part


def test_an_entry_outside_of_the_shard_condemns_its_chunk(tmp_path: Path) -> None:
    array = make(tmp_path, "shards")
    path = tmp_path / layout_of(array).key((0, 0))
    whole = path.read_bytes()
    for lie in ((2**64 - 8, 100), (2**63, 2**62), (0, 2**62), (10**6, 0), (len(whole) - 4, 5)):
        index = np.frombuffer(whole[-148:-4], "<u8").reshape(9, 2).copy()
        index[4] = lie
        store(path, whole[:-148], index)
        layout_of(array).forget("c/0/0")
        _, wanted = plan_of(array)
        left = fetch(source_of(array), wanted, staging_buffer_of(1 << 18)).sizes == LEFT
        impossible = sum(lie) >= 2**64  # which condemns the index
        assert left.tolist() == [i < 9 and (impossible or i == 4) for i in range(left.size)]


@pytest.mark.parametrize("when", ["before", "again"])
def test_a_shard_of_another_version_than_its_places_is_left(when: str, tmp_path: Path) -> None:
    array, other = (make(tmp_path / name, "shards", seed=seed) for seed, name in enumerate("ab"))
    key = layout_of(array).key((0, 0))
    _, wanted = plan_of(array)
    if when == "again":  # the same bytes
        (tmp_path / "b" / key).write_bytes((tmp_path / "a" / key).read_bytes())
    (tmp_path / "b" / key).replace(tmp_path / "a" / key)
    assert other.shape == array.shape
    sizes = fetch(source_of(array), wanted, staging_buffer_of(1 << 18)).sizes
    assert (sizes[:9] == LEFT).all()
    assert (sizes[9:] > 0).all()
    (tmp_path / "a" / key).unlink()
    assert (fetch(source_of(array), wanted, staging_buffer_of(1 << 18)).sizes[:9] == LEFT).all()


def test_tables_that_disagree_are_refused(tmp_path: Path) -> None:
    array = make(tmp_path, "shards")
    _, wanted = plan_of(array)
    source, staging_buffer, shards = source_of(array), staging_buffer_of(1000), wanted.shards
    assert shards is not None
    for phase in (-1, 16):
        with pytest.raises(ValueError, match="tables"):
            fetch(source, wanted, staging_buffer, phase)
    for at in range(1, shards.bounds.size):
        for lie in (-1, 1000):
            bounds = shards.bounds.copy()
            bounds[at] = lie
            with pytest.raises(ValueError, match="tables"):
                call(source, wanted.coords, shards._replace(bounds=bounds), staging_buffer)
    for lying in (shards._replace(shards=shards.shards[1:]), shards._replace(rows=shards.rows[1:])):
        with pytest.raises(ValueError, match="tables"):
            call(source, wanted.coords, lying, staging_buffer)
    with pytest.raises(ValueError, match="tables"):
        call(source, wanted.coords[1:], None, staging_buffer, n=len(wanted.coords))


def call(source: Fetch, coords: np.ndarray, shards: Any, staging_buffer: np.ndarray, n: int = 0) -> None:
    """Call the loop without what cuts tables."""
    answer = tuple(np.empty((2, n or len(coords)), np.int64))
    sources = None if shards is None else shards.columns(source.file)
    more = staging_buffer, 0, answer, np.zeros(1, np.int64)
    library.extension().fetch(coords.shape[1], ord("/"), coords, source.chunks, sources, *more)


# -- what it is for --------------------------------------------------------------------------------------------------


def test_other_arrays_say_why_not(tmp_path: Path) -> None:
    def why(name: str, **how: Any) -> Any:
        array = gzarr.create_array(tmp_path / name, dtype="i4", **{"shape": SHAPE, "chunks": SHARD, **how})
        return make_fetch(array._io.store, layout_of(array))

    memory = gzarr.create_array({}, shape=SHAPE, dtype="i4", chunks=CHUNK)
    assert "does not expose local files" in str(make_fetch(memory._io.store, layout_of(memory)))
    assert "codecs are around" in why("wrapped", codecs=[ShardingCodec(CHUNK, INNER), Crc32cCodec()])
    assert "dimensions" in why("scalar", shape=(), chunks=())
    assert isinstance(why("known", codecs=[ShardingCodec(CHUNK, INNER)]), Fetch)
