"""zarr 2's ``copy`` and ``copy_all``: copies between groups of Zarr and h5py, with the lines that they print.

A dry run of the whole copy precedes the first write. So what would stop it midway (a name that is taken, a cycle, an
element type that the destination lacks) stops it at the start. An array appears at its destination when it is complete.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Unpack

from gzarr.copying import hdf5, planning, sources
from gzarr.copying.arrays import BUDGET_NBYTES, copy_regions, decoding_route
from gzarr.copying.planning import CopyMemberKeywords
from gzarr.copying.sources import Source, check_name, regular_grid
from gzarr.copying.stores import Counts, Log, log_lines, summary
from gzarr.copying.transfer import check_apart
from gzarr.errors import SKIP, CopyError, GzarrError, ReadOnlyError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.create import make_room
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.node import lies_within
from gzarr.indexing.keys import join_path, normalize_path
from gzarr.scale.running import run

IfExists = Literal["raise", "replace", "skip", "skip_initialized"]


@dataclass(frozen=True, slots=True)
class _Zarr2Options:
    """The options of `copy`."""

    shallow: bool
    without_attrs: bool
    if_exists: str
    dry_run: bool
    create_kws: Mapping[str, Any]


def copy(
    source: Any,
    dest: Any,
    name: str | None = None,
    shallow: bool = False,
    without_attrs: bool = False,
    log: Any = None,
    if_exists: IfExists = "raise",
    dry_run: bool = False,
    **create_kws: Unpack[CopyMemberKeywords],
) -> tuple[int, int, int]:
    """Copy an array or a group into a group, between gzarr and h5py in any direction.

    This is zarr 2's function, which also copies to and from h5py. `transfer` is for everything else: it converts
    between formats, has a memory limit, and resumes what was interrupted.

    Parameters
    ----------
    source : Array, Group, h5py.Dataset or h5py.Group
        What is copied.
    dest : Group or h5py.Group
        The group that the copy goes into.
    name : str, optional
        Name of the copy; by default that of the source.
    shallow : bool, default False
        Whether to copy only the arrays directly in a group.
    without_attrs : bool, default False
        Whether to leave out user attributes.
    log : callable, str or file, optional
        Where lines are printed: a function of a line, the name of a file, or a file object.
    if_exists : {"raise", "replace", "skip", "skip_initialized"}
        For arrays that exist: raise, replace them, skip them, or skip those that have all their chunks (not for h5py).
    dry_run : bool, default False
        Whether to only print what would be done.
    **create_kws
        Keywords of the function that creates the new arrays, such as ``chunks`` and ``compressor``.

    Returns
    -------
    ncopied, nskipped, nbytes : int
        Numbers of items copied and skipped, and decoded bytes copied.

    Raises
    ------
    CopyError
        If the copy cannot be made, or stops midway. The message says what was copied and how to go on.

    Examples
    --------
    >>> import sys, gzarr
    >>> source, dest = gzarr.group(), gzarr.group()
    >>> baz = source.create_dataset("foo/bar/baz", data=range(100), dtype="i8")
    >>> gzarr.copy(source["foo"], dest, log=sys.stdout)
    copy /foo
    copy /foo/bar
    copy /foo/bar/baz (100,) int64
    all done: 3 copied, 0 skipped, 800 bytes copied
    (3, 0, 800)
    """
    chosen = source.name.rpartition("/")[2] if name is None else name
    if name is None and not chosen:
        raise TypeError("source has no name, please provide the `name` parameter to indicate a name to copy to")
    options = _Zarr2Options(shallow, without_attrs, if_exists, dry_run, create_kws)
    return _walked(source, dest, log, options, lambda log, o: _copy(log, source, dest, chosen, o, root=True))


def copy_all(
    source: Any,
    dest: Any,
    shallow: bool = False,
    without_attrs: bool = False,
    log: Any = None,
    if_exists: IfExists = "raise",
    dry_run: bool = False,
    **create_kws: Unpack[CopyMemberKeywords],
) -> tuple[int, int, int]:
    """Copy the members of a group, and its attributes, into another group, between gzarr and h5py in any direction.

    Parameters
    ----------
    source, dest : Group or h5py.Group
        The two groups.
    shallow, without_attrs, log, if_exists, dry_run, **create_kws
        As in `gzarr.copy`.

    Returns
    -------
    ncopied, nskipped, nbytes : int
        Numbers of items copied and skipped, and decoded bytes copied.

    Raises
    ------
    CopyError
        As in `gzarr.copy`.
    TypeError
        If the source is an array.

    Examples
    --------
    >>> import gzarr
    >>> source, dest = gzarr.group(), gzarr.group()
    >>> spam = source.create_dataset("spam", data=range(10), dtype="i4")
    >>> gzarr.copy_all(source, dest)
    (1, 0, 40)
    """
    if hasattr(source, "shape"):
        raise TypeError(f"source must be a group, got {source!r}; use copy for an array")
    options = _Zarr2Options(shallow, without_attrs, if_exists, dry_run, create_kws)

    def copy_members(log: Log, options: _Zarr2Options) -> Counts:
        counts = Counts()
        for name, node in _members(source):
            counts = counts.plus(_copy(log, node, dest, name, options, root=False))
        attributes = {} if options.without_attrs else _attributes(source)
        if not options.dry_run:
            _update_attributes(dest, attributes)
        return counts

    return _walked(source, dest, log, options, copy_members)


def _walked(
    source: Any, dest: Any, log: Any, options: _Zarr2Options, run: Callable[[Log, _Zarr2Options], Counts]
) -> tuple[int, int, int]:
    """Check, make a dry run, then carry the copy out."""
    if isinstance(dest, Group):
        planning.check_copy(options.create_kws, planning.CopyKeywords, copy_all)
    _check(source, dest, options)
    with log_lines(log) as write_line:
        if not options.dry_run:
            run(lambda line: None, replace(options, dry_run=True))
        lines: list[str] = []

        def note(line: str) -> None:
            lines.append(line)
            write_line(line)

        try:
            counts = run(note, options)
        except CopyError:
            raise
        except (GzarrError, OSError, ValueError, TypeError, RuntimeError, MemoryError) as error:
            raise CopyError(_stopped(lines, error)) from error
        summary(write_line, counts, dry_run=options.dry_run)
    return counts.ncopied, counts.nskipped, counts.nbytes


def _check(source: Any, dest: Any, options: _Zarr2Options) -> None:
    if not hasattr(dest, "create_dataset"):
        raise ValueError(f"dest must be a group, got {dest!r}")
    to_h5 = hdf5.is_h5(dest)
    allowed = ["raise", "replace", "skip", "skip_initialized"]
    if options.if_exists not in allowed:
        raise ValueError(f"if_exists must be one of {allowed!r}; found {options.if_exists!r}")
    if to_h5 and options.if_exists == "skip_initialized":
        raise ValueError(f"{options.if_exists!r} can only be used when copying to zarr")
    if not to_h5 and not hdf5.is_h5(source) and lies_within(dest.store, dest.path, source.store, source.path):
        raise CopyError(
            f"cannot copy {source.store_path} into {dest.store_path}: the destination is the source, or is inside it"
        )
    if options.dry_run:
        return
    if not to_h5:
        dest.check_metadata_writable()
    elif dest.file.mode == "r":
        raise ReadOnlyError(f"{hdf5.place(dest)} was opened read-only; open it with mode 'r+' or 'a'")


def _stopped(lines: Sequence[str], error: BaseException) -> str:
    done = f"; before it, {len(lines) - 1} items were copied whole or skipped" if len(lines) > 1 else ""
    at = lines[-1] if lines else "the beginning"
    return (
        f"the copy stopped at {at!r}: {error or type(error).__name__}. That item is not at the destination{done}; "
        f"go on with {SKIP}"
    )


def _copy(log: Log, source: Any, dest: Any, name: str, options: _Zarr2Options, *, root: bool) -> Counts:
    """Copy one array or group. In a dry run, ``dest`` is None if the group would have to be created."""
    exists = dest is not None and name in dest
    if hasattr(source, "shape"):
        return _copy_one_array(log, source, dest, name, options, exists=exists)
    if not root and options.shallow:
        return Counts()
    in_the_way = exists and hasattr(dest[name], "shape")
    if in_the_way and options.if_exists == "raise":
        raise CopyError(f"an array {name!r} already exists in destination {dest.name!r}")
    if in_the_way and options.if_exists == "skip":
        log(f"skip {source.name}")
        return Counts(nskipped=1)
    log(f"copy {source.name}")
    attributes = {} if options.without_attrs else _attributes(source)
    if options.dry_run:
        group = dest[name] if exists and not in_the_way else None
    else:
        if in_the_way:
            del dest[name]
        group = dest.require_group(name)
        _update_attributes(group, attributes)
    counts = Counts(ncopied=1)
    for child, node in _members(source):
        counts = counts.plus(_copy(log, node, group, child, options, root=False))
    return counts


def _copy_one_array(log: Log, source: Any, dest: Any, name: str, options: _Zarr2Options, *, exists: bool) -> Counts:
    line = f"{source.name} {source.shape} {source.dtype}"
    if exists and options.if_exists == "raise":
        raise CopyError(f"an object {name!r} already exists in destination {dest.name!r}")
    skipped = exists and options.if_exists == "skip"
    if exists and options.if_exists == "skip_initialized":
        existing = dest[name]
        skipped = isinstance(existing, Array) and existing.nchunks_initialized == existing.nchunks
    if skipped:
        log(f"skip {line}")
        return Counts(nskipped=1)
    if isinstance(source, Array) and isinstance(dest, Group):
        check_apart(source, dest.store, join_path(dest.path, normalize_path(name)))
    log(f"copy {line}")
    prepared = _prepared(source, options)
    if options.dry_run:
        return Counts(ncopied=1)
    if exists:
        del dest[name]
    write = _to_hdf5 if hdf5.is_h5(dest) else _to_zarr
    if hdf5.is_h5(dest) and hdf5.is_h5(source):
        options = replace(options, create_kws={**hdf5.storage_of(source), **options.create_kws})
    return Counts(ncopied=1, nbytes=write(prepared, dest, name, options))


def _prepared(source: Any, options: _Zarr2Options) -> Source:
    """The source of either kind. Raises CopyError for what cannot be copied."""
    if hdf5.is_h5(source):
        return hdf5.dataset_source(source, with_attributes=not options.without_attrs)
    array = sources.from_array(source)
    return replace(array, attributes={}) if options.without_attrs else array


def _to_zarr(source: Source, dest: Group, name: str, options: _Zarr2Options) -> int:
    """Write a Zarr array; return its decoded bytes. If that fails, what was written of it is deleted."""
    asked = options.create_kws.get("zarr_format")
    if asked not in (None, dest.metadata.zarr_format):
        where = f"{dest.store_path} has format {dest.zarr_format}"
        raise CopyError(f"{where} and cannot contain zarr_format={asked!r}; leave it out")
    keywords = {**options.create_kws, "zarr_format": dest.metadata.zarr_format}
    job = planning.plan(source, join_path(dest.path, normalize_path(name)), dest.opened_with, BUDGET_NBYTES, keywords)
    make_room(dest.store, job.path, overwrite=False, zarr_format=dest.metadata.zarr_format)
    try:
        planning.begin_array(dest.store, job)
        run([planning.array_blocks(dest.store, job, dest.opened_with)])
        planning.close_array(dest.store, job)
    except BaseException:
        with suppress(GzarrError, OSError):  # the error that stopped the copy matters more
            planning.delete_objects(dest.store, job)
        raise
    return job.meta.nbytes


def _to_hdf5(source: Source, dest: Any, name: str, options: _Zarr2Options) -> int:
    """Write an HDF5 dataset; return its decoded bytes. If that fails, the dataset is deleted."""
    dataset = hdf5.create_dataset(dest, name, source, options.create_kws)
    route = decoding_route(source, regular_grid(source.shape, dataset.chunks), BUDGET_NBYTES)
    try:
        copy_regions(source, partial(hdf5.write_region, dataset), route)
        hdf5.write_attributes(dataset, hdf5.plain_attributes(source))
    except BaseException:
        del dest[name]
        raise
    return int(dataset.size) * int(dataset.dtype.itemsize)


def _members(group: Any) -> list[tuple[str, Any]]:
    if hdf5.is_h5(group):
        return list(hdf5.members(group, hdf5.ancestors(group)))
    return [(check_name(name, str(group.store_path)), node) for name, node in group.items()]


def _attributes(group: Any) -> dict[str, Any]:
    return hdf5.attributes_of(group) if hdf5.is_h5(group) else dict(group.attrs)


def _update_attributes(group: Any, attributes: Mapping[str, Any]) -> None:
    if hdf5.is_h5(group):
        hdf5.write_attributes(group, attributes)
    elif attributes:
        group.attrs.update(attributes)
