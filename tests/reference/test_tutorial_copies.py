"""The copying that the tutorial and the notes on zarr show: what it prints and gives back."""

import sys

import h5py
import numpy as np
import pytest

import gzarr as zarr

TREE = "/\n├── foo\n│   └── bar\n│       └── baz (100,) int64\n└── spam (100,) int64"


@pytest.fixture
def source():
    with h5py.File("example.h5", mode="w") as file:
        foo = file.create_group("foo")
        foo.create_dataset("bar/baz", data=np.arange(100), chunks=(50,))
        file.create_dataset("spam", data=np.arange(100, 200), chunks=(30,))
        yield file


def printed(capsys):
    return capsys.readouterr().out.splitlines()


@pytest.mark.usefixtures("zarr_format")
def test_copy_from_hdf5(source, capsys):
    assert str(zarr.tree(source)) == TREE
    dest = zarr.open_group("data/example.zarr", mode="w")
    assert zarr.copy(source["foo"], dest, log=sys.stdout) == (3, 0, 800)
    assert printed(capsys) == [
        "copy /foo",
        "copy /foo/bar",
        "copy /foo/bar/baz (100,) int64",
        "all done: 3 copied, 0 skipped, 800 bytes copied",
    ]
    assert str(dest.tree()) == "/\n└── foo\n    └── bar\n        └── baz (100,) int64"
    assert dest["foo/bar/baz"].chunks == (50,)


@pytest.mark.usefixtures("zarr_format")
def test_copy_all_from_hdf5_and_back(source, capsys):
    dest = zarr.open_group("data/example2.zarr", mode="w")
    assert zarr.copy_all(source, dest, log=sys.stdout) == (4, 0, 1600)
    lines = printed(capsys)
    assert lines == [
        "copy /foo",
        "copy /foo/bar",
        "copy /foo/bar/baz (100,) int64",
        "copy /spam (100,) int64",
        "all done: 4 copied, 0 skipped, 1,600 bytes copied",
    ]
    assert str(dest.tree()) == TREE
    with h5py.File("back.h5", "w") as back:
        assert zarr.copy_all(dest, back, log=sys.stdout) == (4, 0, 1600)
        assert printed(capsys) == lines
        assert np.array_equal(back["spam"][:], np.arange(100, 200))


@pytest.mark.usefixtures("zarr_format")
def test_if_exists_and_dry_run(capsys):
    source, dest = zarr.group(), zarr.group()
    source.create_dataset("foo/bar/baz", data=np.arange(100))
    source.create_dataset("foo/spam", data=np.arange(1000))
    dest.create_dataset("foo/spam", data=np.arange(1000))
    with pytest.raises(zarr.CopyError, match="an object 'spam' already exists in destination '/foo'"):
        zarr.copy(source["foo"], dest, log=sys.stdout, dry_run=True)
    baz = ["copy /foo", "copy /foo/bar", "copy /foo/bar/baz (100,) int64"]
    assert printed(capsys) == baz
    assert zarr.copy(source["foo"], dest, log=sys.stdout, if_exists="replace", dry_run=True) == (4, 0, 0)
    assert printed(capsys) == [*baz, "copy /foo/spam (1000,) int64", "dry run: 4 copied, 0 skipped"]
    for if_exists in ("skip", "skip_initialized"):
        assert zarr.copy(source["foo"], dest, log=sys.stdout, if_exists=if_exists, dry_run=True) == (3, 1, 0)
        assert printed(capsys) == [*baz, "skip /foo/spam (1000,) int64", "dry run: 3 copied, 1 skipped"]
    assert "bar" not in dest["foo"]
    assert zarr.copy(source["foo"], dest, name="other", shallow=True, without_attrs=True) == (2, 0, 8000)
    assert list(dest["other"]) == ["spam"]


def test_copy_store_from_a_directory_to_a_zip(zarr_format, capsys):
    store1 = zarr.DirectoryStore("data/example.zarr")
    root = zarr.group(store1, overwrite=True)
    root.create_dataset("foo/bar/baz", data=np.arange(100), chunks=(50,))
    root.create_dataset("spam", data=np.arange(100, 200), chunks=(30,))
    store2 = zarr.ZipStore("data/example.zip", mode="w")
    ncopied, nskipped, nbytes = zarr.copy_store(store1, store2, log=sys.stdout)
    assert (ncopied, nskipped) == (11, 0)
    keys = {
        2: ".zgroup foo/.zgroup foo/bar/.zgroup foo/bar/baz/.zarray foo/bar/baz/0 foo/bar/baz/1"
        " spam/.zarray spam/0 spam/1 spam/2 spam/3",
        3: "foo/bar/baz/c/0 foo/bar/baz/c/1 foo/bar/baz/zarr.json foo/bar/zarr.json foo/zarr.json"
        " spam/c/0 spam/c/1 spam/c/2 spam/c/3 spam/zarr.json zarr.json",
    }[zarr_format].split()
    last = f"all done: 11 copied, 0 skipped, {nbytes:,} bytes copied"
    assert printed(capsys) == [*(f"copy {key}" for key in keys), last]
    new_root = zarr.group(store2)
    assert str(new_root.tree()) == TREE
    assert np.array_equal(new_root["foo/bar/baz"][:], np.arange(100))
    store2.close()
    assert zarr.open("data/example.zip", mode="r")["spam"][99] == 199
