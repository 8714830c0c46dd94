"""zarr 2's copying functions: what they print and return, on both formats; what they refuse; what failures leave."""

import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import gzarr
from gzarr.errors import CopyError, ReadOnlyError
from tests.copying.scenarios import hdf5_file, hierarchy, scenarios

GOLDEN = Path(__file__).parent / "zarr2.txt"


@pytest.fixture
def format_2():
    with gzarr.config.set(default_zarr_format=2):
        yield


def by_title(text):
    return {part.partition("\n")[0]: part for part in text.split("## ")[1:]}


def test_every_call_prints_and_returns_what_zarr_2_does(format_2, tmp_path):
    expected, got = by_title(GOLDEN.read_text()), by_title(scenarios(gzarr, tmp_path))
    assert len(expected) > 35
    assert got == expected


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_copy_all_keeps_values_attributes_and_chunks(zarr_format):
    with gzarr.config.set(default_zarr_format=zarr_format):
        source, dest = hierarchy(gzarr), gzarr.group()
    gzarr.copy_all(source, dest)
    assert dict(dest.attrs) == {"title": "all"}
    assert dict(dest["foo/bar/baz"].attrs) == {"unit": "m"}
    for path, node in source.members(None):
        if hasattr(node, "shape"):
            assert dest[path].metadata == node.metadata, path
            assert np.array_equal(dest[path][...], node[...])
    assert dest["eggs"].nchunks_initialized == 3


# -- refused before anything is written --------------------------------------------------------------------------


def test_a_conflict_stops_the_copy_before_it_begins():
    source, dest = hierarchy(gzarr), gzarr.group()
    dest.array("foo/spam", data=[1])
    before = dict(dest.store)
    with pytest.raises(CopyError, match="'spam' already exists in destination '/foo'"):
        gzarr.copy(source["foo"], dest)
    with pytest.raises(CopyError, match="exists in destination"):
        gzarr.copy_store(source.store, dest.store)
    assert dict(dest.store) == before


def test_read_only_destinations_are_refused(tmp_path):
    source = hierarchy(gzarr)
    gzarr.group(tmp_path / "a.zarr")
    with pytest.raises(ReadOnlyError):
        gzarr.copy_all(source, gzarr.open_group(tmp_path / "a.zarr", mode="r"))
    hdf5_file(tmp_path).close()
    with h5py.File(tmp_path / "source.h5", "r") as file, pytest.raises(ReadOnlyError, match="read-only"):
        gzarr.copy_all(source, file)
    with pytest.raises(ValueError, match="dest must be a group"):
        gzarr.copy(source["eggs"], source["eggs"])
    with pytest.raises(TypeError, match="use copy"):
        gzarr.copy_all(source["eggs"], gzarr.group())


# -- failures on the way -----------------------------------------------------------------------------------------


def test_a_damaged_chunk_leaves_no_array(tmp_path):
    source = hierarchy(gzarr)
    source.create_array("bad", data=np.arange(100), chunks=10)
    source.store["bad/c/3"] = b"damaged"
    dest = gzarr.group()
    before = dict(dest.store)
    with pytest.raises(CopyError, match="bad/c/3"):
        gzarr.copy(source["bad"], dest, chunks=20)
    assert dict(dest.store) == before
    with h5py.File(tmp_path / "a.h5", "w") as file:
        with pytest.raises(CopyError, match="bad/c/3"):
            gzarr.copy(source["bad"], file)
        assert list(file) == []


def test_printing_goes_to_stdout_as_in_the_tutorial(capsys):
    gzarr.copy(hierarchy(gzarr)["foo"], gzarr.group(), log=sys.stdout, if_exists="skip", dry_run=True)
    assert capsys.readouterr().out.endswith("dry run: 4 copied, 0 skipped\n")
