"""Loaders that share memory (``pool=``): one of them has samples that wait, and batches are what they were without."""

import gc
import pickle

import numpy as np
import pytest

import gzarr
from tests.support.memory import traced
from tests.support.threads import side_by_side
from tests.support.values import host

DATA = np.random.default_rng(0).integers(0, 99, (300, 16, 16)).astype("i4")


def make(pool=None, device=None, **keywords):
    z = gzarr.array(DATA, chunks=(10, 16, 16))
    return gzarr.Loader(z, 16, **{"shuffle": True, "memory": 150_000, "pool": pool, "device": device, **keywords})


@pytest.mark.parametrize("device", ["cpu", "emulated"])
@pytest.mark.parametrize("chunks", [{}, {"crops": gzarr.Crops((6, 9, 16), n=200)}], ids=["pool", "direct"])
def test_batches_are_those_of_loaders_alone(device, chunks):
    expected = [list(map(host, make(device=device, seed=seed, **chunks))) for seed in range(2)]
    train = make(device=device, seed=0, **chunks)
    validation = make(train, device, seed=1, **chunks)
    found = [[], []]
    iterators = list(map(iter, (train, validation)))
    order = [0, 0, 0, 1, 0, 1, 1, 0, 0, *[1] * 30, *[0] * 30]
    for which in order:
        batch = next(iterators[which], None)
        found[which] += [] if batch is None else [host(batch).copy()]
    for left, right in zip(found, expected, strict=True):
        assert len(left) == len(right)
        assert all(map(np.array_equal, left, right))


def test_places_are_those_of_batches_handed_out():
    train = make()
    batches, seen = iter(train), []
    seen += [next(batches) for _ in range(5)]
    validation = make(train)
    list(validation)
    state = train.state_dict()
    rest = list(batches)
    again = make()
    again.load_state_dict(state)
    for left, right in zip(again, rest, strict=True):
        assert np.array_equal(left, right)
    assert train.epoch == validation.epoch == 1


def test_memory_is_that_of_one():
    def peak(pool):
        gc.collect()
        train = make(memory=2_000_000)
        validation = make(train if pool else None, memory=2_000_000)
        with traced() as nbytes:
            batches = iter(train)
            for _ in range(4):
                next(batches)
            for _ in validation:
                pass
            next(batches)
            return nbytes()

    slot = DATA[0].nbytes
    assert peak(pool=False) - peak(pool=True) > 0.5 * len(DATA) * slot


def test_the_parts_of_a_split_share_memory():
    train, validation = make(pool=True).split(0.8, 0.2)
    assert train._turn is validation._turn
    apart, other = make().split(0.8, 0.2)
    assert apart._turn is not other._turn
    for _ in range(2):
        for batch in train:
            assert len(batch)
        assert sum(map(len, validation)) == 60
    again = pickle.loads(pickle.dumps(train))
    assert np.array_equal(next(iter(again)), next(iter(train)))


def test_two_threads_wait_for_each_other():
    train = make()
    loaders = [train, make(train, seed=1)]
    found = side_by_side(lambda loader: [int(batch.sum()) for _ in range(2) for batch in loader], loaders)
    assert [sum(sums) for sums in found] == [2 * int(DATA.sum())] * 2


def test_what_is_no_pool():
    with pytest.raises(TypeError, match="pool must be another"):
        make("1 GiB")
    with pytest.raises(ValueError, match="loaders of several devices share no memory"):
        make(make(), devices=["cpu", "cpu"])

    def transform(batch):
        return next(iter(other))

    train = make(transform=transform)
    other = make(train)
    with pytest.raises(RuntimeError, match="cannot take batches of one that shares pool="):
        next(iter(train))
