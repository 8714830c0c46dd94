"""Merges segmentations of blocks, each with labels of its own, into one.

Theory of operation. A segmentation is made in blocks that overlap, so that objects at the borders are seen whole, and
labels of different blocks have nothing to do with each other. Two neighbours have seen the voxels around their border
both: labels that agree there are one object. The result takes of each block what lies inside its borders.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gzarr.display.progress import ProgressLike
from gzarr.identity.runs import Resume, identify
from gzarr.images.blocks import BlockGrid
from gzarr.images.labels import numbering
from gzarr.images.labels.components import Pairs, count_pairs, face_of, first_of_each, runs_of, side_of
from gzarr.images.pyramid.device_memory import left_nbytes
from gzarr.indexing.keys import Coords


def merge_labels(
    labels: Any,
    out: Any,
    depth: int | Sequence[int] = 0,
    *,
    block: int | Sequence[int] | None = None,
    threshold: float = 0.5,
    max_nbytes: int | None = None,
    max_device_nbytes: int | None = None,
    resume: Resume = False,
    progress: ProgressLike = None,
    device: str | None = None,
    on: Any = None,
    part: tuple[int, int] | None = None,
) -> int:
    """Merge the labels of blocks that were segmented separately, in bounded memory.

    Two labels of neighbouring blocks become one object if the voxels that have either of them, around the border, have
    mostly both: if the intersection over the union (IoU) is above the threshold. With a ``depth``, these are the voxels
    that both blocks have seen, as in the distributed segmentation of cellpose; without one, the two planes at the
    border are compared, in which voxels that face each other count as the same. A threshold of 0 merges whatever
    touches, as dask-image does. Above 0.5, no label has two partners across a border.

    Parameters
    ----------
    labels : Array, Image, path or numpy.ndarray
        Integers, 0 for the background. With a ``depth``, the widened blocks side by side, as ``dask.array.overlap``
        lays them out: block i occupies ``block + 2 * depth`` elements of an axis, of which the first and the last
        ``depth`` belong to its neighbours, or lie beyond the ends. The last block may be smaller.
    out : Array, Image or path
        Where the merged labels go, as in `label`. It has no margins: each block takes ``block`` elements of an axis.
    depth : int or sequence of int
        Voxels by which each block reaches beyond its borders; of each axis, or of all.
    block : int or sequence of int, optional
        Shape of a block without its margins. By default, that of a chunk of ``labels`` less the margins.
    threshold : float
        IoU above which labels are merged, from 0 up to 1.
    max_nbytes, max_device_nbytes, resume, progress, device, on, part
        As in `label`.

    Returns
    -------
    int
        The number of objects. They are numbered by their first voxels, in scan order.

    Raises
    ------
    ValueError
        If labels are no integers, blocks and depth do not fit the shape, or for what `label` raises it.

    Examples
    --------
    >>> import gzarr, gzarr.images
    >>> labels = gzarr.array([[1, 1, 1, 1], [0, 0, 0, 0], [2, 2, 0, 5]], chunks=(3, 2))
    >>> merged = gzarr.zeros((3, 4), chunks=(3, 2), dtype="u1")
    >>> gzarr.images.merge_labels(labels, merged)
    3
    >>> merged[:]
    array([[1, 1, 1, 1],
           [0, 0, 0, 0],
           [2, 2, 0, 3]], dtype=uint8)
    """
    source = numbering.find_source(labels, device, max_device_nbytes)
    max_nbytes = left_nbytes(source.backend, max_nbytes, max_device_nbytes)
    stored = tuple(source.array.shape)
    if np.dtype(source.array.dtype).kind not in "ui":
        raise ValueError(f"{source.name}: labels are integers, got {source.array.dtype}")
    if not 0 <= threshold < 1:
        raise ValueError(f"threshold must be from 0 up to 1, got {threshold!r}")
    margins = _per_axis("depth", depth, len(stored), 0)
    inner = [max(chunk - 2 * margin, 1) for chunk, margin in zip(source.chunks, margins, strict=True)]
    cores = _per_axis("block", inner if block is None else block, len(stored), 1)
    blocks = BlockGrid(_inner_shape(source.name, stored, cores, margins), cores)
    steps = [
        tuple(move * (axis == along) for axis in range(len(stored))) for along in range(len(stored)) for move in (-1, 1)
    ]

    def link(step: Coords, mine: NDArray[Any], other: NDArray[Any]) -> Pairs:
        return agreeing(mine, other, threshold)

    def label_block(coords: Coords) -> numbering.LabelledBlock:
        widened = source.read(_stored_region(blocks, coords, margins, stored))
        local, n = compact(source.backend.xp, widened)
        core = local[tuple(slice(margin, extent - margin) for margin, extent in zip(margins, local.shape, strict=True))]
        sides = {side_of(step) for step in steps if blocks.neighbour(coords, step) is not None}
        faces = {side: face_of(local, side, max(2 * margins[side[0]], 1)) for side in sides}
        return numbering.LabelledBlock(core, first_of_each(source.backend.xp, core, n), faces)

    # The block, runs of labels, their order, and compact labels.
    method = numbering.BlockMethod(blocks, label_block, link, steps, 3 * source.itemsize + 24)
    arguments = {"depth": margins, "block": cores, "threshold": threshold}
    run = identify("merge_labels", resume, inputs={"labels": source.array}, arguments=arguments)
    chunks = cores if any(margins) else None
    how: Any = {"max_nbytes": max_nbytes, "progress": progress, "on": on, "run": run}
    recipe = numbering.label_recipe("merge_labels", resume, part, **how)
    request = numbering.LabelRequest(recipe, out, blocks.shape, chunks)
    output = numbering.find_output(request, source)
    _check_unit(output, blocks)
    return numbering.number_blocks(request, source, output, method)


def _check_unit(output: numbering.LabelOutput, blocks: BlockGrid) -> None:
    """Raise ValueError if blocks end within units of an image, which cannot take a part of one."""
    for axis, (unit, block, extent) in enumerate(zip(output.unit, blocks.block, blocks.shape, strict=True)):
        if output.has_pyramid and block < extent and block % unit:
            raise ValueError(
                f"out: its levels are written in units of {unit} along axis {axis}, which the blocks of {block} do not "
                "keep to; give an image of smaller chunks, or an array"
            )


def _per_axis(what: str, given: int | Sequence[int], ndim: int, least: int) -> Coords:
    values = (given,) * ndim if isinstance(given, (int, np.integer)) else tuple(given)
    if len(values) != ndim or not all(isinstance(v, (int, np.integer)) and v >= least for v in values):
        raise ValueError(f"{what} must be an integer >= {least}, or {ndim} of them, one of each axis; got {given!r}")
    return tuple(int(v) for v in values)


def _inner_shape(name: str, stored: Coords, cores: Coords, margins: Coords) -> Coords:
    """Return the shape without margins. Raises: ValueError if the last block of an axis is nothing but margins."""
    shape = []
    for axis, (extent, core, margin) in enumerate(zip(stored, cores, margins, strict=True)):
        n = -(-extent // (core + 2 * margin))
        last = extent - (n - 1) * (core + 2 * margin) - 2 * margin
        if n and last < 1:
            raise ValueError(
                f"{name}: axis {axis} of {extent} is no row of blocks of {core} with {margin} more at each end: the "
                f"last one would have {last}; give the block and the depth that were segmented"
            )
        shape.append(extent - 2 * margin * n)
    return tuple(shape)


def _stored_region(blocks: BlockGrid, coords: Coords, margins: Coords, stored: Coords) -> tuple[slice, ...]:
    each = zip(coords, blocks.block, margins, stored, strict=True)
    return tuple(
        slice(at * (core + 2 * margin), min((at + 1) * (core + 2 * margin), extent))
        for at, core, margin, extent in each
    )


def compact(xp: Any, labels: Any) -> tuple[Any, int]:
    """Return labels that count from 1 in int32, in the order of the given ones, and how many there are; 0 stays."""
    flat = labels.reshape(-1)
    runs, lengths = flat, None
    if xp is np:  # labels come in runs: sorting these takes a small part of the time
        starts, lengths = runs_of(flat)
        runs = flat[starts]
    values, where = xp.unique(xp.append(runs, xp.zeros(1, flat.dtype)), return_inverse=True)
    where, zero = where[:-1], where[-1:]
    local = xp.where(where == zero, 0, where + (where < zero)).astype(np.int32)
    local = local if lengths is None else np.repeat(local, lengths)
    return local.reshape(labels.shape), len(values) - 1


def agreeing(mine: NDArray[Any], other: NDArray[Any], threshold: float) -> Pairs:
    """Return the pairs of labels of two arrays whose intersection over their union is above a threshold."""
    pairs, both = count_pairs(mine, other)
    if not len(pairs):
        return pairs
    sizes = np.bincount(mine.reshape(-1))[pairs[:, 0]], np.bincount(other.reshape(-1))[pairs[:, 1]]
    return pairs[both > threshold * (sizes[0] + sizes[1] - both)]
