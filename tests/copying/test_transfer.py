"""Rechunking, re-encoding and converting: elements, attributes and missing chunks stay; memory is bounded."""

import numcodecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.errors import CopyError, MetadataError, ReadOnlyError
from gzarr.hierarchy.resizing import objects_stored
from gzarr.storage import MemoryStore, read_only
from tests.support.memory import traced

DTYPES = ["?", "i1", "<i4", ">u2", "<f4", ">f8", "<c8", "S3", "<U2", "M8[s]", "str"]


def filled(dtype, shape, seed=0):
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 3, shape)
    if dtype == "str":
        return np.array(["", "a", "béc"], object)[numbers]
    return numbers.astype("i8").astype(dtype) if dtype.startswith("M") else numbers.astype(dtype)


@st.composite
def arrays(draw, formats=(2, 3)):
    """An array with some chunks written, as (array, what it holds)."""
    shape = tuple(draw(st.lists(st.integers(0, 9), min_size=0, max_size=3)))
    dtype = draw(st.sampled_from(DTYPES))
    zarr_format = draw(st.sampled_from(formats))
    options = draw(layouts(shape, zarr_format))
    fill = None if zarr_format == 2 and draw(st.booleans()) else filled(dtype, (1,), draw(st.integers(0, 5)))[0]
    options |= {"fill_value": fill, "attributes": draw(st.sampled_from([{}, {"a": [1, {"b": None}]}]))}
    z = gzarr.create_array(shape=shape, dtype=str if dtype == "str" else dtype, zarr_format=zarr_format, **options)
    data = filled(dtype, shape, 7)
    if draw(st.booleans()) and shape:
        part = tuple(slice(draw(st.integers(0, n)), draw(st.integers(0, n))) for n in shape)
        z[part] = data[part]
    else:
        z[...] = data
    return z


@st.composite
def layouts(draw, shape, zarr_format):
    chunks = tuple(draw(st.integers(1, 5)) for _ in shape)
    options = {"chunks": chunks}
    sharded = zarr_format == 3 and bool(shape) and draw(st.booleans())
    if sharded:
        options["shards"] = tuple(n * draw(st.integers(1, 3)) for n in chunks)
    if draw(st.booleans()):
        options["compressors"] = draw(st.sampled_from([None, numcodecs.GZip(1), numcodecs.Blosc()]))
    if zarr_format == 2 and draw(st.booleans()):
        options["order"] = "F"
    return options


def same_values(one, other):
    a, b = np.asarray(one), np.asarray(other)
    return np.array_equal(a.astype(b.dtype), b, equal_nan=b.dtype.kind == "M")


def no_names(source, copy):
    """What says in v2 that a scalar has no names, which xarray needs there; its fill value becomes an element."""
    return {"_ARRAY_DIMENSIONS": []} if source.zarr_format == 3 and copy.zarr_format == 2 and not source.ndim else {}


@settings(max_examples=150)
@given(st.data())
def test_a_copy_holds_the_same_whatever_is_asked(data):
    source = data.draw(arrays())
    zarr_format = data.draw(st.sampled_from([None, 2, 3]))
    options = data.draw(layouts(source.shape, zarr_format or source.zarr_format))
    if data.draw(st.booleans()):
        options = {}
    if zarr_format is not None:
        options["zarr_format"] = zarr_format
    dest, initialized = MemoryStore(), source.nchunks_initialized
    report = gzarr.transfer(source, dest, budget_nbytes=data.draw(st.sampled_from([1, 200, 10**6])), **options)
    copy = gzarr.open_array(dest, mode="r")
    if source.fill_value is None and copy.fill_value is not None:
        written = np.full(source.shape, copy.fill_value, source.dtype)  # what was undefined has become defined
        for coords in objects_stored(source.metadata, source.store, ""):
            box = tuple(slice(*axis.bounds(c)) for axis, c in zip(source.metadata.grid, coords, strict=True))
            written[box] = source[box]
        source[...] = written
    assert same_values(source, copy)
    assert {**copy.attrs} == {**source.attrs, **no_names(source, copy)}
    assert copy.zarr_format == (zarr_format or source.zarr_format)
    if "chunks" in options:
        assert copy.chunks == options["chunks"]
    for key in dest:
        assert "unfinished" not in key
    if initialized == 0 and not no_names(source, copy):
        assert copy.nchunks_initialized == 0
    if report.arrays[0].how != "decode" and not no_names(source, copy):
        assert copy.nchunks_initialized == initialized or copy.shards != source.shards
    elif copy.fill_value is not None:
        # The copy stores as many chunks as writing the values afresh does.
        fresh = gzarr.create_array(**gzarr.hierarchy.new_nodes.like(copy, {}))
        fresh[...] = source[...]
        assert copy.nchunks_initialized == fresh.nchunks_initialized


@settings(max_examples=150)
@given(arrays())
def test_a_plain_copy_stores_the_same_bytes(source):
    dest = MemoryStore()
    report = gzarr.transfer(source, dest)
    assert report.arrays[0].how == "objects"
    assert dict(dest) == dict(source.store)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"chunks": (3, 4)}, {"shards": (6, 8)}),
        ({"chunks": (3, 4), "shards": (6, 8)}, {"shards": None}),
        ({"chunks": (3, 4), "shards": (6, 8)}, {"shards": (3, 16)}),
        ({"chunks": (3, 4), "zarr_format": 2}, {"zarr_format": 3, "shards": (9, 4)}),
        ({"chunks": (3, 4), "shards": (6, 8), "compressors": ["zstd:3", "crc32c"]}, {"zarr_format": 2}),
        ({"chunks": (3, 4), "dtype": ">f4", "fill_value": 7, "zarr_format": 2}, {"zarr_format": 3}),
        ({"chunks": (3, 4), "serializer": gzarr.codecs.BytesCodec("big")}, {"zarr_format": 2}),
    ],
)
def test_chunks_go_into_and_out_of_shards_without_decoding(before, after, monkeypatch):
    z = gzarr.create_array(shape=(10, 17), **{"dtype": "i4", **before})
    z[2:9, 5:] = np.arange(84).reshape(7, 12) + 1
    monkeypatch.setattr(gzarr.cpu.backend.CpuBackend, "merge_and_encode", None)
    monkeypatch.setattr(gzarr.cpu.backend.CpuBackend, "place", None)
    dest = MemoryStore()
    report = gzarr.transfer(z, dest, chunks=(3, 4), **{k: v for k, v in after.items() if k != "chunks"})
    monkeypatch.undo()
    assert report.arrays[0].how in ("chunks", "objects")
    copy = gzarr.open_array(dest)
    assert np.array_equal(copy[:], z[:])
    assert copy.nchunks_initialized == z.nchunks_initialized


AT_END = numcodecs.CRC32C(location="end")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("filters", [["shuffle"], ["shuffle", "zlib:4"], ["fixedscaleoffset", "shuffle"]])
@pytest.mark.parametrize("last", [numcodecs.Zlib(4), numcodecs.CRC32C(), AT_END, numcodecs.Blosc("zstd", shuffle=0)])
def test_filters_and_compressor_stay_on_the_way_through_the_other_format(filters, last, order):
    scale = {"fixedscaleoffset": numcodecs.FixedScaleOffset(0, 10, "f4", "i2")}
    how = {"filters": [scale.get(name, name) for name in filters], "compressor": last, "order": order}
    z = gzarr.array(np.arange(42, dtype="f4").reshape(6, 7), chunks=(3, 4), zarr_format=2, **how)
    there, back, other = MemoryStore(), MemoryStore(), MemoryStore()
    assert gzarr.transfer(z, there, zarr_format=3).arrays[0].how == "objects"
    assert isinstance(last, numcodecs.CRC32C) == (gzarr.open_array(there).compressors[-1].name == "crc32c")
    assert gzarr.transfer(there, back, zarr_format=2).arrays[0].how == "objects"
    copy = gzarr.open_array(back)
    again = numcodecs.CRC32C() if last is AT_END else last  # which says what is the default
    assert (copy.filters, copy.compressor, copy.order) == (z.filters, again, order)
    assert np.array_equal(copy[:], z[:])
    gzarr.transfer(there, other, zarr_format=2, compressor="lz4")  # instead of all that compress
    assert len(gzarr.open_array(other).filters or ()) == filters.count("fixedscaleoffset")


def test_another_fill_value_changes_no_element():
    z = gzarr.create_array(shape=10, chunks=2, dtype="i4", fill_value=5)
    z[4:6] = [7, 0]
    dest = MemoryStore()
    gzarr.transfer(z, dest, fill_value=0)
    copy = gzarr.open_array(dest)
    assert (copy.fill_value, copy[:].tolist()) == (0, [5, 5, 5, 5, 7, 0, 5, 5, 5, 5])


def test_where_the_fill_value_is_undefined_missing_chunks_stay_missing():
    z = gzarr.create_array(shape=(12, 12), chunks=(3, 12), dtype="f4", fill_value=None, zarr_format=2)
    z[3:6] = 0
    dest = MemoryStore()
    gzarr.transfer(z, dest, chunks=(3, 4))
    copy = gzarr.open_array(dest)
    assert copy.fill_value is None
    assert sorted(k for k in dest if k[0] != ".") == ["1.0", "1.1", "1.2"]


# -- groups ------------------------------------------------------------------------------------------------------


def hierarchy(store=None, zarr_format=3):
    root = gzarr.create_group(store, zarr_format=zarr_format, attributes={"title": "x"})
    root.create_group("a", attributes={"kind": "group"})
    root.create_array("a/b", data=np.arange(60, dtype="i4").reshape(6, 10), chunks=(2, 5), attributes={"unit": "m"})
    root.create_array("c", data=np.linspace(0, 1, 7), chunks=3)
    root.create_group("empty")
    return root


def check_hierarchy(root, source):
    found, expected = dict(root.members(None)), dict(source.members(None))
    assert found.keys() == expected.keys()
    for path, node in expected.items():
        assert dict(found[path].attrs) == dict(node.attrs), path
        if hasattr(node, "shape"):
            assert np.array_equal(found[path][...], node[...])
    assert dict(root.attrs) == dict(source.attrs)


@pytest.mark.parametrize("formats", [(2, 3), (3, 2), (3, 3), (2, 2)])
def test_a_hierarchy_moves_between_formats(tmp_path, formats):
    source = hierarchy(tmp_path / "a.zarr", formats[0])
    report = gzarr.transfer(tmp_path / "a.zarr", tmp_path / "b.zarr", zarr_format=formats[1], chunks=4)
    copy = gzarr.open_group(tmp_path / "b.zarr", mode="r")
    check_hierarchy(copy, source)
    assert copy.zarr_format == copy["c"].zarr_format == formats[1]
    assert copy["a/b"].chunks == (4, 4)
    assert len(report.arrays) == 2
    assert report.ngroups == 3
    assert report.nbytes == 60 * 4 + 7 * 8


def test_into_a_path_and_into_a_group(tmp_path):
    source = hierarchy()
    dest = gzarr.group(tmp_path / "b.zarr")
    gzarr.transfer(source, dest, path="x/y")
    check_hierarchy(dest["x/y"], source)
    gzarr.transfer(source["c"], tmp_path / "b.zarr", path="z")
    assert np.array_equal(dest["z"][:], source["c"][:])
    with pytest.raises(CopyError, match="is an array"):
        gzarr.transfer(source, dest["z"])


def test_a_copy_has_the_format_of_the_group_that_it_goes_into():
    source, dest = hierarchy(), gzarr.create_group(zarr_format=2)
    gzarr.transfer(source, dest, path="x/y")
    check_hierarchy(dest["x/y"], source)
    assert dest["x/y/c"].zarr_format == 2
    with pytest.raises(MetadataError, match="around 'z' has format 2"):
        gzarr.transfer(source, dest, path="z", zarr_format=3)
    assert "z" not in dest
    empty = MemoryStore()
    gzarr.transfer(gzarr.create_group(zarr_format=2), empty)
    assert sorted(empty) == [".zgroup"]


@pytest.mark.parametrize("copy", [gzarr.transfer, gzarr.copy])
def test_chunks_left_behind_by_a_killed_copy_do_not_show(copy):
    source, dest = gzarr.group(), gzarr.group()
    source.create_array("a", shape=10, chunks=2, dtype="i4")[:2] = 1
    dest.store["a/c/3"] = source.store["a/c/0"]
    if copy is gzarr.copy:
        gzarr.copy(source["a"], dest)
    else:
        gzarr.transfer(source["a"], dest, path="a")
    assert dest["a"][:].tolist() == [1, 1] + [0] * 8


def test_arrays_in_memory_and_views():
    dest = MemoryStore()
    gzarr.transfer(np.arange(10), dest, chunks=4)
    assert gzarr.open_array(dest)[:].tolist() == list(range(10))
    view = gzarr.array(np.arange(10), chunks=4).astype("f4")
    gzarr.transfer(view, dest, if_exists="replace")
    copy = gzarr.open_array(dest)
    assert copy.dtype == "f4"
    assert copy[:].tolist() == list(range(10))


def test_what_is_there_is_kept_replaced_or_skipped():
    source, dest = hierarchy(), gzarr.group()
    dest.array("c", data=[1, 2])
    before = dict(dest.store)
    with pytest.raises(CopyError, match="already stored"):
        gzarr.transfer(source, dest)
    assert dict(dest.store) == before
    report = gzarr.transfer(source, dest, if_exists="skip")
    assert report.nskipped == 1
    assert dest["c"][:].tolist() == [1, 2]
    assert np.array_equal(dest["a/b"][:], source["a/b"][:])
    gzarr.transfer(source, dest, if_exists="replace")
    check_hierarchy(gzarr.open_group(dest.store), source)


def test_a_dry_run_writes_nothing_and_says_what_would_be_done(tmp_path):
    source = hierarchy()
    report = gzarr.transfer(source, tmp_path / "b.zarr", dry_run=True, chunks=5)
    assert not (tmp_path / "b.zarr").exists()
    assert report.dry_run
    assert [a.nobjects for a in report.arrays] == [4, 2]
    assert "dry run: would copy 2 arrays (296 bytes)" in str(report)
    assert gzarr.transfer(source, tmp_path / "b.zarr", chunks=5).arrays == report.arrays


def test_nothing_is_copied_onto_or_into_itself(tmp_path):
    source = hierarchy(tmp_path / "a.zarr")
    for what, dest, path in [
        (source, tmp_path / "a.zarr", None),
        (tmp_path / "a.zarr", tmp_path / "a.zarr" / "deep", None),
        (source["a/b"], source, "a/b"),
        (source["a"], source, "a/x"),
        (source["a/b"], source, "a"),
        (source["a/b"], tmp_path / "a.zarr", ""),
    ]:
        for if_exists in ("raise", "replace", "skip"):
            with pytest.raises(CopyError, match="cannot copy"):
                gzarr.transfer(what, dest, path=path, if_exists=if_exists)
    check_hierarchy(gzarr.open_group(tmp_path / "a.zarr"), hierarchy())


def test_bad_requests_are_refused_before_anything_is_written():
    source, dest = hierarchy(), MemoryStore()
    for keywords, error, match in [
        ({"chunks": (2, 2)}, MetadataError, "/c: chunks"),
        ({"chunk": 2}, TypeError, "did you mean 'chunks'"),
        ({"shape": (2, 2)}, TypeError, "'shape' cannot be given"),
        ({"zarr_format": 4}, MetadataError, "zarr_format"),
        ({"zarr_format": 2, "shards": 4}, MetadataError, "shards"),
        ({"if_exists": "no"}, ValueError, "if_exists"),
        ({"budget_nbytes": 0}, ValueError, "budget_nbytes"),
        ({"compressors": "nonsense"}, MetadataError, "nonsense"),
    ]:
        with pytest.raises(error, match=match):
            gzarr.transfer(source, dest, **keywords)
        assert dict(dest) == {}
    with pytest.raises(ReadOnlyError):
        gzarr.transfer(source, read_only(dest))


def test_object_arrays_without_a_form_in_v3_are_refused_first():
    source = gzarr.create_group(zarr_format=2)
    source.array("fine", data=[1, 2])
    source.create_array("objects", shape=2, dtype=object, object_codec=numcodecs.JSON())
    dest = MemoryStore()
    with pytest.raises(MetadataError, match="objects"):
        gzarr.transfer(source, dest, zarr_format=3)
    assert dict(dest) == {}
    gzarr.transfer(source, dest)
    assert gzarr.open(dest)["objects"].filters == source["objects"].filters


# -- progress and memory -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [None, 4])
def test_progress_counts_every_byte_once(chunks):
    source, seen = hierarchy(), []
    gzarr.transfer(source, MemoryStore(), chunks=chunks, progress=lambda *args: seen.append(args))
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert seen[-1][:2] == (296, 296)
    assert {name for _, _, name in seen} == {str(source["a/b"].store_path), str(source["c"].store_path)}


def test_a_bar(capsys):
    gzarr.transfer(hierarchy(), MemoryStore(), progress=True)
    assert "100%" in capsys.readouterr().err


def test_memory_stays_within_the_budget(tmp_path):
    """A full transposition of chunks, rows to columns: 32 MB through 4 MiB."""
    rows = gzarr.create_array(
        tmp_path / "rows.zarr", shape=(2000, 2000), chunks=(20, 2000), dtype="f8", compressor=None
    )
    for start in range(0, 2000, 200):
        rows[start : start + 200] = np.arange(2000.0) + start
    budget = 4 << 20
    with traced() as peak:
        report = gzarr.transfer(rows, tmp_path / "columns.zarr", chunks=(2000, 20), budget_nbytes=budget)
        assert peak() < 1.5 * budget
    assert 1 < report.arrays[0].reads < 30
    copy = gzarr.open_array(tmp_path / "columns.zarr")
    assert copy.chunks == (2000, 20)
    assert np.array_equal(copy[::199], rows[::199])


def test_a_folder_that_is_not_zarr_is_kept_and_the_error_says_so(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(CopyError, match=r"before it wrote anything: .*'letter.txt', which is not Zarr data") as failed:
        gzarr.transfer(np.arange(3), tmp_path, if_exists="replace")
    assert "may be gone" not in str(failed.value)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_the_error_of_a_replacement_says_that_data_may_be_gone(monkeypatch):
    store = MemoryStore()
    gzarr.save(store, np.arange(3))
    monkeypatch.setattr(store, "set", lambda *_: (_ for _ in ()).throw(OSError("the disk is full")))
    with pytest.raises(CopyError, match=r"may be gone, as if_exists='replace' demands\): the disk is full"):
        gzarr.transfer(np.arange(4), store, if_exists="replace")
