"""The default of max_nbytes: a fixed size, or what one block needs. A limit that is given is kept."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.images import (
    ImageWriter,
    build_pyramid,
    create_image,
    label,
    map_blocks,
    map_overlap,
    merge_labels,
    reduce_blocks,
)

STORED: dict[str, Any] = {"chunks": (16, 16), "shards": (64, 64)}
DATA = np.arange(80 * 90, dtype="u2").reshape(80, 90) % 100


@pytest.fixture(autouse=True)
def small_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """A default that is less than what one shard of the arrays here takes."""
    monkeypatch.setattr("gzarr.images.tasks.MAX_NBYTES", 4000)


def array(data: np.ndarray = DATA) -> gzarr.Array:
    return gzarr.create_array(gzarr.MemoryStore(), data=data, **STORED)


def empty(dtype: str = "u4") -> gzarr.Array:
    return gzarr.zeros(DATA.shape, dtype=dtype, **STORED)


def image(data: np.ndarray = DATA) -> gzarr.images.Image:
    return create_image(data=data, levels=0, **STORED)


def labelled(max_nbytes: int | None, progress: Any) -> gzarr.Array:
    label(array(), out := empty(), max_nbytes=max_nbytes, progress=progress)
    return out


def merged(max_nbytes: int | None, progress: Any) -> gzarr.Array:
    merge_labels(array(), out := empty(), block=64, max_nbytes=max_nbytes, progress=progress)
    return out


#: What is written with a limit of memory, and told to a function.
WRITERS: dict[str, Callable[[int | None, Any], Any]] = {
    "map_blocks": lambda n, p: map_blocks(lambda b: b + 1, array(), None, max_nbytes=n, progress=p),
    "map_overlap": lambda n, p: map_overlap(lambda b: b + 1, array(), None, 3, max_nbytes=n, progress=p),
    "map_blocks of an image": lambda n, p: map_blocks(
        lambda b: b + 1, image(), None, levels=1, max_nbytes=n, progress=p
    )[1],
    "create_image": lambda n, p: create_image(data=DATA, levels=1, max_nbytes=n, progress=p, **STORED)[1],
    "write_label": lambda n, p: image().write_label("x", array(), max_nbytes=n, progress=p)[0],
    "build_pyramid": lambda n, p: build_pyramid(image(), 1, out=gzarr.MemoryStore(), max_nbytes=n, progress=p)[1],
    "gaussian": lambda n, p: build_pyramid(image(), 1, method="gaussian", max_nbytes=n, progress=p)[1],
    "label": labelled,
    "merge_labels": merged,
}


@pytest.mark.parametrize("name", WRITERS)
def test_the_default_grows_to_one_block_and_progress_says_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    made = WRITERS[name](None, lambda done, total, name: names.append(name))
    assert all(re.search(r"\(\d+ MiB of memory\)$", said) for said in names)
    monkeypatch.undo()
    names.clear()
    expected = WRITERS[name](None, lambda done, total, name: names.append(name))
    np.testing.assert_array_equal(made[...], expected[...])
    assert not any("of memory" in said for said in names)


@pytest.mark.parametrize("name", WRITERS)
def test_a_limit_that_is_too_small_is_refused_with_what_is_needed(name: str) -> None:
    with pytest.raises(ValueError, match="max_nbytes=4000") as raised:
        WRITERS[name](4000, None)
    needed = int(re.findall(r"(?:take|takes|give) (\d+)", str(raised.value))[-1])
    WRITERS[name](2 * needed, None)  # what functions take for themselves is measured, and differs a little


def test_reductions_hold_one_block_in_any_case() -> None:
    assert reduce_blocks(np.max, array(), max, max_nbytes=1) == array().stats(max_nbytes=1).max == 99


def test_a_writer_holds_a_row_of_each_position(tmp_path: Path) -> None:
    def write(max_nbytes: int | None) -> None:
        store = gzarr.MemoryStore()
        frame: dict[str, Any] = {"shape": (40, 50), "dtype": "u2", "axes": "zyx", "chunks": (4, 40, 50), "levels": 0}
        with ImageWriter(store, positions=["a", "b"], max_nbytes=max_nbytes, **frame) as writer:
            for number in range(8):
                for position in "ab":
                    writer.append(np.full((40, 50), number), position=position)
        found = gzarr.open_group(store)
        assert [int(found[f"{name}/0"][7, 0, 0]) for name in "ab"] == [7, 7]

    write(None)
    with pytest.raises(ValueError, match=r"incomplete frames are held.* max_nbytes of 32000 or more"):
        write(20_000)
    write(32_000)


def test_a_cluster_takes_a_shard_at_a_time() -> None:
    from gzarr.images.pyramid.rounds import plan_rounds

    levels = build_pyramid(image(), 2).levels
    assert [(each.base, each.last) for each in plan_rounds(levels, [(2, 2), (2, 2)], None)] == [(0, 1), (1, 2)]
    with pytest.raises(ValueError, match="max_nbytes=4000: a task needs"):
        plan_rounds(levels, [(2, 2), (2, 2)], 4000)
