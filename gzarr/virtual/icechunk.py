"""Repositories of Icechunk: a version of one in place, and transactions. Versions are Icechunk's, gzarr has none.

Of a repository in local files or a bucket of S3, the session says where the chunks are, and gzarr reads them from
there: native chunks are objects, which never change, others are within the manifests or virtual. Other repositories are
read, and all are written, through Icechunk's own store for zarr-python. Files with virtual chunks must not have
changed: Icechunk is asked for the first and the last chunk of each, which it compares with what it has noted.

Source: Icechunk 2, ``IcechunkStore.array_chunk_iterator``.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from gzarr.api.groups import open_group
from gzarr.errors import ReadOnlyError, StoreError
from gzarr.hierarchy.group import Group
from gzarr.indexing.keys import Coords, KeyEncoding, join_path
from gzarr.storage import open_store
from gzarr.storage.base import Request, Store, host_view
from gzarr.storage.extras import require
from gzarr.storage.foreign import ZarrStore
from gzarr.storage.local import LocalStore
from gzarr.storage.urls import to_obstore
from gzarr.storage.wrappers import read_only as as_read_only
from gzarr.virtual.kerchunk import described_arrays
from gzarr.virtual.places import Containers, allowed_places
from gzarr.virtual.store import Contents, LazyTables, VirtualStore
from gzarr.virtual.table import INLINE, ChunkTable

_SCHEME = "icechunk://"
_NATIVE, _VIRTUAL = 1, 2
_MAIN = "main"
_S3 = "s3://"
#: Where a session in bytes (MessagePack) has the folder of its repository, and the first byte of that text.
_PACKED_FOLDER = re.compile(rb"local_file_system_object_store_provider\xa4path([\xa0-\xbf\xd9])")


class RepositoryStore(VirtualStore):
    """A version of a repository."""

    def check_writable(self) -> None:
        """Refuse. Raises: ReadOnlyError."""
        raise ReadOnlyError(
            f"{self} is a version of a repository, which never changes; write the next one:"
            " with gzarr.transaction(repository, message='...') as root"
        )


def open_icechunk(
    place: Any,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot: str | None = None,
    virtual_containers: Any = None,
    read_only: bool = False,
    **storage_options: Any,
) -> tuple[Store, str]:
    """Open a version of a repository.

    Parameters
    ----------
    place : icechunk.Repository, icechunk.Session or str
        The repository, a session, or "icechunk://" and the path of a repository, perhaps with a path in it.
    branch, tag, snapshot : str, optional
        Which version; by default the newest of the branch "main". Not for a session, which is of one.
    virtual_containers : str or sequence of str, optional
        Containers of local files that virtual chunks may be in, if the repository was not authorized for any.
    read_only : bool
        Whether a writable session is read as it is now.
    **storage_options
        What the server of a bucket needs, as for "s3://"; by default what the environment says.

    Returns
    -------
    tuple of (Store, str)
        The store, and the path in it. It is read-only unless a writable session was given.

    Raises
    ------
    StoreError
        If there is no such repository or version.
    """
    version = {"branch": branch, "tag": tag, "snapshot_id": snapshot}
    given = {name: value for name, value in version.items() if value is not None}
    repository, path = _at_url(place, storage_options) if isinstance(place, str) else (find_repository(place), "")
    if repository is None:
        if given:
            raise StoreError(f"a session is of one version; got {', '.join(given)}: give the repository instead")
        return _session_store(place, read_only=read_only), path
    if len(given) > 1:
        raise StoreError(f"one of branch, tag and snapshot says which version; got {', '.join(given)}")
    repository = _authorized(repository, virtual_containers)
    with _failures(f"open {given or _MAIN!r} of the repository", partial(_versions, repository)):
        session = repository.readonly_session(**(given or {"branch": _MAIN}))
    where = _storage_of(str(repository.storage), storage_options)
    if where is None or not _is_there(where, f"snapshots/{session.snapshot_id}"):
        return as_read_only(ZarrStore(session.store)), path
    allowed = tuple(sorted(repository.authorized_virtual_container_prefixes))
    return RepositoryStore(partial(_find, session, where, allowed), f"{_SCHEME}{where}@{session.snapshot_id}"), path


def _session_store(session: Any, *, read_only: bool) -> Store:
    """The store over a session: what is in it now, read from its files, if it is only read, else Icechunk's own."""
    inner = session._session  # noqa: SLF001 - pickles leave out what is not committed
    packed = inner.as_bytes() if read_only or session.read_only else b""
    found = _PACKED_FOLDER.search(packed)
    if found is None:
        return ZarrStore(session.store)
    begin, n = (found.end(1), found[1][0] & 0x1F) if found[1][0] < 0xC0 else (found.end(1) + 1, packed[found.end(1)])
    where = LocalStore(packed[begin : begin + n].decode(), read_only=True)
    frozen = type(session)(inner.from_bytes(packed))
    allowed = tuple(frozen.config.virtual_chunk_containers or ())  # of which Icechunk reads those that were authorized
    return RepositoryStore(partial(_find, frozen, where, allowed), f"{_SCHEME}{where}@{session.snapshot_id}")


def _versions(repository: Any) -> str:
    """The versions that a repository has names for."""
    return f"; it has the branches {sorted(repository.list_branches())} and the tags {sorted(repository.list_tags())}"


def _authorized(repository: Any, virtual_containers: Any) -> Any:
    """The repository, authorized for its containers of local files that are within the allowed places."""
    places = Containers("containers", None, allowed_places(virtual_containers))
    containers = [prefix for prefix in repository.config.virtual_chunk_containers or {} if prefix.startswith("file://")]
    wanted = [prefix for prefix in containers if places.allows(prefix + "chunk")]
    if not wanted or repository.authorized_virtual_container_prefixes:
        return repository
    icechunk = require("icechunk", "icechunk", "a repository of Icechunk")
    access = getattr(icechunk.credentials, "LocalFileSystemAccess", None)
    return repository.reopen(authorize_virtual_chunk_access=dict.fromkeys(wanted, access))


def find_repository(place: Any, *, create: bool = False, options: Mapping[str, Any] | None = None) -> Any:
    """The repository that is meant; None if it is a session. options: of a bucket. Raises: StoreError."""
    icechunk = require("icechunk", "icechunk", "a repository of Icechunk")
    if not isinstance(place, (str, os.PathLike)):
        return place if isinstance(place, icechunk.Repository) else None
    path = os.fspath(place).removeprefix(_SCHEME).removeprefix("file://")
    if "://" in path and not path.startswith(_S3):
        raise StoreError(f"{place!r} is neither local nor in S3: open the repository with icechunk, and give it")
    with _failures(f"open the repository at {path!r}"):
        if path.startswith(_S3):
            storage = _s3_storage(icechunk, path, options or {})
        else:
            storage = icechunk.local_filesystem_storage(os.path.abspath(path))  # noqa: PTH100
        return icechunk.Repository.open_or_create(storage) if create else icechunk.Repository.open(storage)


def _s3_storage(icechunk: Any, url: str, options: Mapping[str, Any]) -> Any:
    """The storage in a bucket. Raises: StoreError for options that Icechunk lacks."""
    given = to_obstore(options) or {}
    bucket, _, prefix = url.removeprefix(_S3).partition("/")
    endpoint = given.pop("endpoint", None) or os.environ.get("AWS_ENDPOINT_URL")
    known = {"access_key_id", "secret_access_key", "session_token", "region", "skip_signature"}
    if not known.issuperset(given) or bool(given) != bool(options):
        raise StoreError(f"{url!r}: of storage_options, {sorted(options)} are not all known; open it with icechunk")
    anonymous = given.pop("skip_signature", None)
    plain = {"endpoint_url": endpoint, "allow_http": True, "force_path_style": True} if endpoint else {}
    return icechunk.s3_storage(bucket=bucket, prefix=prefix, anonymous=anonymous, **plain, **given)


def _at_url(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """The repository at a URL, and the path in it: in a bucket, behind "//". Raises: StoreError."""
    if url.removeprefix(_SCHEME).startswith(_S3):
        place, _, path = url.removeprefix(_SCHEME).removeprefix(_S3).partition("//")
        return find_repository(_S3 + place.rstrip("/"), options=options), path.strip("/")
    place = path = url.removeprefix(_SCHEME).removeprefix("file://").rstrip("/")
    while place and "://" not in place and not os.path.isdir(place):  # noqa: PTH112
        place = place.rpartition("/")[0]
    return find_repository(place or url), path[len(place) :].strip("/") if place else ""


def _storage_of(described: str, options: Mapping[str, Any]) -> Store | None:
    """The store of a repository in local files or a bucket, which only its description says; None for others."""
    said = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in described.splitlines())}
    if said.get("type") == "local filesystem":
        return LocalStore(said["path"], read_only=True)
    if not said.get("type", "").startswith("S3"):
        return None
    names = {"region": "region", "endpoint_url": "endpoint"}
    found = {ours: said[name] for name, ours in names.items() if said.get(name, "None") not in ("", "None")}
    return open_store(f"{_S3}{said['bucket']}/{said['prefix']}", mode="r", storage_options={**found, **options})[0]


def _is_there(store: Store, key: str) -> bool:
    """Whether an object can be read, with the credentials that gzarr finds."""
    try:
        return store.getsize(key) is not None
    except StoreError:
        return False


def _find(session: Any, files: Store, allowed: Sequence[str]) -> Contents:
    """What a version of a repository holds. files: its storage."""
    store, name = ZarrStore(session.store), f"{_SCHEME}{files}"
    documents = dict(_documents(store, ""))
    described = dict(described_arrays(documents, name))
    places = Containers(name, None, allowed)
    keys = {path: encoding for path, (_, encoding) in described.items()}
    tables = LazyTables({path: partial(_table, store, path, *how, files, places) for path, how in described.items()})
    return Contents(documents, tables, places.objects, keys, fixed=files)


def _documents(store: Store, path: str) -> Iterator[tuple[str, bytes]]:
    """The documents of a hierarchy, by key."""
    key = join_path(path, "zarr.json")
    found = store.get_one(Request(key))
    if found is None:
        return
    text = bytes(host_view(found))
    yield key, text
    if json.loads(text).get("node_type") == "group":
        for name in store.list_dir(path)[1]:
            yield from _documents(store, join_path(path, name))


def _table(
    store: ZarrStore, path: str, counts: Coords, encoding: KeyEncoding, files: Store, places: Containers
) -> ChunkTable:
    """Where the chunks of an array are. Raises: StoreError if a file with virtual chunks has changed."""
    table, key = ChunkTable.empty(counts), encoding.under(path, len(counts))
    for coords, kinds, names, offsets, lengths, within in store.collected(store.store.array_chunk_iterator(f"/{path}")):
        is_there = (coords < np.array(counts, np.int64)).all(1)  # others are left of a larger shape
        rows, numbers = coords.astype(np.int64) @ table.steps, np.full(len(kinds), INLINE, np.int32)
        native, virtual = (np.flatnonzero(is_there & (kinds == kind)) for kind in (_NATIVE, _VIRTUAL))
        numbers[native] = len(places.objects) + np.arange(len(native))
        places.objects += [(files, f"chunks/{names[at]}") for at in native.tolist()]
        numbers[virtual] = [places.add(names[at]) for at in virtual.tolist()]
        ends = [{names[at]: coords[at].tolist() for at in order} for order in (virtual, virtual[::-1])]
        # Icechunk compares the files with what it has noted of them; it does not tell what that is.
        store.get_many([Request(key(tuple(at)), 0, 1) for end in ends for at in end.values()])
        table.inline.update((int(rows[at]), chunk) for at, chunk in within.items() if is_there[at])
        kept = rows[is_there]
        table.objects[kept], table.places[kept] = numbers[is_there], np.stack([offsets, lengths], 1)[is_there]
    return table


@contextmanager
def transaction(
    repository: Any,
    message: str,
    *,
    branch: str = _MAIN,
    metadata: Mapping[str, Any] | None = None,
    rebase_with: Any = None,
    device: str | None = None,
) -> Iterator[Group]:
    """Change a repository of Icechunk: the next version of a branch, with all changes of a ``with`` block, or none.

    Parameters
    ----------
    repository : icechunk.Repository or str
        The repository, or "icechunk://" and its path, where one is made if there is none.
    message : str
        What the version says of itself.
    branch : str
        The branch that gets the version.
    metadata : mapping, optional
        More of what the version says of itself.
    rebase_with : icechunk.ConflictSolver, optional
        What decides if others changed the branch meanwhile. By default their changes are kept, and it is an error if
        they conflict with these.
    device : str, optional
        Where reads put their results, as in `gzarr.open_group`.

    Yields
    ------
    Group
        The root group, which is made if there is none. When the block ends, the version is committed; if nothing was
        changed, there is none. An exception leaves nothing.

    Raises
    ------
    StoreError
        If the changes cannot be committed, as others have changed the same.

    Examples
    --------
    >>> import gzarr
    >>> with gzarr.transaction("icechunk://repository", "Begin") as root:  # doctest: +SKIP
    ...     root["speed"] = [1.0, 2.5]
    >>> gzarr.open_group("icechunk://repository", branch="main")["speed"][:]  # doctest: +SKIP
    array([1. , 2.5])
    """
    icechunk = require("icechunk", "icechunk", "a transaction")
    solver = icechunk.ConflictDetector() if rebase_with is None else rebase_with
    with commits(repository, message, branch=branch, metadata=metadata, rebase_with=solver) as store:
        yield open_group(store, mode="a", device=device)


@contextmanager
def commits(repository: Any, message: str, *, branch: str = _MAIN, **how: Any) -> Iterator[Store]:
    """A store for changes that are committed when the block ends. See `transaction`."""
    opened = find_repository(repository, create=True)
    if opened is None:
        raise StoreError("a session commits its changes itself: session.commit('...'); give the repository instead")
    with _failures(f"begin a version of branch {branch!r}"):
        session = opened.writable_session(branch)
    try:
        yield ZarrStore(session.store)
    except BaseException:
        session.discard_changes()
        raise
    if session.has_uncommitted_changes:
        with _failures(f"commit {message!r} to branch {branch!r}, and nothing of it is stored"):
            session.commit(message, **how)


@contextmanager
def _failures(what: str, remedy: Callable[[], str] = str) -> Iterator[None]:
    """Turn errors of Icechunk into StoreError. remedy: what the message ends with."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        reason = str(error).partition("\n\ncontext:")[0]  # whose rest is of the library's source
        raise StoreError(f"cannot {what}: {type(error).__name__}: {reason}{remedy()}") from error
