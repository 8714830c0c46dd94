"""copy_plain copies boxes of plain chunks as NumPy does."""

import numpy as np
import pytest
from hypothesis import given

from gzarr.gpu.kernels import PLAIN, parts
from tests.gpu.kernels.boxes import Case, cases, check
from tests.gpu.kernels.launching import at_offset
from tests.gpu.kernels.reference import Shuffle


@given(cases(PLAIN))
def test_boxes(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("limit", [40, 7])
def test_parts_that_are_too_large_are_cut(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """Those of more units than numbers have, or that reach too far, also by index lists in an order of their own."""
    monkeypatch.setattr(parts, "_LIMIT", limit)
    rng = np.random.default_rng(2)
    chunk = at_offset(rng.integers(0, 256, 6 * 8 * 4, np.uint8), 0)
    lists = {(0, 0): rng.integers(0, 6, 5), (1, 0): rng.permutation(5), (0, 1): rng.integers(0, 8, 7)}
    for some in ({}, lists):
        target = at_offset(np.zeros(5 * 7 * 4, np.uint8), 0)
        case = Case((5, 7), [chunk], [Shuffle()], [0], (32, 4), target, [0], (28, 4), 4, 4, np.zeros(4, np.uint8), some)
        assert set(check(case)) == {"copy_plain"}


def test_points_of_fields_of_missing_chunks_are_filled() -> None:
    """A missing chunk has no address, from which a field begins later."""
    rng = np.random.default_rng(3)
    chunks = [at_offset(rng.integers(0, 256, 96, np.uint8), 0), None, None]
    lists = {(0, 0): rng.integers(0, 8, 5), (1, 0): rng.permutation(5)}
    target, fill = at_offset(np.zeros(3 * 20, np.uint8), 0), np.arange(4, dtype=np.uint8)
    case = Case((5,), chunks, [Shuffle()] * 3, [8] * 3, (12,), target, [0, 20, 40], (4,), 4, 4, fill, lists)
    assert check(case) == ["copy_plain"]


@pytest.mark.parametrize("nbytes", [1, 2, 4])
def test_rows_are_written_in_windows(nbytes: int) -> None:
    """Rows of all lengths, between all addresses, of a chunk that ends with the last of them, and of a missing one."""
    rng = np.random.default_rng(4)
    for more in range(16):
        n, step, size = 40 + more, (41 + more * 3) * nbytes, 40 * 100 * nbytes
        chunk = at_offset(rng.integers(0, 256, (22 * (43 + more) + n) * nbytes, np.uint8), more * nbytes % 16)
        target, fill = at_offset(np.zeros(2 * size, np.uint8), nbytes), rng.integers(0, 256, nbytes, np.uint8)
        inside, outside = ((43 + more) * nbytes * k for k in (12, 1)), (step * 11, -step)
        sources, targets = ([chunk, None], [Shuffle()] * 2, [0, 0]), (target, [10 * step, size + 10 * step])
        swap = nbytes if more % 2 else 0
        case = Case((2, 11, n), *sources, (*inside, nbytes), *targets, (*outside, nbytes), nbytes, swap, fill)
        assert check(case) == ["copy_plain"]


@pytest.mark.parametrize("nbytes", [1, 2, 4])
def test_rows_of_items_that_lie_apart_are_written_in_pieces(nbytes: int) -> None:
    """Rows of all lengths, at all addresses, of a chunk that ends with their last items."""
    rng = np.random.default_rng(5)
    for more in range(32):
        n, pitch = 16 + more * 5, (17 + more * 5 + more % 3) * nbytes
        chunk = at_offset(rng.integers(0, 256, 19 * n * nbytes, np.uint8), nbytes)
        target, swap = at_offset(np.zeros(19 * pitch, np.uint8), nbytes), nbytes if more % 2 else 0
        strides, targets = (nbytes, 19 * nbytes), (target, [more % 3 * nbytes], (pitch, nbytes))
        case = Case((19, n), [chunk], [Shuffle()], [0], strides, *targets, nbytes, swap, np.zeros(nbytes, np.uint8))
        assert check(case) == ["copy_plain"]
