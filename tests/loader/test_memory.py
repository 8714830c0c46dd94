"""The cap: what samples that wait take, measured, with three batches on top."""

import gc
import time

import numpy as np
import numpy.ma  # np.unique does, which must not count
import pytest

import gzarr
from tests.support.memory import traced

SLACK = 1_000_000  # modules, planning, tables of threads, encoded chunks, a batch before it is aligned


def peak_of(loader):
    """The most memory of NumPy and Python during an epoch, in bytes."""
    gc.collect()
    with traced() as peak:
        for _ in loader:
            pass
        return peak()


ROWS = [(False, 1, "f8"), (False, 16, None), ("exact", 1, None), ("exact", 16, "f8"), ("blocks", 16, None)]


@pytest.mark.parametrize(("shuffle", "chunks", "dtype"), ROWS)
def test_rows(shuffle, chunks, dtype):
    n, memory, batch = 450, 4_000_000, 32
    z = gzarr.array(np.ones((n, 64, 64), "f4"), chunks=(chunks, 64, 64))
    loader = gzarr.Loader(z, batch, shuffle=shuffle, memory=memory, dtype=dtype)
    assert peak_of(loader) < memory + 3 * batch * 64 * 64 * loader._setup.dtypes["array"].itemsize + SLACK


@pytest.mark.parametrize(
    ("dtype", "chunk", "n", "memory"), [("f4", 32, 60, 3_000_000), ("u1", 4, 12, 2_000_000)], ids=["few", "many chunks"]
)
def test_crops(dtype, chunk, n, memory):
    z = gzarr.array(np.ones((96, 96, 96), dtype), chunks=(chunk, chunk, chunk))
    loader = gzarr.Loader(z, 4, crops=gzarr.Crops((40, 40, 40), n=n), memory=memory)
    assert peak_of(loader) < memory + 3 * 4 * 40**3 * z.dtype.itemsize + SLACK


def test_small_samples():
    memory = 400_000
    z = gzarr.array(np.arange(60_000, dtype="i4"), chunks=1000)
    loader = gzarr.Loader(z, 512, shuffle=True, memory=memory)
    assert loader._setup.rooms["array"].mode == "pool"
    assert peak_of(loader) < 3 * memory + SLACK


def slowly(loader):
    """Batches, the first one handed on when all that may wait are there."""
    for step, batch in enumerate(loader):
        if not step:
            time.sleep(0.3)
        yield batch


def test_many_batches_that_wait():
    memory, batch = 9_000_000, 32
    z = gzarr.array(np.ones((1200, 32, 64), "f4"), chunks=(16, 32, 64))
    loader = gzarr.Loader(z, batch, shuffle=True, memory=memory, prefetch=20)
    peak = peak_of(slowly(loader))
    assert peak < memory + 3 * batch * 32 * 64 * 4 + SLACK
