"""What it costs to begin with a billion samples, and with very many arrays."""

import time

import numpy as np
import pytest

import gzarr
from tests.support.memory import traced


@pytest.mark.parametrize("shuffle", ["exact", "blocks"])
def test_a_billion_samples_begin_at_once(shuffle):
    array = gzarr.zeros((10**9, 16), chunks=(16, 16), dtype="u1")
    assert begun(lambda: gzarr.Loader(array, 64, shuffle=shuffle, memory="64 MiB")).shape == (64, 16)


def test_very_many_arrays_begin_at_once():
    sizes = np.random.default_rng(0).integers(20, 50, (100, 2)).tolist()
    arrays = [gzarr.zeros(size, chunks=(16, 16), dtype="u1") for size in sizes]
    batch = begun(lambda: gzarr.Loader(200 * arrays, 64, crops=gzarr.Crops((16, 16), n=10**6), memory="16 MiB"))
    assert batch.shape == (64, 16, 16)


def begun(make):
    """The first batch, within two seconds of the processor and 200 MB."""
    start = time.process_time()
    next(iter(make()))
    assert time.process_time() - start < 2
    with traced() as peak:
        batch = next(iter(make()))
        assert peak() < 200e6
    return batch
