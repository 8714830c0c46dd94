"""`gzarr.Mixture`: exact proportions after any number of steps, the batches of each loader, exact places."""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr


def loader(n, start=0, **keywords):
    return gzarr.Loader(gzarr.array(np.arange(start, start + n), chunks=7), 4, shuffle=True, **keywords)


def three(**keywords):
    return {
        "a": (loader(40, **keywords), 5),
        "b": (loader(23, 100, **keywords), 2.5),
        "c": (loader(9, 1000, **keywords), 0.1),
    }


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=6))
def test_proportions_are_exact_after_any_step(weights):
    mixture = gzarr.Mixture({str(n): (gzarr.Loader(np.arange(2), 2), w) for n, w in enumerate(weights)})
    for step in range(1, 200):
        mixture._counts[mixture._next_name()] += 1
        for n, weight in enumerate(weights):
            assert abs(mixture._counts[str(n)] - step * weight / sum(weights)) < 1


def test_each_loader_gives_its_own_epochs():
    given = three()
    expected = {name: [batch.tolist() for _ in range(40) for batch in one] for name, (one, _) in three().items()}
    found = {name: [] for name in given}
    mixture = gzarr.Mixture(given, steps=60)
    for _ in range(3):
        for name, batch in mixture:
            found[name].append(batch.tolist())
    assert sum(map(len, found.values())) == 180
    for name, batches in found.items():
        assert batches == expected[name][: len(batches)]
    assert mixture.epoch == 3


def test_an_epoch_has_every_batch_of_every_loader():
    mixture = gzarr.Mixture(three())
    counts = Counter(name for name, _ in mixture)
    assert all(counts[name] >= len(one) for name, (one, _) in three().items())
    assert sum(counts.values()) == len(mixture) == 228  # three batches of the share 0.1 / 7.6
    mixture.close()


@pytest.mark.parametrize("at", [0, 1, 17, 59, 60, 95])
def test_places_are_exact(at):
    def batches(mixture, n):
        found = []
        while len(found) < n:
            for name, batch in mixture:
                found.append((name, batch.tolist()))
                if len(found) == n:
                    break
        return found

    mixture = gzarr.Mixture(three(), steps=60)
    expected = batches(gzarr.Mixture(three(), steps=60), at + 80)
    assert batches(mixture, at) == expected[:at] if at else True
    again = gzarr.Mixture(three(), steps=60)
    again.load_state_dict(json.loads(json.dumps(mixture.state_dict())))
    assert batches(again, 80) == expected[at:]


def test_ranks_have_the_same_loader_at_the_same_step():
    ranks = [gzarr.Mixture(three(rank=rank, world_size=2), steps=20) for rank in range(2)]
    for (left, one), (right, other) in zip(*ranks, strict=True):
        assert left == right
        assert one.tolist() != other.tolist()


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({}, ValueError, "expected loaders and weights by name"),
        ({"a": loader(3)}, TypeError, r"'a' must be \(loader, weight\)"),
        ({"a": (loader(3), 0)}, ValueError, "above 0, got 0"),
        ({"a": (loader(3), float("nan"))}, ValueError, "above 0, got nan"),
    ],
)
def test_what_is_no_mixture(given, error, match):
    with pytest.raises(error, match=match):
        gzarr.Mixture(given)


def test_a_state_of_another_mixture_is_refused():
    one, other = gzarr.Mixture({"a": (loader(9), 1)}), gzarr.Mixture({"b": (loader(9), 1)})
    with pytest.raises(ValueError, match=r"expected a state of these weights, .*'b': '1'.* got \{'a': '1'\}$"):
        other.load_state_dict(one.state_dict())
    with pytest.raises(ValueError, match="steps must be 1 or more"):
        gzarr.Mixture({"a": (loader(9), 1)}, steps=0)


def test_a_state_that_is_refused_moves_no_loader():
    def mixture(n):
        return gzarr.Mixture({name: (gzarr.Loader(np.arange(m), 2), 1) for name, m in (("a", 10), ("b", n))}, steps=4)

    first, other = mixture(10), mixture(11)
    steps = iter(first)
    next(steps), next(steps)
    with pytest.raises(ValueError, match="another loader"):
        other.load_state_dict(first.state_dict())
    assert next(iter(other))[1].tolist() == [0, 1]
