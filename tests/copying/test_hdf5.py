"""HDF5 files copied there and back; links are followed, and what Zarr does not have is refused by name."""

import h5py
import numpy as np
import pytest

import gzarr
from gzarr.errors import CopyError
from tests.copying.scenarios import hierarchy


def test_hdf5_round_trip(tmp_path):
    source = hierarchy(gzarr)
    source.create_array("words", data=np.array(["één", ""], object), dtype=str)
    source.array("when", data=np.array(["2020-01-01", "NaT"], "M8[D]"))
    source.array("fixed", data=np.array(["ab", "c"]))
    source.attrs["nested"] = {"a": [1, None]}
    back = gzarr.group()
    with h5py.File(tmp_path / "a.h5", "w") as file:
        gzarr.copy_all(source, file)
        assert file["eggs"].compression == "gzip"
        gzarr.copy_all(file, back)
    for path, node in source.members(None):
        if hasattr(node, "shape"):
            assert np.array_equal(back[path][...].astype(node.dtype), node[...], equal_nan=node.dtype.kind == "M"), path
            assert dict(back[path].attrs) == dict(node.attrs)
    assert back.attrs["nested"] == '{"a": [1, null]}'


HOSTILE = ["..", "...", "a\\b", "zarr.json", ".zarray", "__x", b"\xff\xfe"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_in_hdf5_are_refused(tmp_path, name):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["good"] = 1
        file.create_group("below")[name] = [1, 2]
        dest = gzarr.group(tmp_path / "dest.zarr")
        before = sorted(dest.store)
        with pytest.raises(CopyError, match="below has a member named"):
            gzarr.copy_all(file, dest)
        with pytest.raises(CopyError, match="below has a member named"):
            gzarr.convert.from_hdf5(file, dest.store, path="x")
    assert sorted(dest.store) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.h5", "dest.zarr"]


def make_cycle(file):
    file["a/b"] = h5py.SoftLink("/a")
    return "leads back"


def make_hard_cycle(file):
    file["a/b/c"] = file["a"]
    return "leads back"


def make_broken_link(file):
    file["a/b"] = h5py.SoftLink("/nowhere")
    return "leads nowhere"


def make_broken_external(file):
    file["a/b"] = h5py.ExternalLink("nowhere.h5", "/x")
    return "leads nowhere"


def make_references(file):
    file["a"].create_dataset("b", data=file["good"].ref, dtype=h5py.ref_dtype)
    return "references"


def make_ragged(file):
    file["a"].create_dataset("b", shape=(2,), dtype=h5py.vlen_dtype("i4"))
    return "variable length"


def make_empty(file):
    file["a"].create_dataset("b", data=h5py.Empty("f4"))
    return "empty dataset"


def make_reference_attribute(file):
    file["a"].attrs["link"] = file["good"].ref
    return "attribute 'link'"


def make_complex_attribute(file):
    file["a"].attrs["z"] = 1j
    return "attribute 'z'"


@pytest.mark.parametrize(
    "make",
    [
        make_cycle,
        make_hard_cycle,
        make_broken_link,
        make_broken_external,
        make_references,
        make_ragged,
        make_empty,
        make_reference_attribute,
        make_complex_attribute,
    ],
    ids=lambda make: make.__name__,
)
def test_what_zarr_has_not_is_refused_by_name(tmp_path, make):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["good"] = [1, 2]
        file.create_group("a")
        expected = make(file)
        dest = gzarr.group()
        before = dict(dest.store)
        with pytest.raises(CopyError, match=expected) as caught:
            gzarr.copy_all(file, dest)
        assert "a.h5:/a" in str(caught.value)
        with pytest.raises(CopyError, match=expected):
            gzarr.convert.from_hdf5(file, dest.store, path="x")
        assert dict(dest.store) == before


def test_links_are_followed(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["x"] = [5, 6]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["good"] = [1, 2]
        file["again"] = file["good"]
        file["soft"] = h5py.SoftLink("/good")
        file["outside"] = h5py.ExternalLink("other.h5", "/x")
        file["type"] = np.dtype("f8")
        dest = gzarr.group()
        gzarr.copy_all(file, dest)
    assert sorted(dest) == ["again", "good", "outside", "soft"]
    assert dest["soft"][:].tolist() == [1, 2]
    assert dest["outside"][:].tolist() == [5, 6]
