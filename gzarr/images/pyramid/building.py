"""Builds the levels of an image: prepares their arrays, fills them in one pass, and names them in the metadata last.

Theory of operation. `building` plans the levels and makes a `Cascade` of their arrays. Who drives it (`fill`, or a
filter that writes an image) begins the computation, puts every unit once and notes it. The metadata name the new levels
only once all of them are complete, so an image that is being built, or whose build was killed, is valid and has fewer
levels. What is noted is in `gzarr.images.pyramid.resuming`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

import gzarr.images.pyramid.resuming as notes
from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend
from gzarr.display.progress import ProgressLike, counted
from gzarr.errors import RESUME, ContainsNodeError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.lazy import computed, is_lazy
from gzarr.hierarchy.missing import Missing, missing_of
from gzarr.identity.inputs import describe_metadata
from gzarr.identity.runs import Resume, Run, identify
from gzarr.images.ome.axes import with_lengths
from gzarr.images.ome.documents import Dataset, Multiscale, write_multiscale
from gzarr.images.pyramid.cascade import Cascade
from gzarr.images.pyramid.device_memory import measured_share
from gzarr.images.pyramid.downsample import Method, check_method
from gzarr.images.pyramid.level_arrays import check_place, create_level, level_array
from gzarr.images.pyramid.levels import AxisKind, Factors, PyramidLevel, plan_levels
from gzarr.images.pyramid.resuming import UnitsDone
from gzarr.images.pyramid.units import plan_units
from gzarr.images.tasks import run_tasks, with_memory, worker_count
from gzarr.indexing.regions import Region
from gzarr.metadata.documents import read_node


@dataclass(slots=True)
class Build:
    """Levels that are being built.

    Attributes
    ----------
    group : Group
        Of the image.
    multiscale : Multiscale
        What the metadata will say.
    levels : tuple of Array
        All levels, level 0 first.
    cascade : Cascade
        Takes the blocks of level 0.
    name : str
        Of the function that builds, for messages.
    run : Run
        What the levels are made of and how.
    resume, overwrite : bool
        Whether to go on with an unfinished build, or to delete one.
    after : str or None
        Name of the computation before this one, whose notes these replace.
    marks : Marks or None
        The units that are done, once the build has begun.
    """

    group: Group
    multiscale: Multiscale
    levels: tuple[Array, ...]
    cascade: Cascade
    name: str
    run: Run
    resume: Resume = False
    overwrite: bool = False
    after: str | None = None
    marks: UnitsDone | None = field(default=None)

    def begin(self, plan: Mapping[str, Any]) -> UnitsDone:
        """Note that the build has begun, and create the arrays of the new levels.

        The caller keeps to ``UnitsDone.plan``, which is ``plan`` in a first run, and calls ``cascade.note``
        for each block that is done, then ``cascade.restore``. Raises: ContainsNodeError, StoreError.
        """
        store, path = self.group.store, self.group.path
        self.group.check_metadata_writable()
        anew, was_begun = self.overwrite and not self.resume, True
        try:
            state = notes.read_marks(store, path)
            was_begun = state is not None
            anew = anew or (state is not None and state["name"] == self.after)
        except ContainsNodeError:  # damaged
            if not anew:
                raise
        if not was_begun and not self.overwrite:  # afterwards, what is in these places is of this build
            for level in self.levels[1:]:
                check_place(level, read_node(store.live(), level.path))
        made: dict[str, Any] = {"name": self.name, "run": self.run, "plan": plan}
        self.marks = notes.begin(store, path, **made, resume=bool(self.resume), anew=anew)
        for level in self.levels[1:]:
            create_level(level, overwrite=self.overwrite, was_begun=was_begun, keep=not anew)
        return self.marks


@contextmanager
def building(
    group: Group,
    base: Array,
    multiscale: Multiscale,
    *,
    levels: int | None = None,
    factors: Factors = None,
    method: Method = "mean",
    skip: Any = None,
    write_base: bool = True,
    resume: Resume = False,
    overwrite: bool = False,
    name: str = "build_pyramid",
    run: Run | None = None,
    after: str | None = None,
    is_last: bool = True,
) -> Iterator[Build]:
    """A context in which levels are built; at its end, the metadata name them.

    Parameters
    ----------
    group : Group
        Of the image.
    base : Array
        Level 0.
    multiscale : Multiscale
        The metadata of the image with level 0 alone; further datasets are replaced.
    levels, factors, method, skip
        As in `gzarr.images.build_pyramid`.
    write_base : bool
        Whether blocks are written to level 0 too. If not, it holds them already.
    resume, overwrite : bool
        Whether to go on with an unfinished build; whether to replace levels, and unfinished builds.
    name : str
        Of the function that builds, for messages.
    run : Run, optional
        What else the elements depend on, so that only the same computation is resumed.
    after : str, optional
        Name of a computation that has ended, and left its notes for this one to replace.
    is_last : bool
        Whether the notes are removed at the end.

    Raises
    ------
    MetadataError, ValueError
        If there can be no such levels.
    ContainsNodeError
        If something is in the place of a level, or an unfinished build is not resumed.
    """
    check_method(method, base.dtype, labels=multiscale.image_label is not None)
    missing = skipped(skip, base, method)
    planned = plan(base, multiscale, levels, factors, method)
    arrays = [level_array(group, base, level) for level in planned]
    cascade = cascade_of(base, arrays, planned, method, write_base=write_base, missing=missing)
    build = Build(
        group,
        replace(
            multiscale,
            datasets=(multiscale.datasets[0], *(Dataset(level.path, *level[3:]) for level in planned)),
            type=method_name(method) if planned else multiscale.type,
            metadata=method_metadata(method, planned) if planned else multiscale.metadata,
        ),
        (base, *arrays),
        cascade,
        name,
        _run_of(group, base, planned, cascade, name, resume, write_base=write_base).joined(run or Run()),
        resume,
        overwrite,
        after,
    )
    try:
        yield build
        cascade.finish()
    except Exception as error:
        if build.marks is not None:
            build.marks.note_failure(error)
            error.add_note(
                f"{group.store_path}: {build.marks.n_done} units of {name} are stored; the levels are not yet part of "
                f"the image. The same call with {RESUME} goes on"
            )
        raise
    write_multiscale(group, build.multiscale)
    if build.marks is not None and is_last:
        build.marks.remove()


def fill(
    build: Build,
    produce: Callable[[Region], AnyArray],
    *,
    max_nbytes: int | None = None,
    progress: ProgressLike = None,
    chunk: tuple[int, ...] | None = None,
) -> None:
    """Build levels from a function that gives the elements of regions of level 0.

    Parameters
    ----------
    build : Build
        Of `building`.
    produce : callable
        Given a region (a tuple of slices) of level 0, returns its elements on the device of level 0. It is called once
        for each unit, by several threads at once.
    max_nbytes : int, optional
        Memory for decoded elements, in bytes: see `gzarr.images.build_pyramid`.
    progress : bool or callable, optional
        As in `gzarr.transfer`.
    chunk : tuple of int, optional
        Shape of what ``produce`` has to decode whole, so that units do not cut it more than they must.

    Raises
    ------
    ValueError
        If the budget is too small for one unit.
    StoreError, ChunkError
        If a write or a read fails; no other unit begins.
    """
    base, cascade = build.levels[0], build.cascade
    waits = base.store.concurrency > 1
    workers = worker_count(base.backend, base.store.concurrency)
    cells = cascade.geometry if chunk is None else cascade.geometry._replace(chunk=chunk)
    is_known = isinstance(cascade.method, str) and (cascade.missing[0] is None or base.backend is base.backend.host)
    if not is_known and len(build.levels) > 1 and base.size:
        cells = cells._replace(method_share=measured_share(cascade, produce))
    chosen = plan_units(cells, max_nbytes, workers)
    marks = build.begin({"unit": list(chosen.unit)})
    units = plan_units(cells, max_nbytes, workers, tuple(marks.plan["unit"]))
    done = [region for number, region in enumerate(units) if marks.is_done(number)] if marks.n_done else ()
    for region in done:
        cascade.note(_start(region), _shape(region))
    cascade.restore()
    name = with_memory(base.path, max_nbytes, units.max_nbytes)

    def task(item: tuple[int, Region], add: Callable[[int, str], None]) -> None:
        number, region = item
        block = produce(region)
        cascade.put(_start(region), block)
        marks.note(number)
        add(block.nbytes, name)

    todo = (item for item in enumerate(units) if not marks.is_done(item[0]))
    with counted(progress, base.nbytes) as add:
        for region in done:
            add(_nbytes(region, base), name)
        run_tasks(
            base.backend,
            partial(task, add=add),
            todo,
            n_items=len(units) - len(done),
            cost_nbytes=units.cost_nbytes,
            max_nbytes=units.max_nbytes,
            workers=units.workers,
            waits=waits,
            pending=lambda: cascade.pending_nbytes,
        )


def cascade_of(
    base: Array,
    arrays: Sequence[Array],
    planned: Sequence[PyramidLevel],
    method: Method,
    *,
    write_base: bool,
    missing: Missing | None = None,
) -> Cascade:
    """A cascade of level 0 and the arrays of planned levels."""
    factors = [level.factors for level in planned]
    return Cascade((base, *arrays), factors, method, backend=base.backend, write_base=write_base, missing=missing)


def skipped(skip: Any, base: Array, method: Method) -> Missing | None:
    """Which elements of level 0 a method leaves out. Raises: ValueError, TypeError."""
    if isinstance(method, str):
        return missing_of(skip, base)
    if skip is not None and skip is not False:
        raise ValueError("skip: a function as the method sees all elements; leave skip out, and let it skip them")
    return None


def plan(
    base: Array, multiscale: Multiscale, levels: int | None, factors: Factors, method: Method
) -> tuple[PyramidLevel, ...]:
    """The levels above level 0. Raises: ValueError."""
    dataset = multiscale.datasets[0]
    axes = [AxisKind(axis.name, axis.type == "space", length) for axis, length in with_lengths(multiscale.axes)]
    first = PyramidLevel(dataset.path, base.shape, (1,) * base.ndim, dataset.scale, dataset.translation)
    planned = plan_levels(first, axes, levels, factors, centered=method != "nearest")
    for axis, kind in enumerate(multiscale.axes):
        if kind.type == "channel" and any(level.factors[axis] > 1 for level in planned):
            raise ValueError(f"factors={factors!r} join channels, axis {kind.name!r}; give it a factor of 1")
    return planned


def producer(data: Any, backend: Backend, dtype: Any) -> Callable[[Region], AnyArray]:
    """A function that gives regions of an array: of gzarr, in memory, or lazy (Dask, h5py, xarray)."""

    def produce(region: Region) -> AnyArray:
        piece = data[region]
        made = computed(piece, dtype, backend) if is_lazy(piece) else backend.asarray(piece, dtype)
        return made if made.dtype == dtype else made.astype(dtype)

    return produce


def chunk_of(data: Any) -> tuple[int, ...] | None:
    """The shape of the chunks that an array decodes whole; None for one in memory."""
    chunks = getattr(data, "chunksize", None) or getattr(data, "chunks", None)  # Dask's are those of every block
    if not isinstance(chunks, tuple) or not all(isinstance(n, int) and n > 0 for n in chunks):
        return None
    return chunks


def _run_of(
    group: Group,
    base: Array,
    planned: Sequence[PyramidLevel],
    cascade: Cascade,
    name: str,
    resume: Resume,
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
        arguments |= {f"{key} of level 0": value for key, value in describe_metadata(base.metadata).items()}
    return identify(
        name,
        resume,
        functions={} if isinstance(method, str) else {"method": method},
        inputs=inputs,
        arguments=arguments,
        beside=(group.store, group.path),
    )


def _start(region: Region) -> tuple[int, ...]:
    return tuple(s.start for s in region)


def _shape(region: Region) -> tuple[int, ...]:
    return tuple(s.stop - s.start for s in region)


def _nbytes(region: Region, array: Array) -> int:
    n = array.itemsize
    for extent in _shape(region):
        n *= extent
    return n


def method_name(method: Method) -> str:
    """What the metadata call a method."""
    return method if isinstance(method, str) else getattr(method, "__qualname__", type(method).__qualname__)


def method_metadata(method: Method, planned: Sequence[PyramidLevel]) -> dict[str, Any]:
    """What the metadata say of how levels were made."""
    factors = [list(level.factors) for level in planned]
    return {"method": "gzarr.images.build_pyramid", "kwargs": {"method": method_name(method), "factors": factors}}
