"""Builds the levels of an image: prepares their arrays, fills them in one pass, and names them in the metadata last.

Theory of operation. `building` plans the levels and makes a `Cascade` of their arrays. Who drives it (`fill`, or a
filter that writes an image) begins the computation, puts every unit once and notes it. The metadata name the new levels
only once all of them are complete, so an image that is being built, or whose build was killed, is valid and has fewer
levels. What is noted is in `gzarr.images.pyramid.resuming`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import lcm
from typing import Any, NamedTuple, Self, TypeAlias
from zlib import crc32

import numpy as np

import gzarr.images.pyramid.resuming as notes
from gzarr.backend import Array as AnyArray
from gzarr.chunk_io.chunk_cache import ChunkCache
from gzarr.display.progress import counted
from gzarr.errors import RESUME, ContainsNodeError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.missing import Missing, missing_of
from gzarr.hierarchy.resizing import objects_stored
from gzarr.hierarchy.values import computed, is_lazy
from gzarr.identity.inputs import describe_metadata
from gzarr.identity.runs import Run, identify
from gzarr.images.blocks import start_of
from gzarr.images.ome.axes import with_lengths
from gzarr.images.ome.documents import Dataset, Multiscale, write_multiscale
from gzarr.images.pyramid.cascade import Cascade
from gzarr.images.pyramid.device_memory import measured_share
from gzarr.images.pyramid.downsample import Method, check_method
from gzarr.images.pyramid.level_arrays import check_place, create_level, level_array, take_off_levels
from gzarr.images.pyramid.levels import AxisKind, PyramidLevel, plan_levels
from gzarr.images.pyramid.recipes import Recipe
from gzarr.images.pyramid.resuming import UnitsDone
from gzarr.images.pyramid.stored_chunks import StoredChunks, chunk_of, same_fill
from gzarr.images.pyramid.units import Cells, Units, plan_units
from gzarr.images.tasks import run_tasks, with_memory, worker_count
from gzarr.indexing.keys import Coords
from gzarr.indexing.regions import Region, size_of
from gzarr.metadata.documents import read_node

#: A method, which elements of level 0 it leaves out, and the levels above level 0.
PlannedLevels: TypeAlias = tuple[Method, Missing | None, tuple[PyramidLevel, ...]]


@dataclass(slots=True)
class Build:
    """Levels that are being built, or an array alone that is written unit by unit.

    Attributes
    ----------
    node : Group or Array
        The group of the image; or the array, if there is no image.
    multiscale : Multiscale or None
        What the metadata of the image will say.
    levels : tuple of Array
        All levels, level 0 first.
    cascade : Cascade
        Takes the blocks of level 0.
    recipe : Recipe
        How they are made, with all that they depend on (``run``).
    after : str or None
        Name of the computation before this one, whose notes these replace.
    is_last : bool
        Whether the notes are removed at the end.
    replaced : Multiscale or None
        The metadata of levels that are taken off the image when the build begins.
    marks : UnitsDone or None
        The units that are done, once the build has begun.
    is_complete : bool
        Whether no part of a job is left to others.
    """

    node: Group | Array
    multiscale: Multiscale | None
    levels: tuple[Array, ...]
    cascade: Cascade
    recipe: Recipe
    after: str | None = None
    is_last: bool = True
    replaced: Multiscale | None = None
    marks: UnitsDone | None = None
    is_complete: bool = True

    def begin(self, plan: Mapping[str, Any]) -> UnitsDone:
        """Note that the build has begun, and create the arrays of the new levels.

        The caller keeps to ``UnitsDone.plan``, which is ``plan`` in a first run, and calls `restore` with what is done.
        Raises: ContainsNodeError, StoreError.
        """
        store, path, recipe = self.node.store, self.node.path, self.recipe
        if isinstance(self.node, Group):
            self.node.check_metadata_writable()
            if self.replaced is not None:
                take_off_levels(self.node, self.replaced, [level.path for level in self.levels])
        anew, was_begun = recipe.overwrite and not recipe.resume, True
        try:
            state = notes.read_marks(store, path)
            was_begun = state is not None
            anew = anew or (state is not None and state["name"] == self.after)
        except ContainsNodeError:  # damaged
            if not anew:
                raise
        was_begun = was_begun or recipe.part is not None  # by another part, perhaps at this moment
        if not was_begun and not recipe.overwrite:  # afterwards, what is in these places is of this build
            for level in self.levels[1:]:
                check_place(level, read_node(store.live(), level.path))
        made: dict[str, Any] = {"name": recipe.name, "run": recipe.run, "plan": plan, "remedy": recipe.remedy}
        self.marks = notes.begin(store, path, **made, resume=bool(recipe.resume), anew=anew)
        if self.marks.plan.keys() != plan.keys():  # units of one process are others than those of engines
            self.marks = notes.begin(store, path, **made, resume=True, anew=True, run_id=f"{self.marks.id}+")
        for level in self.levels[1:]:
            create_level(level, overwrite=recipe.overwrite, was_begun=was_begun, keep=not anew)
        return self.marks

    def restore(self, done: Iterable[Region]) -> None:
        """Take regions of level 0 for written by an earlier run."""
        for region in done:
            self.cascade.note(start_of(region), tuple(s.stop - s.start for s in region))
        self.cascade.restore()

    @contextmanager
    def writing(self) -> Iterator[Self]:
        """A context in which levels are filled; at its end they are complete, and the metadata name them.

        Raises: ContainsNodeError if something is in the place of a level, or an unfinished build is not resumed.
        """
        try:
            yield self
            if not self.is_complete:
                return
            self.cascade.finish()
        except Exception as error:
            if self.marks is not None:
                self.marks.note_failure(error)
                unnamed = "" if self.multiscale is None else "; the levels are not yet part of the image"
                error.add_note(
                    f"{self.node.store_path}: {self.marks.n_done} units of {self.recipe.name} are stored{unnamed}. "
                    f"The same call with {RESUME} goes on"
                )
            raise
        if self.multiscale is not None and isinstance(self.node, Group):
            write_multiscale(self.node, self.multiscale)
        if self.marks is not None and self.is_last:
            self.marks.remove()


def make_build(
    node: Group | Array,
    base: Array,
    multiscale: Multiscale | None,
    recipe: Recipe,
    *,
    write_base: bool = True,
    after: str | None = None,
    is_last: bool = True,
) -> Build:
    """Plan levels of which nothing is written yet.

    Parameters
    ----------
    node : Group or Array
        The group of the image; or the array, if there is no image.
    base : Array
        Level 0.
    multiscale : Multiscale or None
        The metadata of the image with level 0 alone; further datasets are replaced.
    recipe : Recipe
        How the levels are made.
    write_base : bool
        Whether blocks are written to level 0 too. If not, it holds them already.
    after, is_last
        As in `Build`.

    Raises
    ------
    MetadataError, ValueError
        If there can be no such levels.
    """
    found: PlannedLevels = "nearest", None, ()
    arrays: list[Array] = []
    if multiscale is not None and isinstance(node, Group):
        found = plan(base, multiscale, recipe)
        arrays = [level_array(node, base, level) for level in found[-1]]
        multiscale = naming(multiscale, found[0], found[-1])
    method, missing, planned = found
    factors = [level.factors for level in planned]
    cascade = Cascade([base, *arrays], factors, method, backend=base.backend, write_base=write_base, missing=missing)
    run = _run_of(node, base, planned, cascade, recipe, write_base=write_base)
    recipe = recipe._replace(run=run.joined(recipe.run or Run()))
    return Build(node, multiscale, (base, *arrays), cascade, recipe, after, is_last)


def naming(multiscale: Multiscale, method: Method, planned: Sequence[PyramidLevel]) -> Multiscale:
    """The metadata with some levels above level 0."""
    if not planned:
        return replace(multiscale, datasets=multiscale.datasets[:1])
    kwargs = {"method": method_name(method), "factors": [list(level.factors) for level in planned]}
    return replace(
        multiscale,
        datasets=(multiscale.datasets[0], *(Dataset(level.path, *level[3:]) for level in planned)),
        type=method_name(method),
        metadata={"method": "gzarr.images.build_pyramid", "kwargs": kwargs},
    )


class BlockSource(NamedTuple):
    """Where the blocks of level 0 come from.

    Attributes
    ----------
    produce : callable
        Given a region (a tuple of slices) of level 0, returns its elements on the device of level 0. It is called once
        for each unit, by several threads at once.
    chunk : tuple of int, optional
        Shape of what ``produce`` has to decode whole, so that units do not cut it more than they must.
    halo, more_nbytes
        As of `gzarr.images.pyramid.units.Cells`.
    occupied : callable, optional
        Given the units, returns in order those that hold more than the fill value; None for all of them.
    unit : tuple of int, optional
        Units are multiples of it.
    cache : ChunkCache, optional
        Keeps chunks that several units read, in the memory that units leave.
    also : sequence of Build
        Other outputs, whose blocks ``produce`` puts itself.
    """

    produce: Callable[[Region], Any]
    chunk: Coords | None = None
    halo: Coords = ()
    more_nbytes: Callable[[Coords], int] = lambda _unit: 0
    occupied: Callable[[Units], Sequence[Region] | None] | None = None
    unit: Coords | None = None
    cache: ChunkCache | None = None
    also: Sequence[Build] = ()


def fill(build: Build, source: BlockSource) -> None:
    """Build levels from blocks of level 0. build: of `make_build`, in its context `Build.writing`.

    Raises
    ------
    ValueError
        If the budget is too small for one unit.
    StoreError, ChunkError
        If a write or a read fails; no other unit begins.
    """
    base = build.levels[0]
    units, regions, marks = _begun(build, source)
    done = {n: region for n, region in enumerate(regions) if marks.is_done(n)} if marks.n_done else {}
    for each in (build, *source.also):
        each.restore(done.values())
    name = with_memory(base.path, build.recipe.max_nbytes, units.max_nbytes)

    def task(item: tuple[int, Region], add: Callable[[int, str], None]) -> None:
        number, region = item
        build.cascade.put(start_of(region), source.produce(region))
        marks.note(number)
        add(size_of(region) * base.itemsize, name)

    todo = (item for item in enumerate(regions) if item[0] not in done)
    skipped = base.nbytes - sum(map(size_of, regions)) * base.itemsize if regions is not units else 0
    with counted(build.recipe.progress, base.nbytes) as add:
        for n in [skipped, *(size_of(region) * base.itemsize for region in done.values())]:
            add(n, name)
        run_tasks(
            base.backend,
            partial(task, add=add),
            todo,
            n_items=len(regions) - len(done),
            cost_nbytes=units.cost_nbytes,
            max_nbytes=units.max_nbytes,
            workers=units.workers,
            waits=base.store.concurrency > 1,
            pending=lambda: build.cascade.pending_nbytes,
        )


def _begun(build: Build, source: BlockSource) -> tuple[Units, Sequence[Region] | Units, UnitsDone]:
    """Begin a build. Returns: the units, those that hold anything, and which are done."""
    base, max_nbytes = build.levels[0], build.recipe.max_nbytes
    cells, workers = cells_of(build, source), worker_count(base.backend, base.store.concurrency)
    units = plan_units(cells, max_nbytes, workers, None, source.cache)
    some = None if source.occupied is None or any(map(_fills_all, (build, *source.also))) else source.occupied(units)
    only = None if some is None else [len(some), crc32(repr(some).encode())]
    for other in source.also:
        other.begin({})
    marks = build.begin({"unit": list(units.unit), "only": only})
    units = plan_units(cells, max_nbytes, workers, tuple(marks.plan["unit"]), source.cache)
    if marks.plan.get("only") is None or source.occupied is None:
        return units, units, marks
    regions = source.occupied(units) or []
    for each in (build, *source.also):
        each.cascade.expect((start_of(region), tuple(s.stop - s.start for s in region)) for region in regions)
    return units, regions, marks


def cells_of(build: Build, source: BlockSource) -> Cells:
    """What units are planned by."""
    base, cascade = build.levels[0], build.cascade
    cells = cascade.geometry._replace(halo=source.halo, more_nbytes=source.more_nbytes)
    if source.chunk is not None:
        cells = cells._replace(chunk=source.chunk)
    first = cells.footprints[0]
    if source.unit is not None:
        first = tuple(-(-u // f) * f for u, f in zip(source.unit, first, strict=True))
    for other in source.also:
        first = tuple(map(lcm, first, other.cascade.unit))
    cells = cells._replace(footprints=(first, *cells.footprints[1:]))
    is_known = isinstance(cascade.method, str) and (cascade.missing[0] is None or base.backend is base.backend.host)
    if not is_known and len(build.levels) > 1 and base.size:
        cells = cells._replace(method_share=measured_share(cascade, source.produce))
    return cells


def _fills_all(build: Build) -> bool:
    """Whether more is written than units that hold anything: over what is stored, or levels unlike the fill value."""
    base, cascade, missing = build.levels[0], build.cascade, build.cascade.missing[0]
    if callable(cascade.method) or (missing is not None and missing.mask is not None):
        return True
    return cascade.writes_base and bool(base.write_empty_chunks or objects_stored(base.metadata, base.store, base.path))


def plan(base: Array, multiscale: Multiscale, recipe: Recipe) -> PlannedLevels:
    """The method, which elements of level 0 it leaves out, and the levels above it. Raises: ValueError, TypeError."""
    method, skip, factors = recipe.method_for(multiscale), recipe.skip, recipe.factors
    missing = None
    check_method(method, base.dtype, labels=multiscale.image_label is not None)
    if isinstance(method, str):
        missing = missing_of(skip, base)
    elif skip is not None and skip is not False:
        raise ValueError("skip: a function as the method sees all elements; leave skip out, and let it skip them")
    dataset = multiscale.datasets[0]
    axes = [AxisKind(axis.name, axis.type == "space", length) for axis, length in with_lengths(multiscale.axes)]
    first = PyramidLevel(dataset.path, base.shape, (1,) * base.ndim, dataset.scale, dataset.translation)
    planned = plan_levels(first, axes, recipe.levels, factors, centered=method != "nearest")
    for axis, kind in enumerate(multiscale.axes):
        if kind.type == "channel" and any(level.factors[axis] > 1 for level in planned):
            raise ValueError(f"factors={factors!r} join channels, axis {kind.name!r}; give it a factor of 1")
    return method, missing, planned


def source_of(data: Any, base: Array, dtype: Any = None) -> BlockSource:
    """What gives level 0 from an array: of gzarr, in memory, or lazy (Dask, h5py, xarray). dtype: of the blocks."""
    backend, kind = base.backend, dtype or base.dtype

    def produce(region: Region) -> AnyArray:
        part = data[region]
        made = computed(part, kind, backend) if is_lazy(part) else backend.asarray(part, kind)
        return made if made.dtype == kind else made.astype(kind)

    occupied = None
    if isinstance(data, Array) and not data.is_view and same_fill(data, base):
        occupied = StoredChunks(data).units
    return BlockSource(produce, chunk_of(data), occupied=occupied)


def _run_of(
    node: Group | Array,
    base: Array,
    planned: Sequence[PyramidLevel],
    cascade: Cascade,
    recipe: Recipe,
    *,
    write_base: bool,
) -> Run:
    """What all builds depend on. Raises: ValueError."""
    method, missing = cascade.method, cascade.missing[0]
    inputs: dict[str, Any] = {} if write_base else {"level 0": base}
    arguments: dict[str, Any] = {"levels": [level[:3] for level in planned]}
    if isinstance(method, str):
        arguments["method"] = method
    if missing is not None:
        arguments["skip"] = np.asarray(missing.value).item()
        inputs |= {} if missing.mask is None else {"the mask of skip": missing.mask}
    if write_base:
        what = "level 0" if isinstance(node, Group) else "the output"
        arguments |= {f"{key} of {what}": value for key, value in describe_metadata(base.metadata).items()}
    return identify(
        recipe.name,
        recipe.resume,
        functions={} if isinstance(method, str) else {"method": method},
        inputs=inputs,
        arguments=arguments,
        beside=(node.store, node.path),
    )


def method_name(method: Method) -> str:
    """What the metadata call a method."""
    return method if isinstance(method, str) else getattr(method, "__qualname__", type(method).__qualname__)
