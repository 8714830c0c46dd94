"""`reduce_blocks`: what a function makes of the blocks of a large array, combined."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from gzarr.display.progress import ProgressLike
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.missing import fold_present, missing_of
from gzarr.hierarchy.reductions import fold_along, kept_results
from gzarr.identity.runs import identify
from gzarr.images.filters.alike import Alike
from gzarr.images.filters.inputs import arrays_of
from gzarr.images.halos import axis_of
from gzarr.images.image import Image
from gzarr.images.tasks import MAX_NBYTES

P = TypeVar("P")


def reduce_blocks(
    func: Callable[..., P],
    array: Array | Image | Sequence[Array | Image],
    combine: Callable[[P, P], P],
    *,
    axis: int | str | Sequence[int | str] | None = None,
    skip: Any = None,
    max_nbytes: int = MAX_NBYTES,
    progress: ProgressLike = None,
    device: str | None = None,
    on: Any = None,
    part: tuple[int, int] | None = None,
    notes: Any = None,
) -> P:
    """Reduce an array of any size without loading it: apply a function to blocks, and combine what it returns.

    Parameters
    ----------
    func : callable
        Called with a block of each array, of whole chunks of the first one, by several threads at once: NumPy arrays,
        or CuPy arrays on a device. Of chunks of a single array that are not stored, blocks hold the fill value, and
        nothing is read. If it returns an array, it may be called on parts of one block besides, to see whether the
        shape of the result follows that of the block.
    array : Array or Image, or a sequence of them
        The array; of an image, level 0. Several have one shape, as an image and its labels.
    combine : callable
        Called with what was made of some blocks and of the block after them, in the order of the blocks.
    axis : int, str or sequence of them, optional
        Numbers or names of the axes that the function takes away, for projections. It returns an array of the shape of
        its block without them; only the results of blocks along them are combined, and the result has the other axes.
        By default all results are combined: they are alike, as numbers, or histograms of the same bins, are.
    skip : number, array of bool, optional
        Elements of the first array that are missing: NaN, a number, or a mask of its shape. Blocks then have one axis,
        of the elements of each array that are there, and those without any are left out. By default blocks are as they
        are.
    max_nbytes : int
        Memory for blocks; with ``axis``, the result takes its own besides.
    progress : bool or callable, optional
        True for a bar, or a function of (bytes done, bytes in all, name).
    device : str, optional
        Where the function runs: "auto", "cpu", "cuda" or "cuda:N". By default where the array is read to.
    on : optional
        What applies the function, such as a `distributed.Client`: see `gzarr.transfer`. Results are combined here.
    part, notes : optional
        Which part of the blocks is done here, and where parts find each other's results: see `gzarr.Array.stats`.

    Returns
    -------
    object
        What is made of all blocks; with ``axis``, an array.

    Raises
    ------
    ValueError
        If the array has no elements, or none that are there, or arrays have different shapes. Without ``axis``, if the
        shape of results follows that of their blocks along an axis of several chunks, and they would be merged; with
        it, if they have another shape, or ``skip`` is given too.
    ChunkError
        If a stored chunk is damaged.
    PartsMissingError
        In every part but the one that ends last.

    See Also
    --------
    gzarr.Array.stats : the least and the greatest element, mean, standard deviation and histogram.

    Examples
    --------
    >>> import gzarr, gzarr.images, numpy as np
    >>> z = gzarr.array(np.arange(12).reshape(3, 4), chunks=(2, 2))
    >>> int(gzarr.images.reduce_blocks(np.sum, z, np.add))
    66

    A maximum projection, in bounded memory:

    >>> gzarr.images.reduce_blocks(lambda block: block.max(axis=0), z, np.maximum, axis=0)
    array([ 8,  9, 10, 11])

    Sums of the intensities of objects:

    >>> labels = gzarr.array(np.array([[0, 1, 1, 0], [0, 1, 0, 2], [0, 0, 2, 2]]), chunks=(2, 2))
    >>> def sums(labels, z):
    ...     return np.bincount(labels.ravel(), z.ravel(), minlength=3)
    >>> gzarr.images.reduce_blocks(sums, [labels, z], np.add)
    array([30.,  8., 28.])
    """
    given = list(array) if isinstance(array, Sequence) else [array]
    found, *others = arrays_of("reduce_blocks", given)
    if not found.size:
        raise ValueError(f"reduce_blocks: {found.store_path} has no elements, so there is nothing to combine")
    found = found if device is None else found.to(device)
    others = [one.to(found.backend) for one in others]
    names = given[0].axes if isinstance(given[0], Image) else found.dimension_names
    several = [] if axis is None else axis if isinstance(axis, Sequence) and not isinstance(axis, str) else [axis]
    axes = sorted({axis_of(one, "axis", found.ndim, names) for one in several})
    if axis is not None and skip is not None:
        raise ValueError(
            "reduce_blocks: skip= gives func elements on one axis, so it does not go with axis=; leave missing "
            "elements out in func, as np.nanmax does"
        )

    def told() -> Any:
        arguments = {"axes": axes, "skip": skip, "max_nbytes": max_nbytes}
        inputs = {str(number): one for number, one in enumerate([found, *others])}
        functions: Any = {"func": func, "combine": combine}
        return identify("reduce_blocks", True, functions=functions, inputs=inputs, arguments=arguments).to_json()

    with kept_results(on, part, notes, told) as by:
        options: dict[str, Any] = {"others": others, "max_nbytes": max_nbytes, "progress": progress, "on": by}
        if axis is not None:
            return cast("P", fold_along(found, axes, cast("Any", func), cast("Any", combine), **options))
        return _combined(found, func, combine, skip, options)


def _combined(
    found: Array, func: Callable[..., P], combine: Callable[[P, P], P], skip: Any, options: dict[str, Any]
) -> P:
    """What is made of all blocks."""
    missing = None if skip is None else missing_of(skip, found)
    cut = [n for n, one in enumerate(found.metadata.chunk_grid) if one.nchunks > 1]
    alike = Alike(func, combine, cut if missing is None else [0])
    if options["on"] is not None and missing is None:  # what workers find out about the function stays with them
        first = tuple(slice(0, axis.bounds(0)[1]) for axis in found.metadata.chunk_grid)
        alike.reduce(*(one[first] for one in (found, *options["others"])))
    made = fold_present(found, missing, alike.reduce, alike.combine, by=combine, **options)
    if made is None and missing is not None:
        raise ValueError(
            f"reduce_blocks: all elements of {found.store_path} are missing, so there is nothing to combine"
        )
    return cast("P", made)
