"""An arena hands out what its blocks have, under its limit, and the same again after it was rewound."""

import numpy as np
import pytest

from gzarr.errors import OutOfMemoryError
from gzarr.gpu.device.memory import ALIGNMENT, MIN_BLOCK_NBYTES, Arena, OverLimitError, Results, Staging


class Blocks:
    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, nbytes: int) -> np.ndarray:
        self.sizes.append(nbytes)
        return np.zeros(nbytes, np.uint8)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_pieces_do_not_overlap_and_are_aligned_within_blocks() -> None:
    arena = Arena(Blocks())
    pieces = [arena.take(n) for n in (1, 0, ALIGNMENT, 3, MIN_BLOCK_NBYTES, 7)]
    assert [piece.nbytes for piece in pieces] == [1, 0, ALIGNMENT, 3, MIN_BLOCK_NBYTES, 7]
    assert all((address(piece) - address(piece.base)) % ALIGNMENT == 0 for piece in pieces)
    for number, piece in enumerate(pieces):
        piece[:] = number
    assert all((piece == number).all() for number, piece in enumerate(pieces))


def test_a_rewound_arena_gives_the_same_places_without_allocating() -> None:
    blocks = Blocks()
    arena = Arena(blocks)
    sizes = (10, 5 << 20, 3 << 20, 17, 9 << 20)
    first = [address(arena.take(n)) for n in sizes]
    n_blocks = len(blocks.sizes)
    arena.rewind()
    assert [address(arena.take(n)) for n in sizes] == first
    assert len(blocks.sizes) == n_blocks


def test_rewinding_to_a_mark_keeps_what_was_taken_before() -> None:
    arena = Arena(Blocks())
    kept = arena.take(100)
    mark = arena.mark()
    later = [arena.take(n) for n in (10, 2 * MIN_BLOCK_NBYTES)]
    arena.rewind(mark)
    again = [arena.take(n) for n in (10, 2 * MIN_BLOCK_NBYTES)]
    assert [address(a) for a in again] == [address(a) for a in later]
    assert address(kept) not in {address(a) for a in again}


@pytest.mark.parametrize("seed", range(5))
def test_blocks_never_exceed_the_limit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arena = Arena(Blocks(), 10_000)
    refused = 0
    for n in rng.integers(0, 3000, 300).tolist():
        try:
            arena.take(n)
        except OverLimitError:
            refused += 1
            arena.rewind()
            arena.compact()
            arena.take(n)
        assert arena.nbytes <= 10_000
    assert refused > 5


def test_compacting_makes_room_for_what_pieces_of_other_sizes_left_no_block_for() -> None:
    arena = Arena(Blocks(), 4 * MIN_BLOCK_NBYTES)
    arena.take(MIN_BLOCK_NBYTES)
    arena.take(2 * MIN_BLOCK_NBYTES)
    arena.rewind()
    with pytest.raises(OverLimitError, match="do not fit"):
        arena.take(3 * MIN_BLOCK_NBYTES)
    arena.compact()
    assert arena.take(4 * MIN_BLOCK_NBYTES).nbytes == 4 * MIN_BLOCK_NBYTES
    arena.release()
    assert arena.nbytes == 0


def test_an_allocator_that_has_less_than_is_asked_for_gives_what_is_needed() -> None:
    def allocate(nbytes: int) -> np.ndarray:
        if nbytes > 5000:
            raise OutOfMemoryError("none left")
        return np.zeros(nbytes, np.uint8)

    arena = Arena(allocate, 1 << 30)
    with pytest.raises(OverLimitError, match="none left") as raised:
        arena.take(8000)
    assert isinstance(raised.value.__cause__, OutOfMemoryError)
    assert arena.take(4000).nbytes == arena.nbytes == 4000
    arena.set_limit(100)
    assert (arena.limit, arena.nbytes) == (100, 0)


def test_a_batch_gets_the_pinned_blocks_of_the_one_before_it() -> None:
    blocks = Blocks()
    staging = Staging(blocks)
    first = [address(staging.take(n)) for n in (1000, 10, 0)]
    staging.rewind()
    assert [address(staging.take(n)) for n in (1050, 5, 0)] == first
    staging.rewind(1)
    larger = staging.take(5000)
    assert (address(larger) in first, larger.nbytes, len(blocks.sizes)) == (False, 5000, 3)
    staging.release()
    staging.take(1000)
    assert len(blocks.sizes) == 4


def test_results_are_taken_again_when_nothing_refers_to_them() -> None:
    blocks = Blocks()
    results = Results(blocks)
    kept, gone = results.take(1000), address(results.take(1000))
    view = kept[3:]
    del kept
    again = results.take(900)
    assert address(again) == gone
    assert address(view) - 3 not in (gone, address(results.take(900)))
    assert len(blocks.sizes) == 3
    del again, view
    assert results.take(5000).nbytes == 5000  # none of the blocks is large enough
    results.release()
    results.take(1)
    assert len(blocks.sizes) == 5
