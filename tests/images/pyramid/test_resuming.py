"""Notes of a long computation: which units are done."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import gzarr
from gzarr.errors import ContainsNodeError
from gzarr.images.pyramid.resuming import Marks, begin, fingerprint, read_marks
from gzarr.metadata.occupied import PROGRESS
from gzarr.storage import MemoryStore


def begun(store: MemoryStore, *, resume: bool = False, arguments: str = "a", name: str = "build") -> Marks:
    return begin(store, "image", name=name, arguments=arguments, plan={"unit": [2, 3]}, resume=resume)


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


def test_units_in_order_take_no_room() -> None:
    store = MemoryStore()
    marks = begun(store)
    for unit in range(1000):
        marks.note(unit)
    assert len(store["image/" + PROGRESS]) < 200
    marks.remove()
    assert list(store.list_prefix()) == []


def test_an_unfinished_run_is_not_begun_anew_unasked() -> None:
    store = MemoryStore()
    begun(store)
    with pytest.raises(
        ContainsNodeError, match=r"an unfinished build is at .*image': pass resume=True .* overwrite=True"
    ):
        begun(store)
    with pytest.raises(
        ContainsNodeError, match=r"the unfinished build at .* had other arguments, or its input has changed"
    ):
        begun(store, resume=True, arguments="b")
    with pytest.raises(ContainsNodeError, match=r"the unfinished build at .* had other arguments"):
        begun(store, resume=True, name="filter")


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


def test_fingerprints_tell_arguments_and_inputs_apart() -> None:
    metas = [gzarr.zeros(shape).metadata for shape in (4, 5)]
    made = [fingerprint(what, [meta]) for what in ("mean", ("mean", 2)) for meta in metas]
    assert len(set(made)) == 4
    assert made[0] == fingerprint("mean", metas[:1])


def test_verify_tells_of_what_is_unfinished(tmp_path: Path) -> None:
    group = gzarr.create_group(tmp_path / "image.zarr")
    group.create_array("0", shape=(4,), dtype="u1")
    for path in ("", "0"):
        begin(group.store, path, name="build", arguments="a", plan={}, resume=False)
    problems = group.verify().problems
    assert [(problem.kind, problem.key) for problem in problems] == [
        ("unfinished", PROGRESS),
        ("unfinished", "0/" + PROGRESS),
    ]
    assert "resume it" in problems[0].reason
    assert not group.verify().strays
    assert json.loads((tmp_path / "image.zarr" / PROGRESS).read_text())["name"] == "build"
