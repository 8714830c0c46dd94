"""A loader over several devices has the batches of as many ranks, in turn, and one place in the epoch."""

import json
import pickle
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.loader.batches import BatchItem
from gzarr.tensors import to_host

DATA = np.arange(103 * 6, dtype="i4").reshape(103, 6)
ARRAY = gzarr.array(DATA, chunks=(8, 6), device="cpu")
GIVEN = {"shuffle": True, "seed": 4}


def loader(**options: Any) -> gzarr.Loader:
    return gzarr.Loader(ARRAY, 10, **{"devices": ["cpu", "cpu"], **GIVEN, **options})


def of_ranks(epoch: int, n: int = 2, **options: Any) -> list[np.ndarray]:
    """What as many loaders of one rank give, in turn."""
    made = [gzarr.Loader(ARRAY, 10, rank=rank, world_size=n, **GIVEN | options) for rank in range(n)]
    for one in made:
        one.set_epoch(epoch)
    return [batch for step in zip(*made, strict=True) for batch in step]


def check(found: Iterable[Any], wanted: list[np.ndarray]) -> None:
    found = list(found)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(to_host(one), other)


@pytest.mark.parametrize("options", [{}, {"shuffle": "blocks", "block_chunks": 2}, {"drop_last": True}])
def test_batches_are_those_of_ranks_in_turn(options: dict[str, Any]) -> None:
    ended: list[Any] = []
    both = loader(on_epoch=ended.append, **options)
    wanted = of_ranks(0, **options)
    assert len(both) == len(wanted)
    check([DATA[both.batch_ids(number)] for number in range(len(both))], wanted)
    check(both, wanted)
    assert [(one.epoch, one.batches, one.samples) for one in ended] == [(0, len(wanted), sum(map(len, wanted)))]
    assert both.epoch == 1
    check(both, of_ranks(1, **options))
    assert len(ended) == 2


def test_an_iteration_that_is_dropped_ends_the_epoch_on_all_devices() -> None:
    both = loader()
    check(islice(both, 1), of_ranks(0)[:1])
    check(both, of_ranks(1))
    check(islice(both, 3), of_ranks(2)[:3])
    both.close()
    check(both, of_ranks(3))


def test_ranks_have_devices_of_their_own() -> None:
    parts = [loader(rank=rank, world_size=2) for rank in (0, 1)]
    steps = [batch for a, b in zip(*(list(one) for one in parts), strict=True) for batch in (a, b)]
    wanted = of_ranks(0, 4)
    in_turn = [wanted[4 * (n // 4) + (0, 2, 1, 3)[n % 4]] for n in range(len(wanted))]
    check(steps, in_turn)


@pytest.mark.parametrize("how", ["state", "pickle"])
@pytest.mark.parametrize(("n", "taken"), [(2, 4), (2, 5), (3, 1), (3, 5), (3, 9)])
def test_a_place_amid_a_turn_goes_on_with_the_next_device(how: str, n: int, taken: int) -> None:
    all_of_them, wanted = loader(devices=["cpu"] * n), of_ranks(0, n)
    check(islice(iter(all_of_them), taken), wanted[:taken])
    for more in (0, 1):  # a place that was just loaded, and one behind it
        if how == "state":
            again = loader(devices=["cpu"] * n, seed=99)
            again.load_state_dict(json.loads(json.dumps(all_of_them.state_dict())))
        else:
            again = pickle.loads(pickle.dumps(all_of_them))
        batches = iter(again)
        check([DATA[again.batch_ids(0)]], wanted[taken : taken + 1])
        check(islice(batches, 1 - more), wanted[taken : taken + 1 - more])
        all_of_them, taken = again, taken + 1 - more
    check(batches, wanted[taken:])
    check(again, of_ranks(1, n))


def test_other_devices_begin_a_turn_again() -> None:
    both = loader()
    check(islice(both, 5), of_ranks(0)[:5])
    alone = gzarr.Loader(ARRAY, 10, device="cpu", **GIVEN)
    alone.load_state_dict(both.state_dict())
    np.testing.assert_array_equal(next(iter(alone)), of_ranks(0)[4])
    three = loader(devices=["cpu"] * 3)
    three.load_state_dict(both.state_dict())
    np.testing.assert_array_equal(next(iter(three)), of_ranks(0)[4])
    with pytest.raises(ValueError, match="impossible place: in_turn="):
        three.load_state_dict(both.state_dict() | {"in_turn": [3, 3]})


def test_parts_of_a_split_are_on_the_devices_too() -> None:
    train, other = loader().split(0.7, 0.3)
    assert len(train) + len(other) >= 10
    found = np.concatenate([to_host(batch) for part in (train, other) for batch in part])
    assert set(found[:, 0].tolist()) == set(DATA[:, 0].tolist())
    assert train.stats().batches == len(train)
    assert repr(train).endswith("on 'cpu' and 1 others in turn>")
    assert loader().summary().decodes == gzarr.Loader(ARRAY, 10, rank=0, world_size=2, **GIVEN).summary().decodes


def test_no_device_or_two_answers_are_refused() -> None:
    for options in ({"devices": []}, {"device": "cpu"}, {"devices": "cpu"}):
        with pytest.raises(ValueError, match="give a list of devices, one at least, and leave device= away"):
            loader(**options)
    with pytest.raises(ValueError, match="on_error='skip' with world_size=2"):
        loader(on_error="skip")
    with pytest.raises(IndexError, match="there is no batch 6"):
        loader().batch_ids(12)


def test_batches_that_are_uploaded_ahead_are_those_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    upload = EmulatedDevice.upload
    names = np.array([f"row {n}" for n in range(103)])

    def make() -> gzarr.Loader:
        return gzarr.Loader({"x": ARRAY, "name": names}, 10, transform=doubled, device="cpu", **GIVEN)

    def doubled(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"x": 2 * batch["x"], "name": batch["name"], "pair": BatchItem(1, np.ma.masked_less(batch["x"], 500))}

    wanted = [batch["x"].copy() for batch in make()]
    there = make().prefetch_to("emulated")
    assert len(there) == len(wanted)
    batches, uploaded = iter(there), []
    monkeypatch.setattr(EmulatedDevice, "upload", lambda *args: uploaded.append(upload(*args)) or uploaded[-1])
    for n in range(4):
        batch = next(batches)
        np.testing.assert_array_equal(to_host(batch["x"]), wanted[n])
        np.testing.assert_array_equal(batch["pair"].batch.mask, wanted[n] < 1000)  # a device has no masks
    assert len(uploaded) >= 4  # names are none that a GPU has
    again = make()
    again.load_state_dict(json.loads(json.dumps(there.state_dict())))  # the place of what was handed out
    check([batch["x"] for batch in again.prefetch_to("emulated")], wanted[4:])
    with pytest.raises(gzarr.DeviceError, match="already"):
        gzarr.Loader(ARRAY, 10, device="emulated").prefetch_to("cpu")
