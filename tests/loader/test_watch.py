"""Arrays that others resize, replace or delete: rows of a batch are rows of the array, and errors say what happened."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ArrayNotFoundError
from gzarr.loader.watch import ArrayWatch
from gzarr.storage import CountingStore

N = 400
ROWS = list(range(1, N + 1))
DATA = np.repeat(np.array(ROWS, "i4")[:, None], 64, 1)


@pytest.fixture(params=["directory", "v2", "sqlite", "no tokens"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A store with an array, which other handles can open."""
    made: Any = {
        "directory": lambda: gzarr.LocalStore(tmp_path / "x"),
        "v2": lambda: gzarr.LocalStore(tmp_path / "x"),
        "sqlite": lambda: gzarr.SQLiteStore(tmp_path / "x.sqlite"),
        "no tokens": dict,
    }[request.param]()
    zarr_format: Any = 2 if request.param == "v2" else 3
    gzarr.create_array(made, name="a", data=DATA, chunks=(8, 64), zarr_format=zarr_format)
    return made


def load(store: Any, **keywords: Any) -> gzarr.Loader:
    return gzarr.Loader({"x": gzarr.open_array(store, "r", path="a")}, 16, memory=30_000, **keywords)


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at stores without tokens with every read."""
    monkeypatch.setattr("gzarr.loader.watch.EVERY_S", 0.0)


def while_loading(loader: gzarr.Loader, change: Any) -> list[int]:
    """Change something after the first batch. Returns: the rows of all."""
    rows: list[int] = []
    for batch in loader:
        if not rows:
            change()
        rows += batch["x"][:, 0].tolist()
    return rows


@pytest.mark.parametrize("how", [{"shape": (200, 64)}, {"dtype": "u4"}, {"fill_value": 7}, None])
def test_views_of_what_was_cut_off_before_the_loader_was_made_give_no_fill_values(store: Any, how: Any) -> None:
    array = gzarr.open_array(store, "r", path="a")
    view = array.astype("f4") if how is None else array.view(**how)
    assert sum(len(batch["x"]) for batch in gzarr.Loader({"x": view}, 16)) == len(view)
    gzarr.open_array(store, "r+", path="a").resize(100, 64)
    with pytest.raises(
        ValueError, match=rf"was resized from \({len(view)}, 64\) to \(100, 64\) since the view was made"
    ):
        list(gzarr.Loader({"x": view}, 16))


@pytest.mark.parametrize("shuffle", [False, "blocks", True])
def test_rows_that_another_handle_cuts_off_never_come_as_the_fill_value(store: Any, shuffle: Any) -> None:
    loader = load(store, shuffle=shuffle)
    message = r"'x', at .*a.*, was resized from \(400, 64\) to \(100, 64\) .*make another loader"
    with pytest.raises(ValueError, match=message):
        while_loading(loader, lambda: gzarr.open_array(store, "r+", path="a").resize(100, 64))
    with pytest.raises(ValueError, match="resized"):
        iter(loader)
    assert while_loading(load(store), lambda: None) == ROWS[:100]


def test_a_longer_array_gives_the_rows_it_had(store: Any) -> None:
    loader = load(store)

    def grow() -> None:
        array = gzarr.open_array(store, "r+", path="a")
        array.append(-DATA[:50])
        array.attrs["rows"] = len(array)

    assert while_loading(loader, grow) == while_loading(loader, grow) == ROWS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "f8"}, "data_type|dtype"),
        ({"chunks": (16, 64)}, "chunk"),
        ({"compressors": None}, "codecs|compressor"),
        ({"fill_value": 5}, "fill_value"),
    ],
)
def test_an_array_in_place_of_another(store: Any, change: dict[str, Any], message: str) -> None:
    loader = load(store)
    zarr_format = gzarr.open_array(store, "r", path="a").zarr_format
    options = {"shape": DATA.shape, "chunks": (8, 64), "dtype": "i4", "zarr_format": zarr_format} | change
    with pytest.raises(ValueError, match=r"'x', at .*, was (replaced|deleted)"):  # which it is for a moment
        while_loading(loader, lambda: gzarr.open_array(store, "w", path="a", **options))
    with pytest.raises(ValueError, match=f"'x', at .*, was replaced .*({message}).*make another loader"):
        iter(loader)


def test_a_deleted_array(store: Any) -> None:
    loader = load(store)
    with pytest.raises(ArrayNotFoundError, match=r"'x', at .*a.*, was deleted"):
        while_loading(loader, lambda: gzarr.open_group(store, "r+").store.delete_prefix("a"))
    with pytest.raises(ArrayNotFoundError):
        iter(loader)


def test_what_looking_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One read of the document in an epoch, and one token for each read of chunks."""
    monkeypatch.undo()
    store = CountingStore(gzarr.MemoryStore())
    array = gzarr.create_array(store, data=DATA, chunks=(8, 64))
    loader = gzarr.Loader(array, 16, memory=30_000)
    store.reset()
    assert len(list(loader)) == 25
    assert sum(request.key == "zarr.json" for request in store.requests) == 1
    assert store.sized.count("zarr.json") <= 25 + 2
    monkeypatch.setattr(CountingStore, "versions", None)
    store.reset()
    watch = ArrayWatch({"x": array}, {})
    watch.begin()
    for _ in range(100):
        watch.check(["x"])
    assert [request.key for request in store.requests] == ["zarr.json"]


def test_joined_arrays_are_watched_from_epoch_to_epoch(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(3)]
    for path in paths:
        gzarr.save_array(path, np.zeros((20, 20)), chunks=(4, 4))
    loader = gzarr.Loader(paths, 8, crops=gzarr.Crops((4, 4), n=100))
    for _ in range(2):
        assert sum(map(len, loader)) == 100
    gzarr.open_array(paths[1], "r+").resize((10, 20))
    with pytest.raises(ValueError, match=r"'array\[1\]'.*was resized from \(20, 20\) to \(10, 20\)"):
        list(loader)
