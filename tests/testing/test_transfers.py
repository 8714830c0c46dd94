"""Counts of what crosses between host and device, for tests of users' code, on the emulated device."""

import numpy as np
import pytest

import gzarr
from gzarr.profiling.transfers import inside, notify
from gzarr.testing import transfers
from tests.support.threads import side_by_side

VALUES = np.arange(64.0).reshape(8, 8)


@pytest.fixture
def z() -> gzarr.Array:
    with gzarr.config.set({"emulated.arrays": "device"}):
        yield gzarr.create_array({}, data=VALUES, chunks=(4, 4), device="emulated")


def test_a_read_brings_only_stored_bytes_to_the_device(z: gzarr.Array) -> None:
    with transfers() as t:
        read = z[2:6]
    assert not t.to_host
    assert not t.to_device
    assert not t.synchronizations
    assert (t.allocations.count, t.allocations.nbytes, t.peak_nbytes) == (1, 256, 256)
    assert t.inside.to_device.nbytes > 0
    assert (read.get() == VALUES[2:6]).all()


def test_what_code_takes_to_the_host_is_counted_by_its_lines(z: gzarr.Array) -> None:
    with transfers() as t:
        block = z[:4]
        for _ in range(3):
            float(block.mean())
        block.get()
    assert (t.to_host.count, t.to_host.nbytes) == (4, 3 * 8 + 256)
    assert t.synchronizations.count == 4
    path, line = t.to_host.places.most_common()[0][0].rsplit(":", 1)
    assert path == __file__
    assert repr(t.to_host) == f"4, 280 bytes: {path}:{line} (3 times), {path}:{int(line) + 1}"
    assert repr(t.to_device) == "none"


def test_arrays_of_the_host_that_are_written_cross(z: gzarr.Array) -> None:
    with transfers() as t:
        for i in range(8):
            z[i] = VALUES[i]
    assert (t.to_device.count, t.to_device.nbytes) == (8, 512)
    block = z[:]
    with transfers() as t:
        z[:] = block
        z[:] = block * 2
        z[0] = 5
    assert not t.to_device
    assert not t.to_host
    assert z.xp.asarray(VALUES[0]).device == block.device


def test_memory_is_counted_as_long_as_it_lives(z: gzarr.Array) -> None:
    with transfers() as t:
        for _ in range(4):
            z[:]
        kept = [z[:], z[:4]]
    assert (t.allocations.count, t.allocations.nbytes) == (6, 5 * 512 + 256)
    assert t.peak_nbytes == 512 + 256
    del kept


def test_arrays_of_the_namespace_are_counted(z: gzarr.Array) -> None:
    xp = z.xp
    with transfers() as t:
        there = xp.asarray(VALUES)
        there += 1
        xp.zeros(4)
    assert (t.to_device.nbytes, t.allocations.count) == (512, 2)


def test_the_cpu_has_no_traffic() -> None:
    z = gzarr.create_array({}, data=VALUES, chunks=(4, 4), device="cpu")
    with transfers() as t:
        z[:] = z[:] + 1
    assert t.allocations.count == t.to_host.count == t.inside.to_device.count == 0


def test_transfers_of_all_threads_are_counted() -> None:
    with transfers() as t:
        side_by_side(lambda _: notify("to_host", 1), range(9))
    assert t.to_host.nbytes == 9


def test_many_places_are_cut_short() -> None:
    with transfers() as t:
        for i in range(9):
            exec(compile("\n" * i + "notify('to_host')", "code.py", "exec"))
    assert repr(t.to_host) == "9: code.py:1, code.py:2, code.py:3, code.py:4, code.py:5, ..."


def test_batches_of_a_loader_come_without_copies_of_values(z: gzarr.Array) -> None:
    with transfers() as t:
        batches = list(gzarr.Loader(z, batch_size=2, shuffle=True, seed=1))
    assert len(batches) == 4
    assert not t.to_host
    assert not t.to_device
    assert set(t.allocations.places) == {"gzarr"}


def test_memory_from_before_does_not_lower_the_peak() -> None:
    with gzarr.config.set({"emulated.arrays": "device"}):
        xp = gzarr.ones(1, device="emulated").xp
    with transfers() as outer:
        old = xp.zeros(1000, "u1")
        with transfers() as t:
            del old
            new = xp.zeros(1000, "u1")
            del new
        assert t.peak_nbytes == outer.peak_nbytes == 1000


def test_the_end_of_working_memory_lowers_its_own_count() -> None:
    with gzarr.config.set({"emulated.arrays": "device"}):
        xp = gzarr.ones(1, device="emulated").xp
    with transfers() as t:
        with inside():
            work = xp.zeros(1000, "u1")
        del work
        result = xp.zeros(1000, "u1")
    assert (t.peak_nbytes, t.inside.peak_nbytes) == (1000, 1000)
    assert result.size == 1000
    assert (t._live, t.inside._live) == (1000, 0)
