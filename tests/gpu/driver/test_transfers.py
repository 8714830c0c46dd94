"""What is told of CuPy: on a double of it, and on CuPy itself as far as it runs without a GPU. Nothing ran on a GPU."""

from __future__ import annotations

import types
from concurrent import futures
from typing import Any

import numpy as np
import pytest

from gzarr.gpu.device import cuda_transfers
from gzarr.profiling import transfers as told
from gzarr.testing import OutOfMemoryError, out_of_memory, transfers
from tests.gpu import fake_cupy

VALUES = np.arange(8.0)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The double, watched while someone observes."""
    double = fake_cupy.module()
    monkeypatch.setattr(told, "_watchers", {"cupy": lambda: cuda_transfers.watching(double)})
    monkeypatch.setattr(cuda_transfers, "_STEPS", ("cupy", "contextlib", "tests.gpu.fake_cupy"))
    return double


def as_if_in(module: str, code: str, **names: Any) -> Any:
    """The function f that code defines, as if a module of gzarr had defined it."""
    there = types.ModuleType(module)
    vars(there).update(names)
    exec(code, vars(there))
    return there.f


def test_copies_and_waits_are_told(cupy: Any) -> None:
    before = {name: vars(cupy.ndarray)[name] for name in ("get", "set")}, cupy.asarray
    with transfers() as t:
        there = cupy.asarray(VALUES)
        there.get()
        float(there[3].item())
        there.set(VALUES)
        cupy.asarray(there)
        cupy.asnumpy(there)
        cupy.cuda.get_current_stream().synchronize()
    assert (t.to_device.count, t.to_device.nbytes) == (2, 128)
    assert (t.to_host.count, t.to_host.nbytes) == (3, 136)
    assert t.synchronizations.count >= 4
    assert ({name: vars(cupy.ndarray)[name] for name in ("get", "set")}, cupy.asarray) == before
    there.get()
    assert t.to_host.count == 3


def test_allocations_are_told_as_long_as_they_live(cupy: Any) -> None:
    with transfers() as t:
        for _ in range(3):
            cupy.empty(64, "f8")
            cupy.cuda.get_current_stream().synchronize()  # the double frees what no work refers to any more
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


def test_methods_of_cupy_itself_can_be_replaced() -> None:
    """With CuPy, which needs no GPU for it: scalars of Python come through the method that is replaced."""
    real = pytest.importorskip("cupy", reason="CuPy is not installed")
    host = np.arange(4.0)
    pointer = real.cuda.MemoryPointer(real.cuda.UnownedMemory(host.ctypes.data, host.nbytes, host, 0), 0)
    there = real.ndarray((), "f8", pointer)
    get = real.ndarray.get

    class RefusedError(Exception):
        pass

    class Refusing:
        def crossed(self, what: str, nbytes: int, *, inside: bool) -> None:
            raise RefusedError(what)

    for ask in (float, int, bool, str, real.asnumpy, lambda x: x.item(), lambda x: x.tolist(), lambda x: x.get()):
        with (
            pytest.raises(RefusedError, match="to_host"),
            cuda_transfers.watching(real),
            told.observed_by(Refusing()),
        ):
            ask(there)
    assert real.ndarray.get is get


def test_contexts_of_threads_may_overlap(cupy: Any) -> None:
    """The functions are restored by the last, whoever began."""
    before = vars(cupy.ndarray)["get"], cupy.asarray, cupy.cuda.Stream.synchronize
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
    assert (vars(cupy.ndarray)["get"], cupy.asarray, cupy.cuda.Stream.synchronize) == before


def test_contexts_within_each_other_count_once(cupy: Any) -> None:
    with transfers() as t, transfers() as u:
        there = cupy.empty(64, "f8")
        there.get()
    for counts in (t, u):
        assert (counts.allocations.count, counts.to_host.count) == (1, 1)
