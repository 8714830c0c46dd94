"""Rewrites an array, or a group with everything in it, elsewhere: as it is, or with other chunks, codecs or format.

Everything is planned and checked before anything is written: the metadata of every new array, the room for it, how it
is copied. Then each array's chunks are written, and its metadata after them (see `gzarr.copying.unfinished`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gzarr.api.open import open as open_node
from gzarr.backend import Backend
from gzarr.copying import sources
from gzarr.copying.arrays import BUDGET_NBYTES, Route, copy_array
from gzarr.copying.planning import Job, check_keywords, format_of, plan, reported, stored_form
from gzarr.copying.progress import Progress, ProgressLike
from gzarr.copying.report import TransferReport
from gzarr.copying.settings import IfExists, Settings
from gzarr.copying.sources import Source, SourceTree
from gzarr.copying.unfinished import MARK, make_mark, read_mark, remove_mark, write_mark
from gzarr.devices import backend_for
from gzarr.errors import ContainsNodeError, CopyError, GzarrError, ReadOnlyError
from gzarr.hierarchy import create
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.node import lies_within
from gzarr.hierarchy.resizing import objects_stored
from gzarr.indexing.keys import join_path, normalize_path
from gzarr.metadata.documents import delete_node, read_node, write_attributes, write_node
from gzarr.metadata.model import ArrayMeta, GroupMeta, ZarrFormat
from gzarr.storage import open_store
from gzarr.storage.base import Store


def transfer(
    source: Any,
    dest: Any,
    *,
    path: str | None = None,
    if_exists: IfExists = "raise",
    dry_run: bool = False,
    resume: bool = False,
    progress: ProgressLike = None,
    budget_nbytes: int = BUDGET_NBYTES,
    device: str | Backend | None = None,
    each: Mapping[str, Mapping[str, Any]] | None = None,
    **keywords: Any,
) -> TransferReport:
    """Copy an array, or a group with everything in it, in bounded memory: rechunk, re-encode, convert v2 <-> v3.

    Chunks are copied encoded where the new array stores the same ones, also into and out of shards; else regions are
    decoded and encoded. Elements, attributes and dimension names stay; chunks that are missing stay missing, and
    decoded chunks that hold nothing but the fill value become missing. Between formats, dimension names move between
    ``dimension_names`` (v3) and the attribute ``_ARRAY_DIMENSIONS`` (v2), as xarray has them.

    source: a path, URL, store, array or group, or an array in memory. dest: a path, URL, store or group.
    path: path of the copy in the destination.
    if_exists: "raise" if anything is there; "replace" it; "skip" arrays that are there and copy the others.
    dry_run: only say what would be done. resume: go on with a copy that was interrupted, with the same arguments.
    progress: True for a bar (tqdm), or a function of (bytes done, bytes in all, name of the array).
    budget_nbytes: host memory for what has been read, in bytes; one object of the destination is always held whole.
    device: where chunks are decoded and encoded, as in `gzarr.open`; by default decoded where the source is opened
        for, and encoded on the host.
    each: more keywords for single arrays of a group, by path in it.
    keywords: of `gzarr.create_array`, for every array: chunks, shards, compressors, codecs, fill_value, zarr_format,
        order, layout, ...; what is not given is as in the source.
    Returns: what was done, or would be.
    Raises: CopyError, which says what was written and how to go on; MetadataError, before anything is written.

    >>> import gzarr
    >>> z = gzarr.array(range(100), chunks=10)
    >>> report = transfer(z, "memory://rechunked", chunks=50)
    >>> gzarr.open("memory://rechunked").chunks
    (50,)
    """
    settings = Settings(if_exists, dry_run, resume, progress, budget_nbytes)
    if not isinstance(source, (Array, Group)) and not hasattr(source, "shape"):
        source = open_node(source, mode="r")
    if device is not None and isinstance(source, (Array, Group)):
        source = source.to(device)
    with destination(dest, path, writable=not dry_run, source=source, device=device) as (store, where, backend):
        if isinstance(source, (Array, Group)):
            check_apart(source, store, where)
        return transfer_tree(_tree_of(source), store, where, backend, settings, keywords, each)


@contextmanager
def destination(
    dest: Any, path: str | None, *, writable: bool = True, source: Any = None, device: str | Backend | None = None
) -> Iterator[tuple[Store, str, Backend]]:
    """Where a copy goes: (store, path in it, backend). A store opened here from a path is closed in the end.

    The copy is encoded on the device that is given, else on that of the group that it goes to, else on that of the
    array or group it comes from.
    """
    backend = backend_for(device or "cpu")
    for node in (source, dest) if device is None else ():
        if isinstance(node, (Array, Group)) and node.backend.device != "cpu":
            backend = node.backend
    if isinstance(dest, Array):
        raise CopyError(f"the destination {dest.store_path} is an array; name a path, a store or a group")
    if isinstance(dest, Group):
        store, base = dest.store, dest.path
        if writable:
            dest.check_metadata_writable()
    else:
        store, base = open_store(dest, mode="a" if writable else None)
    try:
        yield store, join_path(base, normalize_path(path or "")), backend
    finally:
        if isinstance(dest, (str, os.PathLike)):
            store.close()


def _tree_of(source: Any) -> SourceTree:
    if isinstance(source, Group):
        return sources.from_group(source)
    one = sources.from_array(source) if isinstance(source, Array) else sources.from_memory(source)
    return SourceTree(one.name, {}, {"": one}, None if one.array is None else one.array.zarr_format)


def check_apart(source: Array | Group, store: Store, path: str) -> None:
    """Refuse to copy something onto itself, into itself, or over what it lies in. Raises: CopyError."""
    here = join_path(str(store), path)
    if lies_within(store, path, source.store, source.path):
        raise CopyError(
            f"cannot copy {source.store_path} to {here}, which is itself or lies in it; choose another place"
        )
    if lies_within(source.store, source.path, store, path):
        raise CopyError(f"cannot copy {source.store_path} to {here}, which it lies in; choose another place")


def transfer_tree(
    tree: SourceTree,
    store: Store,
    path: str,
    backend: Backend,
    settings: Settings,
    keywords: Mapping[str, Any],
    each: Mapping[str, Mapping[str, Any]] | None = None,
) -> TransferReport:
    """Copy a tree of sources to a place in a store. See `transfer`."""
    each = each or {}
    for given in (keywords, *each.values()):
        check_keywords(given)
    unknown = sorted(each.keys() - tree.arrays.keys())
    if unknown:
        names = ", ".join(name for name in tree.arrays if name) or "none, or is one itself: leave out each="
        raise CopyError(f"each={unknown[0]!r}: {tree.name} has no such array; it has {names}")
    zarr_format = format_of(tree, store, path, keywords)
    keywords = {**keywords, "zarr_format": zarr_format}
    jobs = [
        plan(source, join_path(path, name), backend, settings.budget_nbytes, {**keywords, **each.get(name, {})})
        for name, source in tree.arrays.items()
    ]
    origins = [(s.name, s.shape, str(s.dtype), stored_form(s)) for s in tree.arrays.values()]
    mark = make_mark(tree.name, [(job.path, origin, job.meta) for job, origin in zip(jobs, origins, strict=True)])
    resuming = _check_room(store, path, settings, mark)
    if not settings.dry_run and store.read_only:
        raise ReadOnlyError(f"store {store} is read-only; open it for writing to copy into it")
    if not settings.dry_run:
        store.check_metadata_writable()
    there = _already_there(store, jobs, settings, resuming=resuming)
    todo = [job for job in jobs if job.path not in there]
    report = TransferReport(
        tuple(reported(job) for job in todo), len(tree.groups), len(there), dry_run=settings.dry_run
    )
    if settings.dry_run or (settings.resume and not todo and not resuming):
        return report
    with _explained(store, path, settings) as progress_made:
        if not resuming:
            _begin(store, path, settings, zarr_format)
            write_mark(store, path, mark)
        progress_made.append("mark")
        for name, attributes in tree.groups.items():
            _write_group(store, join_path(path, name), attributes, zarr_format)
        with Progress(settings.progress, sum(job.source.nbytes for job in todo)) as progress:
            for job in todo:
                progress_made.append(job.path)
                _copy_job(store, job, backend, progress, resuming=resuming)
        remove_mark(store, path)
    return report


def _check_room(store: Store, path: str, settings: Settings, mark: Any) -> bool:
    """Whether an interrupted copy is gone on with. Raises: CopyError if something is in the way."""
    found = read_mark(store, path)
    where = join_path(str(store), path)
    if found is not None and settings.resume and (found == mark or settings.if_exists != "replace"):
        if found != mark:
            what = (
                f"of {found.source}" if found.source != mark.source else "with other arguments, or of what has changed"
            )
            raise CopyError(f"the unfinished copy at {where} is another one, {what}; copy with if_exists='replace'")
        return True
    if settings.if_exists == "replace" or settings.resume:
        return False
    if found is not None:
        raise CopyError(
            f"an unfinished copy of {found.source} lies at {where}; go on with it with resume=True, "
            "or begin anew with if_exists='replace'"
        )
    if settings.if_exists == "raise" and read_node(store.live(), path) is not None:
        raise CopyError(f"something is already stored at {where}; pass if_exists='replace' or 'skip', or another path")
    return False


def _already_there(store: Store, jobs: list[Job], settings: Settings, *, resuming: bool) -> set[str]:
    """Paths of the arrays that need not be copied. Raises: CopyError if something else is in their place."""
    if not resuming and not settings.resume and settings.if_exists != "skip":
        return set()
    there = set()
    for job in jobs:
        node = read_node(store.live(), job.path)
        if node is None:
            continue
        if isinstance(node, GroupMeta) or (settings.resume and replace(node, extra=job.meta.extra) != job.meta):
            raise CopyError(
                f"{join_path(str(store), job.path)} holds something else than the copy of {job.source.name}; "
                "delete it, or copy with if_exists='replace'"
            )
        there.add(job.path)
    return there


def _begin(store: Store, path: str, settings: Settings, zarr_format: ZarrFormat) -> None:
    """Make room at the destination, and the groups above it."""
    if settings.if_exists == "replace":
        if read_mark(store, path) is not None:
            delete_node(store, path)  # an unfinished copy, which has no metadata yet
        create.make_room(store, path, overwrite=True, zarr_format=zarr_format)
    elif read_node(store.live(), path) is None:
        create.make_room(store, path, overwrite=False, zarr_format=zarr_format)


def _write_group(store: Store, path: str, attributes: Mapping[str, Any], zarr_format: ZarrFormat) -> None:
    node = read_node(store.live(), path)
    if isinstance(node, ArrayMeta):
        raise CopyError(f"an array is in the place of a group: {join_path(str(store), path)}; delete it first")
    if node is None:
        write_node(store, path, GroupMeta(dict(attributes), zarr_format))
    elif dict(node.attributes) != dict(attributes):
        write_attributes(store, path, replace(node, attributes={**node.attributes, **attributes}))


def _copy_job(store: Store, job: Job, backend: Backend, progress: Progress, *, resuming: bool) -> None:
    present = set(objects_stored(job.meta, store, job.path)) if resuming else set()
    write_array(store, job.path, job.source, job.meta, job.route, backend, progress, present)


def write_array(
    store: Store,
    path: str,
    source: Source,
    meta: ArrayMeta,
    route: Route,
    backend: Backend,
    progress: Progress,
    present: set[tuple[int, ...]] | None = None,
) -> None:
    """Write the chunks of a new array, then its metadata. ``present`` are its objects that are there already."""
    array = Array(store, path, meta, backend, write_empty_chunks=False)
    if not present:  # what a copy that was killed may have left: where this one stores nothing, it would show
        store.delete_many([join_path(path, meta.keys.encode(c)) for c in objects_stored(meta, store, path)])
    copy_array(source, array, route, present or set(), lambda nbytes: progress.add(nbytes, source.name))
    write_node(store, path, meta)


@contextmanager
def _explained(store: Store, path: str, settings: Settings) -> Iterator[list[str]]:
    """Turn failures into errors that say what has been written and how to go on."""
    made: list[str] = []
    try:
        yield made
    except (GzarrError, OSError, ValueError, TypeError, MemoryError) as error:
        raise CopyError(_what_is_left(store, path, made, settings, error)) from error
    except BaseException as error:
        if made:
            error.add_note(_what_is_left(store, path, made, settings, error))
        raise


def _what_is_left(store: Store, path: str, made: list[str], settings: Settings, error: BaseException) -> str:
    where = join_path(str(store), path)
    reason = str(error) or type(error).__name__
    if not made:
        # What is in the way and must not be deleted is found before anything is.
        gone = settings.if_exists == "replace" and not isinstance(error, ContainsNodeError)
        before = " (what was there may be gone, as if_exists='replace' asks)" if gone else ""
        return f"the copy to {where} failed before it wrote anything{before}: {reason}"
    complete, current = made[1:-1], "/" + made[-1] if len(made) > 1 else "its groups"
    return (
        f"the copy to {where} stopped at {current}: {reason}. {len(complete)} arrays are complete there; what was "
        f"begun is kept but cannot be opened yet. Go on with the same call and resume=True, or delete {where!r} "
        f"(marked by {MARK})"
    )
