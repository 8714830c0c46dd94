"""Walks through a hierarchy and finds what is wrong besides chunks: documents and leftover files.

Theory of operation. Nodes are visited level by level: their documents are fetched together, then groups are listed.
Arrays are listed by `list_objects`, which tells chunks from other objects. Nothing is listed twice but folders without
documents, where nodes may lie below a group that is missing.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import lt
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from gzarr.checking.consolidated import check_consolidated, consolidated_nodes, parse_document
from gzarr.checking.report import Place, Problem
from gzarr.display.info import number
from gzarr.errors import MetadataError, StoreError, UnknownCodecError, UnknownDataTypeError
from gzarr.errors.escaping import escaped
from gzarr.indexing.keys import Coords, join_path
from gzarr.metadata.documents import read_node
from gzarr.metadata.fields import parse_json
from gzarr.metadata.model import ArrayMeta, GroupMeta, NodeMeta
from gzarr.metadata.occupied import MARK, PROGRESS
from gzarr.storage.base import Buffer, Request, Store
from gzarr.storage.leftover_files import is_abandoned, remove_file_or_tree
from gzarr.storage.rules import DOCUMENTS, KEY_RULE, TEMPORARY_PREFIX, is_allowed

#: Nodes whose documents are fetched at once.
_AT_ONCE = 256
#: Documents that make a node exist; the first that is there counts.
_MAKING = ("zarr.json", ".zarray", ".zgroup")
#: What is said of objects that note what has begun.
_UNFINISHED = {
    MARK: "a copy was not finished; resume it, or copy anew and replace it",
    PROGRESS: "a computation was not finished; repeat it and resume it, or overwrite what is there",
}

T = TypeVar("T")


@dataclass(slots=True)
class Findings:
    """What has been found so far.

    Attributes
    ----------
    problems, leftover_files, unchecked : list
        As in `Verification`.
    groups : list of str
        Paths of the groups.
    arrays : list of (str, ArrayMeta)
        The arrays with their paths.
    lists : bool
        Whether the store has listed anything.
    """

    problems: list[Problem] = field(default_factory=list)
    leftover_files: list[Problem] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    arrays: list[tuple[str, ArrayMeta]] = field(default_factory=list)
    lists: bool = False


class _Visit(NamedTuple):
    """A place to look at.

    Attributes
    ----------
    path : str
        Where.
    outer : int or None
        Format of the group that lists it; None without such a group.
    is_known : bool
        Whether what is below is known already, because the store cannot list.
    """

    path: str
    outer: int | None = None
    is_known: bool = False


def survey(place: Place, found: Findings) -> None:
    """Find all nodes at a place and below it, and what is wrong with their documents. Raises: StoreError."""
    store = place.store.live()
    level = [_Visit(place.path)]
    while level:
        batches = (level[start : start + _AT_ONCE] for start in range(0, len(level), _AT_ONCE))
        level = [visit for batch in batches for visit in _survey_some(store, batch, found)]


def _survey_some(store: Store, visits: list[_Visit], found: Findings) -> Iterator[_Visit]:
    """Look at some places. Yield what is below."""
    names = sorted(DOCUMENTS)
    wanted = [(visit.path, join_path(visit.path, name)) for visit in visits for name in names]
    stored = iter(_fetched(store, wanted, found))
    for visit in visits:
        path = visit.path
        documents = {
            name: data for name, data in zip(names, islice(stored, len(names)), strict=True) if data is not None
        }
        making = [name for name in _MAKING if name in documents]
        if not making:
            reason = "a document without a node"
            found.leftover_files += [Problem("leftover", join_path(path, name), reason, path) for name in documents]
            yield from _survey_folder(store, path, found)
            continue
        meta = _read(store, path, documents, found)
        problems, unchecked = check_consolidated(store, path, documents)
        found.problems += problems
        found.unchecked += unchecked
        if meta is not None and visit.outer not in (None, meta.zarr_format):
            reason = f"a node of Zarr v{meta.zarr_format} in a group of v{visit.outer}, which does not list it"
            found.problems.append(Problem("unreachable", join_path(path, making[0]), reason, path))
        if isinstance(meta, ArrayMeta):
            found.arrays.append((path, meta))
        elif meta is None:  # an array or a group: only nodes are looked for
            yield from map(_Visit, listed(found, store, path, partial(_top_nodes, store, path)) or ())
        else:
            found.groups.append(path)
            if not visit.is_known:
                yield from _survey_group(store, path, meta, documents, found)


def _fetched(store: Store, keys: list[tuple[str, str]], found: Findings) -> list[Buffer | None]:
    """What is stored for some keys, each given after the path of its node. Raises: StoreError if all fail."""
    with suppress(StoreError):
        return store.get_many([Request(key) for _, key in keys])
    stored: list[Buffer | None] = []
    failed: list[Problem] = []
    for path, key in keys:
        try:
            stored.append(store.get_one(Request(key)))
        except StoreError as error:
            if len(failed) == len(keys) - 1:
                raise
            failed.append(Problem("unreadable", key, str(error), path))
            stored.append(None)
    found.problems += failed
    return stored


def _survey_group(
    store: Store, path: str, meta: GroupMeta, documents: Mapping[str, Buffer], found: Findings
) -> Iterator[_Visit]:
    below = listed(found, store, path, lambda: store.list_dir(path))
    if below is None:
        yield from (_Visit(node, meta.zarr_format, is_known=True) for node in consolidated_nodes(path, documents))
        return
    not_allowed: list[str] = []
    for name in below[0]:
        if not is_allowed(name):
            not_allowed.append(name)
        elif name in _UNFINISHED:
            found.problems.append(_unfinished(path, name))
        elif name not in DOCUMENTS:
            key = join_path(path, name)
            if store.files is not None and listed(found, store, path, partial(store.getsize, key)) is None:
                continue  # a link to nothing, perhaps in the place of a node
            found.leftover_files.append(Problem("leftover", key, "belongs to no node", path))
    _note_not_allowed(found, path, not_allowed)
    yield from (_Visit(join_path(path, name), meta.zarr_format) for name in below[1])


def _unfinished(path: str, name: str = MARK) -> Problem:
    return Problem("unfinished", join_path(path, name), _UNFINISHED[name], path)


def _note_not_allowed(found: Findings, path: str, names: list[str]) -> None:
    """Note keys that are not allowed, given after the path of a node and a slash."""
    if names:
        key, more = (f"{path}/{min(names)}" if path else min(names)), len(names) - 1
        what = f"this key and {more:,} more here are" if more else "this key is"
        reason = f"{what} not allowed, so nothing there is read: {KEY_RULE}; rename"
        found.problems.append(Problem("key", key, reason, path))


def _survey_folder(store: Store, path: str, found: Findings) -> Iterator[_Visit]:
    """A folder without documents: nodes below it miss a group, other objects are leftover files."""
    tops = listed(found, store, path, lambda: _top_nodes(store, path)) or []
    below = tuple(f"{node}/" for node in tops)
    not_allowed: list[str] = []
    others = listed(found, store, path, partial(_count_others, store, path, below, not_allowed))
    _note_not_allowed(found, path, not_allowed)
    if tops:
        reason = f"no group is here, but nodes are below, such as {tops[0]!r}"
        found.problems.append(Problem("group", f"{path}/", reason, path))
        yield from map(_Visit, tops)
    if others and others[True]:
        found.problems.append(_unfinished(path))
    elif others and others[False]:
        reason = f"{number(others[False], 'object')} of no node; if they are chunks, the array's document is lost"
        found.leftover_files.append(Problem("leftover", f"{path}/", reason, path))


def _count_others(store: Store, path: str, below: tuple[str, ...], not_allowed: list[str]) -> Counter[bool]:
    """Number of objects at a path that are no documents and below no node, apart from marks of copies (True).

    not_allowed: gets the rest of each key that is not allowed.
    """
    counts: Counter[bool] = Counter()
    for key in store.list_prefix(path):
        if key.startswith(below):
            continue
        if not is_allowed(key):
            not_allowed.append(key[len(path) + 1 if path else 0 :])
        elif key.rpartition("/")[2] not in DOCUMENTS:
            counts[key == join_path(path, MARK)] += 1
    return counts


def _top_nodes(store: Store, path: str) -> list[str]:
    """Nodes below a path that are below no other such node."""
    tops: list[str] = []
    split = (key.rpartition("/") for key in store.list_prefix(path) if is_allowed(key))
    for node in sorted({node for node, _, name in split if name in _MAKING}):
        if node != path and not (tops and node.startswith(f"{tops[-1]}/")):
            tops.append(node)
    return tops


def listed(found: Findings, store: Store, path: str, listing: Callable[[], T]) -> T | None:
    """What is listed; None if that fails. A store that has not listed anything yet is taken for one that cannot."""
    try:
        result = listing()
    except StoreError as error:
        if found.lists or store.files is not None:
            found.problems.append(Problem("unreadable", f"{path}/", str(error), path))
        else:
            found.unchecked.append(f"leftover files, and members beside those in consolidated metadata: {error}")
        return None
    found.lists = True
    return result


def coords_of(meta: ArrayMeta, path: str, key: str) -> Coords | None:
    """The coordinates of an array's stored object with a key; None if it is none of a chunk or shard."""
    return meta.keys.decode(key[len(path) + 1 if path else 0 :], len(meta.shape))


def is_outside(meta: ArrayMeta, path: str, key: str) -> bool:
    """Whether a key is that of a chunk or shard outside of its array."""
    coords = coords_of(meta, path, key)
    return coords is not None and not all(c < axis.nchunks for c, axis in zip(coords, meta.grid, strict=True))


def list_objects(store: Store, path: str, meta: ArrayMeta, found: Findings) -> Iterator[Coords]:
    """Yield the coordinates of an array's stored objects; note what else is below it. Raises: StoreError."""
    skip = len(path) + 1 if path else 0
    shape = tuple(axis.nchunks for axis in meta.grid)
    others: Counter[str] = Counter()
    nodes: set[str] = set()
    outside: list[tuple[str, Coords]] = []
    not_allowed: list[str] = []
    for key in store.list_prefix(path):
        inner = key[skip:]
        coords = meta.keys.decode(inner, len(shape))
        if coords is not None and all(map(lt, coords, shape)):
            yield coords
        elif coords is not None:
            outside.append((key, coords))
        elif not is_allowed(inner):
            not_allowed.append(inner)
        elif inner == PROGRESS:
            found.problems.append(_unfinished(path, inner))
        elif inner.rpartition("/")[2] not in DOCUMENTS:
            if store.files is not None and listed(found, store, path, partial(store.getsize, key)) is None:
                continue  # a link to nothing, perhaps in the place of a folder of chunks
            first, slash, _ = inner.partition("/")
            others[first + slash] += 1
        elif "/" in inner:
            nodes.add(inner.rpartition("/")[0] + "/")
    _note_not_allowed(found, path, not_allowed)
    now: NodeMeta | None = meta
    if outside:  # it may have grown meanwhile
        with suppress(MetadataError):
            now = read_node(store, path)
    for key, coords in outside:
        if isinstance(now, ArrayMeta) and is_outside(now, path, key):
            reason = f"outside of the array, which has {shape} stored chunks or shards"
            found.problems.append(Problem("unreachable", key, reason, path, coords))
    for name in sorted(nodes):
        reason = "a node is here, but an array has no members"
        found.problems.append(Problem("unreachable", join_path(path, name), reason, path))
    for name in sorted(others.keys() - {node.partition("/")[0] + "/" for node in nodes}):
        reason = f"{number(others[name], 'object')} of no node" if name.endswith("/") else "belongs to no node"
        found.leftover_files.append(Problem("leftover", join_path(path, name), reason, path))


def leftover_objects(store: Store, leftover: Problem) -> Iterator[str]:
    """Yield the keys of a leftover file: for a folder, those in it that are no chunks and belong to no node."""
    if not leftover.key.endswith("/"):
        yield leftover.key
        return
    folder = leftover.key[:-1]
    meta = read_node(store, leftover.path)
    below = tuple(f"{node}/" for node in _top_nodes(store, folder))
    for key in store.list_prefix(folder):
        is_chunk = isinstance(meta, ArrayMeta) and coords_of(meta, leftover.path, key) is not None
        if not is_chunk and not key.startswith(below) and key.rpartition("/")[2] not in DOCUMENTS:
            yield key


# -- documents ---------------------------------------------------------------------------------------------------------


def _read(store: Store, path: str, documents: Mapping[str, Buffer], found: Findings) -> NodeMeta | None:
    """The node that documents describe; None if the document is malformed."""
    making = [name for name in _MAKING if name in documents]
    if len(making) > 1:
        reason = f"{' and '.join(making)} describe different nodes at one place; {making[0]} is used"
        found.problems.append(Problem("conflict", join_path(path, making[1]), reason, path))

    def parse(name: str, attributes: Mapping[str, Any]) -> Any:
        key = join_path(path, name)
        try:
            return parse_document(parse_json(documents[name], f"{store}: {key}"), attributes, name, f"{store}: {key}")
        except MetadataError as error:
            reason = str(error).removeprefix(f"{store}: {escaped(key)}: ")
            kind = "codec" if isinstance(error, (UnknownCodecError, UnknownDataTypeError)) else "document"
            found.problems.append(Problem(kind, key, reason, path))
        return None

    has_attributes = making[0] != "zarr.json" and ".zattrs" in documents
    return parse(making[0], (parse(".zattrs", {}) if has_attributes else None) or {})


# -- what killed writers leave -----------------------------------------------------------------------------------------
# No store lists it; `gzarr.storage.leftover_files` says what is abandoned, and removes it.

#: Seconds after which what was seen must still be there.
_WAIT_S = 0.1


def find_leftovers(store: Store, path: str, found: Findings) -> list[str]:
    """Keys of temporary files, and paths of half-deleted folders (with a slash), below a path. Notes lost chunks."""
    root = _directory(store, path)
    seen = [] if root is None else list(_temporary(root, path, found))
    if seen:  # a writer may be about to lock its file, or a deletion about to end
        time.sleep(_WAIT_S)
    return [
        key
        for key, file, inode in seen
        if inode is not None and _inode(file) == inode and (key.endswith("/") or is_abandoned(str(file)))
    ]


def _temporary(root: str, path: str, found: Findings) -> Iterator[tuple[str, Path, int | None]]:
    """The temporary files and folders below a directory: (key, where, inode). Notes folders in the place of chunks."""
    arrays, owner = dict(found.arrays), ""
    for directory, folders, files in os.walk(root):
        inner = os.path.relpath(directory, root).replace(os.sep, "/")
        base = path if inner == "." else join_path(path, inner)
        owner = base if base in arrays else owner
        if owner in arrays and f"{base}/".startswith(f"{owner}/" if owner else ""):
            found.problems += _in_place_of_chunks(arrays[owner], owner, [join_path(base, name) for name in folders])
        doomed = [name for name in folders if name.startswith(TEMPORARY_PREFIX)]
        folders[:] = [name for name in folders if name not in doomed]
        for name in sorted(name for name in files if name.startswith(TEMPORARY_PREFIX)):
            yield join_path(base, name), Path(directory, name), _inode(Path(directory, name))
        for name in sorted(doomed):
            yield join_path(base, name) + "/", Path(directory, name), _inode(Path(directory, name))


def _in_place_of_chunks(meta: ArrayMeta, path: str, folders: list[str]) -> Iterator[Problem]:
    for key in folders:
        coords = coords_of(meta, path, key)
        if coords is not None and not is_outside(meta, path, key):
            reason = "a folder is in place of a chunk, which reads as the fill value; delete it, or restore the file"
            yield Problem("unreadable", f"{key}/", reason, path, coords)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def remove_leftover(store: Store, key: str) -> bool:
    """Delete what `find_leftovers` has found, unless it is being written. Returns: whether it is gone."""
    above, _, name = key.rstrip("/").rpartition("/")
    directory = _directory(store, above)
    if not directory or not name.startswith(TEMPORARY_PREFIX):
        return False
    with suppress(OSError):
        return remove_file_or_tree(os.path.join(directory, name))  # noqa: PTH118 - a path made of text
    return False


def _directory(store: Store, path: str) -> str | None:
    """The local directory of a path."""
    files = store.files
    return None if files is None else files.prefix(path)
