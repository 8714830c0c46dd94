"""What is told of CuPy: copies, waits and allocations, of the caller and inside of gzarr."""

import types
from concurrent import futures
from typing import Any

import numpy as np
import pytest

from gzarr.gpu.device import cuda_transfers
from gzarr.testing import OutOfMemoryError, out_of_memory, transfers

VALUES = np.arange(8.0)


@pytest.fixture
def cupy(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """CuPy, which is watched while someone observes. The pool of these tests is a part of it."""
    monkeypatch.setattr(cuda_transfers, "_STEPS", (*cuda_transfers._STEPS, "tests"))
    return cuda.cupy


def replaced(cupy: Any) -> tuple[Any, ...]:
    """What an observer replaces."""
    return vars(cupy.ndarray).get("get"), cupy.asarray, cupy.cuda.Stream.synchronize


def as_if_in(module: str, code: str, **names: Any) -> Any:
    """The function f that code defines, as if a module of gzarr had defined it."""
    there = types.ModuleType(module)
    vars(there).update(names)
    exec(code, vars(there))
    return there.f


def test_copies_and_waits_are_told(cupy: Any) -> None:
    before = replaced(cupy)
    with transfers() as t:
        there = cupy.asarray(VALUES)
        there.get()
        float(there[3].item())
        there.set(VALUES)
        cupy.asarray(there)
        cupy.asnumpy(there)
        cupy.cuda.Stream.null.synchronize()
    assert (t.to_device.count, t.to_device.nbytes) == (2, 128)
    assert (t.to_host.count, t.to_host.nbytes) == (3, 136)
    assert t.synchronizations.count >= 4
    assert replaced(cupy) == before
    there.get()
    assert t.to_host.count == 3


def test_scalars_of_python_are_copies(cupy: Any) -> None:
    there = cupy.asarray(3.0)
    for ask in (float, int, bool, str, cupy.asnumpy, lambda x: x.item(), lambda x: x.tolist(), lambda x: x.get()):
        with transfers() as t:
            ask(there)
        assert t.to_host.count == 1


def test_allocations_are_told_as_long_as_they_live(cupy: Any) -> None:
    with transfers() as t:
        for _ in range(3):
            cupy.empty(64, "f8")
    assert (t.allocations.count, t.allocations.nbytes) == (3, 3 * 512)
    assert t.peak_nbytes == 512
    with out_of_memory(after=1):
        cupy.empty(4)
        with pytest.raises(OutOfMemoryError):
            cupy.empty(4)


def test_what_gzarr_does_is_inside_and_results_are_the_callers(cupy: Any) -> None:
    upload = as_if_in("gzarr.gpu.reading.some", "def f(): return cupy.asarray(VALUES).get()", cupy=cupy, VALUES=VALUES)
    result = as_if_in(
        "gzarr.gpu.device.cuda", "def result(): return cupy.empty(64)\ndef f(): return result()", cupy=cupy
    )
    with transfers() as t:
        upload()
        result()
    assert (t.to_device.count, t.to_host.count, t.allocations.count) == (0, 0, 1)
    assert (t.inside.to_device.count, t.inside.to_host.count, t.inside.allocations.count) == (1, 1, 1)


def test_contexts_of_threads_may_overlap(cupy: Any) -> None:
    """The functions are restored by the last, whoever began."""
    before = replaced(cupy)
    first, second = transfers(), transfers()
    with futures.ThreadPoolExecutor(1) as pool:
        t = first.__enter__()
        u = pool.submit(second.__enter__).result()
        there = cupy.asarray(VALUES)
        first.__exit__(None, None, None)
        there.get()
        pool.submit(second.__exit__, None, None, None).result()
    assert (t.to_device.count, t.to_host.count) == (1, 0)
    assert (u.to_device.count, u.to_host.count) == (1, 1)
    assert replaced(cupy) == before


def test_contexts_within_each_other_count_once(cupy: Any) -> None:
    with transfers() as t, transfers() as u:
        there = cupy.empty(64, "f8")
        there.get()
    for counts in (t, u):
        assert (counts.allocations.count, counts.to_host.count) == (1, 1)
