"""Plans the copy of each array, its chunks, metadata and route, before anything is written; then writes the array."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gzarr.copying.arrays import CopyBlock, Route, copy_blocks, plan_route
from gzarr.copying.report import ArrayReport
from gzarr.copying.sources import Source, SourceTree
from gzarr.errors import CopyError, MetadataError
from gzarr.hierarchy import new_metadata, new_nodes
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.open_options import OpenedWith
from gzarr.hierarchy.options import check_keywords
from gzarr.hierarchy.presets import LAYOUT_KEYWORDS, layout_applies
from gzarr.hierarchy.resizing import objects_stored
from gzarr.identity.inputs import SAMPLED, describe_files, describe_input, describe_metadata
from gzarr.identity.runs import Resume, Run, identify
from gzarr.indexing.chunking import guess_chunks
from gzarr.indexing.grid import nchunks
from gzarr.indexing.keys import join_path
from gzarr.metadata.conventions import in_format, split_names, stated_by, translate, with_names
from gzarr.metadata.documents import read_node, write_node
from gzarr.metadata.model import ArrayMeta, GroupMeta, ZarrFormat
from gzarr.scale.blocks import BlockPlan
from gzarr.storage import MemoryStore
from gzarr.storage.base import Store
from gzarr.storage.foreign import is_transactional

#: Objects that are looked at in each of many arrays.
_LEAST_SAMPLED = 8
#: Keywords of the creation functions that callers cannot give: a copy takes them from its source.
_FROM_SOURCE = ("shape", "dtype", "data", "attributes", "overwrite", "path", "name", "store")


@dataclass(frozen=True, slots=True)
class Job:
    """One array to copy: where to, with which metadata, and how."""

    path: str
    source: Source
    meta: ArrayMeta
    route: Route


def check_copy(keywords: Iterable[str], typed: type, function: Callable[..., Any]) -> None:
    """Refuse keywords that only the source can set, and those that a function does not take. Raises TypeError."""
    bad = next((name for name in keywords if name in _FROM_SOURCE and name not in typed.__annotations__), None)
    if bad is not None:
        raise TypeError(f"{bad!r} cannot be given to a copy, which takes it from the source; leave it out")
    check_keywords(keywords, typed, function)


def format_of(tree: SourceTree, store: Store, path: str, keywords: Mapping[str, Any]) -> ZarrFormat:
    """The format given, else that of the group that the copy goes into, else that of the source.

    Raises MetadataError if the group has another format than the one given: no reader would find the copy in it.
    """
    asked = keywords.get("zarr_format")
    around = _nearest_group(store, path)
    if around is not None and asked not in (None, around.zarr_format):
        raise MetadataError(
            f"{store}: the group around {path!r} has format {around.zarr_format} and cannot contain "
            f"zarr_format={asked!r}; leave it out"
        )
    inherited = tree.zarr_format if around is None else around.zarr_format
    return new_metadata.checked_format(inherited if asked is None else asked)


def _nearest_group(store: Store, path: str) -> GroupMeta | None:
    """The group that a path is in, at any depth."""
    while path:
        path = path.rpartition("/")[0]
        node = read_node(store.live(), path)
        if isinstance(node, GroupMeta):
            return node
    return None


def run_of(tree: SourceTree, jobs: Sequence[Job], resume: Resume) -> Run:
    """What is copied and how: a resumed copy must have read the same before. Raises ValueError."""
    most = max(SAMPLED // max(len(jobs), 1), _LEAST_SAMPLED)
    inputs: dict[str, Any] = {"source": describe_files(tree.files)} if tree.files else {}
    for job in jobs if not tree.files else ():
        source = job.source.data if job.source.array is None else job.source.array
        inputs[job.path or "source"] = describe_input(source, most=most)
    arguments: dict[str, Any] = {}
    for job in jobs:
        source = job.source.array
        told = describe_metadata(job.meta, attributes=True)
        if source is not None:  # attributes are copied too
            told["metadata of the source"] = describe_metadata(source.metadata, attributes=True)["metadata"]
        arguments |= {f"{key} of the new array {job.path!r}": value for key, value in told.items()}
    return identify("copy", resume, inputs=inputs, arguments=arguments)


def plan(source: Source, path: str, opened_with: OpenedWith, budget_nbytes: int, keywords: Mapping[str, Any]) -> Job:
    """Plan an array's new metadata and route. Raises MetadataError naming the array."""
    try:
        meta = new_meta(source, keywords)
        Array(MemoryStore(), path, meta, opened_with).require_codecs()
    except (MetadataError, TypeError) as error:
        raise type(error)(f"cannot copy {source.name}: {error}") from error
    return Job(path, source, meta, plan_route(source, meta, budget_nbytes))


def new_meta(source: Source, keywords: Mapping[str, Any]) -> ArrayMeta:
    """The metadata of a copy: like the source, except for the keywords. Raises MetadataError, TypeError."""
    keywords = with_lengths(keywords, source)
    if source.array is not None:
        return _meta_of_copy(source.array, source.attributes, keywords)
    mask = {} if source.mask_value is None else {"fill_value": source.mask_value}
    afresh = layout_applies(keywords, source.dtype)
    inherited = {k: v for k, v in source.options.items() if not (afresh and k in LAYOUT_KEYWORDS)}
    options = {"shape": source.shape, "dtype": source.dtype, **inherited, **mask, **keywords}
    if leaves_open(options) and not afresh:
        options["chunks"] = guessed(source)
    meta = new_metadata.array_meta(new_nodes.options_from(options))
    names = keywords.get("dimension_names", source.dimension_names)
    return in_format(meta, source.attributes, names, source.mask_value)


def _meta_of_copy(array: Array, attributes: Mapping[str, Any], keywords: Mapping[str, Any]) -> ArrayMeta:
    """The metadata of a copy of an array; another format says the same in its words."""
    said = replace(array.metadata, attributes=attributes)
    if "dimension_names" in keywords:
        said = with_names(said, keywords["dimension_names"])
    stated, extra = stated_by(said), said.extra
    if keywords.get("zarr_format") not in (None, said.zarr_format):
        stated, extra = translate(said)
        keywords = {"fill_value": stated.fill_value, **keywords}
    meta = new_metadata.array_meta(new_nodes.options_from(new_nodes.like(array, keywords)))
    return replace(meta, attributes=stated.attributes, dimension_names=stated.names, extra=extra)


def reported(job: Job) -> ArrayReport:
    """The report of a job."""
    regions = job.route.regions if job.route.how == "decode" else None
    return ArrayReport(
        path=job.path,
        source=job.source.name,
        shape=job.meta.shape,
        dtype=str(job.meta.data_type.dtype),
        chunks=job.meta.chunks,
        shards=None if job.meta.sharding is None else job.meta.object_shape,
        nbytes=job.source.nbytes,
        nobjects=nchunks(job.meta.grid),
        how=job.route.how,
        region=None if regions is None else regions.shape,
        reads=0.0 if regions is None else regions.reads,
    )


# -- chunks by the names of axes ---------------------------------------------------------------------------------------

#: Names of axes along which a pixel has its values, and the most elements for which they stay in one chunk.
_CHANNELS = frozenset({"c", "s", "channel", "channels", "band", "bands", "sample", "samples", "rgb", "rgba"})
_FEW_CHANNELS = 16
#: A last axis without a name of so many elements holds colours.
_COLOURS = (3, 4)


def axis_names(source: Source) -> tuple[str | None, ...]:
    """The names of a source's axes, wherever they are stored; None for those without one."""
    names = split_names(source.attributes, source.dimension_names, len(source.shape))[1]
    return (None,) * len(source.shape) if names is None else names


def is_named(lengths: Any) -> bool:
    """Whether ``chunks=`` or ``shards=`` gives lengths by the names of axes."""
    return isinstance(lengths, Mapping) and "shape" not in lengths


def check_names(keywords: Mapping[str, Any], names: Iterable[str | None], what: str) -> None:
    """Refuse lengths for axes that nothing has. Raises CopyError."""
    known = sorted({name for name in names if name is not None})
    for key in ("chunks", "shards"):
        lengths: Any = keywords.get(key)
        unknown = [name for name in lengths if name not in known] if is_named(lengths) else []
        if unknown:
            raise CopyError(f"{key}: {what} has no axis named {unknown[0]!r}; it has {', '.join(known) or 'no names'}")


def with_lengths(keywords: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """Keywords with a length for every axis, where they give some by name.

    Other axes keep the source's chunks, or are whole if it has none; shards are as long as a chunk there. An array
    that has none of the axes keeps its chunks.
    """
    given, names = dict(keywords), axis_names(source)
    stored = source.options.get("chunks") if source.array is None else source.array.chunks
    for key in ("chunks", "shards"):
        if is_named(given.get(key)):
            lengths = given.pop(key)
            if any(name in lengths for name in names):
                rest = given.get("chunks", stored) or source.shape
                given[key] = tuple(lengths.get(name, length) for name, length in zip(names, rest, strict=True))
    return given


def guessed(source: Source) -> tuple[int, ...] | None:
    """Chunks for a source that has none, with colours and few channels whole; None if it has neither."""
    names, shape = axis_names(source), source.shape
    whole = {
        axis
        for axis, (name, extent) in enumerate(zip(names, shape, strict=True))
        if name is not None and name.lower() in _CHANNELS and extent <= _FEW_CHANNELS
    }
    if len(shape) > 2 and names[-1] is None and shape[-1] in _COLOURS:
        whole.add(len(shape) - 1)
    if not whole:
        return None
    others = [extent for axis, extent in enumerate(shape) if axis not in whole]
    lengths = iter(guess_chunks(others, source.itemsize * math.prod(shape[axis] for axis in whole)))
    return tuple(max(extent, 1) if axis in whole else next(lengths) for axis, extent in enumerate(shape))


def leaves_open(keywords: Mapping[str, Any]) -> bool:
    """Whether keywords leave the choice of chunks open."""
    chunks = keywords.get("chunks")
    guess = chunks is None or chunks is True or (isinstance(chunks, str) and chunks == "auto")
    return guess and keywords.get("shards") is None and keywords.get("layout") is None


# -- new arrays --------------------------------------------------------------------------------------------------------


def array_blocks(store: Store, job: Job, opened_with: OpenedWith, *, resuming: bool = False, **how: Any) -> BlockPlan:
    """The blocks of a new array. how: other fields of `BlockPlan`."""
    dest = partial(Array, store, job.path, job.meta, opened_with, write_empty_chunks=False)
    block = job.source.block or CopyBlock
    do = block(job.source, dest, job.route, resuming=resuming)
    return copy_blocks(job.source, job.route, do, stores=(store,), **how)


def begin_array(store: Store, job: Job, *, resuming: bool = False) -> None:
    """Begin to write the chunks of a new array."""
    if is_transactional(store):
        write_node(store, job.path, job.meta)
    elif not resuming:  # chunks that a killed copy left would show where this one stores nothing
        delete_objects(store, job)


def close_array(store: Store, job: Job) -> None:
    """Write the metadata of an array whose chunks are complete."""
    if not is_transactional(store):
        write_node(store, job.path, job.meta)


def delete_objects(store: Store, job: Job) -> None:
    """Delete the stored objects of a new array."""
    coords = objects_stored(job.meta, store, job.path)
    store.delete_many([join_path(job.path, job.meta.keys.encode(c)) for c in coords])
