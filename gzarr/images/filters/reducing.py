"""`reduce_blocks`: what a function makes of the blocks of a large array, combined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from gzarr.display.progress import ProgressLike
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.missing import fold_present, missing_of
from gzarr.hierarchy.reductions import MAX_NBYTES
from gzarr.images.image import Image

P = TypeVar("P")


def reduce_blocks(
    func: Callable[..., P],
    array: Array | Image | Sequence[Array | Image],
    combine: Callable[[P, P], P],
    *,
    skip: Any = None,
    max_nbytes: int = MAX_NBYTES,
    progress: ProgressLike = None,
    device: str | None = None,
) -> P:
    """Reduce an array of any size without loading it: apply a function to blocks, and combine what it returns.

    Parameters
    ----------
    func : callable
        Called with a block of each array, of whole chunks of the first one, by several threads at once: NumPy arrays,
        or CuPy arrays on a device. Of chunks of a single array that are not stored, blocks hold the fill value, and
        nothing is read.
    array : Array or Image, or a sequence of them
        The array; of an image, level 0. Several have one shape, as an image and its labels.
    combine : callable
        Called with what was made of some blocks and of the block after them, in the order of the blocks.
    skip : number, array of bool, optional
        Elements of the first array that are missing: NaN, a number, or a mask of its shape. Blocks then have one axis,
        of the elements of each array that are there, and those without any are left out. By default blocks are as they
        are.
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
        If the array has no elements, or none that are there, or arrays have different shapes.
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

    Sums of the intensities of objects:

    >>> labels = gzarr.array(np.array([[0, 1, 1, 0], [0, 1, 0, 2], [0, 0, 2, 2]]), chunks=(2, 2))
    >>> def sums(labels, z):
    ...     return np.bincount(labels.ravel(), z.ravel(), minlength=3)
    >>> gzarr.images.reduce_blocks(sums, [labels, z], np.add)
    array([30.,  8., 28.])
    """
    given = list(array) if isinstance(array, Sequence) else [array]
    arrays = [one.levels[0] if isinstance(one, Image) else one for one in given]
    for one in arrays:
        if not isinstance(one, Array):
            raise TypeError(f"reduce_blocks: expected a gzarr array, got {type(one).__name__}; put it into gzarr.array")
        if one.shape != arrays[0].shape:
            raise ValueError(
                f"reduce_blocks: {one.store_path} has shape {one.shape}, but {arrays[0].store_path} has "
                f"{arrays[0].shape}; arrays must have one shape"
            )
    if not arrays:
        raise ValueError("reduce_blocks: there is no array")
    found, *others = arrays
    if not found.size:
        raise ValueError(f"reduce_blocks: {found.store_path} has no elements, so there is nothing to combine")
    found = found if device is None else found.to(device)
    others = [one.to(found.backend) for one in others]
    missing = None if skip is None else missing_of(skip, found)
    made = fold_present(found, missing, func, combine, others=others, max_nbytes=max_nbytes, progress=progress)
    if made is None and missing is not None:
        raise ValueError(
            f"reduce_blocks: all elements of {found.store_path} are missing, so there is nothing to combine"
        )
    return cast("P", made)
