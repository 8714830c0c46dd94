"""What is not stored is neither read nor computed nor written, and a build that is resumed skips the same units."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.images import build_pyramid, create_image, open_image
from tests.images.levels import check


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_the_levels_of_a_sparse_image_are_those_of_a_dense_one(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.integers(1, 70)) for _ in range(2))
    chunks = tuple(data.draw(st.integers(1, 20)) for _ in range(2))
    method = data.draw(st.sampled_from(["mean", "median", "nearest", "max"]))
    fill, values = data.draw(st.sampled_from([0, 7])), np.random.default_rng(0).integers(0, 99, shape)
    whole = np.full(shape, fill, "u2")
    image = create_image(shape=shape, dtype="u2", chunks=chunks, fill_value=fill)
    for corner in data.draw(st.lists(st.tuples(*(st.integers(0, n - 1) for n in shape)), max_size=4)):
        box = tuple(slice(at, at + data.draw(st.integers(1, 15))) for at in corner)
        whole[box] = image[0][box] = values[box]
    built = build_pyramid(image, 3, [{"y": 2, "x": 2}, {"y": 3, "x": 2}, {"y": 2, "x": 2}], method, max_nbytes=10**6)
    check(built, whole, method)


def test_an_empty_terabyte_is_listed_and_no_more(tmp_path: Path) -> None:
    image = create_image(tmp_path / "a.zarr", shape=(10_000,) * 3, dtype="u1", chunks=(100, 100, 100))
    image[0][5000:5100, :100, 9000:9200] = 7
    done: list[int] = []
    built = build_pyramid(image, progress=lambda n, total, _: done.append(n / total))
    assert len(built) == 7
    assert done[-1] == 1
    assert built[1][2500:2502, 0:2, 4500:4502].min() == 7
    assert [level.nchunks_initialized for level in built][:2] == [2, 1]
    copied = build_pyramid(built, 1, out=tmp_path / "b.zarr")
    assert copied[0].nchunks_initialized == 2


@pytest.mark.parametrize("killed_at", [1, 3])
def test_a_sparse_build_goes_on(tmp_path: Path, killed_at: int) -> None:
    whole = np.zeros((600, 600), "u2")
    image = create_image(tmp_path / "a.zarr", shape=whole.shape, dtype="u2", chunks=(32, 32))
    for at in range(0, 600, 100):
        whole[at : at + 20, at : at + 90] = image[0][at : at + 20, at : at + 90] = at + 1
    calls = itertools.count()

    def fails(*_: Any) -> None:
        if next(calls) == killed_at + 1:
            raise KeyboardInterrupt

    how: dict[str, Any] = {"levels": 3, "factors": 2, "max_nbytes": 10**5}
    with pytest.raises(KeyboardInterrupt):
        build_pyramid(image, progress=fails, **how)
    check(build_pyramid(open_image(tmp_path / "a.zarr"), resume=True, **how), whole)


def test_levels_that_are_not_the_fill_value_are_written() -> None:
    image = create_image(shape=(300, 300), dtype="f4", chunks=(32, 32), fill_value=0)
    image[0][:10, :10] = 3
    built = build_pyramid(image, 1, method=lambda block, factors: block[:: factors[0], :: factors[1]] + 1)
    assert np.unique(built[1][...]).tolist() == [1, 4]


def test_what_an_output_holds_is_not_left_there(tmp_path: Path) -> None:
    source, out = gzarr.zeros((40, 40), chunks=(10, 10)), gzarr.ones((40, 40), chunks=(10, 10))
    gzarr.images.flip(source, out, 0)
    assert not out[...].any()
