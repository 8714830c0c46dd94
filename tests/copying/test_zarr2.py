"""zarr 2's copying functions: what they print and return, on both formats; what they refuse; what failures leave."""

import io
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

import gzarr
from gzarr.errors import ContainsNodeError, CopyError, ReadOnlyError, StoreError
from gzarr.storage import MemoryStore
from gzarr.storage.remote import run_together
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


def test_a_sharded_array_with_names_is_copied_as_it_is():
    source = gzarr.group()
    made = source.create_array("a", shape=(8, 8), chunks=(2, 2), shards=(4, 8), dtype="i2", dimension_names=("y", "x"))
    made[:4] = 1
    dest = gzarr.group()
    gzarr.copy(made, dest)
    assert dest["a"].metadata == made.metadata
    assert dest["a"].digest() == made.digest()


def test_between_formats_codecs_and_names_are_translated():
    source, dest = gzarr.group(), gzarr.group(zarr_format=2)
    source.create_array("a", data=np.arange(10.0), chunks=3, dimension_names=("x",))
    gzarr.copy_all(source, dest)
    assert dest["a"].zarr_format == 2
    assert dest["a"].attrs["_ARRAY_DIMENSIONS"] == ["x"]
    back = gzarr.group()
    gzarr.copy_all(dest, back)
    assert back["a"].dimension_names == ("x",)
    assert dict(back["a"].attrs) == {}
    assert np.array_equal(back["a"][:], np.arange(10.0))


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


def test_log_takes_functions_and_file_names(tmp_path):
    source = hierarchy(gzarr)
    lines = []
    gzarr.copy(source["eggs"], gzarr.group(), log=lines.append)
    gzarr.copy(source["eggs"], gzarr.group(), log=str(tmp_path / "log.txt"))
    assert lines == ["copy /eggs (20, 30) uint8", "all done: 1 copied, 0 skipped, 600 bytes copied"]
    assert (tmp_path / "log.txt").read_text().splitlines() == lines
    with pytest.raises(TypeError, match="log must be"):
        gzarr.copy(source["eggs"], gzarr.group(), log=3)


def test_copy_store_takes_paths_and_finishes_archives(tmp_path):
    root = gzarr.group(tmp_path / "a.zarr")
    root.array("x", data=np.arange(5))
    counts = gzarr.copy_store(tmp_path / "a.zarr", str(tmp_path / "b.zip"), log=io.StringIO())
    assert counts[0] == len(root.store)
    assert np.array_equal(gzarr.open(tmp_path / "b.zip", mode="r")["x"][:], np.arange(5))


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


def test_nothing_is_copied_onto_or_into_itself():
    root = hierarchy(gzarr)
    before = dict(root.store)
    for call in (
        lambda: gzarr.copy(root["foo"], root["foo"], name="again"),
        lambda: gzarr.copy(root["foo"], root["foo/bar"]),
        lambda: gzarr.copy_all(root, root),
        lambda: gzarr.copy(root["eggs"], root, if_exists="replace"),
        lambda: gzarr.copy(root["foo"], root, if_exists="replace"),
        lambda: gzarr.copy(root["foo/bar/baz"], root, name="foo", if_exists="replace"),
        lambda: gzarr.copy_store(root.store, root.store),
        lambda: gzarr.copy_store(root.store, root.store, source_path="foo", dest_path="foo/bar"),
    ):
        with pytest.raises((CopyError, ContainsNodeError)):
            call()
        assert dict(root.store) == before
    assert gzarr.copy(root["foo"], root, name="foo2") == (4, 0, 4800)


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
    return "varying length"


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


# -- failures on the way -----------------------------------------------------------------------------------------


class Filling(dict):
    """A store that is full after some objects."""

    def __init__(self, room):
        super().__init__()
        self.room = room

    def __setitem__(self, key, value):
        if self.room <= 0:
            raise OSError(28, "No space left on device")
        self.room -= 1
        super().__setitem__(key, value)


@pytest.mark.parametrize("room", range(1, 14))
def test_a_full_destination_has_whole_arrays_only_and_skip_goes_on(room):
    source, store = hierarchy(gzarr), Filling(room)
    dest = gzarr.group(store)
    with pytest.raises(CopyError, match=r"No space left.*if_exists='skip'"):
        gzarr.copy_all(source, dest)
    for path, node in dest.members(None):
        if hasattr(node, "shape"):
            assert np.array_equal(node[...], source[path][...]), path
    assert not [key for key in store if "/c" in key and key.partition("/c")[0] + "/zarr.json" not in store]
    store.room = 1000
    gzarr.copy_all(source, dest, if_exists="skip")
    for path, node in source.members(None):
        assert path in dest
        if hasattr(node, "shape"):
            assert np.array_equal(dest[path][...], node[...])


def test_a_full_destination_of_copy_store_says_how_to_go_on():
    source, store = hierarchy(gzarr), Filling(3)
    with pytest.raises(CopyError, match=r"stopped at key .*3 objects were copied.*if_exists='skip'"):
        gzarr.copy_store(source.store, store)
    store.room = 1000
    gzarr.copy_store(source.store, store, if_exists="skip")
    assert dict(store) == dict(source.store)


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


def test_the_source_may_vanish_meanwhile():
    source = hierarchy(gzarr)

    class Vanishing(dict):
        def __getitem__(self, key):
            if key.endswith("eggs/c/0/1"):
                raise OSError(5, "Input/output error")
            return super().__getitem__(key)

        def get(self, key, default=None):
            return self[key] if key in self else default  # noqa: SIM401 - get is what this is

    opened = gzarr.open_group(Vanishing(dict(source.store)), mode="r")
    with pytest.raises((CopyError, StoreError), match="Input/output error"):
        gzarr.copy(opened["eggs"], gzarr.group())


def test_printing_goes_to_stdout_as_in_the_tutorial(capsys):
    gzarr.copy(hierarchy(gzarr)["foo"], gzarr.group(), log=sys.stdout, if_exists="skip", dry_run=True)
    assert capsys.readouterr().out.endswith("dry run: 4 copied, 0 skipped\n")


class Distant(MemoryStore):
    """Answers 20 ms late, `concurrency` calls at once, and remembers how many bytes it was asked for at once."""

    concurrency = 16
    most_nbytes = 0

    def together(self, function, items):
        return run_together(function, items, self.concurrency)

    def get_many(self, requests):
        time.sleep(0.02)
        found = super().get_many(requests)
        self.most_nbytes = max(self.most_nbytes, sum(len(data) for data in found if data is not None))
        return found

    def get_one(self, request):
        return self.get_many((request,))[0]

    def __contains__(self, key):
        time.sleep(0.02)
        return super().__contains__(key)


def test_copy_store_does_not_wait_for_one_object_after_the_other():
    source, dest = Distant({f"k{n:03}": bytes([n]) for n in range(160)}), Distant()
    lines = []
    start = time.perf_counter()
    assert gzarr.copy_store(source, dest, log=lines.append) == (160, 0, 160)
    assert time.perf_counter() - start < 2  # one after the other: 6.4 s of waiting alone
    assert lines[:160] == [f"copy k{n:03}" for n in range(160)]
    assert dict(dest) == dict(source)
    assert gzarr.copy_store(source, dest, if_exists="skip")[:2] == (0, 160)


def test_copy_store_holds_no_more_than_the_budget(monkeypatch):
    monkeypatch.setattr("gzarr.copying.stores.BUDGET_NBYTES", 100)
    source, dest = Distant({f"k{n}": bytes(40) for n in range(9)} | {"large": bytes(300)}), {}
    assert gzarr.copy_store(source, dest) == (10, 0, 660)
    assert source.most_nbytes == 300  # which is one object; of the others two at a time
    assert dest == dict(source)
