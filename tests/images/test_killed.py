"""Runs that are killed, at every step of theirs: the image is valid, and the same call with resume=True goes on."""

import functools
import json
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ContainsArrayError, ContainsNodeError
from gzarr.images import ImageWriter, build_pyramid, create_image, map_blocks, map_overlap, open_image
from gzarr.images.pyramid import units
from gzarr.metadata.occupied import PROGRESS
from gzarr.storage import MemoryStore

DATA = np.random.default_rng(0).integers(1, 60000, (70, 90), "u2")
CHUNKS = (16, 16)
SOURCE = create_image(None, DATA, chunks=CHUNKS, levels=0)


class Remembering(MemoryStore):
    """Keeps what it holds after every change."""

    versions = MemoryStore.versions

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
    with pytest.raises(ContainsNodeError, match="overwrite=True instead of resume=True to begin anew"):
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


# -- only the same run goes on ---------------------------------------------------------------------------------------


def stopping(after: int = 3) -> Callable[..., None]:
    """A progress function that somebody interrupts."""
    left = iter(range(after))

    def progress(*_: Any) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    return progress


def stopped(run: Callable[..., object], **keywords: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(progress=stopping(), **keywords)


def scaled(block: Any, sigma: float = 2.0) -> Any:
    return block * sigma


def with_closure(sigma: float) -> Callable[[Any], Any]:
    return lambda block: block * sigma


def with_keyword(sigma: float) -> Callable[[Any], Any]:
    def function(block: Any, *, weight: float = sigma) -> Any:
        return block * weight

    return function


class Scale:
    def __init__(self, sigma: float) -> None:
        self.sigma = sigma

    def __call__(self, block: Any) -> Any:
        return block * self.sigma

    def method(self, block: Any) -> Any:
        return block * self.sigma


def decorated(sigma: float) -> Callable[[Any], Any]:
    inner = with_closure(sigma)

    @functools.wraps(inner)
    def outer(block: Any) -> Any:
        return inner(block)

    return outer


PAIRS: dict[str, Callable[[float], Any]] = {
    "closure sigma of func 'with_closure.<locals>.<lambda>' was 2.0, is 3.0": with_closure,
    "default weight of func .* was 2.0, is 3.0": with_keyword,
    "keyword sigma of func 'scaled' was 2.0, is 3.0": lambda sigma: functools.partial(scaled, sigma=sigma),
    "attribute sigma of func 'Scale' was 2.0, is 3.0": Scale,
    "self 0 of func 'Scale.method' was Scale": lambda sigma: Scale(sigma).method,
    "closure inner of func": decorated,
    "closure weights of func .* was float64 \\(3,\\)": lambda sigma: _weighted(np.full(3, sigma)),
    "func was 'with_closure": lambda sigma: with_closure(sigma) if sigma == 2 else scaled,
    "the code of func": lambda sigma: (lambda block: block * 2.0) if sigma == 2 else (lambda block: block * 3.0),
}


def _weighted(weights: Any) -> Callable[[Any], Any]:
    return lambda block: block * weights.sum()


@pytest.fixture
def places(tmp_path: Path) -> Callable[[str], Any]:
    """Arrays on disk, by name."""

    def made(name: str, value: int = 1, **keywords: Any) -> Any:
        data = np.full((40, 40), value, "u1")
        return gzarr.create_array(tmp_path / name, data=data, chunks=(10, 10), overwrite=True, **keywords)

    return made


@pytest.mark.parametrize(("message", "make"), PAIRS.items(), ids=PAIRS.keys())
def test_another_function_is_refused(places: Any, tmp_path: Path, message: str, make: Any) -> None:
    z, out = places("a.zarr"), tmp_path / "out.zarr"
    run = functools.partial(map_blocks, inputs=z, out=out, dtype="f8", block=10)
    stopped(run, func=make(2.0))
    before = gzarr.open_array(out)[...]
    with pytest.raises(ContainsNodeError, match=rf"{message}.*overwrite=True instead of resume=True to begin anew"):
        run(func=make(3.0), resume=True)
    np.testing.assert_array_equal(gzarr.open_array(out)[...], before)
    made = run(func=make(2.0), resume=True)  # made anew, as by another process
    np.testing.assert_array_equal(made[...], make(2.0)(z[...]))


def test_what_is_unfinished_says_how_to_go_on(places: Any, tmp_path: Path) -> None:
    run = functools.partial(map_blocks, np.negative, places("a.zarr"), tmp_path / "out.zarr", block=10)
    stopped(run)
    message = "with an unfinished map_overlap: call it again with resume=True to go on, or pass overwrite=True to"
    with pytest.raises(gzarr.errors.ContainsArrayError, match=message):
        run()
    with pytest.raises(gzarr.errors.ContainsGroupError, match=message.replace("map_overlap", "create_image")):
        create_image(unfinished(), DATA, chunks=CHUNKS)


def test_another_input_is_refused(places: Any, tmp_path: Path) -> None:
    a, b, out = places("a.zarr"), places("b.zarr", 5), tmp_path / "out.zarr"
    stopped(map_blocks, func=np.negative, inputs=a, out=out, block=10)
    with pytest.raises(ContainsNodeError, match=r"the input 0 was file://.*a\.zarr, is file://.*b\.zarr\. "):
        map_blocks(np.negative, b, out, block=10, resume=True)
    a[0, 0] = 7
    with pytest.raises(ContainsNodeError, match=r"a\.zarr\) was changed .*: 1 of the 16 objects .*, such as 'c/0/0'"):
        map_blocks(np.negative, a, out, block=10, resume=True)
    with pytest.raises(ContainsNodeError, match=r"shape of the input 0 .* was \[40, 40\], is \[40, 30\]"):
        map_blocks(np.negative, resized(a), gzarr_out(out), block=10, resume=True)


def resized(z: Any) -> Any:
    z.resize((40, 30))
    return z


def gzarr_out(place: Path) -> Any:
    """An output of the new shape, in which the old run is unfinished."""
    z = gzarr.open_array(place, mode="r+")
    z.resize((40, 30))
    return z


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"depth": 2}, r"depth was \(\(1, 1\), \(1, 1\)\), is \(\(2, 2\), \(2, 2\)\)"),
        ({"boundary": "wrap"}, "boundary was .*'reflect'.*, is .*'wrap'"),
        ({"boundary": "constant", "cval": float("nan")}, "cval was 0, is nan"),
    ],
)
def test_other_arguments_are_refused(places: Any, tmp_path: Path, other: dict[str, Any], message: str) -> None:
    z = places("a.zarr").astype("f8")
    arguments: dict[str, Any] = {
        "func": np.negative,
        "inputs": z,
        "out": tmp_path / "out.zarr",
        "depth": 1,
        "block": 10,
    }
    stopped(map_overlap, **arguments)
    with pytest.raises(ContainsNodeError, match=message):
        map_overlap(**{**arguments, **other}, resume=True)
    map_overlap(**arguments, resume=True)


def test_what_cannot_be_compared_needs_a_token(places: Any, tmp_path: Path) -> None:
    lock = threading.Lock()

    def func(block: Any) -> Any:
        with lock:
            return -block

    run = functools.partial(map_blocks, func, places("a.zarr"), tmp_path / "out.zarr", block=10)
    with pytest.raises(ValueError, match=r"func .*closure lock.*lock, cannot be compared.*resume='a text'"):
        run(resume=True)
    assert not (tmp_path / "out.zarr").exists()
    stopped(run)  # nobody asked for more
    with pytest.raises(ContainsNodeError, match="the token was None, is 'v1'"):
        run(resume="v1")
    shutil.rmtree(tmp_path / "out.zarr")
    stopped(run, resume="v1")
    with pytest.raises(ContainsNodeError, match="the token was 'v1', is 'v2'"):
        run(resume="v2")
    places("a.zarr", 2)
    with pytest.raises(ContainsNodeError, match=r"a\.zarr\) was changed"):  # inputs are compared still
        run(resume="v1")
    with pytest.raises(ValueError, match="a text that is not empty"):
        run(resume="")


@pytest.mark.parametrize("out", [True, False])
def test_levels_of_a_changed_image_are_refused(tmp_path: Path, out: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "TARGET_NBYTES", 1 << 10)
    image = create_image(tmp_path / "image.zarr", DATA, chunks=CHUNKS, levels=0)
    keywords: dict[str, Any] = {"image": tmp_path / "image.zarr", "levels": 2}
    keywords |= {"out": tmp_path / "out.zarr"} if out else {}
    with gzarr.config.set({"threading.max_workers": 1}):
        stopped(build_pyramid, **keywords)
        image[0][...] = DATA + 1
        with pytest.raises(
            ContainsNodeError, match=r"level 0 .* was changed or written again: 30 of the 30 .*overwrite"
        ):
            build_pyramid(**keywords, resume=True)
        made = build_pyramid(**keywords, overwrite=True)
    np.testing.assert_array_equal(made[0][...], DATA + 1)
    assert not [fault for fault in made.validate(data=True).faults if fault.severity == "error"]


def test_an_unfinished_image_may_be_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "TARGET_NBYTES", 1 << 10)
    create_image(tmp_path / "image.zarr", DATA, chunks=CHUNKS, levels=0)
    with gzarr.config.set({"threading.max_workers": 1}):
        stopped(build_pyramid, image=tmp_path / "image.zarr", levels=2)
    shutil.copytree(tmp_path / "image.zarr", tmp_path / "copy.zarr")
    assert len(build_pyramid(tmp_path / "copy.zarr", 2, resume=True)) == 3


def test_data_and_labels_that_changed_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "TARGET_NBYTES", 1 << 10)
    image = create_image(tmp_path / "image.zarr", DATA, chunks=CHUNKS, levels=0)
    write = functools.partial(image.write_label, "cells", chunks=CHUNKS)
    with gzarr.config.set({"threading.max_workers": 1}):
        stopped(create_image, store=tmp_path / "new.zarr", data=DATA, chunks=CHUNKS)
        with pytest.raises(ContainsNodeError, match=r"the elements of the input data \(memory\) have changed"):
            create_image(tmp_path / "new.zarr", DATA + 1, chunks=CHUNKS, resume=True)
        stopped(write, data=with_closure(2))
        with pytest.raises(ContainsNodeError, match=r"closure sigma of data .* was 2, is 3"):
            write(data=with_closure(3), resume=True)


def test_a_chunk_that_could_not_be_read_may_be_repaired(places: Any, tmp_path: Path) -> None:
    z, chunk = places("a.zarr"), tmp_path / "a.zarr" / "c" / "3" / "3"
    whole = chunk.read_bytes()
    chunk.write_bytes(b"damaged")
    run = functools.partial(map_blocks, np.negative, z, tmp_path / "out.zarr", block=10, dtype="u1")
    with pytest.raises(gzarr.ChunkError):
        run()
    chunk.write_bytes(whole)
    assert (run(resume=True)[...] == 255).all()


def test_what_is_noted_tells_no_texts_and_is_small(places: Any, tmp_path: Path) -> None:
    password = "correct horse"
    z = gzarr.create_array(tmp_path / "many.zarr", shape=(40, 40), chunks=(1, 1), dtype="u1")
    stopped(map_blocks, func=lambda block: block * len(password), inputs=z, out=tmp_path / "out.zarr", block=10)
    noted = (tmp_path / "out.zarr" / PROGRESS).read_text()
    assert password not in noted
    assert len(noted) < 8000
    told = json.loads(noted)["run"]["functions"]["func"]
    assert told["values"]["closure password"].startswith("str ")
