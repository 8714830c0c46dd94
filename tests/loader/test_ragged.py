"""Samples of varying length against NumPy, and rows of sparse matrices against SciPy."""

import json

import numpy as np
import pytest

import gzarr
from tests.support.values import host

sparse = pytest.importorskip("scipy.sparse")
RNG = np.random.default_rng(0)
LENGTHS = np.concatenate([[0, 7, 0], RNG.integers(0, 30, 80), [0]])
OFFSETS = np.concatenate([[0], np.cumsum(LENGTHS)])


def expected(values, ids, length, pad):
    rows = [values[OFFSETS[i] : OFFSETS[i + 1]][:length] for i in ids]
    out = np.full((len(ids), length, *values.shape[1:]), pad, values.dtype)
    for row, found in zip(out, rows, strict=True):
        row[: len(found)] = found
    return out, [len(row) for row in rows]


@pytest.mark.parametrize("shuffle", [False, "exact", "blocks"])
@pytest.mark.parametrize("memory", [60_000, 1 << 22])
@pytest.mark.parametrize(("length", "trailing"), [(None, ()), (9, (3,))])
def test_rows_are_filled_up_or_cut_off(device, shuffle, memory, length, trailing):
    values = RNG.integers(1, 99, (OFFSETS[-1] + 5, *trailing)).astype("i4")
    stored = gzarr.array(values, chunks=(37, *[2 for _ in trailing]))
    ragged = gzarr.Ragged(stored, OFFSETS, length=length, pad=-1)
    arrays = {"text": ragged, "id": np.arange(len(LENGTHS))}
    loader = gzarr.Loader(arrays, 8, shuffle=shuffle, memory=memory, device=device, block_chunks=3)
    seen = []
    for batch in loader:
        ids = host(batch["id"])
        rows, lengths = expected(values, ids, length or max(LENGTHS), -1)
        assert np.array_equal(host(batch["text"]["values"]), rows)
        assert host(batch["text"]["lengths"]).tolist() == lengths
        seen += ids.tolist()
    assert sorted(seen) == list(range(len(LENGTHS)))
    assert loader.summary().decodes["text/values"] >= 1


@pytest.mark.parametrize(("length", "trailing"), [(None, ()), (9, (3,))])
def test_samples_lie_one_after_the_other(device, length, trailing):
    values = RNG.integers(1, 99, (OFFSETS[-1], *trailing)).astype("i4")
    ragged = gzarr.Ragged(gzarr.array(values, chunks=(37, *trailing)), OFFSETS, length=length, padded=False)
    seen = 0
    for batch in gzarr.Loader({"x": ragged, "id": np.arange(len(LENGTHS))}, 8, shuffle=True, device=device):
        rows = [values[OFFSETS[i] : OFFSETS[i + 1]][:length] for i in host(batch["id"])]
        assert set(batch["x"]) == {"values", "offsets"}
        assert np.array_equal(host(batch["x"]["values"]), np.concatenate(rows))
        assert np.diff(host(batch["x"]["offsets"]), prepend=0)[1:].tolist() == [len(row) for row in rows]
        seen += len(rows)
    assert seen == len(LENGTHS)


def test_damaged_samples_are_left_out(device):
    stored = gzarr.array(np.arange(OFFSETS[-1]), chunks=(37,))
    stored.store.set("c/5", b"damaged")
    given = {name: gzarr.Ragged(stored, OFFSETS, padded=name == "a") for name in "ab"}
    loader = gzarr.Loader(given, 8, shuffle=True, on_error="skip", device=device)
    for a, b in ((batch["a"], batch["b"]) for batch in loader):
        there = np.arange(max(LENGTHS)) < host(a["lengths"])[:, None]
        assert np.array_equal(host(a["values"])[there], host(b["values"]))
    assert loader.stats().skipped


def matrix_group(form, chunks=50, **keywords):
    group = gzarr.create_group(**keywords)
    group.attrs.update({"encoding-type": f"{form.format}_matrix", "shape": list(form.shape)})
    for name in ("data", "indices", "indptr"):
        group.create_array(name, data=getattr(form, name), chunks=(chunks,))
    return group


@pytest.mark.parametrize(("memory", "shuffle"), [(100_000, "exact"), (1 << 22, "exact"), (100_000, "blocks")])
@pytest.mark.parametrize("types", [("f4", "i4"), ("f8", "i4"), ("f4", "i8")])
def test_rows_of_a_sparse_matrix(device, memory, shuffle, types):
    matrix = sparse.random(203, 40, 0.1, format="csr", random_state=0, dtype=types[0])
    labels, matrix.indices = np.arange(203), matrix.indices.astype(types[1])
    given = {"obs": {"x": matrix_group(matrix)}, "y": labels}
    loader = gzarr.Loader(given, 16, shuffle=shuffle, memory=memory, device=device, block_chunks=4)
    seen = []
    for batch in loader:
        ids = host(batch["y"])
        found = batch["obs"]["x"]
        assert isinstance(found, sparse.csr_matrix)
        assert (found.dtype, found.indptr.dtype) == (matrix.dtype, found.indices.dtype)
        assert (found != matrix[ids]).nnz == 0
        assert found.nnz == matrix[ids].nnz
        seen += ids.tolist()
    assert sorted(seen) == labels.tolist()


def test_places_and_splits():
    matrix = sparse.random(203, 40, 0.1, format="csr", random_state=0)
    given = {"x": matrix_group(matrix), "y": np.arange(203)}
    whole = gzarr.Loader(given, 16, shuffle=True)
    batches = iter(whole)
    next(batches)
    again = gzarr.Loader(given, 16, shuffle=True)
    again.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    assert (next(iter(again))["x"] != next(batches)["x"]).nnz == 0
    parts = whole.split(0.5, 0.5)
    rows = [np.concatenate([batch["y"] for batch in part]).tolist() for part in parts]
    assert sorted(rows[0] + rows[1]) == list(range(203))
    for part in parts:
        for batch in part:
            assert (batch["x"] != matrix[batch["y"]]).nnz == 0


def test_what_does_not_fit():
    z = gzarr.array(np.arange(9), chunks=4)
    refused = ([0, 5, 3], "offset 2 is 3"), ([0, 10], "offset 1 is 10"), ([0.0, 5.0], "one more than there are samples")
    for offsets, message in refused:
        with pytest.raises(ValueError, match=message):
            gzarr.Ragged(z, offsets)
    with pytest.raises(ValueError, match="leave window= and crops= out"):
        gzarr.Loader({"x": gzarr.Ragged(z, [0, 5, 9])}, 2, window=gzarr.Window(2))
    with pytest.raises(TypeError, match="a name"):
        gzarr.Loader(gzarr.Ragged(z, [0, 5, 9]), 2)
    with pytest.raises(ValueError, match="is 'csc_matrix'"):
        gzarr.Loader({"x": matrix_group(sparse.random(9, 9, 0.5, format="csc"))}, 2)
    with pytest.raises(ValueError, match="give n_columns="):
        gzarr.SparseRows(plain_group())


def plain_group(column=1):
    group = gzarr.create_group()
    for name, values in {"data": [1.0, 2, 3], "indices": [0, 2, column], "indptr": [0, 2, 2, 3]}.items():
        group.create_array(name, data=np.array(values))
    return group


@pytest.mark.parametrize("length", [1, 4, 6, 9, 40])
@pytest.mark.parametrize("chunks", [2, 6, 100])
def test_batches_have_the_length_asked_for(device, length, chunks):
    values, offsets = np.arange(1, 7), [0, 3, 3, 6]
    ragged = gzarr.Ragged(gzarr.array(values, chunks=chunks), offsets, length=length, pad=-1)
    batch = next(iter(gzarr.Loader({"x": ragged}, 3, device=device)))["x"]
    assert host(batch["values"]).tolist() == [
        [*row[:length], *[-1] * (length - len(row))] for row in ([1, 2, 3], [], [4, 5, 6])
    ]


@pytest.mark.parametrize("length", [0, -3, 2.5])
def test_a_length_that_is_none_is_refused(length):
    with pytest.raises((TypeError, ValueError), match="length of Ragged"):
        gzarr.Ragged(np.arange(6), [0, 6], length=length)


@pytest.mark.parametrize("pad", [0.5, np.nan, -1, np.int64(-1), np.int64(70000), None, "x"])
def test_pads_that_are_no_values_of_the_type_are_refused(pad):
    next(iter(gzarr.Loader({"x": gzarr.Ragged(np.zeros(6, "u2,f4"), [0, 6], pad=pad, padded=False)}, 1)))  # needs none
    with pytest.raises(ValueError, match="'x/values', which is uint16 in batches"):
        gzarr.Loader({"x": gzarr.Ragged(np.arange(6, dtype="u2"), [0, 6], pad=pad)}, 1)


@pytest.mark.parametrize("column", [3, -1])
def test_columns_that_a_matrix_lacks_are_refused(device, column):
    loader = gzarr.Loader({"x": gzarr.SparseRows(plain_group(column), n_columns=3)}, 3, device=device)
    with pytest.raises(ValueError, match="n_columns"):
        next(iter(loader))
