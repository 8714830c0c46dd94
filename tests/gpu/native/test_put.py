"""What compiled code stores is what the reference path stores."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.codecs import BytesCodec, ShardingCodec, TransposeCodec, ZstdCodec
from gzarr.cpu.compiled import library
from gzarr.gpu.native.fetch import EMPTY, NOT_WRITTEN, Put, make_put
from gzarr.indexing.plan import make_plan
from gzarr.indexing.selection import normalize
from tests.cpu.compiled.looping import files

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")

SHAPE, CHUNK, SHARD = (24, 36), (4, 6), (12, 18)
INNER: list[Any] = [BytesCodec(), ZstdCodec(1)]
LAYOUTS: dict[str, dict[str, Any]] = {
    "files": {"chunks": CHUNK, "codecs": INNER},
    "files of v2": {"chunks": CHUNK, "zarr_format": 2},
    "shards": {"chunks": SHARD, "codecs": [ShardingCodec(CHUNK, INNER)]},
    "index at start": {"chunks": SHARD, "codecs": [ShardingCodec(CHUNK, INNER, index_location="start")]},
    "index without checksum": {
        "chunks": SHARD,
        "codecs": [ShardingCodec(CHUNK, INNER, index_codecs=(BytesCodec("little"),))],
    },
    "transposed shards": {"chunks": SHARD, "codecs": [TransposeCodec((1, 0)), ShardingCodec(CHUNK[::-1], INNER)]},
}


def make(folder: Path, name: str) -> gzarr.Array:
    return gzarr.create_array(folder, shape=SHAPE, dtype="i4", fill_value=0, **LAYOUTS[name])


def put_of(array: gzarr.Array) -> Put:
    put = make_put(array._io.store, array._io.layout)
    assert isinstance(put, Put), put
    return put


def encoded_chunks(array: gzarr.Array, model: np.ndarray) -> tuple[np.ndarray, list[Any]]:
    """Coordinates of the objects, and for each its encoded chunks in the order of its index, None for empty ones."""
    layout = array._io.layout
    steps = layout.level.steps if layout.objects is not layout.grid else (1, 1)
    plan = make_plan(normalize(..., SHAPE), layout.grid)
    coords, objects = [], []
    for owner, parts in plan.groups(layout.objects):
        chain = array._io.chain(parts[0].coords)
        data = array._io.backend.host.merge_and_encode(chain, [None] * len(parts), model, parts, None, keep_empty=False)
        order = np.argsort([np.dot(part.coords, steps) for part in parts])
        coords.append(owner)
        objects.append([data[i] for i in order])
    return np.array(coords), objects


def in_memory(objects: list[Any]) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    held = [np.frombuffer(b"" if data is None else bytes(data), np.uint8) for some in objects for data in some]
    addresses = np.array([data.__array_interface__["data"][0] for data in held])
    sizes = np.array([-1 if data is None else len(data) for some in objects for data in some])
    return addresses, sizes, held


@pytest.mark.parametrize("name", LAYOUTS)
def test_files_and_shards_are_those_of_the_reference_path(name: str, tmp_path: Path) -> None:
    model = np.random.default_rng(0).integers(1, 99, SHAPE, "i4")
    model[:6, 6:30] = 0
    model[12:, 18:] = 0
    reference = make(tmp_path / "reference", name)
    with gzarr.config.set({"cpu.native": False}):
        reference[...] = model
    array = make(tmp_path / "loop", name)
    coords, objects = encoded_chunks(array, model)
    addresses, sizes, held = in_memory(objects)
    for _ in range(2):  # of new files, and of old ones
        status = put_of(array).put(coords, addresses, sizes)
        assert (status != NOT_WRITTEN).all()
        empty = [all(data is None for data in some) for some in objects]
        assert (status == EMPTY).tolist() == empty
        assert any(empty)
        assert files(tmp_path / "loop") == files(tmp_path / "reference")
    assert held


def test_empty_chunks_delete_files(tmp_path: Path) -> None:
    for name in LAYOUTS:
        array = make(tmp_path / name, name)
        array[...] = 1
        coords, objects = encoded_chunks(array, np.zeros(SHAPE, "i4"))
        addresses, sizes, _ = in_memory(objects)
        assert (put_of(array).put(coords, addresses, sizes) == EMPTY).all()
        assert not (array[...] != 0).any()
        assert not [path for path in files(tmp_path / name) if "zarr.json" not in path and ".z" not in path]


def test_a_shard_of_many_chunks_takes_several_calls(tmp_path: Path) -> None:
    """The system takes no more than 1,024 pieces at once."""
    inner = [ShardingCodec((1,), [BytesCodec()])]
    array = gzarr.create_array(tmp_path, shape=5000, dtype="i4", chunks=2500, codecs=inner)
    model = np.arange(1, 5001, dtype="i4")
    addresses = model.__array_interface__["data"][0] + 4 * np.arange(5000)
    put_of(array).put(np.array([[0], [1]]), addresses, np.full(5000, 4))
    assert (array[...] == model).all()


@pytest.mark.parametrize("name", ["files", "shards"])
def test_a_locked_file_is_left(name: str, tmp_path: Path) -> None:
    array = make(tmp_path, name)
    array[...] = 1
    before = files(tmp_path)
    coords, objects = encoded_chunks(array, np.full(SHAPE, 2, "i4"))
    addresses, sizes, _ = in_memory(objects)
    with array._io.store.locked([array._io.layout.key((1, 1))]):
        status = put_of(array).put(coords, addresses, sizes)
    assert [tuple(at) for at in coords[status == NOT_WRITTEN].tolist()] == [(1, 1)]
    key = array._io.layout.key((1, 1))
    assert files(tmp_path)[key] == before[key]
    assert not [path for path in files(tmp_path) if "tmp" in path]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden here")
def test_files_that_may_not_be_written_are_left(tmp_path: Path) -> None:
    array = make(tmp_path, "files")
    array[...] = 1
    folder = tmp_path / "c" / "0"
    folder.chmod(0o555)
    coords, objects = encoded_chunks(array, np.full(SHAPE, 2, "i4"))
    try:
        status = put_of(array).put(coords, *in_memory(objects)[:2])
    finally:
        folder.chmod(0o755)
    assert ((status == NOT_WRITTEN) == (coords[:, 0] == 0)).all()


def test_tables_that_disagree_are_refused(tmp_path: Path) -> None:
    put = put_of(make(tmp_path, "shards"))
    none = np.full(9, -1)
    for coords, addresses, sizes in (
        ([[0, 0]], none[:8], none),
        ([[0, 0]], none, none[:8]),
        ([[0]], none, none),
        ([[0, 0], [0, 1]], none, none),
    ):
        with pytest.raises(ValueError, match="tables"):
            put.put(np.array(coords), addresses, sizes)
    assert (put.put(np.array([[-1, 0]]), none, none) == NOT_WRITTEN).all()
