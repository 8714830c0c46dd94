"""Levels that an executor's tasks build; `tests/interop/test_dask.py` has processes of a cluster."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gzarr.cpu.backend import CpuBackend
from gzarr.errors import ChunkError, StoreError
from gzarr.images import build_pyramid, create_image, open_image
from gzarr.images.pyramid.rounds import plan_rounds
from gzarr.storage import CountingStore, LocalStore, MemoryStore
from tests.images.levels import check, noise


@pytest.mark.parametrize("chunks", [{"chunks": (32, 32)}, {"chunks": (8, 16), "shards": (32, 48)}])
def test_no_object_is_written_twice(tmp_path: Path, chunks: Any) -> None:
    data = noise((300, 411))
    store = CountingStore(LocalStore(tmp_path))
    image = create_image(store, data, levels=0, **chunks)
    store.written.clear()
    with ThreadPoolExecutor(3) as client:
        check(build_pyramid(image, 3, max_nbytes=200_000, on=client), data)
    assert len(open_image(store)) == 4
    assert set(Counter(key for key in store.written if "/c/" in key).values()) == {1}


def test_rounds_have_all_levels_and_fit() -> None:
    image = create_image(data=np.zeros((1024, 1024), "u1"), chunks=(32, 32), levels=5)
    factors = [(2, 2)] * 5
    rounds = plan_rounds(image.levels, factors, 2 * 128 * 128)
    assert [(each.base, each.last) for each in rounds] == [(0, 2), (2, 4), (4, 5)]
    assert [each.block for each in rounds] == [(128, 128), (128, 128), (64, 64)]
    assert plan_rounds(image.levels, factors, 1 << 30)[0][:2] == (0, 5)
    with pytest.raises(ValueError, match=r"max_nbytes=100: a task needs 8192 bytes to write whole .* of level 1"):
        plan_rounds(image.levels, factors, 100)


def test_a_task_that_fails_is_raised_and_the_others_are_kept(tmp_path: Path) -> None:
    data = noise((256, 256))
    image = create_image(tmp_path / "image.zarr", data, chunks=(32, 32), levels=0)
    chunk = tmp_path / "image.zarr" / "0" / "c" / "7" / "7"
    sound = chunk.read_bytes()
    chunk.write_bytes(sound[:10])
    with ThreadPoolExecutor(1) as client:
        with pytest.raises(ChunkError, match="0/c/7/7"):
            build_pyramid(image, 2, max_nbytes=2 * 2 * 64 * 64, on=client)
        chunk.write_bytes(sound)
        before = {
            path: path.stat().st_mtime_ns for path in (tmp_path / "image.zarr" / "1" / "c").rglob("*") if path.is_file()
        }
        check(build_pyramid(image, 2, max_nbytes=2 * 2 * 64 * 64, on=client, resume=True), data)
    assert len(before) == 15
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())


def test_memory_of_this_process_is_refused() -> None:
    image = create_image(MemoryStore(), noise((300, 300)), levels=0)
    with pytest.raises(StoreError, match="is in memory of this process, which workers cannot share"):
        build_pyramid(image, on=1)
    with pytest.raises(TypeError, match="on='spark' runs nothing"):
        build_pyramid(image, on="spark")
    assert len(image.group) == 1
    with pytest.raises(ValueError, match="method='gaussian' is not built on several devices"):
        build_pyramid(image, method="gaussian", devices=["cpu"])
    with pytest.raises(ValueError, match="part=: overwrite=True would delete what others write"):
        build_pyramid(image, part=(0, 2), overwrite=True)


@pytest.mark.parametrize("mask", [False, True], ids=["", "mask"])
def test_blocks_are_built_on_devices_in_turn(mask: bool) -> None:
    class Backend(CpuBackend):
        def __init__(self) -> None:
            super().__init__()
            self.made = 0

        def reduce_windows(self, *arguments: Any) -> None:
            self.made += 1
            super().reduce_windows(*arguments)

    data, backends = noise((300, 411)), [Backend(), Backend()]
    store = CountingStore(MemoryStore())
    image = create_image(store, data, levels=0, chunks=(32, 32), device="cpu")
    store.written.clear()
    options = {"skip": data % 3 == 0} if mask else {}
    built = build_pyramid(image, 3, max_nbytes=20_000, devices=backends, **options)
    assert set(Counter(key for key in store.written if "/c/" in key).values()) == {1}
    assert min(backend.made for backend in backends) > 10
    alone = build_pyramid(create_image(data=data, levels=0, chunks=(32, 32), device="cpu"), 3, **options)
    for one, other in zip(built.levels, alone.levels, strict=True):
        np.testing.assert_array_equal(one[...], other[...])


def test_devices_beside_a_device_or_a_cluster_are_refused() -> None:
    image = create_image(data=noise((300, 300)), levels=0, device="cpu")
    with pytest.raises(ValueError, match="name one device at least"):
        build_pyramid(image, devices=[])
    with pytest.raises(ValueError, match="leave device= away"):
        build_pyramid(image, devices=["cpu"], device="cpu")
    with pytest.raises(ValueError, match="workers of on= have their own"):
        build_pyramid(image, devices=["cpu"], on=ThreadPoolExecutor(1))
    with pytest.raises(ValueError, match="leave it away, or out="):
        build_pyramid(image, devices=["cpu"], out=MemoryStore())
