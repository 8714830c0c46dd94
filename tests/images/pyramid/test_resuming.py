"""Notes of a long computation: which units are done."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
import gzarr.images
from gzarr.errors import ContainsNodeError
from gzarr.identity.runs import Run, identify
from gzarr.images.pyramid import resuming
from gzarr.images.pyramid.resuming import UnitsDone, begin, read_marks
from gzarr.metadata.occupied import PROGRESS
from gzarr.storage import MemoryStore


def begun(store: MemoryStore, *, resume: bool = False, sigma: float = 2.0, name: str = "build") -> UnitsDone:
    run = identify(name, arguments={"sigma": sigma})
    return begin(store, "image", name=name, run=run, plan={"unit": [2, 3]}, resume=resume)


def test_what_is_done_is_stored_at_once() -> None:
    store = MemoryStore()
    marks = begun(store)
    order = np.random.default_rng(0).permutation(50).tolist()
    for n, unit in enumerate(order[:30]):
        marks.note(unit)
        again = begun(store, resume=True)
        assert again.n_done == n + 1
        assert [unit for unit in range(50) if again.is_done(unit)] == sorted(order[: n + 1])
    assert dict(again.plan) == {"unit": [2, 3]}


def test_of_two_that_begin_at_once_one_plan_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    store, read, missed = MemoryStore(), resuming.read_marks, iter([None])
    begun(store)
    store["image/" + PROGRESS] = bytes(store["image/" + PROGRESS]).replace(b"[2, 3]", b"[9, 9]")
    monkeypatch.setattr(resuming, "read_marks", lambda *place: next(missed, read(*place)))
    assert begun(store, resume=True).plan == {"unit": [9, 9]}


def test_notes_of_parts_are_of_one_run(tmp_path: Path) -> None:
    data = np.arange(64 * 256).reshape(64, 256)
    source = gzarr.array(data, store=tmp_path / "in", chunks=(16, 16))
    how: Any = {"func": np.negative, "inputs": source, "out": tmp_path / "out", "max_nbytes": 40_000}
    gzarr.images.map_blocks(**how, part=(0, 2))
    notes = {path: path.read_bytes() for path in (tmp_path / "out").glob("*-part-*")}
    gzarr.images.map_blocks(**how, resume=True)
    assert not list((tmp_path / "out").glob("gzarr-unfinished*"))
    for path, note in notes.items():  # as by a part that another one has overtaken, and that is killed
        path.write_bytes(note)
    source[...] = data + 1
    for part in (0, 2), (1, 2):
        gzarr.images.map_blocks(**how, part=part)
    np.testing.assert_array_equal(gzarr.open(tmp_path / "out")[...], -data - 1)


def test_units_in_order_take_no_room() -> None:
    store = MemoryStore()
    marks = begun(store)
    for unit in range(1000):
        marks.note(unit)
    assert len(store["image/" + PROGRESS]) < 250
    marks.remove()
    assert list(store.list_prefix()) == []


def test_an_unfinished_run_is_not_begun_anew_unasked() -> None:
    store = MemoryStore()
    begun(store)
    with pytest.raises(
        ContainsNodeError, match=r"an unfinished build is at .*image': pass resume=True .* overwrite=True"
    ):
        begun(store)
    with pytest.raises(ContainsNodeError, match=r"build at .*: sigma was 2\.0, is 3\.0\. .*overwrite=True"):
        begun(store, resume=True, sigma=3.0)
    with pytest.raises(ContainsNodeError, match=r"the unfinished build at .* of something else: filter is called\."):
        begun(store, resume=True, name="filter")


def test_notes_of_before_runs_were_described_are_refused() -> None:
    store = MemoryStore()
    state = {"name": "build", "arguments": "d2a8", "plan": {"unit": [2, 3]}, "first": 3, "others": []}
    store["image/" + PROGRESS] = json.dumps(state).encode()
    with pytest.raises(ContainsNodeError, match=r"was not noted by the version of gzarr that began it.*overwrite=True"):
        begun(store, resume=True)


@pytest.mark.parametrize(
    "text", ["", "{}", '{"name": 1, "arguments": 2, "plan": {}, "first": "x", "others": []}', "[]"]
)
def test_damaged_notes_are_named(text: str) -> None:
    store = MemoryStore()
    store["image/" + PROGRESS] = text.encode()
    with pytest.raises(ContainsNodeError, match=rf"image/{PROGRESS} is damaged .*: pass overwrite=True"):
        begun(store, resume=True)


def test_resuming_nothing_begins() -> None:
    store = MemoryStore()
    assert read_marks(store, "image") is None
    assert begun(store, resume=True).n_done == 0
    assert read_marks(store, "image") is not None


def test_verify_tells_of_what_is_unfinished(tmp_path: Path) -> None:
    group = gzarr.create_group(tmp_path / "image.zarr")
    group.create_array("0", shape=(4,), dtype="u1")
    for path in ("", "0"):
        begin(group.store, path, name="build", run=Run(), plan={}, resume=False)
    problems = group.verify().problems
    assert [(problem.kind, problem.key) for problem in problems] == [
        ("unfinished", PROGRESS),
        ("unfinished", "0/" + PROGRESS),
    ]
    assert "resume it" in problems[0].reason
    assert not group.verify().leftover_files
    assert json.loads((tmp_path / "image.zarr" / PROGRESS).read_text())["name"] == "build"
