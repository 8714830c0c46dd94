"""Chunks that are replaced in a copy of a shard's file."""

import errno
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import tensorstore
import zarr

import gzarr
from gzarr.errors import ChunkError, StoreError
from gzarr.layout import shard_file
from gzarr.storage import local_files

CHUNK, NCHUNKS = 8, 64


@pytest.fixture(autouse=True)
def any_shard_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_file, "LARGE_NBYTES", 1)


def shards(path: Path, **options: Any) -> gzarr.Array:
    options = {"compressors": None, **options}
    return gzarr.create_array(
        path, shape=2 * CHUNK * NCHUNKS, chunks=CHUNK, shards=CHUNK * NCHUNKS, dtype="i4", **options
    )


def files(path: Path) -> list[Path]:
    return sorted(p for p in (path / "c").iterdir())


@pytest.mark.parametrize("loop", [True, False])
@pytest.mark.parametrize("compressors", [None, "zstd"])
def test_any_writes_give_what_numpy_has(tmp_path: Path, loop: bool, compressors: str | None) -> None:
    rng = np.random.default_rng(0)
    with gzarr.config.set({"cpu.native": loop}):
        array = shards(tmp_path, compressors=compressors)
        expected = rng.integers(0, 9, array.shape, "i4")
        array[:] = expected
        sizes = set()
        for _ in range(200):
            start = int(rng.integers(0, len(expected)))
            stop, value = start + int(rng.integers(1, 3 * CHUNK)), int(rng.integers(0, 3))
            array[start:stop] = value
            expected[start:stop] = value
            sizes.add(files(tmp_path)[0].stat().st_size)
        assert len(sizes) > 20
        np.testing.assert_array_equal(array[:], expected)
        np.testing.assert_array_equal(gzarr.open_array(tmp_path)[:], expected)
        assert not gzarr.verify(tmp_path).problems
    np.testing.assert_array_equal(zarr.open_array(tmp_path)[:], expected)
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(tmp_path)}}
    np.testing.assert_array_equal(tensorstore.open(spec).result().read().result(), expected)


def test_what_replaced_chunks_leave_is_reclaimed_at_half_of_the_file(tmp_path: Path) -> None:
    array = shards(tmp_path)
    array[:] = 1
    (first, _), whole = files(tmp_path), CHUNK * NCHUNKS * 4
    index = first.stat().st_size - whole
    for number in range(3 * NCHUNKS):
        array[:CHUNK] = number + 2
        assert first.stat().st_size - index <= 2 * whole
    assert first.stat().st_size == index + whole + (3 * NCHUNKS - NCHUNKS - 1) % (NCHUNKS + 1) * CHUNK * 4


def test_only_new_bytes_are_written_and_readers_keep_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = shards(tmp_path)
    array[:] = 1
    before, copied = files(tmp_path)[0].read_bytes(), []
    monkeypatch.setattr(
        os, "copy_file_range", lambda *given: copied.append(given[2]) or local_files._copy_range(*given)
    )
    with files(tmp_path)[0].open("rb") as opened:
        array[CHUNK : CHUNK + 3] = 7
        assert opened.read() == before
    after = files(tmp_path)[0].read_bytes()
    kept = CHUNK * NCHUNKS * 4
    assert copied == [kept]
    assert after[:kept] == before[:kept]
    assert len(after) == len(before) + CHUNK * 4


@pytest.mark.parametrize("options", [{}, {"shards": {"shape": CHUNK * NCHUNKS, "index_location": "start"}}])
def test_many_chunks_and_indexes_at_the_start_are_put_together_anew(tmp_path: Path, options: Any) -> None:
    more: Any = {"chunks": CHUNK, "dtype": "i4", "compressors": None, **options}
    array = gzarr.create_array(tmp_path, shape=2 * CHUNK * NCHUNKS, **more) if options else shards(tmp_path)
    array[:] = 1
    size = files(tmp_path)[0].stat().st_size
    array[: CHUNK * (NCHUNKS if options else NCHUNKS // 4) - 1] = 2
    assert files(tmp_path)[0].stat().st_size == size


def test_the_last_chunk_that_goes_takes_the_file_with_it(tmp_path: Path) -> None:
    array = shards(tmp_path)
    array[:CHUNK] = 1
    array[:CHUNK] = 0
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("refusal", [*(OSError(n, "") for n in (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP)), [0]])
def test_systems_that_do_not_copy_are_copied_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Any) -> None:
    array = shards(tmp_path)
    array[:] = 1
    monkeypatch.setattr(os, "copy_file_range", Mock(side_effect=refusal))
    monkeypatch.setattr(local_files, "_COPIED_NBYTES", 100)
    array[5:7] = 2
    assert array[:9].tolist() == [1, 1, 1, 1, 1, 2, 2, 1, 1]


def test_a_full_disk_leaves_the_old_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = shards(tmp_path)
    array[:] = 1
    before = files(tmp_path)[0].read_bytes()
    monkeypatch.setattr(os, "copy_file_range", Mock(side_effect=OSError(errno.ENOSPC, "No space left")))
    with pytest.raises(StoreError, match=r"cannot write .*c/0.*No space left"):
        array[5:7] = 2
    assert files(tmp_path)[0].read_bytes() == before
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == ["0", "1"]


def test_a_file_that_others_replace_is_not_taken_for_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = shards(tmp_path)
    array[:] = 1
    first, second = files(tmp_path)
    array[CHUNK * NCHUNKS :] = 3
    replace = shard_file.ShardFile.replace

    def late(self: Any, changed: Any) -> bool:
        data = second.read_bytes()
        first.with_name("x").write_bytes(data)
        first.with_name("x").rename(first)
        return replace(self, changed)

    monkeypatch.setattr(shard_file.ShardFile, "replace", late)
    array[5:7] = 2
    assert array[:9].tolist() == [3, 3, 3, 3, 3, 2, 2, 3, 3]


def test_a_damaged_index_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    array = shards(tmp_path)
    array[:] = 1
    first = files(tmp_path)[0]
    damaged = first.read_bytes()[:-9] + bytes(9)
    first.write_bytes(damaged)
    with pytest.raises(ChunkError, match="c/0"):
        array[5:7] = 2
    assert first.read_bytes() == damaged
