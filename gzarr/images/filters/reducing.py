"""`reduce_blocks`: what a function makes of the blocks of a large array, combined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from gzarr.display.progress import ProgressLike
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.reductions import MAX_NBYTES, fold
from gzarr.images.image import Image

P = TypeVar("P")


def reduce_blocks(
    func: Callable[[Any], P],
    array: Array | Image,
    combine: Callable[[P, P], P],
    *,
    max_nbytes: int = MAX_NBYTES,
    progress: ProgressLike = None,
    device: str | None = None,
) -> P:
    """Reduce an array of any size without loading it: apply a function to blocks, and combine what it returns.

    Parameters
    ----------
    func : callable
        Called with blocks of whole chunks, as NumPy arrays, or CuPy arrays on a device, by several threads at once. Of
        chunks that are not stored, blocks hold the fill value, and nothing is read.
    array : Array or Image
        The array; of an image, level 0.
    combine : callable
        Called with what was made of some blocks and of the block after them, in the order of the blocks.
    max_nbytes : int
        Memory for blocks.
    progress : bool or callable, optional
        True for a bar, or a function of (bytes done, bytes in all, name).
    device : str, optional
        Where the function runs: "auto", "cpu", "cuda" or "cuda:N". By default where the array is read to.

    Returns
    -------
    object
        What is made of all blocks.

    Raises
    ------
    ValueError
        If the array has no elements.
    ChunkError
        If a stored chunk is damaged.

    See Also
    --------
    gzarr.Array.stats : the least and the greatest element, mean, standard deviation and histogram.

    Examples
    --------
    >>> import gzarr, gzarr.images, numpy as np
    >>> z = gzarr.array(np.arange(12).reshape(3, 4), chunks=(2, 2))
    >>> int(gzarr.images.reduce_blocks(np.sum, z, np.add))
    66
    """
    found = array.levels[0] if isinstance(array, Image) else array
    if not isinstance(found, Array):
        raise TypeError(f"reduce_blocks: expected a gzarr array, got {type(array).__name__}; put it into gzarr.array")
    if not found.size:
        raise ValueError(f"reduce_blocks: {found.store_path} has no elements, so there is nothing to combine")
    found = found if device is None else found.to(device)
    return cast("P", fold(found, func, combine, max_nbytes=max_nbytes, progress=progress))
