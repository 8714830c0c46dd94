"""New nodes in stores: what they replace, what they keep, and the groups above them."""

import numpy as np
import pytest

import gzarr
from gzarr.errors import ContainsArrayError, ContainsGroupError, MetadataError


@pytest.mark.usefixtures("zarr_format")
def test_overwrite():
    store = {}
    gzarr.array(np.arange(3), store=store, path="x")
    with pytest.raises(ContainsArrayError, match=r"'memory://\d+/x'.*overwrite=True"):
        gzarr.zeros(3, store=store, path="x")
    with pytest.raises(ContainsArrayError, match="cannot contain other nodes"):
        gzarr.zeros(3, store=store, path="x/y")
    with pytest.raises(ContainsGroupError, match=r"a group.*overwrite=True"):
        gzarr.zeros(3, store=store, path="")
    z = gzarr.zeros(5, store=store, path="x", overwrite=True)
    assert z[:].tolist() == [0] * 5
    assert gzarr.zeros(2, store=store, overwrite=True).path == ""
    assert not any(key.startswith("x") for key in store)


@pytest.mark.parametrize("make", [gzarr.group, lambda store, path: gzarr.zeros(3, store=store, path=path)])
def test_the_error_names_the_path_as_it_is(make):
    store = {}
    make(store, path="ocean grid")
    with pytest.raises((ContainsArrayError, ContainsGroupError), match=r"^an? (group|array) .*/ocean grid'"):
        gzarr.zeros(3, store=store, path="ocean grid")


@pytest.mark.usefixtures("zarr_format")
def test_an_array_can_be_overwritten_by_itself_and_by_what_lies_below():
    store = {}
    root = gzarr.group(store)
    root["a/b"] = np.arange(10)
    root["a/b"] = root["a/b"]
    assert root["a/b"][:].tolist() == list(range(10))
    gzarr.create_array(store, name="a", data=root["a/b"], overwrite=True)
    assert root["a"][:].tolist() == list(range(10))


@pytest.mark.usefixtures("zarr_format")
def test_parents_are_created():
    store = {}
    z = gzarr.zeros(3, store=store, path="/a//b/c/")
    assert (z.path, z.name, z.basename) == ("a/b/c", "/a/b/c", "c")
    assert isinstance(gzarr.open(store), gzarr.Group)
    assert list(gzarr.open(store)["a/b"]) == ["c"]
    for bad in ("a/../b", ".", "a/./b"):
        with pytest.raises(MetadataError, match="periods"):
            gzarr.zeros(3, store=store, path=bad)


def test_both_formats_side_by_side_are_refused_at_one_path():
    store = {}
    gzarr.zeros(3, store=store, zarr_format=2)
    with pytest.raises(ContainsArrayError):
        gzarr.zeros(3, store=store, zarr_format=3)
    gzarr.zeros(4, store=store, zarr_format=3, overwrite=True)
    assert gzarr.open(store).shape == (4,)
    assert ".zarray" not in store


def test_overwriting_with_itself_through_another_root_loses_nothing(tmp_path) -> None:
    root = gzarr.open_group(tmp_path / "r", mode="w")
    root.create_array("q/b", data=np.arange(1, 5))
    inner = gzarr.open_array(tmp_path / "r/q/b", mode="r")
    assert root.create_array("q/b", data=inner, chunks=2, overwrite=True)[:].tolist() == [1, 2, 3, 4]
    root["q/b"] = gzarr.open_array(tmp_path / "r/q/b", mode="r")
    assert root["q/b"][:].tolist() == [1, 2, 3, 4]
    gzarr.save(tmp_path / "s", a=np.arange(3))
    gzarr.save(tmp_path / "s", a=gzarr.open_group(tmp_path / "s", mode="r")["a"])
    assert gzarr.load(tmp_path / "s")["a"].tolist() == [0, 1, 2]
    with pytest.raises(gzarr.MetadataError):
        gzarr.save(tmp_path / "s", a=np.ones(2), b=object())
    assert gzarr.load(tmp_path / "s")["a"].tolist() == [0, 1, 2]
    with pytest.raises(gzarr.DeviceError):
        gzarr.create_group(tmp_path / "s", overwrite=True, device="nonsense")
    assert gzarr.load(tmp_path / "s")["a"].tolist() == [0, 1, 2]
    with pytest.raises(KeyError):
        del root["/"]
    with pytest.raises(gzarr.errors.ContainsNodeError, match="into itself"):
        gzarr.open_group(tmp_path / "r/sub", mode="w")["k"] = gzarr.open_group(tmp_path / "r")
