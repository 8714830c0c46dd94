"""Labels an array block by block, numbers the objects, and writes the numbers: what `label` and `merge_labels` share.

Theory of operation. A first pass labels the blocks in scan order, so that few faces wait for their neighbours. It keeps
the labels, compressed, while there is room. A second pass writes the numbers, and labels those blocks again that were
not kept. Every chunk of the result is thus written once, and its data type is chosen when the number of objects is
known.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.api.create import create_array
from gzarr.api.open import open as open_node
from gzarr.api.open import open_array
from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend
from gzarr.display.progress import counted
from gzarr.errors import ContainsNodeError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.create import check_free
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.reaching import reach_node
from gzarr.hierarchy.reductions import kept_results
from gzarr.identity.runs import Resume
from gzarr.images.blocks import BlockGrid, start_of
from gzarr.images.filters.outputs import check_output, output_build
from gzarr.images.image import Image, open_image
from gzarr.images.labels.components import BlockObjects, Link, Side, look_up, places_in
from gzarr.images.pyramid.building import Build
from gzarr.images.pyramid.device_memory import sharing
from gzarr.images.pyramid.making import may_go_on
from gzarr.images.pyramid.recipes import Recipe, shared_part
from gzarr.images.pyramid.rounds import build_rounds
from gzarr.images.tasks import limit_of, run_tasks, with_memory
from gzarr.indexing.keys import Coords
from gzarr.indexing.regions import Region, size_of
from gzarr.metadata.documents import read_node
from gzarr.metadata.model import ArrayMeta
from gzarr.scale.blocks import BlockPlan
from gzarr.scale.engines import open_engine
from gzarr.scale.running import run
from gzarr.tensors import to_hosts

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
    firsts : array
        On the device: the first voxel of each label from 0, as of `first_of_each`.
    faces : mapping
        What neighbours compare, by side, on the device.
    """

    labels: AnyArray
    firsts: AnyArray
    faces: Mapping[Side, AnyArray]

    def on_host(self, xp: Any, blocks: BlockGrid, coords: Coords) -> tuple[NDArray[np.int64], dict[Side, NDArray[Any]]]:
        """What `BlockObjects.add` takes, in one transfer."""
        firsts, *faces = to_hosts(xp, [self.firsts, *self.faces.values()])
        places = places_in(blocks.shape, blocks.region(coords), firsts)
        return places, dict(zip(self.faces, faces, strict=True))


class BlockMethod(NamedTuple):
    """How blocks are labelled and compared.

    Attributes
    ----------
    blocks : Blocks
        The grid, of the result.
    label : callable
        Labels the block at some coordinates of the grid; always in the same way.
    link : callable
        As in `BlockObjects`.
    steps : sequence of tuple
        As in `BlockObjects`.
    voxel_nbytes : int
        Bytes that labelling takes for each voxel of a block.
    """

    blocks: BlockGrid
    label: Callable[[Coords], LabelledBlock]
    link: Link
    steps: Sequence[Coords]
    voxel_nbytes: int


def find_source(given: Any, device: str | Backend | None, max_device_nbytes: int | None = None) -> LabelSource:
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
        same = device is None and max_device_nbytes is None
        array = given if same else given.to(sharing(device or given.backend, max_device_nbytes))
        return LabelSource(array, array.backend, array.chunks, tuple(spatial))
    if not hasattr(given, "shape") or not hasattr(given, "dtype"):
        raise TypeError(f"an array, an image or a path is needed, got {type(given).__name__}")
    backend = sharing(device or "cpu", max_device_nbytes)
    return LabelSource(given, backend, getattr(given, "chunks", None) or given.shape, tuple(spatial))


def name_of(array: Any) -> str:
    """How errors call an array."""
    return f"array {str(array.store_path)!r}" if isinstance(array, Array) else f"the {type(array).__name__}"


class LabelRequest(NamedTuple):
    """What the caller wants of the result.

    Attributes
    ----------
    recipe : Recipe
        How it is made, with the name of the function that is called and what the numbers depend on.
    out : Array, Image or path
        Where they go.
    shape : tuple of int
        Of the result.
    chunks : tuple of int or None
        Of an array that is created; None for those of the source.
    """

    recipe: Recipe
    out: Any
    shape: Coords
    chunks: Coords | None = None


class LabelOutput(NamedTuple):
    """Where numbers are written.

    Attributes
    ----------
    unit : tuple of int
        Blocks begin at multiples of it, and end there or at the array's end.
    itemsize : int
        Bytes of a number, at most.
    build : Build or None
        Writes an array or an image that exists; None for a path, where an array is created when the number of objects
        is known.
    """

    unit: Coords
    itemsize: int
    build: Build | None = None

    @property
    def has_pyramid(self) -> bool:
        """Whether the levels of an image are written too."""
        return self.build is not None and self.build.multiscale is not None


def label_recipe(name: str, resume: Resume, part: tuple[int, int] | None, **how: Any) -> Recipe:
    """How a result of labels is made."""
    remedy = "delete the output, or call without resume= to overwrite an array,"
    this, resume = shared_part(how["on"], part, resume, overwrite=False)
    return Recipe(method="mode", name=name, remedy=remedy, resume=resume, part=this, **how)


def find_output(request: LabelRequest, source: LabelSource) -> LabelOutput:
    """Return where numbers are written. Raises: ValueError, TypeError, ContainsNodeError."""
    out = request.out
    if isinstance(out, (str, os.PathLike)):
        store, path, *_ = reach_node(out, None, "a", "cpu", {})
        out = open_array(out, "r+") if request.recipe.resume and isinstance(read_node(store, path), ArrayMeta) else None
        if out is None or not may_go_on(out, request.recipe.part):
            check_free(store, path, "the opened array")
            return LabelOutput(tuple(request.chunks or getattr(source.array, "shards", None) or source.chunks), 8)
    array = out[0] if isinstance(out, Image) else out
    if not isinstance(array, Array):
        raise TypeError(f"out must be an array, an image or a path, got {type(out).__name__}")
    check_output(request.recipe.name, out, request.shape, [source.array])
    if array.dtype.kind not in "ui":
        raise ValueError(f"{name_of(array)}: numbers of objects are integers, out has {array.dtype}")
    build = output_build(out.to(source.backend), request.recipe)
    return LabelOutput(build.cascade.unit, array.itemsize, build)


def _begun(request: LabelRequest, source: LabelSource, output: LabelOutput, n: int) -> Build:
    """The build that writes numbers up to ``n``. Raises: ValueError if they do not fit."""
    build = output.build
    if build is None:
        build = output_build(_create(request, source, n).to(source.backend), request.recipe)
    array = build.levels[0]
    if n > np.iinfo(array.dtype).max:
        raise ValueError(
            f"{name_of(array)}: {n} objects do not fit {array.dtype}; nothing was written. Give an array of "
            f"{np.min_scalar_type(n)}"
        )
    return build


def _create(request: LabelRequest, source: LabelSource, n: int) -> Array:
    """Create the array of a path, of the smallest type that has all numbers."""
    like = source.array
    made: dict[str, Any] = {"chunks": request.chunks or source.chunks}
    if isinstance(like, Array):
        made["zarr_format"] = like.metadata.zarr_format
        if like.shards and request.chunks is None:
            made["shards"] = like.shards
        if like.dimension_names and like.metadata.zarr_format == 3:
            made["dimension_names"] = like.dimension_names
    try:
        return create_array(request.out, shape=request.shape, dtype=np.min_scalar_type(n), **made)
    except ContainsNodeError:
        if request.recipe.part is None:
            raise
        return open_array(request.out, "r+")  # of the part that was to end the job, and was killed


def number_blocks(request: LabelRequest, source: LabelSource, output: LabelOutput, method: BlockMethod) -> int:
    """Label all blocks, number the objects and write the numbers. Returns: how many there are. Raises: ValueError."""
    blocks, backend, recipe = method.blocks, source.backend, request.recipe
    cost = prod(blocks.block) * (method.voxel_nbytes + output.itemsize)
    least = ceil(cost / _BLOCKS_SHARE)
    limit = limit_of(recipe.max_nbytes, least)
    if limit < cost:
        raise ValueError(
            f"{recipe.name}: max_nbytes={limit} is too small: a block of {blocks.block} voxels, which is written "
            f"whole, takes {cost} bytes besides the tables; give {least} or more, or an output of smaller chunks or "
            "shards"
        )
    for_blocks, name = int(limit * _BLOCKS_SHARE), with_memory(source.name, recipe.max_nbytes, limit)
    objects = BlockObjects(blocks, method.steps, method.link, limit - for_blocks)
    if recipe.is_shared:
        how: Any = {"n_items": len(blocks), "cost_nbytes": cost, "max_nbytes": for_blocks}
        return _number_elsewhere(request, source, output, method, objects, partial(run_tasks, backend, **how))

    def run_all(task: Callable[[Coords], object], items: Sequence[Coords], pending: Callable[[], int] = int) -> None:
        def counting(coords: Coords) -> None:
            task(coords)
            add(size_of(blocks.region(coords)) * source.itemsize, name)

        n_items = len(items)
        run_tasks(backend, counting, items, n_items=n_items, cost_nbytes=cost, max_nbytes=for_blocks, pending=pending)

    def label(coords: Coords) -> None:
        made = method.label(coords)
        objects.add(coords, *made.on_host(backend.xp, blocks, coords))
        if isinstance(made.labels, np.ndarray):
            objects.keep(coords, made.labels)

    with counted(recipe.progress, 2 * prod(blocks.shape) * source.itemsize) as add:
        run_all(label, list(blocks))
        numbers, n = objects.number()
        with _begun(request, source, output, n).writing() as build:
            _write_numbers(build, source, method, objects, numbers, run_all)
    return n


def _number_elsewhere(
    request: LabelRequest,
    source: LabelSource,
    output: LabelOutput,
    method: BlockMethod,
    objects: BlockObjects,
    threads: Any,
) -> int:
    """As `number_blocks`, on an engine or in parts: blocks are labelled twice, and faces compared here.

    The part that ends last compares the faces of all, and writes the numbers. Raises: PartsMissingError in others.
    """
    blocks, recipe, label = method.blocks, request.recipe, method.label
    store = getattr(source.array, "store", None)

    def take(numbers: range, made: list[Any]) -> None:
        for number, found in zip(numbers, made, strict=True):
            objects.add(blocks.at(number), *found)

    def compare(number: int) -> Any:
        return label(blocks.at(number)).on_host(source.backend.xp, blocks, blocks.at(number))

    def size(number: int) -> int:
        return size_of(blocks.region(blocks.at(number))) * source.itemsize

    place = request.out[0] if isinstance(request.out, Image) else request.out
    parts = kept_results(None, recipe.part, place, lambda: (recipe.run and recipe.run.to_json(), blocks))
    with open_engine(recipe.on) if recipe.part is None else parts as engine:
        how: Any = {"size": size, "threads": threads, "stores": () if store is None else (store,)}
        first = BlockPlan(name=source.name, n=len(blocks), do=compare, take=take, **how)
        with counted(recipe.progress, prod(blocks.shape) * source.itemsize) as add:
            run([first], engine, add=add)
        numbers, n = objects.number()
        with _begun(request, source, output, n).writing() as build:
            build.recipe = build.recipe._replace(on=engine if recipe.part is None else None, part=None)
            renumber = partial(_renumber, build.levels[0], method, source.name)

            def give(number: int) -> NDArray[Any]:
                return numbers[objects.span(blocks.at(number))].astype(build.levels[0].dtype)

            second = BlockPlan(name=source.name, n=len(blocks), do=renumber, give=give, size=size, threads=threads)
            build_rounds(build, before=(list(blocks.block), lambda block: second))
    return n


def _renumber(base: Array, method: BlockMethod, name: str, number: int, table: NDArray[Any]) -> None:
    """Label the block with a number again, and write the numbers of its labels."""
    labels = _labels_for(table, method.label(coords := method.blocks.at(number)), name)
    base[method.blocks.region(coords)] = look_up(base.backend.xp, table, labels)


def _labels_for(table: NDArray[Any], made: LabelledBlock, name: str) -> AnyArray:
    """The labels of a block that is labelled again. Raises: ValueError if it has others than before."""
    if len(made.firsts) != len(table):
        raise ValueError(f"{name} was changed while it was labelled")
    return made.labels


def _write_numbers(
    build: Build,
    source: LabelSource,
    method: BlockMethod,
    objects: BlockObjects,
    numbers: NDArray[np.int64],
    run: Callable[..., None],
) -> None:
    """Write the numbers of all blocks that are not done. run: carries out a task for items, as in `number_blocks`."""
    blocks, xp = method.blocks, source.backend.xp
    tables = xp.asarray(numbers.astype(build.levels[0].dtype))
    marks = build.begin({"block": list(blocks.block)})
    if list(marks.plan["block"]) != list(blocks.block):
        raise ValueError(f"{build.recipe.name}: resume=True needs the max_nbytes and threads of the unfinished call")
    in_order = sorted(blocks, key=_interleaved)  # so that few parts of a pyramid wait for others
    places = {coords: place for place, coords in enumerate(in_order)}
    done = [coords for coords in in_order if marks.is_done(places[coords])]

    def renumber(coords: Coords) -> None:
        region, table, labels = blocks.region(coords), tables[objects.span(coords)], objects.kept(coords)
        if labels is None:
            labels = _labels_for(table, method.label(coords), source.name)
        build.cascade.put(start_of(region), look_up(xp, table, labels))
        marks.note(places[coords])

    build.restore([blocks.region(coords) for coords in done])
    run(lambda _: None, done)  # they count as progress
    todo = [coords for coords in in_order if not marks.is_done(places[coords])]
    run(renumber, todo, lambda: build.cascade.pending_nbytes)


def _interleaved(coords: Coords) -> int:
    """The place of a block in Morton order: the bits of its coordinates in turn."""
    place = 0
    for bit in range(max(coords, default=0).bit_length()):
        for axis, at in enumerate(reversed(coords)):
            place |= (at >> bit & 1) << (bit * len(coords) + axis)
    return place
