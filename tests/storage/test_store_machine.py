"""Random sequences of operations: every store must agree with a dict after each."""

import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from gzarr.storage import LocalStore, Request, SQLiteStore, Store, ZipStore
from gzarr.storage.capabilities import ANY, Change
from gzarr.storage.coalesce import get_coalesced
from tests.contracts.stores import MAKERS

# Names of objects and of paths are kept apart: a file cannot also be a directory.
paths = st.lists(st.sampled_from(["a", "b", "ab"]), max_size=3).map("/".join)
names = st.sampled_from(["0", "1", "zarr.json", ".zarray"])
keys = st.builds(lambda path, name: f"{path}/{name}" if path else name, paths, names)
values = st.binary(max_size=40)
positions = st.none() | st.integers(-60, 60)
requests = st.builds(Request, keys, positions, st.none() | st.integers(0, 60))


def answer(model: dict[str, bytes], request: Request) -> bytes | None:
    value = model.get(request.key)
    if value is None or request.start is None:
        return value
    begin = request.start if request.start >= 0 else len(value) + request.start
    end = len(value) if request.length is None else begin + request.length
    return bytes(value[i] for i in range(len(value)) if begin <= i < end)


class StoreMachine(RuleBasedStateMachine):
    make: Callable[[Path], Store]
    reopen: Callable[[Store, Path], Store]

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.model: dict[str, bytes] = {}

    @initialize()
    def begin(self) -> None:
        self.store = type(self).make(self.folder)

    @rule(key=keys, value=values)
    def set(self, key: str, value: bytes) -> None:
        self.store.set(key, bytearray(value))
        self.model[key] = value

    @rule(items=st.dictionaries(keys, values, max_size=6))
    def set_many(self, items: dict[str, bytes]) -> None:
        self.store.set_many(items.items())
        self.model.update(items)

    @rule(key=keys, value=values)
    def set_if_missing(self, key: str, value: bytes) -> None:
        assert self.store.set_if_missing(key, value) == (key not in self.model)
        self.model.setdefault(key, value)

    @rule(batch=st.lists(keys, max_size=4, unique=True), between=st.none() | keys, data=st.data())
    def set_if(self, batch: list[str], between: str | None, data: st.DataObject) -> None:
        """Changes on the condition that nothing was written since; a change between may be one of them."""
        conditional = self.store.conditional
        if conditional is None:
            return
        tagged = conditional.get_tagged(batch)
        assert [None if item is None else bytes(item.data) for item in tagged] == [self.model.get(key) for key in batch]
        if between is not None:
            self.set(between, data.draw(values))
        can_delete = [conditional.deletes and item is not None for item in tagged]  # nobody deletes what is missing
        news = [data.draw(values | st.none() if deletes else values) for deletes in can_delete]
        tags = [ANY if data.draw(st.integers(0, 5)) == 0 else item and item.version for item in tagged]
        done = conditional.set_if([Change(*change) for change in zip(batch, news, tags, strict=True)])
        stale = [key == between and tag is not ANY for key, tag in zip(batch, tags, strict=True)]
        assert any(done) or any(stale) or not batch  # one may be refused by mistake, not all of them
        for key, new, was_done, is_stale in zip(batch, news, done, stale, strict=True):
            assert not (was_done and is_stale)
            if was_done and new is not None:
                self.model[key] = new
            elif was_done:
                self.model.pop(key, None)

    @rule(batch=st.lists(requests, max_size=8))
    def get_many(self, batch: list[Request]) -> None:
        expected = [answer(self.model, request) for request in batch]
        assert self.store.get_many(batch) == expected
        assert [self.store.get_one(request) for request in batch] == expected
        assert get_coalesced(self.store, batch, max_gap_nbytes=5, max_nbytes=30) == expected

    @rule(doomed=st.lists(keys, max_size=4))
    def delete_many(self, doomed: list[str]) -> None:
        self.store.delete_many(doomed)
        for key in doomed:
            self.model.pop(key, None)

    @rule(path=paths)
    def delete_prefix(self, path: str) -> None:
        self.store.delete_prefix(path)
        for key in [key for key in self.model if not path or key.startswith(path + "/")]:
            del self.model[key]

    @rule(source=st.sampled_from(["a", "b", "a/b"]), dest=st.sampled_from(["m", "m/n", "ab/q"]))
    def move_prefix(self, source: str, dest: str) -> None:
        if any(key.startswith(dest + "/") for key in self.model):
            self.store.delete_prefix(dest)
            self.model = {key: value for key, value in self.model.items() if not key.startswith(dest + "/")}
        self.store.move_prefix(source, dest)
        self.model = {
            dest + key[len(source) :] if key.startswith(source + "/") else key: value
            for key, value in self.model.items()
        }

    @rule()
    def clear(self) -> None:
        self.store.clear()
        self.model.clear()

    @rule(key=keys)
    def delete_as_a_mapping(self, key: str) -> None:
        assert self.store.pop(key, None) == self.model.pop(key, None)

    @rule()
    def close_and_open(self) -> None:
        self.store = type(self).reopen(self.store, self.folder)

    @rule(path=paths)
    def list(self, path: str) -> None:
        start = f"{path}/" if path else ""
        rest = [key[len(start) :] for key in self.model if key.startswith(start)]
        assert sorted(self.store.list_prefix(path)) == sorted(start + name for name in rest)
        objects = sorted(name for name in rest if "/" not in name)
        assert self.store.list_dir(path) == (objects, sorted({name.split("/")[0] for name in rest if "/" in name}))

    @invariant()
    def equal(self) -> None:
        if hasattr(self, "store"):
            assert dict(self.store) == self.model

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        shutil.rmtree(self.folder)


def reopen_zip_path(store: Store, folder: Path) -> Store:
    store.close()
    with zipfile.ZipFile(folder / "data.zip") as archive:
        names = archive.namelist()
        assert archive.testzip() is None
    assert len(names) == len(set(names))
    return ZipStore(folder / "data.zip", mode="r+")


def reopen_zip_object(store: Any, folder: Path) -> Store:
    store.close()
    file = store._archive.file
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
    assert len(names) == len(set(names))
    return ZipStore(file, mode="a")


#: How stores are opened again that were closed; the others stay open.
REOPEN: dict[str, Callable[[Any, Path], Store]] = {
    "local": lambda _, folder: LocalStore(folder / "data"),
    "zip path": reopen_zip_path,
    "zip deflated": reopen_zip_path,
    "zip file object": reopen_zip_object,
    "sqlite": lambda store, folder: store.close() or SQLiteStore(folder / "data.sqlite"),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_store_behaves_like_a_dict(kind: str, request: pytest.FixtureRequest) -> None:
    def make(folder: Path) -> Store:
        return MAKERS[kind](folder, request)

    reopen = REOPEN.get(kind, lambda store, _: store)
    machine = type("Machine", (StoreMachine,), {"make": staticmethod(make), "reopen": staticmethod(reopen)})
    examples = max(settings().max_examples // 15, 1)
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=25))
