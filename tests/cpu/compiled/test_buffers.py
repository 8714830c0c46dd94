"""Chunks in memory are read by the compiled loop, with the values and the errors of the reference path."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.config import config
from gzarr.cpu.compiled import eligibility, library, read
from gzarr.errors import GzarrError
from gzarr.storage import MemoryStore, Request, WrapperStore
from gzarr.storage.base import Buffer
from tests.cpu.compiled.looping import (
    CHAINS,
    SHAPE,
    Recorder,
    Watched,
    read_is_refused_or_left,
    stored,
    write_is_refused_or_left,
)
from tests.properties.cases import same

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")


class Waiting(WrapperStore):
    """A store that takes many requests at once: its chunks come in waves."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.concurrency = 8


class Changeable(WrapperStore):
    """Returns views that could change."""

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        return [None if item is None else memoryview(bytearray(item)) for item in super().get_many(requests)]


STORES = {"memory": MemoryStore, "waiting": lambda: Waiting(MemoryStore()), "views": lambda: Changeable(MemoryStore())}


@pytest.fixture(autouse=True)
def few_chunks_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_FEW_NCHUNKS", 2)
    monkeypatch.setattr(eligibility, "make_basic", lambda *_: None)  # so that plans are made for all selections


@settings(max_examples=60)
@given(data=st.data())
def test_tables_that_lie_are_refused_or_left(data: st.DataObject) -> None:
    """Every number of every table may be anything, but for those that say where memory is and how much."""
    inner, recorder = MemoryStore(), Recorder()
    array, _ = stored(CHAINS[data.draw(st.sampled_from(["plain", "blosc", "shards"]))], "<i4", inner)
    out = np.zeros(SHAPE, "i4")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "loop", lambda: recorder)
        patch.setattr(read, "_FEW_NCHUNKS", 2)
        some = gzarr.open_array(Waiting(inner), path="a/b") if data.draw(st.booleans()) else array
        with suppress(GzarrError):
            some.get_basic_selection(..., out=out)
    read_is_refused_or_left(data, recorder.calls)


def test_items_that_are_no_memory_are_refused() -> None:
    array, _ = stored(CHAINS["plain"], "<i4", MemoryStore())
    recorder = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "loop", lambda: recorder)
        array[...]
    args = recorder.calls[0]
    items = args[6]
    for wrong, kind in [
        (["text"] * len(items), TypeError),
        ([memoryview(b"12345678")[::2]] * len(items), BufferError),
        (items[:-1], ValueError),
        (5, TypeError),
    ]:
        args[6] = wrong
        with pytest.raises(kind):
            library.extension().read(*args)


# -- writes ----------------------------------------------------------------------------------------------------------


def both_ways(write: Any, codecs: list[Any], store: Any = MemoryStore, **options: Any) -> tuple[dict[str, bytes], ...]:
    """What is stored after a write by the loop, and by the reference path."""
    found = []
    for native in (True, False):
        inner: dict[str, bytes] = {}
        with config.set({"cpu.native": native}):
            array, model = stored(
                codecs, "<i4", store(MemoryStore(inner)) if store is not MemoryStore else store(inner)
            )
            write(array, model, **options)
            same(array[...], model)
        found.append({key: bytes(value) for key, value in inner.items()})
    return tuple(found)


def test_the_loop_writes_all_of_it(watched: Watched) -> None:
    array, model = stored(CHAINS["blosc"], "<i4", MemoryStore())
    assert (watched.written, watched.refused) == (array.nchunks, 0)
    array[1:, 1:] = model[1:, 1:] = 3
    same(array[...], model)
    array.resize((80, 50, 3))
    array.resize(SHAPE)
    array[...] = model[...] = 7
    assert watched.refused == 0
    assert not [key for key in array.store if "/c/" in key]


@settings(max_examples=60)
@given(data=st.data())
def test_tables_of_a_write_that_lie_are_refused_or_left(data: st.DataObject) -> None:
    array, model = stored(CHAINS[data.draw(st.sampled_from(["plain", "blosc", "zstd"]))], "<i4", MemoryStore())
    recorder = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "loop", lambda: recorder)
        array[1:] = model[1:]
    write_is_refused_or_left(data, recorder.calls)
