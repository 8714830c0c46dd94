"""Nested shards are read by the compiled loop as if they were flat, with the errors of the reference path."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gzarr
from gzarr.chunk_io import engine
from gzarr.codecs import BytesCodec, ShardingCodec, ZstdCodec
from gzarr.config import config
from gzarr.cpu.compiled import library
from gzarr.errors import GzarrError
from gzarr.storage import LocalStore
from tests.cpu.compiled.looping import Watched
from tests.properties.cases import same
from tests.properties.test_copies import check, job_for

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")

MODEL = np.random.default_rng(0).integers(1, 99, (45, 70)).astype("i4")


def made(folder: Path, location: str = "end") -> gzarr.Array:
    """Shards of 2 x 3 shards of 4 x 2 chunks; a chunk, an inner shard and a shard are missing."""
    inner = ShardingCodec((5, 5), [BytesCodec(), ZstdCodec(1)], index_location=location)
    codecs = [ShardingCodec((20, 10), [inner], index_location=location)]
    model = MODEL.copy()
    model[5:10, 5:10] = model[20:40, 10:20] = model[40:, 30:60] = 0
    array = gzarr.create_array(
        folder, shape=MODEL.shape, chunks=(40, 30), dtype="i4", codecs=codecs, fill_value=0, overwrite=True
    )
    array[...] = model
    same(array[...], model)
    return array


@pytest.mark.parametrize("location", ["start", "end"])
def test_the_loop_reads_nested_shards(location: str, tmp_path: Path, watched: Watched) -> None:
    array = made(tmp_path, location)
    with config.set({"cpu.native": False}):
        model = array[...]
    array, before = gzarr.open_array(tmp_path), watched.done
    for key in (np.s_[...], np.s_[3:42, 11:67], np.s_[::2, ::3], np.s_[7:44, 12]):
        same(array[key], model[key])
    same(array.oindex[[3, 44, 20, 3], :], model[[3, 44, 20, 3]])
    same(array[21:23, 3:6], model[21:23, 3:6])  # too few for the loop
    assert (watched.done - before > array.nchunks, watched.left) == (True, 0)
    array[...] = model + 1
    same(array[...], model + 1)


@pytest.mark.parametrize("location", ["start", "end"])
def test_points_and_boxes_of_nested_shards_are_read_by_the_loop(
    location: str, tmp_path: Path, watched: Watched
) -> None:
    model = made(tmp_path, location)[...]
    rng, starts = np.random.default_rng(0), [(0, 0), (35, 12), (4, 60), (22, 7), (35, 12)]
    points = tuple(rng.integers(-n, n, 200) for n in model.shape)
    for _ in range(2):  # without a cached index, and with it
        array, watched.done = gzarr.open_array(LocalStore(tmp_path)), 0
        same(array.vindex[points], model[points])
        assert (watched.done > 0, watched.left) == (True, 0)
        for _ in range(2):
            watched.done, job = 0, job_for(array, starts, (10, 10), range(5), (array.dtype, 1, 5))
            engine.read([job])
            check(job, model, starts, range(5))
            assert (watched.done, watched.left) == (job.plan.nparts, 0)


@pytest.mark.parametrize("at", [-1, -20, -60, -140, 3, 90])
def test_damage_is_found_by_either_path(at: int, tmp_path: Path) -> None:
    made(tmp_path)
    path = next(p for p in sorted(tmp_path.rglob("*")) if p.is_file() and p.name == "0" and p.parent.name == "0")
    sound = path.read_bytes()
    path.write_bytes(sound[:at] + bytes([sound[at] ^ 0x5A]) + (sound[at + 1 :] if at != -1 else b""))
    outcomes = []
    for native in (True, False):
        with config.set({"cpu.native": native}):
            try:
                outcomes.append(gzarr.open_array(tmp_path)[...].tobytes())
            except GzarrError as error:
                outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]


def test_a_nested_shard_that_is_replaced_is_read_anew(tmp_path: Path) -> None:
    array = made(tmp_path)
    reader = gzarr.open_array(LocalStore(tmp_path))
    same(reader[...], array[...])
    array[:40, :30] = 7
    same(reader[:40, :30], np.full((40, 30), 7, "i4"))
