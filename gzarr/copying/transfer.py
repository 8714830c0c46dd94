"""Copies an array, or a group with everything in it: unchanged, or with other chunks, codecs or another format.

Everything is planned and checked before anything is written: the metadata of every new array, the room for it, and its
route. Then the chunks of each array are written, followed by its metadata, and the groups last: what can be opened is
complete (see `gzarr.copying.planning`).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias, Unpack

from gzarr.api.open import open as open_node
from gzarr.backend import Backend
from gzarr.copying import planning, sources
from gzarr.copying.arrays import BUDGET_NBYTES
from gzarr.copying.planning import CopyKeywords
from gzarr.copying.report import TransferReport
from gzarr.copying.sources import SourceTree
from gzarr.copying.stores import opened
from gzarr.devices import backend_for
from gzarr.display.progress import ProgressLike, counted
from gzarr.errors import REPLACE, RESUME, SKIP, ContainsNodeError, CopyError, GzarrError
from gzarr.hierarchy import create
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.node import lies_within
from gzarr.hierarchy.options import OpenedWith
from gzarr.identity.runs import Resume, Run
from gzarr.indexing.keys import join_path, normalize_path
from gzarr.metadata.documents import change_attributes, delete_node, read_node, write_node
from gzarr.metadata.model import ArrayMeta, GroupMeta, ZarrFormat
from gzarr.metadata.occupied import MARK
from gzarr.scale.blocks import BlockPlan, parse_part
from gzarr.scale.parts import check_parts, note_part
from gzarr.scale.running import run
from gzarr.storage.base import Store

#: Keywords by the names of arrays.
_Each: TypeAlias = Mapping[str, Mapping[str, Any]]


def transfer(
    source: Any,
    dest: Any,
    *,
    path: str | None = None,
    if_exists: planning.IfExists = "raise",
    dry_run: bool = False,
    resume: Resume = False,
    progress: ProgressLike = None,
    budget_nbytes: int = BUDGET_NBYTES,
    device: str | Backend | None = None,
    each: Mapping[str, Mapping[str, Any]] | None = None,
    on: Any = None,
    part: tuple[int, int] | None = None,
    **keywords: Unpack[CopyKeywords],
) -> TransferReport:
    """Copy an array, or a group with everything in it, in bounded memory: rechunk, re-encode, convert v2 <-> v3.

    Elements, attributes and dimension names stay. Chunks are copied encoded if the new array stores the same ones, also
    into and out of shards; else regions are decoded and encoded. Missing chunks stay missing, and decoded chunks that
    hold only the fill value become missing. Between formats, dimension names move between ``dimension_names`` (v3) and
    the attribute ``_ARRAY_DIMENSIONS`` (v2), and missing data are marked as xarray marks them in each format: by the
    fill value in v2, by the attribute ``_FillValue`` in v3. A copy back restores both.

    Parameters
    ----------
    source : path, URL, store, Array, Group or array in memory
        What is copied.
    dest : path, URL, store or Group
        Where the copy goes.
    path : str, optional
        Path of the copy in the destination.
    if_exists : {"raise", "replace", "skip"}
        If something exists at the destination: raise, replace it, or skip the arrays that exist.
    dry_run : bool, default False
        Whether to only report what would be done.
    resume : bool or str, default False
        Whether to resume an interrupted copy, which needs the same source, unchanged, and the same arguments; else it
        is refused. For data in memory that cannot be compared, such as Dask's, a text that stands for them, from the
        first call on.
    progress : bool or callable, optional
        True for a progress bar, or a function of (bytes done, bytes in all, name of the array).
    budget_nbytes : int, default 256 MiB
        Host memory in bytes for data that was read. At least one object of the destination is held whole.
    device : str, optional
        Where chunks are decoded and encoded, as in `gzarr.open`. By default, the device of the source decodes, and the
        host encodes unless the source or the destination is on a device.
    each : mapping, optional
        More keywords for single arrays of a group, by path in the group.
    on : optional
        What copies, if not threads of this process: a `distributed.Client` or ``"dask://host:port"``, ``"ray"``, an
        executor of `concurrent.futures`, or a number of processes. ``budget_nbytes`` is then the memory of one task.
    part : (int, int), optional
        Which part of the copy this process does, ``(k, n)`` with k from 0, as one of n that are started with the same
        arguments and know nothing of each other, such as the tasks of a job array. The last one to end completes the
        copy; one that was killed is started again.
    **keywords
        Keywords of `gzarr.create_array` for every array, such as ``chunks``, ``shards``, ``compressors``,
        ``zarr_format`` and ``layout``; what is not given is as in the source. ``chunks`` and ``shards`` may be lengths
        by the names of axes, ``{"time": 1}``: other axes, and arrays without these axes, stay as they are.

    Returns
    -------
    TransferReport
        What was done, or would be.

    Raises
    ------
    CopyError
        If the copy stops. The message says what was written and how to go on.
    MetadataError
        If an array cannot have the given properties; nothing is written.

    Examples
    --------
    >>> import gzarr
    >>> z = gzarr.array(range(100), chunks=10)
    >>> report = gzarr.transfer(z, "memory://rechunked", chunks=50)
    >>> gzarr.open("memory://rechunked").chunks
    (50,)
    """
    for given in (keywords, *(each or {}).values()):
        planning.check_copy(given, CopyKeywords, transfer)
    settings = planning.Settings(if_exists, dry_run, resume, progress, budget_nbytes, on, parse_part(part))
    if not isinstance(source, (Array, Group)) and not hasattr(source, "shape"):
        source = open_node(source, mode="r")
    if device is not None and isinstance(source, (Array, Group)):
        source = source.to(device)
    with destination(dest, path, writable=not dry_run, source=source, device=device) as to:
        if isinstance(source, (Array, Group)):
            check_apart(source, to.store, to.path)
        return transfer_tree(_tree_of(source), to, settings, keywords, each or {})


class Destination(NamedTuple):
    """Where a copy goes."""

    store: Store
    path: str
    opened_with: OpenedWith

    def __str__(self) -> str:
        return join_path(str(self.store), self.path)


@contextmanager
def destination(
    dest: Any, path: str | None, *, writable: bool = True, source: Any = None, device: str | Backend | None = None
) -> Iterator[Destination]:
    """The destination of a copy. A store that is opened here is closed at the end.

    The backend is that of ``device``, else of the destination group, else of the source.
    """
    opened_with = OpenedWith(backend_for(device or "cpu"))
    for node in (source, dest) if device is None else ():
        if isinstance(node, (Array, Group)) and node.backend.device != "cpu":
            opened_with = node.opened_with
    if isinstance(dest, Array):
        raise CopyError(f"the destination {dest.store_path} is an array; name a path, a store or a group")
    relative = normalize_path(path or "")
    if isinstance(dest, Group):
        if writable:
            dest.check_metadata_writable()
        yield Destination(dest.store, join_path(dest.path, relative), opened_with)
    else:
        with opened(dest, "a" if writable else None, f"Copy {getattr(source, 'store_path', '')}") as (store, base):
            yield Destination(store, join_path(base, relative), opened_with)


def _tree_of(source: Any) -> SourceTree:
    if isinstance(source, Group):
        return sources.from_group(source)
    one = sources.from_array(source) if isinstance(source, Array) else sources.from_memory(source)
    return SourceTree(one.name, {}, {"": one}, None if one.array is None else one.array.zarr_format)


def check_apart(source: Array | Group, store: Store, path: str) -> None:
    """Refuse a copy onto its source, into it, or over what contains it. Raises CopyError."""
    here = join_path(str(store), path)
    if lies_within(store, path, source.store, source.path):
        raise CopyError(f"cannot copy {source.store_path} to {here}: the destination is the source, or is inside it")
    if lies_within(source.store, source.path, store, path):
        raise CopyError(f"cannot copy {source.store_path} to {here}: the source is inside the destination")


def transfer_tree(
    tree: SourceTree, to: Destination, settings: planning.Settings, keywords: Mapping[str, Any], each: _Each
) -> TransferReport:
    """Copy a tree of sources. See `transfer`."""
    store, path, _ = to
    if settings.part is not None:
        check_parts(store)
    zarr_format, jobs = _plan_tree(tree, to, settings, keywords, each)
    run_is = planning.run_of(tree, jobs, settings.resume)
    unfinished = _check_room(to, settings, run_is)
    resuming, mark = unfinished is not None, unfinished or planning.UnfinishedMark(tree.name, run_is.to_json())
    if not settings.dry_run:
        store.check_metadata_writable()
    complete = _complete_arrays(store, jobs, settings, resuming=resuming)
    todo = [job for job in jobs if job.path not in complete]
    report = TransferReport(
        tuple(map(planning.reported, todo)),
        len(tree.groups),
        len(complete),
        dry_run=settings.dry_run,
        left_out=tuple(tree.left_out()),
    )
    if settings.dry_run or (settings.resume and not todo and not resuming):
        return report
    if complete and settings.resume and not resuming and settings.if_exists == "raise":
        raise CopyError(
            f"{to} has {len(complete)} of the arrays, and no copy is unfinished there: it is "
            f"not known of what they are copies; keep them with {SKIP}, or copy with {REPLACE}"
        )
    left = _Left()
    with _explained(to, settings, lambda error: planning.note_failure(store, path, mark, error, tree.files), left):
        if not resuming and _begin(to, settings, run_is, zarr_format):
            planning.write_mark(store, path, mark)
        left.has_begun = True
        for name in tree.groups:
            _check_group(store, join_path(path, name))
        plans = [_blocks_of(to, job, left, settings, resuming=resuming) for job in todo]
        with counted(settings.progress, sum(job.source.nbytes for job in todo)) as add:
            ran = run(plans, settings.on, settings.part, add)
        if settings.part is not None and not note_part(store, path, settings.part):
            return replace(report, run=ran, is_complete=False)
        for plan_of_job in plans if settings.part is not None else ():
            plan_of_job.close()
        for name, attributes in tree.groups.items():
            _write_group(store, join_path(path, name), attributes, zarr_format)
        planning.remove_mark(store, path)
    return replace(report, run=ran)


def _plan_tree(
    tree: SourceTree, to: Destination, settings: planning.Settings, keywords: Mapping[str, Any], each: _Each
) -> tuple[ZarrFormat, list[planning.Job]]:
    """The format of a copy, and a job for every array. Raises CopyError, MetadataError, TypeError."""
    unknown = sorted(each.keys() - tree.arrays.keys())
    if unknown:
        names = ", ".join(name for name in tree.arrays if name) or "none, or is one itself: leave out each="
        raise CopyError(f"each={unknown[0]!r}: {tree.name} has no such array; it has {names}")
    planning.check_names(
        keywords, [name for source in tree.arrays.values() for name in planning.axis_names(source)], tree.name
    )
    for name, given in each.items():
        planning.check_names(given, planning.axis_names(tree.arrays[name]), tree.arrays[name].name)
    zarr_format, jobs = planning.format_of(tree, to.store, to.path, keywords), []
    for name, source in tree.arrays.items():
        wanted = {**sources.fitting(keywords, tree.arrays, name), "zarr_format": zarr_format, **each.get(name, {})}
        where = join_path(to.path, name)
        jobs.append(planning.plan(source, where, to.opened_with, settings.budget_nbytes, wanted))
    return zarr_format, jobs


def _check_room(to: Destination, settings: planning.Settings, run: Run) -> planning.UnfinishedMark | None:
    """The interrupted copy that is resumed. Raises CopyError if something is in the way."""
    unfinished = planning.read_mark(to.store, to.path)
    if unfinished is not None and settings.resume:
        found = run.differences(unfinished.run, unfinished.failed)
        if not found:
            return unfinished
        if settings.if_exists != "replace":
            raise CopyError(
                f"the unfinished copy of {unfinished.source} at {to} is another one: {'; '.join(found)}. Go on with "
                f"the same source and arguments, or begin anew with {REPLACE}"
            )
    if settings.if_exists == "replace" or settings.resume:
        return None
    if unfinished is not None:
        raise CopyError(
            f"an unfinished copy of {unfinished.source} is at {to}; resume it with {RESUME}, "
            f"or start again with {REPLACE}"
        )
    if settings.if_exists == "raise" and read_node(to.store.live(), to.path) is not None:
        raise CopyError(f"something is already stored at {to}; pass {REPLACE}, {SKIP} or another path")
    return None


def _complete_arrays(
    store: Store, jobs: list[planning.Job], settings: planning.Settings, *, resuming: bool
) -> set[str]:
    """Paths of the arrays that need not be copied. Raises CopyError if something else is in their place."""
    if not resuming and not settings.resume and settings.if_exists != "skip":
        return set()
    complete = set()
    for job in jobs:
        node = read_node(store.live(), job.path)
        if node is None:
            continue
        if isinstance(node, GroupMeta) or (settings.resume and replace(node, extra=job.meta.extra) != job.meta):
            raise CopyError(
                f"{join_path(str(store), job.path)} holds something else, not the copy of {job.source.name}; "
                f"delete it, or copy with {REPLACE}"
            )
        complete.add(job.path)
    return complete


def _begin(to: Destination, settings: planning.Settings, run: Run, zarr_format: ZarrFormat) -> bool:
    """Make room at the destination, and the groups above it. Returns: False if another part has begun meanwhile."""
    store, path, _ = to
    if settings.if_exists == "replace":
        if planning.read_mark(store, path) is not None:
            delete_node(store, path)  # an unfinished copy, which has no metadata yet
        create.make_room(store, path, overwrite=True, zarr_format=zarr_format)
    elif read_node(store.live(), path) is None:
        try:
            create.make_room(store, path, overwrite=False, zarr_format=zarr_format)
        except ContainsNodeError:
            if _check_room(to, settings, run) is None:
                raise
            return False
    return True


def _check_group(store: Store, path: str) -> GroupMeta | None:
    """The group at a path, if it exists. Raises CopyError if it is an array."""
    node = read_node(store.live(), path)
    if isinstance(node, ArrayMeta):
        raise CopyError(f"{join_path(str(store), path)} is an array where the source has a group; delete it first")
    return node


def _write_group(store: Store, path: str, attributes: Mapping[str, Any], zarr_format: ZarrFormat) -> None:
    node = _check_group(store, path)
    if node is None:
        write_node(store, path, GroupMeta(dict(attributes), zarr_format))
    elif dict(node.attributes) != dict(attributes):
        change_attributes(store, path, node.zarr_format, lambda stored: {**stored, **attributes})


@dataclass
class _Left:
    """What a copy has begun, and what it leaves if it stops."""

    has_begun: bool = False
    current: str | None = None
    n_complete: int = 0


def _blocks_of(
    to: Destination, job: planning.Job, left: _Left, settings: planning.Settings, *, resuming: bool
) -> BlockPlan:
    def begin() -> None:
        left.current = job.path
        if settings.part is None:
            planning.begin_array(to.store, job, resuming=resuming)

    def close() -> None:
        planning.close_array(to.store, job)
        left.n_complete += 1

    resuming = resuming or settings.part is not None
    return planning.array_blocks(to.store, job, to.opened_with, resuming=resuming, begin=begin, close=close)


@contextmanager
def _explained(
    to: Destination, settings: planning.Settings, note: Callable[[Exception], None], left: _Left
) -> Iterator[None]:
    """Turn failures into errors that say what has been written and how to go on. note: is told of them."""
    try:
        yield
    except (GzarrError, OSError, ValueError, TypeError, MemoryError) as error:
        if left.has_begun:
            note(error)
        raise CopyError(_what_is_left(to, left, settings, error)) from error
    except BaseException as error:
        if left.has_begun:
            error.add_note(_what_is_left(to, left, settings, error))
        raise


def _what_is_left(to: Destination, left: _Left, settings: planning.Settings, error: BaseException) -> str:
    reason = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error) or type(error).__name__
    if not left.has_begun:
        # nothing is deleted before everything that must not be has been found
        gone = settings.if_exists == "replace" and not isinstance(error, ContainsNodeError)
        before = f" (existing data may be gone, as {REPLACE} demands)" if gone else ""
        return f"the copy to {to} failed before it wrote anything{before}: {reason}"
    current = "its groups" if left.current is None else "/" + left.current
    return (
        f"the copy to {to} stopped at {current}: {reason}. {left.n_complete} arrays are complete there; the "
        f"others cannot be opened yet. Go on with the same call and {RESUME}, or delete {str(to)!r} (marked by {MARK})"
    )
