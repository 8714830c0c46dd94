"""What the compiled loop reduces, what it leaves to NumPy, and tables that it refuses."""

from typing import Any

import numpy as np
import pytest

from gzarr.backend import WINDOW_METHODS
from gzarr.cpu.compiled import library
from gzarr.cpu.windows import reduce_by_numpy, reduce_windows

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")


def loop_reduces(block: np.ndarray, factors: tuple[int, ...], method: str, kind: int = 0) -> Any:
    out = np.zeros([-(-n // f) for n, f in zip(block.shape, factors, strict=True)], block.dtype)
    args = block, np.array(factors, np.int64), out, kind, WINDOW_METHODS.index(method)
    done: bool = library.loop().reduce(*args)
    if done:
        wanted = np.zeros_like(out)
        reduce_by_numpy(block, factors, method, wanted)
        np.testing.assert_array_equal(out, wanted)
    return done


def test_windows_that_are_too_large_are_left() -> None:
    block = np.arange(1 << 16).reshape(2, -1).astype("u2")
    assert [loop_reduces(block, (1, 1 << n), "mean") for n in (15, 16)] == [True, False]
    assert [loop_reduces(block, (2, 1 << n), "mode") for n in (6, 7)] == [True, False]
    assert [loop_reduces(block, (2, 1 << n), "min") for n in (14, 15)] == [True, False]
    assert not loop_reduces(block, (1 << 40, 1 << 40), "mean")


def test_what_is_left_is_reduced_by_numpy() -> None:
    block = np.random.default_rng(0).integers(0, 9, (3, 400)).astype("u1")
    for method, factors in (("median", (3, 50)), ("mode", (2, 200))):
        out, wanted = np.zeros((2, 9, 9), "u1")[:, : -(-3 // factors[0]), : -(-400 // factors[1])]
        reduce_windows(block, factors, method, out)
        reduce_by_numpy(block, factors, method, wanted)
        np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize(("method", "kind"), [(-1, 0), (5, 0), (0, 3), (0, -1)])
def test_unknown_methods_and_kinds_are_left(method: int, kind: int) -> None:
    block, out = np.zeros((4, 4), "u2"), np.zeros((2, 2), "u2")
    assert not library.loop().reduce(block, np.array([2, 2]), out, kind, method)


@pytest.mark.parametrize(
    ("block", "factors", "out"),
    [
        (np.zeros((4, 5)), [2, 2], np.zeros((2, 2))),
        (np.zeros((4, 5)), [2, 2], np.zeros((2, 3), "f4")),
        (np.zeros((4, 5)), [2], np.zeros((2, 3))),
        (np.zeros((4, 5)), [2, 2, 2], np.zeros((2, 3))),
        (np.zeros((4, 5)), [2, 0], np.zeros((2, 3))),
        (np.zeros((4, 5)), [2, -2], np.zeros((2, 3))),
        (np.zeros((4, 5)), [2, 2], np.zeros(6)),
        (np.zeros((0, 5)), [2, 2], np.zeros((0, 3))),
        (np.zeros(()), [], np.zeros(())),
        (np.zeros([1] * 33), [1] * 33, np.zeros([1] * 33)),
    ],
)
def test_shapes_that_do_not_fit_are_refused(block: np.ndarray, factors: list[int], out: np.ndarray) -> None:
    with pytest.raises(ValueError, match="tables"):
        library.loop().reduce(block, np.array(factors, np.int64), out, 2, 0)


def test_results_must_be_writable() -> None:
    out = np.zeros((2, 3))
    out.flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        library.loop().reduce(np.zeros((4, 5)), np.array([2, 2]), out, 2, 0)


def test_arrays_in_any_order() -> None:
    block = np.random.default_rng(0).integers(0, 255, (40, 24, 18)).astype("u1")
    for axes in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        assert loop_reduces(block.transpose(axes), (2, 3, 2), "mean")
        assert loop_reduces(block.transpose(axes)[::-1, :, ::2], (2, 3, 1), "max")
