"""Connected components of an array larger than memory, numbered as `scipy.ndimage.label` numbers those of a whole one.

Theory of operation. The mask is cut into blocks, each of which is labelled on its own. `gzarr.images.labels.components`
finds which labels of neighbouring blocks are one object, and `gzarr.images.labels.numbering` writes the numbers.
"""

from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gzarr.api.namespaces import scipy_namespace
from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend
from gzarr.cpu.threads import thread_count
from gzarr.display.progress import ProgressLike
from gzarr.identity.runs import Resume, identify
from gzarr.images.blocks import BlockGrid
from gzarr.images.labels import components, numbering
from gzarr.images.pyramid.device_memory import left_nbytes
from gzarr.images.pyramid.recipes import Recipe
from gzarr.images.tasks import limit_of
from gzarr.indexing.keys import Coords
from gzarr.tensors import to_host

#: Fewer voxels are not worth a block of their own.
_WORTH_VOXELS = 1 << 18
#: Blocks of a job in parts, at least, and how many have memory at once.
_BLOCKS_OF_PARTS = 16


def label(
    mask: Any,
    out: Any,
    connectivity: int = 1,
    *,
    structure: ArrayLike | None = None,
    max_nbytes: int | None = None,
    max_device_nbytes: int | None = None,
    resume: Resume = False,
    progress: ProgressLike = None,
    device: str | None = None,
    on: Any = None,
    part: tuple[int, int] | None = None,
) -> int:
    """Number the connected components of a mask, in bounded memory.

    The result equals that of `scipy.ndimage.label` for the whole array, with the same numbers. SciPy labels the blocks,
    and holds the interpreter's lock for it: one block is labelled at a time, while others are read and written.

    Parameters
    ----------
    mask : Array, Image, path or numpy.ndarray
        What is not 0 is an object. Level 0 of an image, whose objects extend along its axes of space only.
    out : Array, Image or path
        Where the numbers go, 0 for the background. An array of integers of the mask's shape; an image of labels, whose
        pyramid is built in the same pass; or a path, where an array is created like the mask, of the smallest unsigned
        type that has all numbers.
    connectivity : int
        How many axes two neighbouring voxels may differ in, from 1 (faces) to the number of axes (corners too).
    structure : array_like, optional
        Which neighbours are connected, of shape (3, ..., 3) and symmetric about its centre, instead of
        ``connectivity``.
    max_nbytes : int, optional
        Bytes that blocks and tables may take. By default 256 MiB, or what one block needs if that is more. Tables take
        about 40 bytes for each object and block that it lies in.
    max_device_nbytes : int, optional
        On a device, memory for everything, decoding and encoding included: see `map_overlap`.
    resume : bool or str
        Whether to go on with a call that was interrupted: it needs the same mask and arguments, else it is refused. The
        mask is labelled again, but what was written is not written again.
    progress : bool or callable, optional
        True for a bar, or a function of (bytes done, bytes in all, name of the array). The mask counts twice.
    device : str, optional
        Where blocks are labelled. By default, the mask's device.
    on : optional
        What labels the blocks, such as a `distributed.Client`: see `gzarr.transfer`. Objects are numbered here.
    part : tuple of int, optional
        Which part of the blocks is labelled here, (k, n) for one of n from 0, by processes that know nothing of each
        other but ``out``. The part that ends last, whichever it is, numbers the objects and writes all blocks.

    Returns
    -------
    int
        The number of objects.

    Raises
    ------
    ValueError
        If shapes differ, ``out`` is the mask or cannot hold the numbers (then nothing was written), or a block or the
        tables do not fit ``max_nbytes``.
    MissingExtraError
        If SciPy is missing: install ``gzarr[ome]``.
    PartsMissingError
        In every part but the one that ends last.

    Examples
    --------
    >>> import gzarr, gzarr.images
    >>> mask = gzarr.array([[1, 0, 1], [1, 0, 0], [0, 0, 1]], chunks=(2, 2))
    >>> labels = gzarr.zeros((3, 3), chunks=(2, 2), dtype="u1")
    >>> gzarr.images.label(mask, labels)
    3
    >>> labels[:]
    array([[1, 0, 2],
           [1, 0, 0],
           [0, 0, 3]], dtype=uint8)
    """
    source = numbering.find_source(mask, device, max_device_nbytes)
    max_nbytes = left_nbytes(source.backend, max_nbytes, max_device_nbytes)
    shape = tuple(source.array.shape)
    if np.dtype(source.array.dtype).kind not in "biufc":
        raise ValueError(f"{source.name}: a mask has numbers, got {source.array.dtype}")
    made = _structure(len(shape), connectivity, structure, source.spatial)
    run = identify("label", resume, inputs={"mask": source.array}, arguments={"structure": made.tolist()})
    recipe = numbering.label_recipe("label", resume, part, max_nbytes=max_nbytes, progress=progress, on=on, run=run)
    request = numbering.LabelRequest(recipe, out, shape)
    output = numbering.find_output(request, source)
    return numbering.number_blocks(request, source, output, _method(source, output, made, recipe))


def _method(
    source: numbering.LabelSource, output: numbering.LabelOutput, structure: NDArray[np.bool_], recipe: Recipe
) -> numbering.BlockMethod:
    """Return how blocks are labelled and compared."""
    shape = tuple(source.array.shape)
    # The block, its nonzero voxels, labels of 32 bits; on a device, the scratch of its labelling too.
    voxel_nbytes = source.itemsize + (6 if source.backend.xp is np else 24)
    # One that is read and one that is labelled, by each thread; of parts, the same on any machine.
    n_blocks = 2 * thread_count() if recipe.part is None else _BLOCKS_OF_PARTS
    most = limit_of(recipe.max_nbytes) // 2 // (voxel_nbytes + output.itemsize) // n_blocks
    n_blocks = n_blocks if recipe.part is None else max(n_blocks, 4 * recipe.part.of)
    most = min(most, max(prod(shape) // n_blocks, _WORTH_VOXELS))
    blocks = BlockGrid(shape, components.choose_block(shape, output.unit, source.chunks, most))
    shifts = components.shifts_by_step(structure)

    def link(step: Coords, mine: NDArray[Any], other: NDArray[Any]) -> components.Pairs:
        return components.touching(step, shifts[step], mine, other)

    def label_block(coords: Coords) -> numbering.LabelledBlock:
        region = blocks.region(coords)
        labels, n = _components(source.backend, source.read(region), structure)
        xp = source.backend.xp
        firsts = components.first_places(labels, n) if xp is np else components.first_of_each(xp, labels, n)
        sides = {components.side_of(step) for step in shifts if blocks.neighbour(coords, step) is not None}
        return numbering.LabelledBlock(labels, firsts, {side: components.face_of(labels, side) for side in sides})

    return numbering.BlockMethod(blocks, label_block, link, tuple(shifts), voxel_nbytes)


def _components(backend: Backend, block: AnyArray, structure: NDArray[np.bool_]) -> tuple[AnyArray, int]:
    """Label a block. Returns: int32 labels, and how many there are."""
    xp = backend.xp
    if not block.ndim or not block.size:
        return (block != 0).astype(np.int32), int(np.count_nonzero(to_host(block)))
    ndimage = scipy_namespace(block).ndimage
    labels = xp.empty(block.shape, np.int32)
    n = ndimage.label(block if block.dtype == bool else block != 0, structure.tolist(), output=labels)
    return labels, int(n)


def _structure(
    ndim: int, connectivity: int, structure: ArrayLike | None, spatial: tuple[bool, ...]
) -> NDArray[np.bool_]:
    """Return which neighbours of a voxel are connected to it. Raises: ValueError."""
    if structure is not None:
        made = np.asarray(structure, bool)
        if made.shape != (3,) * ndim or not np.array_equal(made, np.flip(made)):
            raise ValueError(
                f"structure must be symmetric about its centre and of shape {(3,) * ndim}, got shape {made.shape}"
            )
        return made
    if isinstance(connectivity, bool) or not 1 <= connectivity <= max(ndim, 1):
        raise ValueError(f"connectivity must be from 1 to {max(ndim, 1)}, the number of axes; got {connectivity!r}")
    shifts = np.indices((3,) * ndim) - 1
    moves = np.abs(shifts).sum(0) if ndim else np.zeros((), int)
    across = [np.abs(shifts[axis]) for axis in range(ndim) if not spatial[axis]]
    return (moves <= connectivity) & ~np.any(across, axis=0) if across else moves <= connectivity
