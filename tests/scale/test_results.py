"""Parts of a job whose results are brought together: the part that ends last has what one process makes."""

import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
import gzarr.images
from gzarr.scale.results import PartResults
from tests.scale.test_operations import stored


def array_of(folder: Path, name: str) -> gzarr.Array:
    return gzarr.open_array(folder / "source.zarr", "r", path=name)


def highest(block: Any) -> Any:
    return block.max(axis=0)


def third(block: Any) -> Any:
    return np.float32(block.sum() / 3)


def floats(folder: Path, **how: Any) -> str:
    return repr(array_of(folder, "floats").stats(bins=9, max_nbytes=400_000, **how))


def bytes_(folder: Path, **how: Any) -> str:
    return repr(array_of(folder, "bytes").stats(bins=9, skip=7, max_nbytes=400_000, **how))


def projection(folder: Path, **how: Any) -> bytes:
    one, some = array_of(folder, "floats"), {"max_nbytes": 400_000, **how}
    made: Any = gzarr.images.reduce_blocks(highest, one, np.maximum, axis=0, **some)
    return bytes(made.tobytes())


def total(folder: Path, **how: Any) -> str:
    return repr(gzarr.images.reduce_blocks(third, array_of(folder, "floats"), np.add, max_nbytes=400_000, **how))


def label(folder: Path, **how: Any) -> Any:
    n = gzarr.images.label(array_of(folder, "mask"), str(folder / "labels"), 2, max_nbytes=3_000_000, **how)
    return n, stored(folder / "labels")


def merge(folder: Path, **how: Any) -> Any:
    image = gzarr.images.open_image(folder / "image", "r+")
    n = gzarr.images.merge_labels(array_of(folder, "bytes"), image, threshold=0.1, **how)
    return n, stored(folder / "image")


OPERATIONS: dict[str, Callable[..., Any]] = {
    one.__name__: one for one in (floats, bytes_, projection, total, label, merge)
}
WITH_NOTES = (floats, bytes_, projection, total)


def attempt(name: str, folder: Path, **how: Any) -> Any:
    """What a part returns; None if others are missing."""
    operation = OPERATIONS[name]
    kept = {"notes": folder / "notes"} if operation in WITH_NOTES else {}
    try:
        return operation(folder, **kept, **how)
    except gzarr.PartsMissingError:
        return None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder, rng = tmp_path / "there", np.random.default_rng(2)
    root = gzarr.create_group(folder / "source.zarr")
    data = rng.random((90, 60, 20))
    root.create_array("floats", data=data, chunks=(10, 20, 20), shards=(30, 20, 20))
    root.create_array("bytes", data=(data * 9).astype("u1"), chunks=(30, 30, 20))
    root.create_array("mask", data=data > 0.7, chunks=(15, 20, 20))
    gzarr.images.create_image(folder / "image", shape=data.shape, dtype="u4", axes="zyx", chunks=(30, 30, 20))
    return folder


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_last_part_returns_what_one_process_does(name: str, folder: Path, processes: ProcessPoolExecutor) -> None:
    here, again = (shutil.copytree(folder, folder.parent / copied) for copied in ("here", "again"))
    with gzarr.config.set({"threading.max_workers": 16}):  # as many as parts count on: the same blocks
        expected = OPERATIONS[name](here)
    assert [attempt(name, folder, part=(k, 3)) for k in (2, 0, 1)] == [None, None, expected]
    assert not [path for path in stored(folder) if "unfinished" in path]
    parts = [processes.submit(attempt, name, again, part=(k, 3)) for k in range(3)]
    wait(parts)
    made = [one for part in parts if (one := part.result()) is not None]
    assert made == [expected]


def test_a_part_that_ends_as_another_one_brings_all_together_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, found = PartResults._claim, [attempt("floats", folder, part=(0, 2))]

    def late(results: PartResults, had_blocks: bool) -> bool:
        monkeypatch.setattr(PartResults, "_claim", claim)
        found.append(attempt("floats", folder, part=(0, 2)))
        return claim(results, had_blocks)

    monkeypatch.setattr(PartResults, "_claim", late)
    found.append(attempt("floats", folder, part=(1, 2)))
    assert [one is None for one in found] == [True, False, True]
    assert not [path for path in stored(folder) if "unfinished" in path]


def test_a_process_that_wrote_the_array_is_a_part_as_others_are(folder: Path, processes: ProcessPoolExecutor) -> None:
    array = gzarr.open_array(folder / "source.zarr", "r+", path="floats")
    array[:] = array[...]
    assert attempt("floats", folder, part=(0, 2)) is None
    assert processes.submit(attempt, "floats", folder, part=(1, 2)).result() is not None


def test_jobs_share_a_folder_of_notes_and_damaged_results_are_named(folder: Path) -> None:
    every = [attempt(name, folder, part=(k, 2)) for k in range(2) for name in ("floats", "bytes_", "total")]
    assert [one is None for one in every] == [True] * 3 + [False] * 3
    assert every[3:] == [attempt(name, folder, part=(0, 1)) for name in ("floats", "bytes_", "total")]
    assert attempt("total", folder, part=(0, 2)) is None
    (results,) = (path for path in (folder / "notes").rglob("*-results"))
    results.write_bytes(results.read_bytes()[:-3])
    for number in range(2):
        with pytest.raises(gzarr.errors.StoreError, match=f"{results.name}.*damaged; delete it"):
            attempt("total", folder, part=(number, 2))
    results.unlink()
    assert [attempt("total", folder, part=(number, 2)) for number in range(2)] == [None, every[5]]
