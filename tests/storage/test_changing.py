"""Read-modify-write of one object: repeated when another replaced it, and given up at last."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from gzarr.errors import ReadOnlyError, StoreError
from gzarr.storage import LocalStore, MemoryStore, SQLiteStore, Store, WrapperStore, changing, read_only
from gzarr.storage.base import Buffer, Change, Conditional
from gzarr.storage.changing import change_object
from gzarr.storage.wrappers import ForwardedConditional


class Busy(WrapperStore):
    """A store whose object another writer extends before each of the first changes."""

    def __init__(self, store: Store, n_others: int) -> None:
        super().__init__(store)
        self.n_others = n_others

    @property
    def conditional(self) -> Conditional | None:
        below, busy = self._store.conditional, self
        assert below is not None

        class Late(ForwardedConditional):
            def set_if(self, changes: Sequence[Change]) -> list[bool]:
                if busy.n_others:
                    busy.n_others -= 1
                    busy._store["zarr.json"] = busy._store.get("zarr.json", b"") + b"o"
                return super().set_if(changes)

        return Late(below)


def add(old: Buffer | None) -> bytes:
    return bytes(old or b"") + b"+"


def test_a_change_is_done_again_until_it_is_not_refused() -> None:
    store = Busy(SQLiteStore(":memory:"), 3)
    change_object(store, "zarr.json", add)
    assert store["zarr.json"] == b"ooo+"
    change_object(store, "zarr.json", add)
    assert store["zarr.json"] == b"ooo++"


def test_a_change_is_given_up_after_many_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changing, "MAX_ATTEMPTS", 4)
    with pytest.raises(StoreError, match=r"sqlite.*: 'zarr.json' was replaced by other writers each of the 4 times"):
        change_object(Busy(SQLiteStore(":memory:"), 9), "zarr.json", add)


def test_an_error_of_the_change_stores_nothing(tmp_path: Path) -> None:
    for store in (MemoryStore(), SQLiteStore(tmp_path / "x.sqlite"), LocalStore(tmp_path / "x")):
        store["zarr.json"] = b"old"
        with pytest.raises(ZeroDivisionError):
            change_object(store, "zarr.json", lambda _: bytes(1 // 0))
        change_object(store, "zarr.json", add)
        assert store["zarr.json"] == b"old+"


def test_a_read_only_store_is_not_changed() -> None:
    below = SQLiteStore(":memory:")
    for store in (read_only(below), read_only(MemoryStore())):
        with pytest.raises(ReadOnlyError):
            change_object(store, "zarr.json", add)
    assert "zarr.json" not in below
