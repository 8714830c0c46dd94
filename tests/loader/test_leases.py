"""Batch memory is used again when its last view is gone, and on a device in the order of the streams that use it."""

import gc
import threading
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from gzarr.cpu.backend import CpuBackend
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.loader.leases import ALIGNMENT, Leases

INT = np.dtype("i4")


@pytest.fixture(params=["cpu", "emulated"])
def backend(request: pytest.FixtureRequest) -> Any:
    return CpuBackend() if request.param == "cpu" else GpuBackend(EmulatedDevice())


def leases_of(backend: Any, most: int = 2) -> Leases:
    return Leases(backend, (4, 3), INT, most, backend.current_stream())


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def test_memory_is_used_again_when_the_last_view_is_gone(backend: Any) -> None:
    leases = leases_of(backend)
    first, lease = leases.take()
    place, view = address(first), first[2:].reshape(-1)[::2]
    del first, lease
    second, _ = leases.take()
    assert address(second) != place
    view[:] = 7  # it is still the caller's
    del view
    third, _ = leases.take()
    assert address(third) == place
    assert (third.shape, third.dtype) == ((4, 3), INT)


@pytest.mark.parametrize("shape", [(3,), (1000, 1001), (0, 2)])
@pytest.mark.parametrize("dtype", ["u1", "c16"])
def test_memory_of_the_host_is_aligned_for_every_library(shape: tuple[int, ...], dtype: str) -> None:
    leases = Leases(CpuBackend(), shape, np.dtype(dtype), 2)
    taken = [leases.take() for _ in range(3)]
    assert [array.shape for array, _ in taken] == [shape] * 3
    assert not any(address(array) % ALIGNMENT for array, _ in taken if array.size)


def test_a_lease_keeps_the_memory_without_a_view(backend: Any) -> None:
    leases = leases_of(backend)
    place = address((taken := leases.take())[0])
    lease = taken[1]
    del taken
    assert address(leases.take()[0]) != place
    del lease
    assert place == address(leases.take()[0])


def test_only_some_free_memory_is_kept(backend: Any) -> None:
    leases = leases_of(backend, most=2)
    taken = [leases.take() for _ in range(5)]
    places = [address(array) for array, _ in taken]
    taken.clear()
    again = [leases.take() for _ in range(2)]
    assert (len({address(array) for array, _ in again} & set(places)), len(leases._free)) == (2, 0)


def test_memory_outlives_the_loader(backend: Any) -> None:
    leases = leases_of(backend)
    array, lease = leases.take()
    array[:] = 5
    del leases, lease
    gc.collect()
    assert (array == 5).all()


def test_views_may_end_on_any_thread() -> None:
    leases = leases_of(CpuBackend(), most=100)
    handed: SimpleQueue[Any] = SimpleQueue()

    def drop() -> None:
        while handed.get() is not None:
            pass

    threads = [threading.Thread(target=drop) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(500):
        handed.put(leases.take()[0])
    for _ in threads:
        handed.put(None)
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    while (ended := leases._lent.pop()) is not None:
        leases._free.append(ended)
    assert not leases._lent._watched
    places = [address(memory) for memory, _ in leases._free]
    assert len(places) == len(set(places))
