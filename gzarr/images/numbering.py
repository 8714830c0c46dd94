"""Labels an array block by block, numbers the objects, and writes the numbers: what `label` and `merge_labels` share.

Theory of operation. A first pass labels the blocks in scan order, so that few faces wait for their neighbours. It keeps
the labels, compressed, while there is room. A second pass writes the numbers, and labels those blocks again that were
not kept. Every chunk of the result is thus written once, and its data type is chosen when the number of objects is
known.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.api.create import create_array
from gzarr.api.locating import reach_node
from gzarr.api.open import open as open_node
from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend
from gzarr.devices import backend_for
from gzarr.display.progress import ProgressLike, counted
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.create import check_free
from gzarr.hierarchy.group import Group
from gzarr.images.components import PIECE, Blocks, Coords, Link, Objects, Side
from gzarr.images.image import Image, open_image
from gzarr.images.tasks import run_tasks
from gzarr.indexing.regions import Region

#: Share of the budget for the blocks that are worked on; tables have the rest.
_BLOCKS_SHARE = 0.5


class Source(NamedTuple):
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


class Labelled(NamedTuple):
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


class Method(NamedTuple):
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

    blocks: Blocks
    label: Callable[[Coords], Labelled]
    link: Link
    steps: Sequence[Coords]
    voxel_nbytes: int


def find_source(given: Any, device: str | Backend | None) -> Source:
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
        return Source(array, array.backend, array.chunks, tuple(spatial))
    if not hasattr(given, "shape") or not hasattr(given, "dtype"):
        raise TypeError(f"an array, an image or a path is needed, got {type(given).__name__}")
    backend = backend_for(device or "cpu")
    return Source(given, backend, getattr(given, "chunks", None) or given.shape, tuple(spatial))


def name_of(array: Any) -> str:
    """How errors call an array."""
    return f"array {array.store_path!r}" if isinstance(array, Array) else f"the {type(array).__name__}"


class Target:
    """Where numbers are written: an array, or a path where one is created when their data type is known.

    Attributes
    ----------
    cell : tuple of int
        What is written whole.
    itemsize : int
        Bytes of a number, at most.

    Parameters
    ----------
    out : Array or path
        What the caller gave.
    source : Source
        What is read.
    shape : tuple of int
        Of the result.
    chunks : tuple of int, optional
        Of an array that is created; by default those of the source.
    """

    def __init__(self, out: Any, source: Source, shape: Coords, chunks: Coords | None = None) -> None:
        self._out, self._source, self._shape, self._chunks = out, source, shape, chunks
        like = source.array
        if isinstance(out, Array):
            _check_out(out, like, shape)
            like = out
        elif isinstance(out, (str, os.PathLike)):
            store, path, *_ = reach_node(out, None, "a", "cpu", {})
            check_free(store, path)
        else:
            raise TypeError(f"out must be an array, an image or a path, got {type(out).__name__}")
        own = chunks if like is source.array else None
        self.cell: Coords = tuple(own or getattr(like, "shards", None) or getattr(like, "chunks", None) or shape)
        self.itemsize = out.dtype.itemsize if isinstance(out, Array) else 8

    @contextmanager
    def writing(self, n: int) -> Iterator[tuple[np.dtype[Any], Callable[[Region, AnyArray], None]]]:
        """The data type of the numbers up to ``n``, and what writes them. Raises: ValueError if they do not fit."""
        out = self._out if isinstance(self._out, Array) else self._create(n)
        if n > np.iinfo(out.dtype).max:
            fitting = np.min_scalar_type(n)
            raise ValueError(
                f"{name_of(out)}: {n} objects do not fit {out.dtype}; nothing was written. Give an array of {fitting}"
            )
        yield out.dtype, out.__setitem__

    def _create(self, n: int) -> Array:
        like = self._source.array
        made: dict[str, Any] = {"chunks": self._chunks or self._source.chunks, "device": self._source.backend}
        if isinstance(like, Array):
            made["zarr_format"] = like.metadata.zarr_format
            if like.shards and self._chunks is None:
                made["shards"] = like.shards
            if like.dimension_names and like.metadata.zarr_format == 3:
                made["dimension_names"] = like.dimension_names
        return create_array(self._out, shape=self._shape, dtype=np.min_scalar_type(n), **made)


def _check_out(out: Array, mask: Any, shape: Coords) -> None:
    if out.shape != shape:
        raise ValueError(f"{name_of(out)}: out has shape {out.shape}, the result {shape}; give an array of that shape")
    if out.dtype.kind not in "ui":
        raise ValueError(f"{name_of(out)}: numbers of objects are integers, out has {out.dtype}")
    if isinstance(mask, Array) and out.path == mask.path and str(out.store) == str(mask.store):
        raise ValueError(f"{name_of(out)}: out is what is read; give another array")


def number_blocks(source: Source, target: Target, method: Method, *, max_nbytes: int, progress: ProgressLike) -> int:
    """Label all blocks, number the objects and write the numbers.

    max_nbytes: for blocks and tables. progress: as of `gzarr.transfer`; what is read counts twice.
    Returns: how many objects there are. Raises: ValueError.
    """
    blocks, backend = method.blocks, source.backend
    for_blocks = int(max_nbytes * _BLOCKS_SHARE)
    objects = Objects(blocks, method.steps, method.link, max_nbytes - for_blocks)
    cost = prod(blocks.block) * (method.voxel_nbytes + target.itemsize)

    def run(task: Callable[[Coords], object]) -> None:
        def counting(coords: Coords) -> None:
            task(coords)
            add(_size(blocks.region(coords)) * source.itemsize, source.name)

        run_tasks(backend, counting, blocks, n_items=len(blocks), cost_nbytes=cost, max_nbytes=for_blocks)

    def label(coords: Coords) -> None:
        made = method.label(coords)
        objects.add(coords, made.firsts, made.faces)
        if isinstance(made.labels, np.ndarray):
            objects.keep(coords, made.labels)

    with counted(progress, 2 * prod(blocks.shape) * source.itemsize) as add:
        run(label)
        n = objects.number()
        with target.writing(n) as (dtype, write):

            def renumber(coords: Coords) -> None:
                table, labels = objects.table(coords, dtype), objects.kept(coords)
                if labels is None:
                    made = method.label(coords)
                    if len(made.firsts) + 1 != len(table):
                        raise ValueError(f"{source.name} was changed while it was labelled: {blocks.region(coords)}")
                    labels = made.labels
                write(blocks.region(coords), _look_up(backend.xp, table, labels))

            run(renumber)
    return n


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
