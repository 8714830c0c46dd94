"""Segments large images with a function for blocks, such as a network: blocks overlap, and their objects are merged."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import product
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Unpack

import numpy as np

from gzarr.api.namespaces import array_namespace
from gzarr.api.open import open_array
from gzarr.backend import Array as AnyArray
from gzarr.errors import ArrayNotFoundError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.options import check_keywords
from gzarr.images.blocks import BlockGrid
from gzarr.images.filters.results import Box, BoxMapping, ResultKeywords, on_device, write_result
from gzarr.images.filters.where import telling
from gzarr.images.halos import per_axis
from gzarr.images.image import Image
from gzarr.images.labels.merging import merge_labels
from gzarr.indexing.keys import Coords
from gzarr.indexing.regions import Region


def segment(
    func: Callable[..., Any],
    image: Array | Image,
    out: Any,
    depth: Any,
    *,
    block: Any = None,
    threshold: float = 0.5,
    work: Any = None,
    **kwargs: Unpack[ResultKeywords],
) -> int:
    """Segment an image of any size: a function labels blocks that overlap, and objects that lie in several are joined.

    The labels of the blocks are stored first, one block after the other, so that no block is segmented twice, and then
    merged as by `merge_labels`. Numbers are those of the objects' first elements in scan order, the same in each run.

    Parameters
    ----------
    func : callable
        Called with a block and what lies around it, returns its labels: integers, 0 for the background. Of an image
        with channels, a block has all of them, on an axis that the labels lack. With ``where``, of `Where`, if it has
        such a parameter. Beyond the ends of the image there is nothing, so blocks at the ends are smaller.
    image : Array or Image
        What is segmented; of an image, level 0.
    out : Array, Image or path
        Where the numbers go: see `label`.
    depth : int, sequence or mapping
        By how much blocks reach beyond their borders: see `map_overlap`. More than the size of an object sees all
        objects whole.
    block : int, sequence or mapping, optional
        Shape of a block without its margins. By default, that of a chunk or two times the depth, if that is more.
    threshold : float
        Overlap (IoU) above which labels of neighbouring blocks are one object: see `merge_labels`.
    work : path or Store, optional
        Where the labels of the blocks are stored. By default, in a temporary folder, which is removed at the end. With
        a path, a call that was interrupted goes on with ``resume=True``, and the labels stay.
    **kwargs
        ``max_nbytes``, ``resume``, ``progress``, ``device`` and others: see `crop`.

    Returns
    -------
    int
        The number of objects.

    Examples
    --------
    >>> import gzarr, gzarr.images, numpy as np
    >>> from scipy import ndimage
    >>> z = gzarr.array(np.kron(np.eye(4), np.ones((3, 3))), chunks=(5, 5))
    >>> numbers = gzarr.zeros(z.shape, chunks=(5, 5), dtype="u2")
    >>> gzarr.images.segment(lambda block: ndimage.label(block)[0], z, numbers, depth=2)
    4
    """
    check_keywords(kwargs, ResultKeywords, segment)
    (source,) = on_device("segment", [image], kwargs.get("device"), kwargs.get("max_device_nbytes"))
    names = image.axes if isinstance(image, Image) else image.dimension_names
    kinds = [axis.type for axis in image.metadata.axes] if isinstance(image, Image) else []
    kept = tuple(axis for axis in range(source.ndim) if not kinds or kinds[axis] != "channel")
    depths = per_axis(depth, "depth", source.ndim, names, 0)
    sizes = per_axis(block, "block", source.ndim, names, None)
    margins = tuple(int(depths[axis]) for axis in kept)
    cores = tuple(
        max(min(int(sizes[axis] or max(source.chunks[axis], 2 * margin)), source.shape[axis]), 1)
        for axis, margin in zip(kept, margins, strict=True)
    )
    margins = tuple(m if c < source.shape[a] else 0 for a, m, c in zip(kept, margins, cores, strict=True))
    if any(m > c for m, c in zip(margins, cores, strict=True)):
        raise ValueError(f"segment: blocks of {cores} are smaller than their depth {margins}; give a larger block=")
    mapping = _mapping(func, image, source, kept, cores, margins)
    with ExitStack() as stack:
        if work is None:
            work = f"{stack.enter_context(TemporaryDirectory(prefix='gzarr-segment-'))}/blocks.zarr"
            kwargs.pop("resume", None)
        elif kwargs.get("resume") and not isinstance(work, Array):
            with suppress(ArrayNotFoundError):  # it may be whole, and the labels not
                work = open_array(work, "r+")
        blocks = write_result(mapping, work, {**kwargs, "dtype": None})
        assert isinstance(blocks, Array)
        names = ("max_nbytes", "max_device_nbytes", "resume", "progress")
        how: Any = {name: value for name, value in kwargs.items() if name in names}
        return merge_labels(blocks, out, margins, block=cores, threshold=threshold, **how)


def _mapping(
    func: Callable[..., Any],
    image: Array | Image,
    source: Array,
    kept: tuple[int, ...],
    cores: tuple[int, ...],
    margins: tuple[int, ...],
) -> BoxMapping:
    """What makes the widened blocks side by side, as `merge_labels` takes them: with zeros beyond the ends."""
    grid, call = BlockGrid(tuple(source.shape[axis] for axis in kept), cores), telling(func, image)
    widened = tuple(core + 2 * margin for core, margin in zip(cores, margins, strict=True))
    shape = tuple(n + 2 * m * count for n, m, count in zip(grid.shape, margins, grid.counts, strict=True))

    blocks = _Widened(grid, source.shape, kept, margins, widened)
    first = source if not isinstance(image, Image) else image.levels[0]
    return BoxMapping(
        name="segment",
        sources=[source],
        template=first,
        shape=shape,
        boxes=lambda region: [(0, blocks.seen(coords)) for coords in blocks.touched(region)],
        compute=partial(blocks.labels, call),
        axes=kept,
        dtype=np.dtype(np.int32),
        cell=widened,
        functions={"func": func},
        arguments={"cores": cores, "margins": margins},
    )


def _checked(labels: Any, expected: tuple[int, ...]) -> AnyArray:
    """What a function returned. Raises: ValueError if it is no array of labels."""
    shape, dtype = getattr(labels, "shape", None), getattr(labels, "dtype", type(labels).__name__)
    if shape != expected or getattr(dtype, "kind", "") not in tuple("iub"):
        raise ValueError(f"segment: func returned {dtype} of shape {shape}, expected integers of shape {expected}")
    if labels.size and not 0 <= int(labels.min()) <= int(labels.max()) <= np.iinfo(np.int32).max:
        raise ValueError("segment: func returned labels below 0 or above 2**31 - 1; number them from 1")
    return labels


class _Widened(NamedTuple):
    """Blocks with their margins, side by side.

    Attributes
    ----------
    grid : BlockGrid
        The blocks without margins.
    shape : tuple of int
        Of the image.
    kept : tuple of int
        The axes of the image that labels have.
    margins, widened : tuple of int
        Of a block, and its shape with them.
    """

    grid: BlockGrid
    shape: Coords
    kept: Coords
    margins: Coords
    widened: Coords

    def seen(self, coords: Coords) -> Region:
        """What the function sees of the image."""
        seen = [slice(0, n) for n in self.shape]
        for axis, part, margin in zip(self.kept, self.grid.region(coords), self.margins, strict=True):
            seen[axis] = slice(max(part.start - margin, 0), min(part.stop + margin, self.shape[axis]))
        return tuple(seen)

    def touched(self, region: Region) -> list[Coords]:
        """The blocks that lie in a region of the result."""
        spans = [range(p.start // w, -(-p.stop // w)) for p, w in zip(region, self.widened, strict=True)]
        return list(product(*spans))

    def labels(
        self, call: Callable[..., Any], region: Region, boxes: Sequence[Box], blocks: list[AnyArray]
    ) -> AnyArray:
        """A region of the result."""
        xp = array_namespace(blocks[0])
        made = xp.zeros(tuple(part.stop - part.start for part in region), np.int32)
        for coords, (_, seen), block in zip(self.touched(region), boxes, blocks, strict=True):
            own, inner = self.grid.region(coords), [seen[axis] for axis in self.kept]
            halo = [(o.start - s.start, s.stop - o.stop) for o, s in zip(own, inner, strict=True)]
            labels = _checked(call(own, halo, block), tuple(s.stop - s.start for s in inner))
            starts = [
                at * w + m - h[0] - part.start
                for at, w, m, h, part in zip(coords, self.widened, self.margins, halo, region, strict=True)
            ]
            made[tuple(slice(at, at + n) for at, n in zip(starts, labels.shape, strict=True))] = labels
        return made
