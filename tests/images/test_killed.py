"""Runs that are killed, at every step of theirs: the image is valid, and the same call with resume=True goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ContainsArrayError, ContainsNodeError
from gzarr.images import ImageWriter, build_pyramid, create_image, map_overlap, open_image
from gzarr.images.pyramid import units
from gzarr.storage import MemoryStore

DATA = np.random.default_rng(0).integers(1, 60000, (70, 90), "u2")
CHUNKS = (16, 16)
SOURCE = create_image(None, DATA, chunks=CHUNKS, levels=0)


class Remembering(MemoryStore):
    """Keeps what it holds after every change."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[dict[str, bytes]] = []

    def set(self, key: str, value: Any) -> None:
        super().set(key, value)
        self.states.append(dict(self._data))

    def set_many(self, items: Iterable[tuple[str, Any]]) -> None:
        for key, value in items:
            self.set(key, value)

    def delete_many(self, keys: Iterable[str]) -> None:
        for key in keys:
            super().delete_many((key,))
            self.states.append(dict(self._data))


def created(store: Any, **keywords: Any) -> Any:
    return create_image(store, DATA, chunks=CHUNKS, levels=2, **keywords)


def old(store: Any) -> None:
    """An image with other levels, and one more."""
    image = create_image(store, DATA[::-1].copy(), chunks=CHUNKS, levels=3)
    image[0][...] = DATA


CASES: dict[str, tuple[Callable[[Any], object], Callable[..., Any]]] = {
    "levels": (
        lambda store: create_image(store, DATA, chunks=CHUNKS, levels=0),
        lambda store, **how: build_pyramid(store, 2, **how),
    ),
    "levels anew": (old, lambda store, **how: build_pyramid(store, 2, overwrite=True, **how)),
    "levels of an image in Gaussian steps": (
        lambda store: None,
        lambda store, **how: created(store, method="gaussian", **how),
    ),
    "labels": (
        lambda store: create_image(store, DATA, chunks=CHUNKS, levels=2),
        lambda store, **how: open_image(store).write_label("cells", DATA // 9000, **how),
    ),
    "a filtered image": (
        lambda store: None,
        lambda store, **how: map_overlap(np.negative, SOURCE, store, 0, levels=2, **how),
    ),
    "an image of version 0.4": (lambda store: None, lambda store, **how: created(store, version="0.4", **how)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_after_every_step_a_killed_run_goes_on(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare, run = case
    monkeypatch.setattr(units, "TARGET_NBYTES", 1 << 10)
    store = Remembering()
    prepare(store)
    store.states.clear()
    with gzarr.config.set({"threading.max_workers": 1}):
        expected = [level[...] for level in run(store)]
        assert len(expected) == 3
        for state in store.states[:-1]:  # after the last one, nothing is left to do
            killed = MemoryStore(state)
            if b"multiscales" in b"".join(value for key, value in state.items() if key in ("zarr.json", ".zattrs")):
                assert not [fault for fault in open_image(killed).validate().faults if fault.severity == "error"]
            made = run(killed, resume=True)
            for level, wanted in zip(made.reopened(), expected, strict=True):
                np.testing.assert_array_equal(level[...], wanted)
            assert sorted(key for key in killed if "unfinished" in key) == []


def unfinished() -> MemoryStore:
    """An image that was not finished."""
    store = MemoryStore()

    class Refusing:
        shape, dtype = DATA.shape, DATA.dtype

        def __getitem__(self, region: Any) -> Any:
            if region[0].start:
                raise RuntimeError("an accident")
            return DATA[region]

    with pytest.raises(RuntimeError):
        create_image(store, Refusing(), chunks=CHUNKS, levels=2)
    return store


@pytest.mark.parametrize(
    "keywords",
    [
        {"data": DATA[:40, :40]},
        {"data": np.tile(DATA, (2, 2))},
        {"data": DATA.astype("f4")},
        {"data": DATA[None], "chunks": (1, *CHUNKS)},
        {"chunks": (8, 8)},
        {"method": "max"},
    ],
    ids=str,
)
def test_other_images_are_not_gone_on_with(keywords: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "TARGET_NBYTES", 1 << 10)
    store = unfinished()
    before = dict(store._data)
    with pytest.raises(ContainsNodeError, match="overwrite=True to begin anew"):
        create_image(store, **{"data": DATA, "chunks": CHUNKS, "levels": 2, "resume": True, **keywords})
    assert store._data == before


def test_levels_made_in_another_way_are_no_unfinished_build() -> None:
    image = created(MemoryStore())
    with pytest.raises(ContainsNodeError, match="has 3 levels already"):
        build_pyramid(image, 2, method="max", resume=True)


def test_what_no_build_has_begun_is_not_taken_for_a_level() -> None:
    image = create_image(None, DATA, chunks=CHUNKS, levels=0)
    other = image.group.create_array("1", shape=(35, 45), dtype="u2", chunks=CHUNKS)
    other[...] = 7
    with pytest.raises(ContainsArrayError, match="overwrite=True"):
        build_pyramid(image, 1, resume=True)
    assert (other[...] == 7).all()
    with pytest.raises(ContainsArrayError, match="overwrite=True"):  # nor the next time
        build_pyramid(image, 1, resume=True)


@pytest.mark.parametrize(
    "keywords", [{"levels": -1}, {"factors": {"q": 2}}, {"method": "none"}, {"levels": 30}, {"max_nbytes": 10}], ids=str
)
def test_nothing_is_deleted_for_levels_that_cannot_be(keywords: Any) -> None:
    store = MemoryStore()
    image = created(store)
    before = dict(store._data)
    with pytest.raises((ValueError, TypeError)):
        create_image(store, DATA, **{"chunks": CHUNKS, "overwrite": True, **keywords})
    with pytest.raises((ValueError, TypeError)):
        build_pyramid(image, overwrite=True, **keywords)
    assert store._data == before


@pytest.mark.parametrize("keywords", [{"levels": -1}, {"factors": {"q": 2}}, {"levels": 30}], ids=str)
@pytest.mark.parametrize(
    "write",
    [
        lambda image, how: image.write_label("cells", DATA // 9000, **how),
        lambda image, how: map_overlap(np.negative, SOURCE, image.group.store, 0, **how),
        lambda image, how: ImageWriter(image.group.store, shape=(64, 64), dtype="u2", **how),
    ],
    ids=["labels", "filter", "writer"],
)
def test_nothing_is_deleted_for_other_outputs_that_cannot_be(write: Any, keywords: Any) -> None:
    store = MemoryStore()
    image = created(store)
    image.write_label("cells", DATA // 9000)
    before = dict(store._data)
    with pytest.raises(ValueError, match=r"levels|factors"):
        write(image, {"overwrite": True, **keywords})
    assert store._data == before
