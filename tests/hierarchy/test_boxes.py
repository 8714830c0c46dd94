"""Many boxes of one size are read as columns, and give what they give one by one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.errors import ChunkError, SelectionError
from gzarr.hierarchy.boxes import box_jobs
from tests.properties.cases import filled, same

KINDS: dict[str, dict[str, Any]] = {
    "lz4": {"compressors": gzarr.codecs.BloscCodec("lz4", 5, "shuffle")},
    "v2": {"zarr_format": 2},
    "plain big-endian": {"compressors": None, "dtype": ">i4"},
    "shards": {"shards": (16, 16)},
    "times": {"dtype": "M8[s]"},
    "records": {"dtype": [("a", "i2"), ("b", "f4")]},
}


@pytest.fixture(params=KINDS)
def group(request: pytest.FixtureRequest, tmp_path: Path) -> gzarr.Group:
    options = {"dtype": "i4", "chunks": (8, 8), **KINDS[request.param]}
    root = gzarr.create_group(tmp_path, zarr_format=options.pop("zarr_format", 3), device="cpu")
    for number in range(3):
        array = root.create_array(f"a{number}", shape=(40, 30), **options)
        values = np.arange(32 * 30).reshape(32, 30) + 1000 * number
        array[:32] = values.astype("i4").astype(array.dtype)  # the last row of chunks is missing
    return root


def test_boxes_of_many_arrays_give_what_they_give_one_by_one(group: gzarr.Group) -> None:
    rng = np.random.default_rng(5)
    wanted: list[tuple[gzarr.Array, Any]] = []
    for size in ((5, 7), (1, 30), (20, 2)):
        for _ in range(12):
            low = [rng.integers(0, n - k + 1) for n, k in zip((40, 30), size, strict=True)]  # integers of NumPy
            box = tuple(slice(start, start + n) for start, n in zip(low, size, strict=True))
            wanted.append((group[f"a{rng.integers(3)}"], box))
    wanted += [(group["a1"], 3), (group["a1"], 39), (group["a0"], (slice(None), 4)), (group["a0"], (slice(None), 29))]
    jobs, results = box_jobs([(*item, None) for item in wanted])
    assert len(jobs) == 10  # three sizes of three arrays, and columns of one
    assert len(results) >= 36
    for (array, key), found in zip(wanted, gzarr.read_many(wanted), strict=True):
        expected = array[key]
        assert found.dtype == expected.dtype
        assert found.base is None or found.base.nbytes == found.nbytes  # nobody else's memory is kept
        np.testing.assert_array_equal(found, expected)


def test_given_memory_is_read_into_whether_or_not_it_is_contiguous(group: gzarr.Group) -> None:
    array = group["a2"]
    outs = [np.empty((6, 6), array.dtype), np.empty((6, 12), array.dtype)[:, ::2], np.empty((6, 6), array.dtype)]
    keys = [np.s_[n : n + 6, n : n + 6] for n in (0, 5, 11)]
    found = gzarr.read_many([(array, key, out) for key, out in zip(keys, outs, strict=True)])
    for key, out, one in zip(keys, outs, found, strict=True):
        assert one is out
        np.testing.assert_array_equal(out, array[key])


def test_selections_that_do_not_fit_and_damage_are_told(group: gzarr.Group, tmp_path: Path) -> None:
    array = group["a0"]
    with pytest.raises(SelectionError):
        gzarr.read_many([(array, np.s_[:4, :4]), (array, np.s_[4:8, :4]), (array, (50, 0))])
    keys = [key for key in array.store if key.startswith("a0/") and "zarr" not in key and "/." not in key]
    array.store.set_many([(key, b"no") for key in keys])
    with pytest.raises(ChunkError):
        gzarr.read_many([(array, np.s_[:4, :4]), (array, np.s_[4:8, :4])])


@given(filled(), st.data())
@settings(max_examples=10)
def test_boxes_of_any_array(drawn: tuple[Any, gzarr.Array, np.ndarray], data: st.DataObject) -> None:
    case, array, model = drawn
    size = [data.draw(st.integers(1, n)) if n else 0 for n in case.shape]
    keys = []
    for _ in range(3):
        starts = [data.draw(st.integers(0, n - k)) for n, k in zip(case.shape, size, strict=True)]
        keys.append(tuple(slice(start, start + k) for start, k in zip(starts, size, strict=True)))
    for key, found in zip(keys, gzarr.read_many([(array, key) for key in keys]), strict=True):
        same(found, model[key])
