"""A read-only store over files of other formats: its documents are in memory, its chunks are parts of those files."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gzarr.concurrency import new_lock
from gzarr.errors import CopyError, ReadOnlyError, ReplacedError, StoreError
from gzarr.indexing.keys import Coords, KeyEncoding
from gzarr.storage.base import Buffer, Request, Store, host_view, token_of
from gzarr.storage.capabilities import TokensBy, Versions
from gzarr.storage.coalesce import get_coalesced
from gzarr.storage.local_files import FIXED, is_other
from gzarr.storage.rules import DOCUMENTS, children, cut, under
from gzarr.storage.tables import Tables
from gzarr.virtual.ranges import Range
from gzarr.virtual.table import INLINE, MISSING, ChunkTable, inline_bytes


class Reader(NamedTuple):
    """Chunks that a library has to read, as nothing else decodes them.

    Attributes
    ----------
    counts : tuple of int
        Number of chunks along each axis.
    read : callable
        Returns the encoded bytes of the chunks at some coordinates; None for those that are not stored.
    nbytes, padded_nbytes : int
        How many bytes the chunks have in the file; and as of `ChunkTable`: not 0 for chunks that are none of the file.
    """

    counts: Coords
    read: Callable[[Sequence[Coords]], Sequence[Buffer | None]]
    nbytes: int = 0
    padded_nbytes: int = 0


def one_by_one(read: Callable[[Coords], Buffer | None]) -> Callable[[Sequence[Coords]], Sequence[Buffer | None]]:
    """What reads several chunks by a function that reads one."""
    return lambda chunks: list(map(read, chunks))


Chunks: TypeAlias = ChunkTable | Reader


@dataclass(frozen=True, slots=True)
class Contents:
    """What files hold, in terms of Zarr.

    Attributes
    ----------
    documents : mapping
        Metadata documents by key.
    arrays : mapping
        The chunks of arrays by path.
    objects : sequence
        The objects that hold chunks, each a store and a key.
    keys : mapping
        How arrays name their chunks, by path, where that is not by default.
    unreadable : mapping
        Why members are left out that cannot be arrays of Zarr, by path.
    close : callable, optional
        Releases what reading chunks holds.
    tokens : mapping
        Versions of objects that chunks were found in, by number, where they are known.
    beside : sequence
        Other objects that a library reads chunks from.
    fixed : Store, optional
        A store whose objects never change.
    chains : mapping
        `gzarr.storage.tables.Tables.chains` of arrays that have several, by path.
    said : callable, optional
        Returns what a file with one image says of it (`gzarr.virtual.tiff_metadata.Description`).
    """

    documents: Mapping[str, bytes]
    arrays: Mapping[str, Chunks]
    objects: Sequence[tuple[Store, str]]
    keys: Mapping[str, KeyEncoding] | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)
    close: Callable[[], None] | None = None
    tokens: Mapping[int, object] = field(default_factory=dict)
    beside: Sequence[tuple[Store, str]] = ()
    fixed: Store | None = None
    chains: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    said: Callable[[], Any] | None = None


class VirtualStore(Store):
    """Files of other formats as a hierarchy of arrays and groups, without a copy.

    If an object is replaced after it was first read, reads raise `ReplacedError`.

    Parameters
    ----------
    find : callable
        Finds the contents. Pickles of the store call it again.
    name : str
        What errors call the store.

    Raises
    ------
    StoreError
        If an object cannot be read, is cut off, or is missing.
    """

    read_only = True

    def __init__(self, find: Callable[[], Contents], name: str) -> None:
        self._find, self._name = find, name
        self.contents = contents = find()
        self._keys = contents.keys or {}
        self._asked: set[str] = set()
        #: The versions of objects that are read, by number.
        self.tokens: dict[int, object | None] = {}
        if len(contents.objects) == 1:  # it was just read
            self.tokens[0] = token_of(*contents.objects[0])
        self._beside = [(one, token_of(*one)) for one in contents.beside]
        self._n_seen, self._concurrency = 0, 1

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._find, self._name)

    def __str__(self) -> str:
        return self._name

    @property
    def concurrency(self) -> int:  # type: ignore[override]  # what tables lead to is known when they are made
        """How many requests to have under way at once."""
        new = self.contents.objects[self._n_seen :]
        self._n_seen += len(new)
        self._concurrency = max([self._concurrency, *{store.concurrency for store, _ in new}])
        return self._concurrency

    @property
    def tables(self) -> Tables:
        """The chunks of arrays in local files."""
        return _VirtualTables(self)

    @property
    def versions(self) -> Versions | None:
        """Tokens of objects across a network, so that shards are read in part; local ones are read by their tables."""
        return TokensBy(self._token_of, self.together) if self.concurrency > 1 else None

    def _token_of(self, key: str) -> object | None:
        """The token of the version of an object that is read, which reads compare."""
        chunks, coords = self._place(key) or (None, ())
        row = chunks.row(coords) if isinstance(chunks, ChunkTable) else None
        if not isinstance(chunks, ChunkTable) or row is None or chunks.objects[row] < 0:
            return None
        return self.object_at(int(chunks.objects[row]))[2]

    def place_of(self, path: str) -> ChunkTable | None:
        """Where the chunks of an array are; None if a library reads them, or if there is none."""
        chunks = self._chunks(path)
        return chunks if isinstance(chunks, ChunkTable) else None

    def _chunks(self, path: str) -> Chunks | None:
        """The chunks of an array, which may be looked for now. Raises: CopyError, ReplacedError."""
        chunks = self.contents.arrays.get(path)
        if chunks is not None and path not in self._asked:
            self._check_kept()
            self._asked.add(path)
            for number, token in dict(self.contents.tokens).items():
                self.tokens.setdefault(number, token)  # other threads may be adding some
        return chunks

    def object_at(self, number: int) -> tuple[Store, str, object | None]:
        """An object by its number: the store that has it, its key, and the token of the version that is read."""
        store, key = self.contents.objects[number]
        if store is self.contents.fixed:
            return store, key, FIXED
        if number not in self.tokens:
            self.tokens.setdefault(number, token_of(store, key))  # the first of several threads says it
        return store, key, self.tokens[number]

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order; None where the key is missing."""
        found: list[Buffer | None] = [None] * len(requests)
        ranges: list[Range] = []
        made: dict[int, tuple[Reader, list[tuple[int, Coords]]]] = {}
        for position, request in enumerate(requests):
            key, start, length = request
            document = self.contents.documents.get(key)
            if document is not None:
                found[position] = cut(document, start, length)
                continue
            path, _, name = key.rpartition("/")
            if name in DOCUMENTS:  # no table is made to look for these
                if path in self.contents.unreadable:
                    raise CopyError(f"{self._name}: {self.contents.unreadable[path]}")
                continue
            place = self._place(key)
            if place is None:
                continue
            chunks, coords = place
            if isinstance(chunks, Reader):
                made.setdefault(id(chunks), (chunks, []))[1].append((position, coords))
                continue
            row = chunks.row(coords)
            number = MISSING if row is None else int(chunks.objects[row])
            if row is None or number == MISSING:
                continue
            if number == INLINE:
                found[position] = cut(host_view(inline_bytes(chunks.inline[row])), start, length)
                self._check_kept()
            else:
                nbytes = int(chunks.lengths[row])
                ranges.append(Range(position, request, number, int(chunks.offsets[row]), nbytes, chunks.padded_nbytes))
        for reader, items in made.values():
            for (position, _), chunk in zip(items, self._made(reader, [coords for _, coords in items]), strict=True):
                found[position] = None if chunk is None else cut(host_view(chunk), *requests[position][1:])
        self._read_ranges(ranges, found)
        return found

    def _made(self, reader: Reader, chunks: Sequence[Coords]) -> Sequence[Buffer | None]:
        """Chunks that a library reads. Raises: ReplacedError, and what the library raises."""
        try:
            return reader.read(chunks)
        finally:
            self._check_kept()

    def _read_ranges(self, ranges: Sequence[Range], found: list[Buffer | None]) -> None:
        """Read ranges of objects, those in one store together."""
        by_store: dict[int, list[Range]] = {}
        for one in ranges:
            by_store.setdefault(id(self.contents.objects[one.number][0]), []).append(one)
        for mine in by_store.values():
            self._read(self.contents.objects[mine[0].number][0], mine, found)

    def _read(self, store: Store, mine: Sequence[Range], found: list[Buffer | None]) -> None:
        """Read the ranges of objects that are in one store."""
        objects, name = self.contents.objects, self._name
        numbers = dict.fromkeys(one.number for one in mine)
        versions = None if store is self.contents.fixed else store.versions
        if versions is not None:
            new = [number for number in numbers if number not in self.tokens]
            for number, token in zip(new, versions.tokens([objects[number][1] for number in new]), strict=True):
                self.tokens.setdefault(number, token)
        wanted = [one.request_of(objects[one.number][1]) for one in mine]
        if versions is not None and versions.pins:
            answers = versions.get_pinned(wanted, {objects[number][1]: self.tokens[number] for number in numbers})
        else:
            answers = get_coalesced(store, wanted)
        if versions is not None and not versions.pins:
            for number in numbers:
                if is_other(versions.token(objects[number][1]), self.tokens[number]):
                    raise ReplacedError(f"{name}: {objects[number][1]!r} was replaced; open it again")
        for one, answer in zip(mine, answers, strict=True):
            if answer is None:
                raise StoreError(f"{name}: {objects[one.number][1]!r} is missing, which has {one.request.key!r}")
            found[one.position] = one.cut(answer, name, objects[one.number][1])

    def _check_kept(self) -> None:
        """Raise ReplacedError if the files that a library has just read are not those that were opened."""
        kept = [(self.contents.objects[0], self.tokens[0])] if 0 in self.tokens else []
        for one, token in (*kept, *self._beside):
            if token is not None and is_other(token_of(*one), token):
                raise ReplacedError(f"{self._name}: {one[1]!r} was replaced; open it again")

    def _place(self, key: str) -> tuple[Chunks, Coords] | None:
        """The array that a key belongs to, and the coordinates of the chunk; None if it is no chunk's key."""
        end = len(key)
        while end >= 0:
            end = key.rfind("/", 0, end)
            path = key[:end] if end >= 0 else ""
            chunks = self._chunks(path)
            if chunks is not None:
                coords = self._encoding(path).decode(key[end + 1 :], len(chunks.counts))
                if coords is not None:
                    return chunks, coords
        return None

    def _encoding(self, path: str) -> KeyEncoding:
        return self._keys.get(path, _DEFAULT)

    def list_prefix(self, prefix: str = "") -> Iterator[str]:
        """All keys that lie under a path."""
        yield from under(self.contents.documents, prefix)
        for path in self.contents.arrays:
            if not prefix or f"{path}/".startswith(f"{prefix}/") or f"{prefix}/".startswith(f"{path}/") or not path:
                yield from under(self._chunk_keys(path), prefix)

    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        """Names directly under a path, sorted: (objects, sub-paths)."""
        keys = list(under(self.contents.documents, path))
        for array in self.contents.arrays:
            if array == path or not array or f"{path}/".startswith(f"{array}/"):
                keys += self._chunk_keys(array)
        return children(keys, path)

    def _chunk_keys(self, path: str) -> Iterator[str]:
        """Keys of the chunks that an array has."""
        chunks = self.contents.arrays[path]
        key = self._encoding(path).under(path, len(chunks.counts))
        if isinstance(chunks, Reader):
            yield from map(key, product(*map(range, chunks.counts)))
            return
        rows = np.flatnonzero(chunks.objects != MISSING)
        coords = np.stack(np.unravel_index(rows, chunks.counts), 1) if chunks.counts else np.zeros((len(rows), 0), int)
        yield from (key(tuple(at)) for at in coords.tolist())

    def getsize(self, key: str) -> int | None:
        """Size of an object in bytes, or None if it is missing."""
        (value,) = self.get_many((Request(key),))
        return None if value is None else host_view(value).nbytes

    def nbytes_stored(self, path: str = "") -> int:
        """Bytes stored under a path."""
        total = sum(len(self.contents.documents[key]) for key in under(self.contents.documents, path))
        for array, chunks in self.contents.arrays.items():
            if not path or f"{array}/".startswith(f"{path}/"):
                total += chunks.nbytes if isinstance(chunks, Reader) else int(chunks.lengths.clip(0).sum())
        return total

    def lock_name(self, key: str) -> Hashable:
        """A name for the object that is the same for every store in this process that can reach it."""
        return type(self), self._name, key

    def close(self) -> None:
        """Close the file that a library may hold open."""
        if self.contents.close is not None:
            self.contents.close()

    def check_writable(self) -> None:
        """Refuse. Raises: ReadOnlyError."""
        raise ReadOnlyError(
            f"{self._name} is of another format than Zarr: it is read in place and never changed; copy it to Zarr with"
            " gzarr.transfer or 'gzarr copy' to write"
        )

    def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
        """Refuse. Raises: ReadOnlyError."""
        self.check_writable()

    def delete_many(self, keys: Iterable[str]) -> None:
        """Refuse. Raises: ReadOnlyError."""
        self.check_writable()


class _VirtualTables(Tables):
    """The tables of a store."""

    def __init__(self, store: VirtualStore) -> None:
        self._store = store

    def table(self, path: str) -> ChunkTable | None:
        """Where the chunks of an array are; None if a library reads them."""
        return self._store.place_of(path)

    def chains(self, path: str) -> Sequence[bytes]:
        """Documents of the codecs of chunks."""
        return self._store.contents.chains.get(path, ())

    def file(self, number: int) -> tuple[str, object | None] | None:
        """Path and token of the file that an object is; None if it is none."""
        store, key, token = self._store.object_at(number)
        path = None if store.files is None else store.files.path(key)
        return None if path is None else (path, token)


_DEFAULT = KeyEncoding()


# -- tables that are made when they are asked for ----------------------------------------------------------------------


class LazyTables(Mapping[str, Chunks]):
    """The tables of arrays by path, each made when it is first asked for: a hierarchy may have many arrays."""

    def __init__(self, makers: Mapping[str, Callable[[], Chunks]]) -> None:
        self._made: dict[str, Chunks | None] = dict.fromkeys(makers)
        self._makers, self._lock = makers, new_lock()  # as tables number the objects that they share

    def __getitem__(self, path: str) -> Chunks:
        made = self._made[path]
        if made is None:
            with self._lock:
                made = self._made[path]
                if made is None:
                    made = self._made[path] = self._makers[path]()
        return made

    def __contains__(self, path: object) -> bool:
        return path in self._made

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)
