"""Frames that come one after the other become an image with all its levels, each object of which is stored once."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gzarr.errors import MetadataError, SelectionError, StoreError
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.images import ImageWriter, open_image
from gzarr.storage import CountingStore, MemoryStore
from tests.images.levels import check, levels_of

FRAMES = np.random.default_rng(0).integers(0, 60000, (10, 2, 70, 90), "u2")
FRAMES_64 = np.random.default_rng(1).integers(1, 60000, (5, 64, 64), "u2")


def halved(data: np.ndarray, n: int = 1) -> np.ndarray:
    """Frames whose planes are n times halved."""
    return levels_of(data, [(1, 1, 2, 2)] * n)[-1]


def writer(store: Any, **keywords: Any) -> ImageWriter:
    given = {"shape": (2, 70, 90), "dtype": "u2", "axes": "tcyx", "chunks": (1, 1, 32, 32), "levels": 2}
    return ImageWriter(store, **(given | keywords))


def chunks_written(store: CountingStore) -> Counter[str]:
    return Counter(key for key in store.written if not key.endswith(("zarr.json", ".zarray", ".zattrs", ".zgroup")))


@pytest.mark.parametrize(("version", "shards"), [("0.4", None), ("0.5", None), ("0.5", (4, 2, 64, 64))])
def test_all_levels_are_there_and_each_object_is_stored_once(version: str, shards: Any, device: str) -> None:
    store = CountingStore(MemoryStore())
    how: Any = GpuBackend(EmulatedDevice()) if device == "emulated" else "cpu"
    with writer(store, shards=shards, version=version, device=how) as to:
        for frame in FRAMES:
            to.append(frame)
    image = open_image(store, "r")
    check(image, FRAMES)
    assert len(image) == 3
    assert set(chunks_written(store).values()) == {1}
    assert image.scale(2) == {"t": 1, "c": 1, "y": 4, "x": 4}


def test_stacks_are_halved_along_the_axis_that_grows() -> None:
    store = CountingStore(MemoryStore())
    stack = FRAMES[:, 0]
    with ImageWriter(store, shape=(70, 90), dtype="u2", axes="zyx", chunks=(2, 32, 32), levels=2) as to:
        for frame in stack[:9]:
            to.append(frame)
        assert len(open_image(store, "r")) == 1
    image = open_image(store, "r")
    assert [level.shape[0] for level in image] == [9, 5, 3]
    check(image, stack[:9])
    assert set(chunks_written(store).values()) == {1}


def test_others_see_whole_frames_only(tmp_path: Path) -> None:
    path = tmp_path / "run.zarr"
    with writer(path, chunks=(4, 1, 32, 32)) as to:
        for number, frame in enumerate(FRAMES[:6]):
            to.append(frame)
            to.flush()
            seen = open_image(path, "r")
            complete = (number + 1) // 4 * 4
            assert [level.shape[0] for level in seen] == [complete] * 3
            np.testing.assert_array_equal(seen[0][...], FRAMES[:complete])
            np.testing.assert_array_equal(seen[2][...], halved(FRAMES[:complete], 2))
        assert to.image().shape == (4, 2, 70, 90)
    np.testing.assert_array_equal(open_image(path, "r")[0][...], FRAMES[:6])


def test_planes_come_in_order_or_where_they_are_said_to_lie() -> None:
    store = MemoryStore()
    with writer(store, channels=["DAPI", "GFP"], chunks=(2, 1, 32, 32)) as to:
        to.append(FRAMES[0, 0])
        to.append(FRAMES[0, 1])
        to.append(FRAMES[1, 1], c="GFP")
        to.append(FRAMES[2, 1], c=1)
        to.append(FRAMES[1, 0])
        to.append(FRAMES[3], t=3)
        to.append(FRAMES[2, 0], t=2, c="DAPI")
        to.append(FRAMES[4:7])
        to.append(FRAMES[9], t=9)
    found = open_image(store, "r")[0][...]
    np.testing.assert_array_equal(found[:7], FRAMES[:7])
    assert not found[7:9].any()
    np.testing.assert_array_equal(found[9], FRAMES[9])


def test_positions_become_a_collection() -> None:
    for version in ("0.4", "0.5"):
        store = MemoryStore()
        with writer(store, positions=["left", "right"], version=version) as to:
            for frame in FRAMES[:3]:
                to.append(frame, position="left")
                to.append(frame + 1, position="right")
        np.testing.assert_array_equal(open_image(store, "r", series=1)[0][...], FRAMES[:3] + 1)
        np.testing.assert_array_equal(open_image(store, "r", series="left")[0][...], FRAMES[:3])
    with pytest.raises(MetadataError, match="positions"):
        writer(MemoryStore(), positions=["a", "a"])


@pytest.mark.parametrize(
    ("frame", "keywords", "error", "message"),
    [
        (np.zeros((70, 91)), {}, ValueError, "expected"),
        (np.zeros(90), {}, ValueError, "expected"),
        (np.zeros((70, 90)), {"c": 2}, SelectionError, "c=2: expected 0 to 1"),
        (np.zeros((70, 90)), {"c": "GFP"}, SelectionError, "channels are"),
        (np.zeros((70, 90)), {"z": 0}, SelectionError, "axis 'z'"),
        (np.zeros((2, 70, 90)), {"c": 0}, SelectionError, "axis 'c'"),
        (np.zeros((2, 70, 90)), {"t": 0}, SelectionError, "t=0 was given before"),
        (np.zeros((70, 90)), {"t": 0, "c": 1}, SelectionError, "t=0, c=1 was given before"),
        (np.zeros((70, 90)), {"position": "left"}, SelectionError, "a single image"),
    ],
)
def test_frames_that_do_not_fit_are_refused(frame: Any, keywords: Any, error: Any, message: str) -> None:
    store = MemoryStore()
    with writer(store) as to:
        to.append(FRAMES[0])
        with pytest.raises(error, match=message):
            to.append(frame, **keywords)
        to.append(FRAMES[1])
    np.testing.assert_array_equal(open_image(store, "r")[0][...], FRAMES[:2])


@pytest.mark.parametrize("keywords", [{"method": "gaussian"}, {"shape": (70,)}, {"method": "median?"}])
def test_images_that_cannot_be_written_are_refused(keywords: Any) -> None:
    store = MemoryStore()
    with pytest.raises((MetadataError, ValueError)):
        writer(store, **keywords)
    assert not list(store)


def test_memory_is_bounded_and_incomplete_frames_do_not_fill_it() -> None:
    frame_nbytes = FRAMES[0].nbytes
    with writer(MemoryStore(), max_nbytes=3 * frame_nbytes) as to:
        for number, frame in enumerate(FRAMES):
            to.append(frame)
            assert to._nbytes <= 3 * frame_nbytes, number
        for number in range(20, 23):
            to.append(FRAMES[0, 0], t=number, c=0)
        with pytest.raises(ValueError, match="incomplete frames are held"):
            to.append(FRAMES[0, 0], t=23, c=0)
    assert to.image().shape[0] == 23


class Full(MemoryStore):
    """Refuses a chunk."""

    refused = "none"

    def set_many(self, items: Sequence[tuple[str, Any]]) -> None:
        if any(self.refused in key for key, _ in items):
            raise StoreError(f"no room for {self.refused}")
        super().set_many(items)

    def set(self, key: str, value: Any) -> None:
        self.set_many([(key, value)])


def test_an_error_is_raised_by_every_call_and_what_was_shown_stays() -> None:
    store = Full()
    to = writer(store)
    for frame in FRAMES[:3]:
        to.append(frame)
    to.flush()
    store.refused = "1/c/3/0"
    to.append(FRAMES[3])
    with pytest.raises(StoreError, match="no room"):
        to.flush()
    with pytest.raises(StoreError, match="no room"):
        to.append(FRAMES[4])
    with pytest.raises(StoreError, match="no room"):
        to.close()
    to.close()
    with pytest.raises(ValueError, match="closed"):
        to.append(FRAMES[4])
    image = open_image(store, "r")
    assert [level.shape[0] for level in image] == [3, 3, 3]
    np.testing.assert_array_equal(image[0][...], FRAMES[:3])


def test_a_writer_that_is_killed_at_any_step_leaves_a_valid_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames that are not shown yet, and levels that are shown one after the other, are no errors."""
    states: list[dict[str, bytes]] = []

    class Remembering(MemoryStore):
        def set(self, key: str, value: Any) -> None:
            super().set(key, value)
            states.append(dict(self._data))

        def set_many(self, items: Any) -> None:
            for key, value in items:
                self.set(key, value)

    monkeypatch.setattr("gzarr.images.acquisition.writer._SHOW_S", 0.0)
    frames = np.random.default_rng(0).integers(1, 60000, (5, 40, 50), "u2")
    with ImageWriter(Remembering(), shape=(40, 50), dtype="u2", axes="tyx", chunks=(2, 32, 32), levels=1) as to:
        for frame in frames:
            to.append(frame)
    for state in states[2:]:  # the group, and level 0
        image = open_image(MemoryStore(state))
        assert not [fault for fault in image.validate(data=True).faults if fault.severity == "error"]
        np.testing.assert_array_equal(image[0][...], frames[: len(image[0])])


def test_closing_may_be_interrupted_and_is_then_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    to = writer(store, shape=(64, 64), axes="tyx", chunks=(2, 32, 32), levels=1)
    for frame in FRAMES_64:
        to.append(frame)
    with monkeypatch.context() as patched:
        patched.setattr(to, "_wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            to.close()
    to.close()
    np.testing.assert_array_equal(open_image(store)[0][...], FRAMES_64)


def interrupted() -> None:
    raise KeyboardInterrupt


def test_whole_rows_are_shown_when_the_last_one_fails() -> None:
    store = Full()
    store.refused = "c/2/"
    to = writer(store, shape=(64, 64), axes="tyx", chunks=(2, 32, 32), levels=1)
    for frame in FRAMES_64:
        to.append(frame)
    with pytest.raises(StoreError, match="no room"):
        to.close()
    image = open_image(store)
    assert [len(level) for level in image] == [4, 4]
    np.testing.assert_array_equal(image[0][...], FRAMES_64[:4])


def test_no_frames_make_an_empty_image() -> None:
    store = MemoryStore()
    writer(store).close()
    assert [level.shape[0] for level in open_image(store, "r")] == [0, 0, 0]


def test_methods_and_chunks() -> None:
    store = MemoryStore()
    with ImageWriter(store, shape=(600, 600), dtype="u1", method="max", max_nbytes=600 * 600 * 8, axes="zyx") as to:
        for number in range(3):
            to.append(np.full((600, 600), number))
    image = open_image(store, "r")
    assert image[0].chunks[0] == 2
    assert [level.shape for level in image] == [(3, 600, 600), (2, 300, 300), (1, 150, 150)]
    assert (image[1][:, 0, 0].tolist(), image.metadata.type) == ([1, 2], "max")


def test_frames_may_be_changed_afterwards() -> None:
    store = MemoryStore()
    frame = np.empty((70, 90), "u2")
    with writer(store, shape=(70, 90), axes="tyx", chunks=(1, 32, 32), compressors=None) as to:
        for number in range(10):
            frame[...] = number
            to.append(frame)
            frame[...] = 99
    assert (open_image(store, "r")[0][...] == np.arange(10).reshape(10, 1, 1)).all()
