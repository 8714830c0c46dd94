"""Loaders of lists of arrays against NumPy: rows, windows and crops of arrays of unequal shapes, chunks and codecs."""

import json
import shutil
from collections import Counter

import numpy as np
import pytest

import gzarr
from gzarr.errors import ArrayNotFoundError
from tests.support.values import host

RNG = np.random.default_rng(3)


def stored(data, number, **keywords):
    """Arrays of unequal chunks, codecs and layouts."""
    kinds = [
        {"chunks": (4, *data.shape[1:])},
        {"chunks": (3, *[max(n // 2, 1) for n in data.shape[1:]]), "compressors": None},
        {"chunks": (2, *data.shape[1:]), "shards": (6, *data.shape[1:])},
        {"chunks": (tuple([1] * (len(data) - 1) + [1]), *data.shape[1:])}
        if data.ndim == 1
        else {"chunks": (5, *[3] * (data.ndim - 1))},
    ]
    return gzarr.array(data, **{**kinds[number % len(kinds)], **keywords})


def rows(n_arrays=7, shape=(5, 3)):
    return [RNG.integers(0, 1000, (int(n), *shape)).astype("i4") for n in RNG.integers(1, 30, n_arrays)]


def pictures(n_arrays=9, low=9):
    shapes = [(int(RNG.integers(low, 40)), int(RNG.integers(low, 33))) for _ in range(n_arrays)]
    return [RNG.integers(1, 255, shape).astype("u1") for shape in shapes]


def crop(data, start, size, pad):
    """What a crop holds, by NumPy."""
    out = np.full(size, pad if isinstance(pad, int) else 0, data.dtype)
    part = data[tuple(slice(a, a + n) for a, n in zip(start, size, strict=True))]
    out[tuple(map(slice, part.shape))] = part
    return out


# -- rows and windows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [False, "exact", "blocks"])
@pytest.mark.parametrize("memory", [8_000, 1 << 20], ids=["little memory", "all in memory"])
def test_rows_of_arrays_of_unequal_lengths_and_chunks(device, shuffle, memory):
    data = rows()
    loader = gzarr.Loader(
        [stored(one, n) for n, one in enumerate(data)], 8, shuffle=shuffle, memory=memory, device=device, block_chunks=2
    )
    whole, seen = np.concatenate(data), []
    for step, batch in enumerate(loader):
        ids = loader.batch_ids(step)
        assert np.array_equal(host(batch), whole[ids])
        starts = loader.batch_starts(step)
        assert np.array_equal(host(batch), [data[array][row] for array, row in starts])
        seen.append(ids)
    seen = np.concatenate(seen)
    assert sorted(seen.tolist()) == list(range(len(whole)))
    assert (seen.tolist() == sorted(seen.tolist())) == (not shuffle)
    assert memory > 8000 or loader.summary().decodes[""] >= 1
    assert loader.stats().samples == len(whole)


def test_a_list_has_the_order_of_the_array_it_makes():
    data = rows()
    whole = gzarr.array(np.concatenate(data), chunks=(4, 5, 3))
    one, many = (
        gzarr.Loader(given, 8, shuffle=True, seed=5) for given in (whole, [stored(d, n) for n, d in enumerate(data)])
    )
    for left, right in zip(one, many, strict=True):
        assert np.array_equal(left, right)


@pytest.mark.parametrize("kind", ["stored", "NumPy"])
def test_windows_cross_no_array(kind):
    data = [np.arange(n) + 100 * number for number, n in enumerate([7, 2, 12, 4])]
    arrays = data if kind == "NumPy" else [gzarr.array(one, chunks=5) for one in data]
    loader = gzarr.Loader(arrays, 4, shuffle=True, window=gzarr.Window(4, stride=2))
    found = sorted(map(list, np.concatenate(list(loader)).tolist()))
    assert found == [list(one[i : i + 4]) for one in data for i in range(0, len(one) - 3, 2)]


def test_windows_of_lists_have_no_ends():
    with pytest.raises(ValueError, match="arrays of a list are its episodes"):
        gzarr.Loader([np.arange(9)], 2, window=gzarr.Window(2, ends=[4]))


# -- crops -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pad", [None, 0, 7, "skip"])
@pytest.mark.parametrize(("n", "memory"), [(None, 16_000), (60, 16_000), (60, 1 << 20)])
def test_crops_of_arrays_of_unequal_shapes(device, pad, n, memory):
    size = (12, 10) if pad is not None else (9, 9)
    data = pictures(low=7 if pad is not None else 9)
    labels = [one.astype("i8") * 1000 for one in data]
    pads = {"image": pad, "label": -1} if isinstance(pad, int) else pad
    images = [stored(one, k) for k, one in enumerate(data)]
    arrays = {"image": images, "label": [stored(one, k + 1) for k, one in enumerate(labels)]}
    crops = gzarr.Crops(size, n=n, pad=pads)
    loader = gzarr.Loader(arrays, 8, crops=crops, shuffle=n is None, memory=memory, device=device)
    covered = [np.zeros(one.shape, int) for one in data]
    count = 0
    for step, batch in enumerate(loader):
        starts = loader.batch_starts(step)
        count += len(starts)
        for image, label, (array, *start) in zip(
            host(batch["image"]), host(batch["label"]), starts.tolist(), strict=True
        ):
            assert np.array_equal(image, crop(data[array], start, size, pad))
            assert np.array_equal(label, crop(labels[array], start, size, -1))
            covered[array][tuple(slice(a, a + k) for a, k in zip(start, size, strict=True))] += 1
    assert count == (n or loader._setup.samples.n)
    for one, times in zip(data, covered, strict=True):
        small = any(a < b for a, b in zip(one.shape, size, strict=True))
        if small and pad == "skip":
            assert not times.any()
        elif n is None:
            assert times.all()
            if isinstance(pad, int):
                assert (times == 1).all()  # tiles do not overlap


def test_arrays_smaller_than_a_crop_are_an_error_that_names_them():
    arrays = [gzarr.zeros((20, 20)), gzarr.zeros((8, 20))]
    with pytest.raises(
        ValueError, match=r'number 1 has \(8, 20\) elements where samples take \(9, 9\); .*pad= .*"skip"'
    ):
        gzarr.Loader(arrays, 2, crops=gzarr.Crops((9, 9)))
    assert len(gzarr.Loader(arrays, 2, crops=gzarr.Crops((9, 9), pad="skip"))) == 5
    with pytest.raises(ValueError, match="takes all of axis 0, along which arrays differ"):
        gzarr.Loader(arrays, 2, crops=gzarr.Crops((None, 9)))


def test_random_crops_are_uniform_over_all_places():
    shapes = [(4, 4), (4, 40), (13, 4)]
    loader = gzarr.Loader(
        [gzarr.zeros(shape, chunks=(4, 4)) for shape in shapes], 1000, crops=gzarr.Crops((4, 4), n=12_000)
    )
    starts = np.concatenate([loader.batch_starts(step) for step in range(12)])
    counts = Counter(map(tuple, starts.tolist()))
    assert len(counts) == 1 + 37 + 10
    assert max(counts.values()) < 330  # 250 each
    assert min(counts.values()) > 180


def test_split_keeps_arrays_whole():
    data = pictures(40)
    loader = gzarr.Loader([stored(one, k) for k, one in enumerate(data)], 4, crops=gzarr.Crops((9, 9)), shuffle=True)
    train, validation = loader.split(0.75, 0.25)
    arrays = [
        set(np.concatenate([part.batch_starts(step)[:, 0] for step in range(len(part))]).tolist())
        for part in (train, validation)
    ]
    assert not arrays[0] & arrays[1]
    assert arrays[0] | arrays[1] == set(range(40))
    for batch, starts in zip(validation, map(validation.batch_starts, range(len(validation))), strict=False):
        for image, (array, *start) in zip(batch, starts.tolist(), strict=True):
            assert np.array_equal(image, crop(data[array], start, (9, 9), 0))
        break


# -- weights ---------------------------------------------------------------------------------------------------------


def test_rows_are_weighted_by_array_or_by_a_table():
    data = [np.full(100, number) for number in range(3)]
    loader = gzarr.Loader(data, 50, weights=[1, 2, 0])
    counts = sum(np.bincount(np.concatenate(list(loader)), minlength=3) for _ in range(20))
    assert (counts.sum(), counts[2]) == (6000, 0)
    assert abs(counts[0] - 2000) < 200
    table = np.zeros(300)
    table[[5, 150]] = 1, 3
    loader = gzarr.Loader({"x": gzarr.array(np.arange(300), chunks=7)}, 50, weights=table)
    found = np.concatenate([batch["x"] for batch in loader])
    assert set(found.tolist()) == {5, 150}
    assert 40 < np.count_nonzero(found == 5) < 110


def test_draws_are_shared_by_ranks_and_resumed():
    z, weights = gzarr.array(np.arange(100), chunks=7), np.arange(100.0)
    whole = np.concatenate(list(gzarr.Loader(z, 10, weights=weights)))
    ranks = [gzarr.Loader(z, 5, weights=weights, rank=rank, world_size=2) for rank in range(2)]
    both = np.concatenate([np.concatenate(pair) for pair in zip(*ranks, strict=True)])
    assert np.array_equal(whole, both)
    loader = gzarr.Loader(z, 10, weights=weights)
    batches = iter(loader)
    next(batches)
    again = gzarr.Loader(z, 10, weights=weights)
    again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert np.array_equal(next(iter(again)), next(batches))
    with pytest.raises(ValueError, match="weights was"):
        gzarr.Loader(z, 10, weights=weights + 1).load_state_dict(loader.state_dict())


@pytest.mark.parametrize(
    ("weights", "more", "match"),
    [
        ([1, 2], {}, "those of 3 arrays, or of 15 samples"),
        ([1, -1, 1], {}, "not negative"),
        ([0, 0, 0], {}, "not all zero"),
        ([1, np.nan, 1], {}, "finite"),
        ([1, 1, 1], {"shuffle": "blocks"}, "leave sampler= and shuffle='blocks' out"),
        ([1, 1, 1], {"sampler": range(3)}, "leave sampler="),
    ],
)
def test_bad_weights(weights, more, match):
    with pytest.raises(ValueError, match=match):
        gzarr.Loader([np.arange(5)] * 3, 2, weights=weights, **more)


# -- places ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crops", [None, gzarr.Crops((9, 3), n=50), gzarr.Crops((9, 3), pad=0)])
def test_resume_with_another_number_of_ranks(crops):
    data = [RNG.integers(0, 99, (int(n), 3)).astype("i4") for n in RNG.integers(9, 40, 12)]
    arrays = [stored(one, k) for k, one in enumerate(data)]
    make = {"crops": crops, "shuffle": True, "seed": 1}
    expected = list(gzarr.Loader(arrays, 4, **make))
    ranks = [gzarr.Loader(arrays, 4, rank=rank, world_size=2, **make) for rank in range(2)]
    iterators = list(map(iter, ranks))
    taken = [next(iterators[rank]) for _ in range(3) for rank in range(2)]
    again = gzarr.Loader(arrays, 4, **make)
    again.load_state_dict(json.loads(json.dumps(ranks[1].state_dict())))
    for left, right in zip([*taken, *again], expected, strict=True):
        assert np.array_equal(left, right)


def test_arrays_that_others_change_are_noticed(tmp_path):
    paths = [str(tmp_path / f"{n}.zarr") for n in range(5)]
    for n, path in enumerate(paths):
        gzarr.create_array(path, data=np.full((8, 400), n, "i8"), chunks=(2, 400))
    loader = gzarr.Loader(paths, 4, shuffle=True, memory=60_000)
    assert sorted(np.concatenate(list(loader))[:, 0].tolist()) == sorted([n for n in range(5) for _ in range(8)])
    gzarr.open_array(paths[3], "r+").resize((4, 400))
    with pytest.raises(ValueError, match=r"array 'array\[3\]'.* resized from \(8, 400\) to \(4, 400\)"):
        list(loader)
    shutil.rmtree(paths[4])
    with pytest.raises((ValueError, ArrayNotFoundError)):
        list(loader)


# -- what is given ---------------------------------------------------------------------------------------------------


def test_a_list_of_groups_and_of_dicts():
    groups, labels = [], []
    for n in range(4):
        group = gzarr.create_group()
        group.create_array("x", data=np.full((n + 1, 2), n), chunks=(2, 2))
        group.create_array("y", data=np.arange(n + 1))
        groups.append(group)
        labels += list(range(n + 1))
    loader = gzarr.Loader(groups, 4)
    assert np.concatenate([batch["y"] for batch in loader]).tolist() == labels
    with pytest.raises(ValueError, match=r"item 1 of the list has \[\('x',\)\], item 0 has"):
        gzarr.Loader([groups[0], {"x": np.zeros(3)}], 2)


def test_nested_dicts():
    z = gzarr.array(np.arange(20), chunks=4)
    group = gzarr.create_group()
    group.create_array("state", data=np.arange(40).reshape(20, 2), chunks=(3, 2))
    loader = gzarr.Loader(
        {"obs": {"image": z, "robot": group}, "action": np.arange(20) * 2}, 8, shuffle=True, dtype={"obs/image": "f4"}
    )
    for step, batch in enumerate(loader):
        ids = loader.batch_ids(step)
        assert batch["obs"]["image"].dtype == np.float32
        assert batch["obs"]["image"].tolist() == ids.tolist()
        assert batch["obs"]["robot"]["state"][:, 1].tolist() == (2 * ids + 1).tolist()
        assert batch["action"].tolist() == (2 * ids).tolist()
    with pytest.raises(ValueError, match="must differ if joined"):
        gzarr.Loader({"a/b": z, "a": {"b": z}}, 8)


@pytest.mark.parametrize(
    ("given", "keywords", "error", "match"),
    [
        ([np.zeros(3), np.zeros((3, 2))], {}, ValueError, r"array\[1\] has shape \(3, 2\), array\[0\] \(3,\)"),
        ({"x": [np.zeros(3)], "y": [np.zeros(3)] * 2}, {}, ValueError, "'y' are 2, 'x' 1; expected equally many"),
        (
            {"x": [np.zeros(3)] * 2, "y": [np.zeros(3), np.zeros(4)]},
            {},
            ValueError,
            r"y\[1\] has \(4,\) .* x\[1\] \(3,\)",
        ),
        ({"x": [np.zeros(3)], "y": np.zeros(4)}, {}, ValueError, "differ in extent"),
        (
            {"x": [np.zeros((9, 9))], "y": np.zeros((9, 9))},
            {"crops": gzarr.Crops((2, 2))},
            ValueError,
            "'y' is a single one",
        ),
        (
            [gzarr.zeros(3, dtype="i4"), gzarr.zeros(3, dtype="f4")],
            {},
            ValueError,
            r"types float32, int32; expected one",
        ),
        ([np.zeros(3), 5], {}, TypeError, r"'array\[1\]' must be a gzarr or NumPy array, got int"),
        ([], {}, TypeError, "got list"),
        ([gzarr.zeros((5, 5))], {"crops": gzarr.Crops((2, 2), pad=1.5j)}, ValueError, "is no value of 'array'"),
    ],
)
def test_what_does_not_fit(given, keywords, error, match):
    with pytest.raises(error, match=match):
        gzarr.Loader(given, 2, **keywords)


def test_pads_that_would_wrap_are_refused():
    with pytest.raises(ValueError, match="300"):
        gzarr.Loader([gzarr.zeros((2, 2), dtype="u1")], 2, crops=gzarr.Crops((4, 4), pad=np.int64(300)))


@pytest.mark.parametrize("shuffle", [False, "exact"])
@pytest.mark.parametrize("pad", [None, -1])
def test_samples_of_damaged_chunks_are_left_out(device, tmp_path, shuffle, pad):
    arrays = []
    for number, n in enumerate((5, 9, 13)):
        data = np.arange(n * n).reshape(n, n) + 1000 * number
        arrays.append(gzarr.create_array(tmp_path / f"{number}.zarr", data=data, chunks=(4, 4)))
    (tmp_path / "1.zarr" / "c" / "1" / "1").write_bytes(b"123")
    options = {"crops": gzarr.Crops((4, 4), pad=pad), "shuffle": shuffle, "device": device}
    whole = {tuple(s) for s in all_starts(gzarr.Loader(arrays, 4, **options))}
    lost = {(a, i, j) for a, i, j in whole if a == 1 and i < 8 and j < 8 and i + 4 > 4 and j + 4 > 4}
    loader = gzarr.Loader(arrays, 4, on_error="skip", **options)
    found = np.concatenate([host(batch) for batch in loader])
    assert loader.stats().skipped == len(lost) > 0
    corners = sorted(1000 * a + (5, 9, 13)[a] * i + j for a, i, j in whole - lost)
    assert sorted(found[:, 0, 0].tolist()) == corners


def all_starts(loader):
    return [start for step in range(len(loader)) for start in loader.batch_starts(step).tolist()]


def test_numpy_arrays_of_other_types_are_refused():
    with pytest.raises(ValueError, match="differ in type"):
        gzarr.Loader([np.arange(3), np.zeros(3)], 2)


def test_lists_of_ragged_samples_are_refused():
    ragged = gzarr.Ragged(np.arange(6), [0, 2, 6])
    for arrays in ({"x": [ragged, ragged]}, [{"x": ragged, "y": np.arange(2)}] * 2):
        with pytest.raises(TypeError, match="list of Ragged"):
            gzarr.Loader(arrays, 2)


def test_parts_of_a_split_that_have_no_weight_are_refused():
    arrays = [gzarr.full((8, 8), number, chunks=(4, 4)) for number in range(4)]
    loader = gzarr.Loader(arrays, 5, crops=gzarr.Crops((4, 4), n=100), weights=[0, 1, 0, 0])
    with pytest.raises(ValueError, match="weight of zero"):
        loader.split(0.5, 0.25, 0.25)


def test_pads_are_values_of_the_types_of_batches(device):
    masks = [gzarr.full((2, 3), 1, dtype="u1", chunks=(2, 2)), gzarr.full((5, 4), 2, dtype="u1", chunks=(2, 2))]
    crops = gzarr.Crops((4, 4), pad=-100)
    batch = host(next(iter(gzarr.Loader(masks, 3, crops=crops, dtype="i8", device=device))))
    assert batch.dtype == "i8"
    assert batch[0].tolist() == [[1, 1, 1, -100]] * 2 + [[-100] * 4] * 2
    assert batch[2].tolist() == [[2] * 4] + [[-100] * 4] * 3
    with pytest.raises(ValueError, match="which is uint8 in batches"):
        gzarr.Loader(masks, 3, crops=crops)
    with pytest.raises(ValueError, match="which is int8 in batches"):
        gzarr.Loader([gzarr.zeros((2, 2), dtype="i4")], 3, crops=gzarr.Crops((4, 4), pad=1000), dtype="i1")
