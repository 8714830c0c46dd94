"""The pieces that the compiled loop is given, and their order."""

from __future__ import annotations

import pytest

from gzarr.cpu.tables import Piece, spread


@pytest.mark.parametrize("n", [0, 1, 2, 7, 64, 65])
@pytest.mark.parametrize("n_threads", [0, 1, 2, 3, 16, 100])
def test_spread_takes_every_number_once(n: int, n_threads: int) -> None:
    assert sorted(spread(n, n_threads)) == list(range(n))


def test_threads_that_take_turns_stay_apart() -> None:
    assert list(spread(8, 1)) == list(range(8))
    assert list(spread(8, 2)) == [0, 4, 1, 5, 2, 6, 3, 7]
    assert list(spread(7, 3)) == [0, 3, 6, 1, 4, 2, 5]


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("size", [1, 4, 100])
def test_pieces_cover_what_they_were_cut_from(size: int, n_threads: int) -> None:
    whole = Piece(5, 23, None, ((0, 28),), (0, 28))
    pieces = list(whole.cut(size, n_threads))
    assert sorted(at for piece in pieces for at in range(piece.first, piece.first + piece.n)) == list(range(5, 28))
    assert max(piece.n for piece in pieces) <= size
