"""States hold few plain values, and those of another loader are refused with what differs."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import gzarr
from gzarr.loader.samples import make_samples
from gzarr.loader.state import LoaderProgress, fingerprint, read_state, write_state
from gzarr.loader.windows import Window


def identity(array: gzarr.Array, shuffle: str = "exact", window: Window | None = None) -> dict:
    samples = make_samples({"x": array.shape}, window=window)
    return {"arrays": {"x": fingerprint(array)}, "samples": samples.describe(), "shuffle": shuffle}


@pytest.fixture
def array() -> gzarr.Array:
    return gzarr.zeros((100, 4), chunks=(10, 4), dtype="f4")


def test_a_state_survives_json_and_is_small(array: gzarr.Array) -> None:
    progress = LoaderProgress(3, 7, ((4, 256), (2, 16)))
    stored = json.dumps(write_state(progress, identity(array)))
    assert len(stored) < 400
    assert read_state(json.loads(stored), identity(array)) == progress


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"shape": (101, 4)}, r"arrays\.x was 'float32 \(100, 4\), .*', is 'float32 \(101, 4\)"),
        ({"dtype": "f8"}, r"is 'float64"),
        ({"chunks": (20, 4)}, r"chunks \(20, 4\)"),
        ({"compressors": gzarr.codecs.GzipCodec()}, "codecs"),
    ],
)
def test_a_state_of_other_data_is_refused(array: gzarr.Array, other: dict, message: str) -> None:
    state = write_state(LoaderProgress(0, 0, ()), identity(array))
    now = gzarr.zeros(**{"shape": (100, 4), "chunks": (10, 4), "dtype": "f4"} | other)
    with pytest.raises(ValueError, match=message):
        read_state(state, identity(now))


def test_a_state_of_another_order_or_other_samples_is_refused(array: gzarr.Array) -> None:
    state = write_state(LoaderProgress(0, 0, ()), identity(array))
    with pytest.raises(ValueError, match=r"shuffle was 'exact', is 'blocks'\. Build the loader as it was"):
        read_state(state, identity(array, "blocks"))
    with pytest.raises(ValueError, match=r"samples\.kind was 'rows', is 'window'"):
        read_state(state, identity(array, window=Window(8)))
    with pytest.raises(ValueError, match=r"samples\.size was None, is \[8\]"):
        read_state(state, identity(array, window=Window(8)))


@pytest.mark.parametrize("state", [None, {}, {"epoch": 1}, [1]])
def test_what_is_no_state_is_refused(array: gzarr.Array, state: object) -> None:
    with pytest.raises(ValueError, match=r"what its state_dict\(\) gave"):
        read_state(state, identity(array))


def test_a_state_of_another_version_is_refused(array: gzarr.Array) -> None:
    state = write_state(LoaderProgress(0, 0, ()), identity(array)) | {"version": 2}
    with pytest.raises(ValueError, match="version 2, but this gzarr reads 1"):
        read_state(state, identity(array))


@pytest.mark.parametrize(
    "wrong",
    [
        *({"epoch": -1}, {"epoch": 1.0}, {"epoch": True}, {"epoch": None}, {"seed": "a"}, {"seed": False}),
        *({"taken": [[2, -1]]}, {"taken": [[4, 8], [0, 3]]}, {"taken": "x"}, {"taken": None}, {"taken": [[1, 2.0]]}),
        *({"taken": [[1, True]]}, {"taken": [[1, 2, 3]]}, {"taken": 4}),
    ],
)
def test_a_place_that_cannot_be_is_refused(array: gzarr.Array, wrong: dict) -> None:
    state = write_state(LoaderProgress(0, 0, ((2, 8),)), identity(array)) | wrong
    with pytest.raises(ValueError, match="an impossible place"):
        read_state(state, identity(array))


def test_a_state_of_data_with_other_contents_is_refused(tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(0, 255, (100, 4), "u1")
    z = gzarr.create_array(tmp_path / "a.zarr", data=data, chunks=(10, 4))
    loader = gzarr.Loader(z, batch_size=8, shuffle=True)
    batches = iter(loader)
    next(batches)
    state, following = json.loads(json.dumps(loader.state_dict())), next(batches)
    shutil.copytree(tmp_path / "a.zarr", tmp_path / "b.zarr", copy_function=shutil.copy)  # to a faster disk, say
    copy = gzarr.open_array(tmp_path / "b.zarr")
    again = gzarr.Loader(copy, batch_size=8, shuffle=True)
    again.load_state_dict(state)
    np.testing.assert_array_equal(next(iter(again)), following)
    again.state_dict()
    copy[...] = data + 1
    for other in (
        again,
        gzarr.Loader(copy, batch_size=8, shuffle=True),
        gzarr.Loader(data, batch_size=8, shuffle=True),
    ):
        with pytest.raises(ValueError, match=r"arrays\.array was 'uint8 \(100, 4\).* contents .*', is 'uint8"):
            other.load_state_dict(state)
    changed = gzarr.Loader(data, batch_size=8)
    state = changed.state_dict()
    with pytest.raises(ValueError, match="contents"):
        gzarr.Loader(data + 1, batch_size=8).load_state_dict(state)


@pytest.mark.parametrize("shuffle", [False, "exact", "blocks"])
@pytest.mark.parametrize("taken", [[[1, 101]], [[4, 26]], [[2, 50], [1, 1]], [[1, 10**30]]])
def test_a_place_beyond_the_epoch_is_refused(array: gzarr.Array, shuffle: object, taken: list) -> None:
    loader = gzarr.Loader(array, 8, shuffle=shuffle)
    before = loader.state_dict()
    with pytest.raises(ValueError, match=r"beyond the end of an epoch of 100 samples: .*use another one"):
        loader.load_state_dict(before | {"taken": taken})
    assert loader.state_dict() == before
    loader.load_state_dict(before | {"taken": [[1, 100]]})
    assert list(loader) == []


def test_a_place_of_an_order_that_cannot_be_repeated_is_refused(array: gzarr.Array) -> None:
    state = gzarr.Loader(array, 8, sampler=lambda positions, epoch: positions).state_dict()
    loader = gzarr.Loader(array, 8, sampler=iter_of(100))
    loader.load_state_dict(state | {"epoch": 2})
    with pytest.raises(ValueError, match="no place within an epoch can be resumed"):
        loader.load_state_dict(state | {"taken": [[1, 8]]})


class iter_of:  # noqa: N801 - a sampler that is only iterated over
    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self):
        return iter(range(self.n))
