"""Joined arrays, with NumPy as the oracle."""

import pickle
from pathlib import Path
from typing import Any

import h5py
import numcodecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.errors import MetadataError, ReadOnlyError, ReplacedError, SelectionError
from gzarr.storage.wrappers import seen_through

RNG = np.random.default_rng(0)

#: Ways to store the same elements.
WAYS: list[dict[str, Any]] = [
    {},
    {"zarr_format": 2, "order": "F"},
    {"zarr_format": 2, "dimension_separator": "/"},
    {"compressors": None, "serializer": gzarr.codecs.BytesCodec("big")},
    {"compressors": gzarr.codecs.GzipCodec(1)},
    {"shards": True},
    {"chunks": "varying"},
]


def stored(values: Any, chunks: tuple[int, ...], way: dict[str, Any]) -> gzarr.Array:
    """Values in memory, in one of the ways."""
    how = {"chunks": chunks, **way}
    if how.get("shards") is True:
        how["shards"] = tuple(2 * n for n in chunks)
    if how.get("chunks") == "varying":
        how["chunks"] = [[1, n - 1] if n > 1 else [1] for n in values.shape]
    return gzarr.create_array({}, data=values, **how)


@st.composite
def joins(draw: Any) -> tuple[list[Any], list[gzarr.Array], int, bool]:
    """Values, the same as arrays, an axis, and whether it is new."""
    ndim = draw(st.integers(1, 3))
    is_new = draw(st.booleans())
    axis = draw(st.integers(0, ndim - 1 + is_new))
    shape = draw(st.lists(st.integers(1, 6), min_size=ndim, max_size=ndim))
    dtypes = ["i1", "u2", "i4", "f4", "f8", ">i2"]
    same = draw(st.booleans())
    dtype, chunks = draw(st.sampled_from(dtypes)), draw(st.tuples(*[st.integers(1, 4)] * ndim))
    way = draw(st.sampled_from(WAYS))
    values, arrays = [], []
    for _ in range(draw(st.integers(1, 4))):
        lengths = list(shape)
        if not is_new:
            lengths[axis] = draw(st.sampled_from([2 * chunks[axis], *range(7)]))
        if not same:
            dtype, chunks = draw(st.sampled_from(dtypes)), draw(st.tuples(*[st.integers(1, 4)] * ndim))
            way = draw(st.sampled_from(WAYS))
        one = RNG.integers(0, 3, lengths).astype(dtype)
        values.append(one)
        arrays.append(stored(one, chunks, way if one.size else {}))  # no lengths of chunks add up to nothing
    return values, arrays, axis, is_new


@settings(deadline=None, max_examples=150)
@given(joins(), st.data())
def test_joined_arrays_are_what_numpy_makes(case: Any, data: Any) -> None:
    values, arrays, axis, is_new = case
    expected = np.stack(values, axis) if is_new else np.concatenate(values, axis)
    joined = gzarr.stack(arrays, axis) if is_new else gzarr.concat(arrays, axis)
    assert joined.shape == expected.shape
    np.testing.assert_array_equal(joined[...], expected)
    assert joined[...].dtype == expected.dtype.newbyteorder("=")
    bounds = [sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in expected.shape]
    box = tuple(slice(a, b, data.draw(st.integers(1, 3))) for a, b in bounds)
    np.testing.assert_array_equal(joined[box], expected[box])
    if expected.size:
        lists = [data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=3)) for n in expected.shape]
        np.testing.assert_array_equal(joined.oindex[tuple(lists)], expected[np.ix_(*lists)])
        points = tuple(RNG.integers(0, n, 4) for n in expected.shape)
        np.testing.assert_array_equal(joined.vindex[points], expected[points])


def test_parts_that_end_with_a_chunk_share_one_table() -> None:
    values = [RNG.integers(0, 9, (n, 5)) for n in (6, 3, 4)]
    joined = gzarr.concat([stored(one, (3, 2), {}) for one in values])
    assert (joined.chunks, joined.codecs[-1].name, joined.nchunks) == ((3, 2), "zstd", 15)
    uneven = gzarr.concat([stored(one, (len(one), 5), {}) for one in values])
    assert uneven.chunk_sizes == ((6, 3, 4), (5,))
    np.testing.assert_array_equal(uneven[...], np.concatenate(values))
    how = {"fill_value": None, "compressors": None}
    old = [stored(one, (3, 2), {**how, "zarr_format": n}) for n, one in zip((2, 3, 3), values, strict=True)]
    assert gzarr.concat(old).chunks == (3, 2)
    np.testing.assert_array_equal(gzarr.concat(old)[...], np.concatenate(values))
    odd = gzarr.concat([stored(one, (4, 2), {}) for one in values])
    assert [one.name for one in odd.codecs] == ["bytes"]
    np.testing.assert_array_equal(odd[...], np.concatenate(values))


def test_missing_chunks_have_the_fill_value_of_their_array() -> None:
    arrays = [gzarr.create_array({}, shape=4, chunks=2, dtype="i4", fill_value=n) for n in (7, 7, 8)]
    arrays[1][:2] = 1
    assert gzarr.concat(arrays[:2])[:].tolist() == [7] * 4 + [1, 1, 7, 7]
    assert gzarr.concat(arrays[:2]).nchunks_initialized == 1
    assert gzarr.concat(arrays)[4:].tolist() == [1, 1, 7, 7, 8, 8, 8, 8]


def test_parts_of_other_codecs_and_fill_values_keep_their_chunks(tmp_path: Path) -> None:
    values = [RNG.integers(0, 9, (n, 6)).astype("i4") for n in (6, 3, 7, 6)]
    ways: list[dict[str, Any]] = [
        {"compressors": gzarr.codecs.GzipCodec(level=1)},
        {"compressors": gzarr.codecs.GzipCodec(level=5)},
        {"serializer": gzarr.codecs.BytesCodec("big"), "compressors": None, "fill_value": 5},
        {"zarr_format": 2, "compressors": numcodecs.Blosc("lz4")},
    ]
    values[2][3:6], values[1][:] = 5, 0
    order = 0, 1, 3, 2
    parts = [stored(values[at], (3, 4), {**ways[at], "config": {"write_empty_chunks": False}}) for at in order]
    expected = np.concatenate([values[at] for at in order])
    joined = gzarr.concat(parts)
    assert (joined.chunks, joined.nchunks_initialized) == ((3, 4), sum(one.nchunks_initialized for one in parts))
    assert seen_through(joined.store).contents.chains[""]
    for one in (joined, gzarr.concat([joined, joined])[: len(expected)], pickle.loads(pickle.dumps(joined))):
        np.testing.assert_array_equal(one[...], expected)
    np.testing.assert_array_equal(joined[2:20:5, ::-1][:, ::2], expected[2:20:5, ::-1][:, ::2])
    np.testing.assert_array_equal(np.asarray(joined.to("emulated")[4:19]), expected[4:19])
    gzarr.transfer(joined, tmp_path / "copy.zarr")
    np.testing.assert_array_equal(gzarr.open(tmp_path / "copy.zarr")[...], expected)
    gzarr.save_references(joined, tmp_path / "refs.json")
    np.testing.assert_array_equal(gzarr.open(tmp_path / "refs.json")[...], expected)
    assert gzarr.verify(joined).ok
    batches = list(gzarr.Loader(joined, batch_size=5, shuffle=True, seed=1))
    found = np.concatenate(batches)
    np.testing.assert_array_equal(found[np.lexsort(found.T)], expected[np.lexsort(expected.T)])


def test_files_of_several_formats_are_one_array(tmp_path: Path) -> None:
    values = [RNG.random((4, 6)).astype("f4") for _ in range(4)]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=values[0], chunks=(2, 3), compression="gzip", shuffle=True)
        file.create_dataset("y", data=values[1].astype(">f4"))
    np.save(tmp_path / "b.npy", values[2])
    gzarr.save_array(tmp_path / "c.zarr", values[3], chunks=(3, 3))
    places = ["a.h5/x", "a.h5/y", "b.npy", "c.zarr"]
    joined = gzarr.concat([tmp_path / place for place in places])
    np.testing.assert_array_equal(joined[...], np.concatenate(values))
    again = pickle.loads(pickle.dumps(gzarr.stack([tmp_path / place for place in places], axis=2)))
    np.testing.assert_array_equal(again[...], np.stack(values, 2))
    with pytest.raises(ReadOnlyError):
        joined[0] = 1


def test_runs_of_different_lengths_without_chunks_are_joined(tmp_path: Path) -> None:
    arrays = []
    for number, length in enumerate((3, 1, 2)):
        np.save(tmp_path / f"{number}.npy", np.arange(length * 5).reshape(length, 5) + 100 * number)
        arrays.append(gzarr.open_array(tmp_path / f"{number}.npy", mode="r"))
    large = np.arange(1_050_000, dtype="u1").reshape(2, 3, -1)  # whose chunks do not fit along the last axis
    np.save(tmp_path / "large.npy", np.repeat(large, 4, axis=2))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=np.full((4, 5), -1), chunks=(4, 5))
    arrays.append(gzarr.open_array(tmp_path / "x.h5/x", mode="r"))
    joined = gzarr.concat(arrays)
    np.testing.assert_array_equal(joined[...], np.concatenate([one[...] for one in arrays]))
    assert joined.nchunks == 4  # those of the parts
    long = gzarr.open_array(tmp_path / "large.npy", mode="r")
    rest = gzarr.create_array({}, data=long[:, :1], chunks=(1, 1, long.chunks[2]), compressors=None)
    np.testing.assert_array_equal(gzarr.concat([long, rest], 1)[...], np.concatenate([long[...], rest[...]], 1))


def test_texts_are_joined(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"], file["y"] = ["a", "bc"], ["def"]
    joined = gzarr.concat([tmp_path / "a.h5/x", tmp_path / "a.h5/y"])
    assert joined[...].tolist() == ["a", "bc", "def"]
    fixed = [gzarr.array(np.array(one)) for one in (["a", "bc"], ["def"])]
    assert gzarr.concat(fixed)[...].tolist() == ["a", "bc", "def"]


def test_joins_of_joins_and_the_loader() -> None:
    values = RNG.integers(0, 99, (20, 3))
    parts = [stored(values[at : at + 4], (2, 3), WAYS[at // 4]) for at in range(0, 20, 4)]
    joined = gzarr.concat([gzarr.concat(parts[:2]), gzarr.concat(parts[2:])])
    np.testing.assert_array_equal(joined[...], values)
    seen = np.concatenate(list(gzarr.Loader(joined, batch_size=3, shuffle=True, seed=1)))
    np.testing.assert_array_equal(np.sort(seen, 0), np.sort(values, 0))


def test_a_part_that_is_changed_afterwards_is_noticed(tmp_path: Path) -> None:
    part = gzarr.create_array(tmp_path / "a.zarr", data=np.arange(4), chunks=2)
    joined = gzarr.concat([part, part])
    assert joined[:].tolist() == [0, 1, 2, 3] * 2
    part[0] = 9
    with pytest.raises(ReplacedError):
        joined[:]


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("chunks", [None, (4,)])
def test_a_file_that_is_replaced_before_the_first_read_is_noticed(tmp_path: Path, chunks: Any, many: bool) -> None:
    paths = [tmp_path / f"{n}.h5" for n in range(2)]

    def write(path: Path, dtype: str) -> None:
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=np.arange(8), dtype=dtype, chunks=chunks).dims[0].label = "t"

    for path in paths:
        write(path, "<i4")
    joined = gzarr.open_many(paths, "t")["x"] if many else gzarr.concat([path / "x" for path in paths])
    write(tmp_path / "new.h5", ">i4")
    (tmp_path / "new.h5").replace(paths[1])
    with pytest.raises(ReplacedError, match=r"1\.h5"):
        joined[8:]


def test_what_does_not_fit_is_refused() -> None:
    one, other = gzarr.zeros((3, 4)), gzarr.zeros((3, 5))
    with pytest.raises(SelectionError, match=r"shapes \(3, 4\).*and \(3, 5\)"):
        gzarr.concat([one, other])
    with pytest.raises(SelectionError, match="may differ along no axis"):
        gzarr.stack([one, other])
    with pytest.raises(SelectionError, match="axis 2 is out of range"):
        gzarr.concat([one, one], axis=2)
    with pytest.raises(SelectionError, match="no axis 'time'"):
        gzarr.concat([one, one], axis="time")
    with pytest.raises(SelectionError, match="at least one"):
        gzarr.concat([])


def named(values: Any, names: list[str] | None = None, **attributes: Any) -> gzarr.Array:
    names = ["time"] if names is None else names
    return gzarr.create_array({}, data=np.asarray(values), attributes=attributes, dimension_names=names)


def test_numbers_of_different_types_become_a_type_that_holds_all() -> None:
    joined = gzarr.concat([named(np.array([1, -2], "i2")), named(np.array([60000], "u2"))])
    assert (joined.dtype, joined[:].tolist()) == ("i4", [1, -2, 60000])
    for one, other in (("i8", "f8"), ("i8", "u8"), ("i4", "U3"), ("M8[s]", "M8[D]")):
        with pytest.raises(MetadataError, match=f"data type.*{np.dtype(one)}.*{np.dtype(other)}".replace("[", r"\[")):
            gzarr.concat([named(np.zeros(1, one)), named(np.zeros(1, other))])


def test_names_and_meanings_that_differ_are_refused_with_both_values() -> None:
    with pytest.raises(MetadataError, match=r"dimension names: \('time',\) of memory.*and \('x',\) of memory"):
        gzarr.concat([named([1]), named([1], ["x"])])
    for attribute, one, other in (
        ("units", "K", "degC"),
        ("units", "K", None),
        ("calendar", "noleap", "standard"),
        ("units", "months since 2000-01-01", "months since 2001-01-01"),
        ("standard_name", "a", "b"),
        ("flag_values", [1], [2]),
    ):
        parts = [named([1], **({} if value is None else {attribute: value})) for value in (one, other)]
        with pytest.raises(MetadataError, match=rf"differ in {attribute}.*{one!r}.*{other!r}".replace("[", r"\[")):
            gzarr.concat(parts)


def test_other_attributes_stay_where_all_have_the_same() -> None:
    joined = gzarr.concat(
        [named([1], units="K", history="a", title="t"), named([2], units="K", history="b", title="t")]
    )
    assert joined.attrs.asdict() == {"units": "K", "title": "t"}
    assert joined.dimension_names == ("time",)
    assert gzarr.stack([named([1]), named([2])], name="run").dimension_names == ("run", "time")
    views = gzarr.stack([named([1]).lazy, named([2]).lazy], axis=1, name="run")
    assert views.isel(run=1).dimension_names == ("time",)
    assert gzarr.stack([gzarr.ones(2), gzarr.ones(2)], name="run").dimension_names == ("run", None)


@pytest.mark.parametrize(
    ("units", "dtype", "expected"),
    [
        (
            ["days since 2000-01-01", "days since 2001-01-01"],
            "i4",
            ("days since 2000-01-01 00:00:00", [0, 1, 366, 367]),
        ),
        (
            ["hours since 2000-01-01", "days since 2000-01-02"],
            "i2",
            ("hours since 2000-01-01 00:00:00", [0, 1, 24, 48]),
        ),
        (
            ["days since 2000-01-01", "days since 2000-01-01 06:00"],
            "f8",
            ("hours since 2000-01-01 00:00:00", [0, 24, 6, 30]),
        ),
        (["s since 2000-01-01", "min since 2000-01-01"], "i4", ("seconds since 2000-01-01 00:00:00", [0, 1, 0, 60])),
        (["days since 2000-01-01", "days since 2000-1-1 00:00"], "i4", ("days since 2000-01-01", [0, 1, 0, 1])),
    ],
)
def test_times_of_different_units_become_those_of_one(units: list[str], dtype: str, expected: Any) -> None:
    joined = gzarr.concat([named(np.arange(2, dtype=dtype), units=one) for one in units])
    assert (joined.attrs["units"], joined[:].tolist()) == expected


def test_times_of_other_calendars_and_missing_times() -> None:
    given = {"calendar": "noleap", "_FillValue": -9}
    parts = [named([0, -9], units=f"days since {year}-03-01", **given) for year in (2000, 2001)]
    joined = gzarr.concat(parts)
    assert (joined[:].tolist(), joined.attrs["_FillValue"]) == ([0, -9, 365, -9], -9)
    large = named([2**62], units="hours since 2001-01-01")
    with pytest.raises(gzarr.errors.StoreError, match="not exact as int64"):
        gzarr.concat([named([1], units="hours since 2000-01-01"), large])[:]


def test_packed_numbers_are_decoded_where_they_are_packed_differently() -> None:
    one = named(np.array([1, -9], "i2"), scale_factor=0.5, add_offset=1.0, _FillValue=-9)
    same = gzarr.concat([one, one])
    assert (same.dtype, same.attrs["scale_factor"], same[:].tolist()) == ("i2", 0.5, [1, -9, 1, -9])
    other = named(np.array([1, -5], "i4"), scale_factor=0.25, missing_value=-5)
    joined = gzarr.concat([one, other])
    np.testing.assert_array_equal(joined[:], [1.5, np.nan, 0.25, np.nan])
    assert set(joined.attrs) == {"_FillValue"}
    marked = gzarr.concat(
        [named(np.array([1, -9], "i2"), _FillValue=-9), named(np.array([-9, -5], "i2"), _FillValue=-5)]
    )
    np.testing.assert_array_equal(marked[:], np.array([1, np.nan, -9, np.nan], "f4"))
    with pytest.raises(MetadataError, match=r"_FillValue: -9 of .* and -5"):
        gzarr.concat([named(np.zeros(1, "i8"), _FillValue=-9), named(np.zeros(1, "i8"), _FillValue=-5)])
    with pytest.raises(MetadataError, match=r"data type.*'int8'.*'int16'"):
        gzarr.concat([named(np.zeros(1, one), _Unsigned="true") for one in ("i1", "i2")])
    with pytest.raises(MetadataError, match="scale_factor"):
        gzarr.concat([named([1.0], scale_factor=2, valid_max=5), named([1.0], scale_factor=3, valid_max=5)])


def test_shards_across_a_network_are_read_in_part(http_server: tuple[str, Path]) -> None:
    url, folder = http_server
    values = RNG.integers(0, 1000, (2, 40, 30))
    for number, one in enumerate(values):
        gzarr.create_array(folder / f"{number}.zarr", data=one, chunks=(2, 3), shards=(20, 30), compressors=None)
    joined = gzarr.concat([f"{url}/{number}.zarr" for number in range(2)])
    np.testing.assert_array_equal(joined[...], values.reshape(80, 30))
    np.testing.assert_array_equal(joined[3:75:9, 5], values.reshape(80, 30)[3:75:9, 5])
    assert not [step for step in joined.placement if "read whole" in step.why]
    (folder / "0.zarr/c/0/0").write_bytes((folder / "0.zarr/c/1/0").read_bytes() + b"longer")
    with pytest.raises(ReplacedError):
        joined[:2]
