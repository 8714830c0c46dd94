"""Plans the copy of each array, its chunks, metadata and route, before anything is written; then writes the array."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

from gzarr.copying.arrays import BUDGET_NBYTES, CopyBlock, Route, copy_blocks, plan_route
from gzarr.copying.report import ArrayReport
from gzarr.copying.sources import Source, SourceTree
from gzarr.display.progress import ProgressLike
from gzarr.errors import REPLACE, ChunkError, CopyError, MetadataError, StoreError
from gzarr.hierarchy import new_metadata, new_nodes
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.keywords import ChainKeywords, DatasetKeywords
from gzarr.hierarchy.options import OpenedWith, check_keywords
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
from gzarr.metadata.occupied import MARK
from gzarr.scale.blocks import BlockPlan, JobPart, parse_part
from gzarr.scale.parts import remove_parts
from gzarr.storage import MemoryStore
from gzarr.storage.base import Request, Store
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
        told["chunk shape"] = told.pop("chunks")
        arguments |= {f"{key} of the new array {job.path!r}".removesuffix(" ''"): value for key, value in told.items()}
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
    is_time = getattr(source.dtype, "kind", "") in ("m", "M")
    if not mask and not is_time and keywords.get("zarr_format") == 2 and None not in axis_names(source):
        mask = {"fill_value": None}  # which xarray would take for missing data
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
        dtype=job.meta.data_type.name,
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
    do = (job.source.block or CopyBlock)(job.source, dest, job.route, resuming=resuming)
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


# -- the options of a copy ---------------------------------------------------------------------------------------------

IfExists = Literal["raise", "replace", "skip"]


class CopyKeywords(ChainKeywords, total=False):
    """Keywords of `gzarr.create_array` for the arrays of a copy; what is not given is as in the source."""

    chunks: Any
    compressor: Any
    fill_value: Any
    order: Literal["C", "F"] | None
    zarr_format: Literal[2, 3] | None
    write_empty_chunks: bool | None


class TransferKeywords(CopyKeywords, total=False):
    """Keywords of `gzarr.transfer` that the functions of `gzarr.convert` pass on."""

    path: str | None
    each: Mapping[str, Mapping[str, Any]] | None
    if_exists: IfExists
    dry_run: bool
    resume: Resume
    progress: ProgressLike
    budget_nbytes: int
    on: Any
    part: tuple[int, int] | None


class Hdf5Keywords(DatasetKeywords, total=False):
    """Keywords of ``h5py.Group.create_dataset`` for the datasets of a copy."""

    chunks: Any
    maxshape: Any


class CopyMemberKeywords(CopyKeywords, Hdf5Keywords, total=False):
    """Keywords of the function that creates the arrays of `gzarr.copy` in a group of gzarr or h5py."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to copy; the parameters of `gzarr.transfer` that do not describe the new arrays."""

    if_exists: IfExists = "raise"
    dry_run: bool = False
    resume: Resume = False
    progress: ProgressLike = None
    budget_nbytes: int = BUDGET_NBYTES
    on: Any = None
    part: JobPart | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "part", parse_part(self.part))
        if self.part is not None:  # each process goes on with what the others have begun
            object.__setattr__(self, "resume", self.resume or True)
            if self.on is not None:
                raise ValueError("on= and part= are two ways to use several machines; leave one of them away")
            if self.if_exists == "replace":
                raise ValueError("part= does not go with if_exists='replace', which would delete what others write")
        if self.if_exists not in ("raise", "replace", "skip"):
            raise ValueError(f"if_exists must be 'raise', 'replace' or 'skip', got {self.if_exists!r}")
        if self.budget_nbytes < 1:
            raise ValueError(f"budget_nbytes must be at least 1, got {self.budget_nbytes!r}")


# -- copies that were not finished -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UnfinishedMark:
    """What is being copied.

    Attributes
    ----------
    source : str
        Name of the source.
    run : object
        What is copied and how (`gzarr.identity.runs.Run.to_json`).
    failed : sequence of str
        Chunks and files that could not be read: they may have been repaired when the copy goes on.
    """

    source: str
    run: Any
    failed: Sequence[str] = ()


def read_mark(store: Store, path: str) -> UnfinishedMark | None:
    """The mark at a place, or None. Raises CopyError if it cannot be read."""
    if is_transactional(store):
        return None
    data = store.get_one(Request(join_path(path, MARK)))
    if data is None:
        return None
    try:
        stored = json.loads(bytes(data))
        return UnfinishedMark(str(stored["source"]), stored.get("run"), stored.get("failed", ()))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise CopyError(
            f"{join_path(str(store), path)}: {MARK} is damaged: {error}; delete it, or copy with {REPLACE}"
        ) from error


def write_mark(store: Store, path: str, mark: UnfinishedMark) -> None:
    """Write the mark at a place. What is committed at once needs none."""
    if is_transactional(store):
        return
    store.set(join_path(path, MARK), json.dumps(asdict(mark)).encode())


def note_failure(store: Store, path: str, mark: UnfinishedMark, error: Exception, files: Sequence[str]) -> None:
    """Note what could not be read: a chunk, or one of several files."""
    failed = [error.key] if isinstance(error, ChunkError) else [name for name in files if repr(name) in str(error)]
    if failed and (len(files) > 1 or not files):
        with suppress(StoreError, OSError):  # the other error is raised
            write_mark(store, path, replace(mark, failed=(*mark.failed, *failed)))


def remove_mark(store: Store, path: str) -> None:
    """Remove the mark of a complete copy, and the notes of its parts."""
    if is_transactional(store):
        return
    store.delete_many((join_path(path, MARK),))
    remove_parts(store, path)
