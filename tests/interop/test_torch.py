"""Batches of a loader as tensors of PyTorch, alone and through its data loaders."""

import doctest
import gc

import ml_dtypes
import numpy as np
import pytest

import gzarr

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402 - after what skips

from gzarr.interop.torch import dataset, tensors  # noqa: E402

DATA = np.arange(64 * 12, dtype="f4").reshape(64, 12)


def test_examples_of_docstrings():
    assert doctest.testmod(gzarr.interop.torch) == (0, 8)


def make_loader(**options):
    arrays = {"image": gzarr.array(DATA, chunks=(4, 12)), "label": np.arange(64)}
    return gzarr.Loader(arrays, batch_size=8, shuffle=True, **options)


@pytest.mark.parametrize("dtype", ["bool", "u1", "i8", "u8", "f2", "f8", "c8", "bfloat16", "float8_e5m2"])
def test_tensors_share_the_memory_of_arrays(dtype):
    array = np.arange(12).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype).reshape(3, 4)
    tensor = tensors(array)
    assert (tensor.shape, tensor.data_ptr()) == ((3, 4), array.ctypes.data)
    np.testing.assert_array_equal(gzarr.array(tensor)[...], array)


def test_tensors_keep_the_form_of_a_batch():
    batch = tensors({"image": DATA, "pair": (np.int64(3), [DATA[0]]), "name": "cat", "text": np.array(["a"])})
    assert batch["image"].dtype is torch.float32
    assert (batch["pair"][0].item(), batch["pair"][1][0].shape) == (3, (12,))
    assert (batch["name"], type(batch["text"])) == ("cat", np.ndarray)
    assert tensors(batch["image"]) is batch["image"]


def test_a_data_loader_gives_the_batches_of_the_loader():
    expected = [{name: item.copy() for name, item in batch.items()} for batch in make_loader()]
    batches = DataLoader(dataset(make_loader()), batch_size=None)
    assert len(batches) == len(expected) == 8
    for found, wanted in zip(batches, expected, strict=True):
        assert found["image"].dtype is torch.float32
        np.testing.assert_array_equal(found["image"].numpy(), wanted["image"])
        np.testing.assert_array_equal(found["label"].numpy(), wanted["label"])


def test_tensors_stay_what_they_are_while_the_loader_goes_on():
    """The memory of a batch is leased as long as a tensor refers to it, then used again."""
    loader = make_loader(prefetch=1)
    held = [batch["image"][:, :3] for batch in dataset(loader)]
    copies = [tensor.clone() for tensor in held]
    for _ in dataset(loader):
        pass
    gc.collect()
    for tensor, copy in zip(held, copies, strict=True):
        assert torch.equal(tensor, copy)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of forks
def test_workers_are_refused_with_the_reason():
    with pytest.raises(RuntimeError, match="num_workers=0"):
        next(iter(DataLoader(dataset(make_loader()), batch_size=None, num_workers=1, multiprocessing_context="fork")))


def test_host_tensors_are_pinned_if_asked(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: -tensor)
    batch = next(iter(dataset(make_loader(), pin_memory=True)))
    assert (batch["image"] <= 0).all()
    assert (batch["label"] <= 0).all()


@pytest.mark.filterwarnings("ignore:'set_vital':UserWarning")  # of torchdata's imports
def test_a_stateful_data_loader_goes_on_in_the_middle_of_an_epoch():
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    expected = [batch["label"].copy() for batch in make_loader()]
    first = stateful.StatefulDataLoader(dataset(make_loader()), batch_size=None)
    batches = iter(first)
    for _ in range(3):
        next(batches)
    state = first.state_dict()
    second = stateful.StatefulDataLoader(dataset(make_loader()), batch_size=None)
    second.load_state_dict(state)
    rest = [batch["label"].numpy() for batch in second]
    np.testing.assert_array_equal(rest, expected[3:])


def test_ranks_are_those_of_torch_distributed():
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    alone = sorted(int(label) for batch in make_loader() for label in batch["label"])
    found = []
    for rank in range(2):
        torch.distributed.init_process_group("fake", rank=rank, world_size=2, store=fake.FakeStore())
        try:
            found += [int(label) for batch in dataset(make_loader()) for label in batch["label"]]
        finally:
            torch.distributed.destroy_process_group()
    assert sorted(found) == alone


def test_a_loader_that_accelerate_divides_again_is_refused():
    prepare = pytest.importorskip("accelerate.data_loader").prepare_data_loader
    ways = {"num_processes": 2, "process_index": 0, "dispatch_batches": True, "put_on_device": True}
    given = DataLoader(dataset(make_loader(rank=0, world_size=2)), batch_size=None)
    with pytest.raises(RuntimeError, match=r"leave it out of accelerator.prepare\(\)"):
        next(iter(prepare(given, **ways)))
    given = DataLoader(dataset(make_loader(rank=0, world_size=2)), batch_size=None)
    assert next(iter(given))["label"].shape == (8,)
    alone = prepare(DataLoader(dataset(make_loader()), batch_size=None), num_processes=1, process_index=0)
    assert len(list(alone)) == 8


@pytest.mark.parametrize("label", [torch.arange(64).bfloat16(), torch.arange(64.0).requires_grad_()], ids=str)
def test_tensors_are_arrays_samplers_and_ends_of_a_loader(label):
    images = gzarr.array(DATA, chunks=(4, 12))
    order = torch.arange(63, -1, -1)
    loader = gzarr.Loader(
        {"image": images, "label": label}, batch_size=8, sampler=order, dtype={"image": torch.float64}
    )
    found = next(iter(dataset(loader)))
    assert found["label"].tolist() == list(range(63, 55, -1))
    assert (found["label"].dtype, found["image"].dtype) == (label.dtype, torch.float64)
    windows = gzarr.Loader(images, batch_size=8, window=gzarr.Window(8, ends=torch.tensor([32, 64])))
    assert len(windows.batch_ids(0)) == 8


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_rows_are_csr_tensors():
    scipy = pytest.importorskip("scipy.sparse")
    matrix = scipy.random(30, 20, 0.2, "csr", dtype="f4", random_state=0)
    group = gzarr.create_group()
    for name in ("data", "indices", "indptr"):
        group.create_array(name, data=getattr(matrix, name))
    loader = gzarr.Loader({"x": gzarr.SparseRows(group, n_columns=20)}, batch_size=30)
    (batch,) = dataset(loader)
    assert batch["x"].layout is torch.sparse_csr
    np.testing.assert_array_equal(batch["x"].to_dense().numpy(), matrix.toarray())


def test_samples_of_varying_length_are_a_nested_tensor():
    ragged = gzarr.Ragged(np.arange(6.0), [0, 3, 3, 6], padded=False)
    (batch,) = dataset(gzarr.Loader({"x": ragged}, batch_size=3))
    nested = torch.nested.nested_tensor_from_jagged(**batch["x"])
    assert [row.tolist() for row in nested.unbind()] == [[0, 1, 2], [], [3, 4, 5]]


@pytest.mark.filterwarnings("ignore")  # what Lightning warns of is its own affair
def test_lightning_gives_each_batch_once():
    lightning = pytest.importorskip("lightning.pytorch")
    seen = []

    class Model(lightning.LightningModule):
        def training_step(self, batch, _):
            seen.extend(batch["label"].tolist())

        def configure_optimizers(self):
            return None

    trainer = lightning.Trainer(max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(Model(), DataLoader(dataset(make_loader()), batch_size=None))
    assert sorted(seen) == sorted([*range(64), *range(64)])
