"""Loaders in the pipelines of Grain and of Hugging Face's datasets, with the same samples, places and orders."""

import doctest
import json

import numpy as np
import pytest

import gzarr

IMAGES, LABELS = np.arange(64 * 12, dtype="f4").reshape(64, 12), np.arange(64)


def make_loader():
    arrays = {"image": gzarr.array(IMAGES, chunks=(4, 12)), "label": LABELS}
    return gzarr.Loader(arrays, batch_size=8, shuffle=True)


def test_grain_goes_on_where_it_stood():
    pytest.importorskip("grain")
    from gzarr.interop import grain

    assert doctest.testmod(grain).failed == 0
    expected = [batch["label"].tolist() for batch in make_loader()]
    data, other = (grain.dataset(make_loader()).map(lambda batch: batch["label"].tolist()) for _ in range(2))
    first, again = iter(data), iter(other)
    assert [next(first) for _ in range(3)] == expected[:3]
    again.set_state(json.loads(json.dumps(first.get_state())))
    assert list(again) == expected[3:]
    second = iter(data)  # of the next epoch
    again.set_state(second.get_state())
    assert list(again) == list(second) != expected


def test_grain_reads_rows_of_a_batch_at_once(tmp_path):
    pytest.importorskip("grain")
    import grain.python

    from gzarr.interop.grain import ArraySource

    group = gzarr.open_group(tmp_path / "x.zarr", "w")
    group.create_array("image", data=IMAGES, chunks=(4, 12))
    source = ArraySource({"image": group["image"], "label": LABELS})
    assert isinstance(source, grain.python.RandomAccessDataSource)
    batches = list(grain.python.MapDataset.source(source).shuffle(seed=1).batch(16))
    labels = np.concatenate([batch["label"] for batch in batches])
    assert sorted(labels.tolist()) == LABELS.tolist()
    np.testing.assert_array_equal(np.concatenate([batch["image"] for batch in batches]), IMAGES[labels])
    sampler = grain.python.IndexSampler(64, grain.python.NoSharding(), shuffle=True, num_epochs=1, seed=0)
    loaded = list(grain.python.DataLoader(data_source=source, sampler=sampler, worker_count=0))
    assert sorted(int(row["label"]) for row in loaded) == LABELS.tolist()
    with pytest.raises(ValueError, match="equally long"):
        ArraySource({"image": group["image"], "label": LABELS[:3]})
    with pytest.raises(TypeError, match=r"\['x'\] are lists or ragged"):
        ArraySource({"x": [group["image"]] * 64, "label": LABELS})
    assert source.__getitems__([]) == []


def test_datasets_have_the_samples_of_a_loader():
    pytest.importorskip("datasets")
    from gzarr.interop import datasets

    assert doctest.testmod(datasets).failed == 0
    expected = np.concatenate([batch["label"] for batch in make_loader()])
    examples = list(datasets.dataset(make_loader()))
    assert [int(example["label"]) for example in examples] == expected.tolist()
    np.testing.assert_array_equal([example["image"] for example in examples], IMAGES[expected])
    texts = gzarr.array(LABELS.astype(str).astype(object), dtype=str)
    several = gzarr.Loader({"t": texts, "n": LABELS}, 16, transform=lambda batch: (batch["t"], {"n": batch["n"]}))
    assert [example["array"] for example in datasets.dataset(several)] == [(str(n), {"n": n}) for n in LABELS]
    with pytest.raises(ValueError, match=r"arrays of \[1, 16\] rows: let transform"):
        list(datasets.dataset(gzarr.Loader(LABELS, 16, transform=lambda batch: (batch, batch[:1]))))
