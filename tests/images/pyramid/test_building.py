"""Levels that are built: the metadata name them last, and a run that failed goes on."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import gzarr
from gzarr.errors import ContainsNodeError, MetadataError, StoreError
from gzarr.images import create_image, open_image
from gzarr.images.pyramid.building import BlockSource, Build, fill, make_build, plan
from gzarr.images.pyramid.recipes import Recipe
from gzarr.images.pyramid.units import plan_units
from gzarr.storage import CountingStore, MemoryStore
from tests.images.levels import check, noise


def building(image: Any, recipe: Recipe, **how: Any) -> AbstractContextManager[Build]:
    return make_build(image.group, image[0], image.metadata, recipe, **how).writing()


class Full(CountingStore):
    """A disk that is full after some writes of chunks."""

    room = 10**9

    def set_many(self, items: Any) -> None:
        items = list(items)
        for key, _ in items:
            if not key.endswith(".json") and self.room <= 0:
                raise StoreError(f"{key}: no space left on device")
            self.room -= not key.endswith(".json")
        super().set_many(items)


@pytest.mark.parametrize("room", [0, 1, 29, 70])
def test_a_full_disk_is_one_error_and_the_build_goes_on(room: int) -> None:
    data = noise((256, 256))
    store = Full(MemoryStore())
    image = create_image(store, shape=data.shape, dtype="u2", chunks=(32, 32), axes="yx")
    store.room = room
    with gzarr.config.set({"threading.max_workers": 2}):
        with (
            pytest.raises(StoreError, match="no space left on device") as raised,
            building(image, Recipe(levels=2, factors=2, max_nbytes=36384)) as build,
        ):
            fill(build, BlockSource(data.__getitem__))
        assert any("resume=True goes on" in note for note in raised.value.__notes__)
        assert len(open_image(store)) == 1
        store.room = 10**9
        before = len(store.written)
        with (
            pytest.raises(ContainsNodeError, match="an unfinished build_pyramid is at"),
            building(image, Recipe(levels=2, factors=2)) as build,
        ):
            fill(build, BlockSource(data.__getitem__))
        regions: list[Any] = []
        with building(image, Recipe(levels=2, factors=2, resume=True)) as build:
            fill(build, BlockSource(lambda region: (regions.append(region), data[region])[1]))
            done = build.marks.n_done if build.marks else 0
    check(image, data)
    again = [key for key in store.written[before:] if not key.endswith(".json")]
    assert len(again) == len(set(again))
    repeated = set(again) & set(store.written[:before])
    assert len(repeated) <= 2 * 5  # a unit of each thread: four chunks of level 0 and one of level 1
    assert done >= len(regions)


def test_levels_of_huge_shards_have_smaller_ones_that_fit_into_memory() -> None:
    shape, shards = (128, 4096, 4096), (128, 2048, 2048)
    image = create_image(shape=shape, dtype="u2", chunks=(64, 64, 64), shards=shards)
    with building(image, Recipe(levels=3, factors=2), write_base=False) as build:
        assert [level.shards for level in build.levels] == [shards, *[(128, 256, 512)] * 3]
        assert plan_units(build.cascade.geometry, 256 << 20, 2).workers == 2


def test_channels_are_not_joined() -> None:
    image = create_image(shape=(4, 64, 64), dtype="u2", axes="cyx")
    with pytest.raises(ValueError, match="join channels, axis 'c'; give it a factor of 1"):
        plan(image[0], image.metadata, Recipe(1, {"c": 2}))


def test_levels_are_of_the_format_of_the_image(tmp_path: Path) -> None:
    data = noise((3, 100, 100))
    image = create_image(tmp_path / "image.zarr", shape=data.shape, dtype="u2", axes="cyx", version="0.4")
    with building(image, Recipe(levels=1)) as build:
        fill(build, BlockSource(data.__getitem__))
    level = image.reopened()[1]
    assert level.attrs.asdict() == {"_ARRAY_DIMENSIONS": ["c", "y", "x"]}
    assert (tmp_path / "image.zarr" / "1" / "2" / "0" / "0").exists()
    assert level.compressor == image[0].compressor


def test_chunks_of_several_sizes_are_refused() -> None:
    image = create_image(shape=(64, 64), dtype="u2")
    base = gzarr.create_array(shape=(64, 64), dtype="u2", chunks=[[30, 34], [64]])
    with (
        pytest.raises(MetadataError, match="has chunks of several sizes; rechunk it first"),
        make_build(image.group, base, image.metadata, Recipe(levels=1)).writing(),
    ):
        pass


def test_done_units_are_not_asked_for_again() -> None:
    data = noise((256, 256))
    image = create_image(shape=data.shape, dtype="u2", chunks=(32, 32))
    asked: list[Any] = []

    def produce(region: Any) -> Any:
        asked.append(region)
        if len(asked) == 11:
            raise RuntimeError("an accident")
        return data[region]

    for attempt in range(2):
        with gzarr.config.set({"threading.max_workers": 1}):
            try:
                with building(image, Recipe(levels=3, resume=attempt == 1, max_nbytes=40000)) as build:
                    fill(build, BlockSource(produce))
            except RuntimeError:
                assert attempt == 0
    starts = [tuple(s.start for s in region) for region in asked]
    assert len(starts) == len(set(starts)) + 1
    check(image, data)
