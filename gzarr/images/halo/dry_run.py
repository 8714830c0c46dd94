"""Calls a function on one block, to see what it returns and how much memory it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gzarr.api.many import read_many
from gzarr.backend import Array as AnyArray
from gzarr.hierarchy.array import Array
from gzarr.images.halo.boundary import Depth

#: Elements of the block, without its halo, at most: so many that fixed costs do not show.
N_ELEMENTS = 1 << 18
#: Times the block that a function is taken to need where its memory cannot be measured, as something else traces it.
ASSUMED = 4


class DryRun(NamedTuple):
    """What a function did with a block.

    Attributes
    ----------
    result : array
        What it returned.
    shape : tuple of int
        Of the block.
    block_nbytes : int
        Memory that it took for each element of the block, its result included, in bytes.
    """

    result: AnyArray
    shape: tuple[int, ...]
    block_nbytes: int


def dry_run(func: Callable[..., Any], sources: Sequence[Array], depth: Sequence[Depth]) -> DryRun:
    """Call a function on the first block of the inputs, with a halo. Raises: what it raises, ChunkError, StoreError."""
    first = sources[0]
    side = round(N_ELEMENTS ** (1 / first.ndim))
    shape = tuple(min(n, side) + sum(halo) for n, halo in zip(first.shape, depth, strict=True))
    region = tuple(slice(min(n, m)) for n, m in zip(shape, first.shape, strict=True))
    blocks = read_many([(source, region) for source in sources])
    missing = [(0, n - m) for n, m in zip(shape, blocks[0].shape, strict=True)]
    if any(map(any, missing)):
        blocks = [first.backend.xp.pad(block, missing, mode="edge") for block in blocks]
    try:
        result, nbytes = first.backend.measured(lambda: func(*blocks))
    except Exception as error:
        error.add_note(f"in a trial on the first block, of shape {shape}, of {first.store_path}")
        raise
    given, returned = (sum(getattr(array, "nbytes", 0) for array in arrays) for arrays in (blocks, [result]))
    if nbytes is None:
        nbytes = returned + ASSUMED * given
    n_elements = max(blocks[0].size, 1)
    return DryRun(result, shape, -(-max(nbytes, returned) // n_elements))
