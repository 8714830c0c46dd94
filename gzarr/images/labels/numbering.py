"""Labels an array block by block, numbers the objects, and writes the numbers: what `label` and `merge_labels` share.

Theory of operation. A first pass labels the blocks in scan order, so that few faces wait for their neighbours. It keeps
the labels, compressed, while there is room. A second pass writes the numbers, and labels those blocks again that were
not kept. Every chunk of the result is thus written once, and its data type is chosen when the number of objects is
known.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from math import ceil, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.api.create import create_array
from gzarr.api.open import open as open_node
from gzarr.api.open import open_array
from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend
from gzarr.devices import backend_for
from gzarr.display.progress import ProgressLike, counted
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.create import check_free
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.node import lies_within
from gzarr.hierarchy.reaching import reach_node
from gzarr.identity.runs import Run
from gzarr.images.filters.outputs import Output, OutputOptions, Writing
from gzarr.images.image import Image, open_image
from gzarr.images.labels.components import PIECE, BlockGrid, Coords, Link, Objects, Side
from gzarr.images.pyramid.resuming import UnitsDone
from gzarr.images.tasks import limit_of, run_tasks, with_memory
from gzarr.indexing.regions import Region
from gzarr.metadata.documents import read_node
from gzarr.metadata.model import ArrayMeta

#: Share of the budget for the blocks that are worked on; tables have the rest.
_BLOCKS_SHARE = 0.5


class LabelSource(NamedTuple):
    """What is labelled.

    Attributes
    ----------
    array : Array or numpy.ndarray
        Its reads end on the backend's device.
    backend : Backend
        Where blocks are labelled.
    chunks : tuple of int
        What is read whole.
    spatial : tuple of bool
        Whether each axis is one of space; all are for arrays.
    """

    array: Any
    backend: Backend
    chunks: Coords
    spatial: tuple[bool, ...]

    @property
    def name(self) -> str:
        """How errors call it."""
        return name_of(self.array)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(np.dtype(self.array.dtype).itemsize)

    def read(self, region: Region) -> AnyArray:
        """Return a region on the device."""
        return self.backend.xp.asarray(self.array[region])


class LabelledBlock(NamedTuple):
    """A block that was labelled.

    Attributes
    ----------
    labels : array
        int32, on the device: of the region that is written.
    firsts : ndarray
        int64, first voxel of each label from 1: an index of the whole flat array, or `NOWHERE`.
    faces : mapping
        What neighbours compare, by side, on the host.
    """

    labels: AnyArray
    firsts: NDArray[np.int64]
    faces: Mapping[Side, NDArray[Any]]


class BlockMethod(NamedTuple):
    """How blocks are labelled and compared.

    Attributes
    ----------
    blocks : Blocks
        The grid, of the result.
    label : callable
        Labels the block at some coordinates of the grid; always in the same way.
    link : callable
        As in `Objects`.
    steps : sequence of tuple
        As in `Objects`.
    voxel_nbytes : int
        Bytes that labelling takes for each voxel of a block.
    """

    blocks: BlockGrid
    label: Callable[[Coords], LabelledBlock]
    link: Link
    steps: Sequence[Coords]
    voxel_nbytes: int


def find_source(given: Any, device: str | Backend | None) -> LabelSource:
    """Return what is labelled: an array, level 0 of an image, or what is at a path. Raises: TypeError."""
    if isinstance(given, (str, os.PathLike)):
        given = open_node(given, mode="r")
    image = given if isinstance(given, Image) else None
    if isinstance(given, Group):
        image = open_image(given)
    if image is not None:
        given = image[0]
    spatial = [image is None or axis in image.spatial for axis in range(len(getattr(given, "shape", ())))]
    if isinstance(given, Array):
        array = given if device is None else given.to(device)
        return LabelSource(array, array.backend, array.chunks, tuple(spatial))
    if not hasattr(given, "shape") or not hasattr(given, "dtype"):
        raise TypeError(f"an array, an image or a path is needed, got {type(given).__name__}")
    backend = backend_for(device or "cpu")
    return LabelSource(given, backend, getattr(given, "chunks", None) or given.shape, tuple(spatial))


def name_of(array: Any) -> str:
    """How errors call an array."""
    return f"array {str(array.store_path)!r}" if isinstance(array, Array) else f"the {type(array).__name__}"


class LabelRequest(NamedTuple):
    """What the caller wants of the result.

    Attributes
    ----------
    name : str
        Of the function that is called.
    run : Run
        What the numbers depend on.
    out : Array, Image or path
        Where they go.
    shape : tuple of int
        Of the result.
    chunks : tuple of int or None
        Of an array that is created; None for those of the source.
    max_nbytes : int or None
        Memory for blocks and tables, in bytes; None for 256 MiB, or what one block needs.
    resume : bool or str
        Whether to go on with an unfinished call.
    progress : bool or callable, optional
        As of `gzarr.transfer`; what is read counts twice.
    """

    name: str
    run: Run
    out: Any
    shape: Coords
    chunks: Coords | None
    max_nbytes: int | None
    resume: bool
    progress: ProgressLike


class LabelOutput:
    """Where numbers are written: an array, an image, or a path where an array is created when their number is known.

    Attributes
    ----------
    unit : tuple of int
        Blocks begin at multiples of it, and end there or at the array's end.
    itemsize : int
        Bytes of a number, at most.
    """

    def __init__(self, wish: LabelRequest, source: LabelSource, stack: ExitStack) -> None:
        self._wish, self._source, self._stack = wish, source, stack
        self._options = OutputOptions(
            name=wish.name,
            run=wish.run,
            resume=wish.resume,
            overwrite=False,
            levels=None,
            factors=None,
            method="mode",
            remedy="delete the output, or call without resume= to overwrite an array,",
        )
        self._writing: Writing | None = None
        out = wish.out
        if isinstance(out, (str, os.PathLike)):
            store, path, *_ = reach_node(out, None, "a", "cpu", {})
            if wish.resume and isinstance(read_node(store, path), ArrayMeta):
                out = open_array(out, "r+")
            else:
                check_free(store, path)
                self.itemsize = 8
                self.unit = tuple(wish.chunks or getattr(source.array, "shards", None) or source.chunks)
                return
        image = out if isinstance(out, Image) else None
        array = out[0] if isinstance(out, Image) else out
        if not isinstance(array, Array):
            raise TypeError(f"out must be an array, an image or a path, got {type(out).__name__}")
        _check_out(array, source.array, wish.shape)
        self.itemsize = array.itemsize
        self._open(array, image)
        self.unit = self._opened.unit

    @property
    def has_pyramid(self) -> bool:
        """Whether the levels of an image are written too."""
        return self._writing is not None and self._writing.build is not None

    def begin(self, n: int, plan: Mapping[str, Any]) -> UnitsDone:
        """Prepare for numbers up to ``n``. Returns: which blocks are done. Raises: ValueError if they do not fit."""
        if self._writing is None:
            self._open(self._create(n), None)
        if n > np.iinfo(self.dtype).max:
            raise ValueError(
                f"{name_of(self._opened.array)}: {n} objects do not fit {self.dtype}; nothing was written. Give an "
                f"array of {np.min_scalar_type(n)}"
            )
        return self._opened.begin(plan)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the numbers."""
        return self._opened.array.dtype

    def restore(self, done: Sequence[Region]) -> None:
        """Take blocks for written."""
        self._opened.restore([tuple((part.start, part.stop) for part in region) for region in done])

    def put(self, region: Region, values: AnyArray) -> None:
        """Write a block, and whatever of a pyramid becomes whole."""
        self._opened.put(tuple(part.start for part in region), values)

    def pending(self) -> int:
        """Bytes of a pyramid that wait for other blocks."""
        return 0 if self._writing is None else self._writing.pending()

    @property
    def _opened(self) -> Writing:
        if self._writing is None:
            raise RuntimeError("the array is created when the number of objects is known")
        return self._writing

    def _open(self, array: Array, image: Image | None) -> None:
        backend = self._source.backend
        if image is not None:
            image = image.to(backend)
        array = array.to(backend) if image is None else image[0]
        output = Output(array=array, image=image, options=self._options)
        self._writing = self._stack.enter_context(output.open())

    def _create(self, n: int) -> Array:
        like, wish = self._source.array, self._wish
        made: dict[str, Any] = {"chunks": wish.chunks or self._source.chunks}
        if isinstance(like, Array):
            made["zarr_format"] = like.metadata.zarr_format
            if like.shards and wish.chunks is None:
                made["shards"] = like.shards
            if like.dimension_names and like.metadata.zarr_format == 3:
                made["dimension_names"] = like.dimension_names
        return create_array(wish.out, shape=wish.shape, dtype=np.min_scalar_type(n), **made)


def _check_out(out: Array, mask: Any, shape: Coords) -> None:
    if out.shape != shape:
        raise ValueError(f"{name_of(out)}: out has shape {out.shape}, the result {shape}; give an array of that shape")
    if out.dtype.kind not in "ui":
        raise ValueError(f"{name_of(out)}: numbers of objects are integers, out has {out.dtype}")
    if isinstance(mask, Array) and lies_within(mask.store, mask.path, out.store, out.path):
        raise ValueError(f"{name_of(out)}: out is what is read; give another array")
    out.check_writable()


def number_blocks(wish: LabelRequest, source: LabelSource, target: LabelOutput, method: BlockMethod) -> int:
    """Label all blocks, number the objects and write the numbers. Returns: how many there are. Raises: ValueError."""
    blocks, backend = method.blocks, source.backend
    cost = prod(blocks.block) * (method.voxel_nbytes + target.itemsize)
    least = ceil(cost / _BLOCKS_SHARE)
    limit = limit_of(wish.max_nbytes, least)
    if limit < cost:
        raise ValueError(
            f"{wish.name}: max_nbytes={limit} is too small: a block of {blocks.block} voxels, which is written whole, "
            f"takes {cost} bytes besides the tables; give {least} or more, or an output of smaller chunks or shards"
        )
    for_blocks, name = int(limit * _BLOCKS_SHARE), with_memory(source.name, wish.max_nbytes, limit)
    objects = Objects(blocks, method.steps, method.link, limit - for_blocks)

    def run(task: Callable[[Coords], object], items: Sequence[Coords]) -> None:
        def counting(coords: Coords) -> None:
            task(coords)
            add(_size(blocks.region(coords)) * source.itemsize, name)

        run_tasks(
            backend,
            counting,
            items,
            n_items=len(items),
            cost_nbytes=cost,
            max_nbytes=for_blocks,
            pending=target.pending,
        )

    def label(coords: Coords) -> None:
        made = method.label(coords)
        objects.add(coords, made.firsts, made.faces)
        if isinstance(made.labels, np.ndarray):
            objects.keep(coords, made.labels)

    def renumber(coords: Coords) -> None:
        region, table, labels = blocks.region(coords), objects.table(coords, target.dtype), objects.kept(coords)
        if labels is None:
            made = method.label(coords)
            if len(made.firsts) + 1 != len(table):
                raise ValueError(f"{source.name} was changed while it was labelled: {region}")
            labels = made.labels
        target.put(region, _look_up(backend.xp, table, labels))
        marks.note(numbers[coords])

    in_order = sorted(blocks, key=_interleaved)  # so that few parts of a pyramid wait for others
    numbers = {coords: number for number, coords in enumerate(in_order)}
    with counted(wish.progress, 2 * prod(blocks.shape) * source.itemsize) as add:
        run(label, list(blocks))
        n = objects.number()
        marks = target.begin(n, {"block": list(blocks.block)})
        if list(marks.plan["block"]) != list(blocks.block):
            raise ValueError(f"{wish.name}: resume=True needs the max_nbytes and threads of the unfinished call")
        done = [coords for coords in in_order if marks.is_done(numbers[coords])]
        target.restore([blocks.region(coords) for coords in done])
        for coords in done:
            add(_size(blocks.region(coords)) * source.itemsize, name)
        run(renumber, [coords for coords in in_order if not marks.is_done(numbers[coords])])
    return n


def _interleaved(coords: Coords) -> int:
    """The place of a block in Morton order: the bits of its coordinates in turn."""
    place = 0
    for bit in range(max(coords, default=0).bit_length()):
        for axis, at in enumerate(reversed(coords)):
            place |= (at >> bit & 1) << (bit * len(coords) + axis)
    return place


def _size(region: Region) -> int:
    return prod(part.stop - part.start for part in region)


def _look_up(xp: Any, table: NDArray[Any], labels: AnyArray) -> AnyArray:
    """Return the entries of a table, piece by piece on the host: indices are converted to 64 bits there."""
    if not isinstance(labels, np.ndarray):
        return xp.asarray(table)[labels]
    found = np.empty(labels.shape, table.dtype)
    indices, flat = labels.reshape(-1), found.reshape(-1)
    for start in range(0, flat.size, PIECE):
        piece = slice(start, start + PIECE)
        np.take(table, indices[piece], out=flat[piece], mode="clip")
    return found
