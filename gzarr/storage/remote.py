"""The common part of remote stores: many requests at once, on threads that wait while the server works.

One pool of threads serves all of them. A call that is made within another one does its work there, one request after
the other, so that waiting threads never wait for each other.
"""

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gzarr.concurrency import Pool, run_in_threads
from gzarr.config import config
from gzarr.errors import ReplacedError, StoreError
from gzarr.storage.base import R, T
from gzarr.storage.capabilities import Buffer, Request, Versioned, Versions, host_view
from gzarr.storage.coalesce import WAITING_MAX_NBYTES, coalesce
from gzarr.storage.credentials import shown_cause
from gzarr.storage.flat import FlatStore
from gzarr.storage.rules import byte_range, byte_view, check_key, cut, cut_suffix

#: Requests under way at once, each by a thread that waits. 1,000 objects of 40 kB from 20 ms away take 0.73 s with 32,
#: 0.38 s with 64 and 0.22 s with 128, but decoding them takes as long as that, and servers count connections. Tasks of
#: asyncio cost more than threads: 0.3 s of processor time for the same, beside 0.2 s.
CONCURRENCY = 64
#: Bytes between two ranges that are fetched and thrown away rather than asking twice: while connections are to spare,
#: and when they are not. A connection of 50 MB/s brings as much in 1 to 5 ms, where a request takes 20 ms or more, but
#: requests run beside each other, and bytes share the network.
MAX_GAP_NBYTES, MAX_BUSY_GAP_NBYTES = 1 << 16, 1 << 18
#: Longest fetch that merging makes; larger ones are faster as several at once.
MAX_NBYTES = WAITING_MAX_NBYTES

#: Beyond the end of any object, which some servers refuse to put into a request.
_FAR = 1 << 62
# Documents that make a node exist; they are stored after what was given with them.
_NODES = frozenset({"zarr.json", ".zarray", ".zgroup"})


class Answer(NamedTuple):
    """What a server answers to a request.

    Attributes
    ----------
    data : Buffer
        The bytes.
    version : object or None
        The token of the object, if the answer says it.
    is_whole : bool
        Whether they are the whole object although a range was asked for.
    """

    data: Buffer
    version: object | None
    is_whole: bool = False


class EntityTags(Versions):
    """Versions that a server tells apart by entity tags, and to which it can tie reads.

    Parameters
    ----------
    store : RemoteStore
        Whose requests are made, many at once.
    """

    remote = True
    pins = True

    def __init__(self, store: "RemoteStore") -> None:
        self._store = store

    def token(self, key: str) -> object | None:
        """The entity tag. Raises: StoreError."""
        return self._store._tag(key)  # noqa: SLF001 - one module, two classes

    def tokens(self, keys: Sequence[str]) -> list[object | None]:
        """The entity tags, requested concurrently. Raises: StoreError."""
        return self._store.together(self.token, keys)

    def get_pinned(self, requests: Sequence[Request], versions: Mapping[str, object]) -> list[Buffer | None]:
        """Fetch every request from one version of each object. Raises: ReplacedError, StoreError."""
        return self._store._fetch_all(requests, versions)  # noqa: SLF001

    def get_versioned(self, requests: Sequence[Request]) -> list[Versioned | None]:
        """Fetch every request with the token of its version, many at once. Raises: StoreError."""
        return self._store.together(self._store._fetch_versioned, requests)  # noqa: SLF001


class RemoteStore(FlatStore):
    """A store whose every verb is a request to a server. Subclasses say what one request does.

    They may raise their library's errors (`_errors`), which become errors of the store.
    """

    concurrency = CONCURRENCY
    #: Whether the server answers ranges, as far as is known. One that does not sends whole objects: each of them once.
    _ranges = True
    #: Whether the last answer had a token. Where it had none, the next object will not have one either, and is asked
    #: for whole at once.
    _tags = True

    @abstractmethod
    def _request(self, key: str, start: int | None, length: int | None, version: object | None) -> Answer:
        """Fetch an object (`start` is None), a suffix of it or a range, from one version if one is given."""

    @abstractmethod
    def _look_up(self, key: str) -> tuple[int, object | None] | None:
        """The size of an object and its token, if it has one; None if it is missing. Raises: StoreError."""

    @abstractmethod
    def _is_missing(self, error: Exception) -> bool:
        """Whether an error says that there is no such object, in a bucket or container that is there."""

    def _is_replaced(self, error: Exception) -> bool:
        """Whether an error says that the object has another version."""
        return False

    @abstractmethod
    def _put(self, key: str, data: bytes | memoryview) -> None:
        """Store one object. Raises: StoreError."""

    @abstractmethod
    def _remove(self, key: str) -> None:
        """Delete one object; a missing one is ignored. Raises: StoreError."""

    @abstractmethod
    def _listed(self, path: str) -> Sequence[tuple[str, int | None]]:
        """The keys under a path, with the sizes of their objects if the listing says them. Raises: StoreError."""

    def _asked(self, what: str, key: str, call: Callable[[], R]) -> R | None:
        """What a call returns; None if the object is missing. Raises: StoreError, ReplacedError."""
        try:
            return call()
        except StoreError:
            raise
        except self._errors as error:
            if self._is_missing(error):
                return None
            if self._is_replaced(error):
                raise self._replaced(key) from shown_cause(error)
            raise self._failed(f"{what} {key!r}", error) from shown_cause(error)

    def _get(self, request: Request, version: object | None = None) -> Answer | None:
        """Fetch one request, from one version if one is given; perhaps the whole object in place of a range.

        Raises: StoreError, ReplacedError.
        """
        key, start, length = request
        if start is not None and (start >= _FAR or (length is not None and length <= 0)):
            return self._nothing(key, version, self._look_up(key))
        is_suffix = start is not None and start < 0  # a part of a suffix is asked for with the rest of it
        nbytes = None if is_suffix or length is None else min(length, _FAR)
        in_parts = start is not None and self._ranges
        asked = (key, start, nbytes, version) if in_parts else (key, None, None, version)
        try:
            found = self._asked("read", key, lambda: self._request(*asked))
        except ReplacedError:
            raise
        except StoreError as error:
            if not in_parts:
                raise
            return self._get_otherwise(request, version, error)
        if found is None:
            return None
        self._tags = found.version is not None
        if version is not None and found.version != version:  # some servers do not know If-Match
            raise self._replaced(key)
        if start is None:
            return found
        if found.is_whole or not in_parts:
            # Servers may also send a range that is all of an object as the whole.
            self._ranges = self._ranges and len(part_of(found.data, request)) == len(found.data)
            return found._replace(is_whole=True)
        return found._replace(data=cut_suffix(found.data, start, length)) if is_suffix else found

    def _get_otherwise(self, request: Request, version: object | None, error: StoreError) -> Answer | None:
        """Answer a range that the server refused: it may lie past the end, or be a suffix, which Azure lacks."""
        key, start, length = request
        head = self._look_up(key)
        begin, end = (0, 0) if head is None else byte_range(start, length, head[0])
        if head is None or begin == end:
            return self._nothing(key, version, head)
        if begin == start and length is not None:
            raise error
        return self._get(Request(key, begin, end - begin), version or head[1])  # of the object that has this size

    def _nothing(self, key: str, version: object | None, head: tuple[int, object | None] | None) -> Answer | None:
        """An empty answer, from one version if one is given."""
        if head is not None and version is not None and head[1] != version:
            raise self._replaced(key)
        return None if head is None else Answer(b"", head[1])

    def _fetch(self, request: Request, version: object | None = None) -> Buffer | None:
        """Fetch one request, from one version if one is given. Raises: StoreError, ReplacedError."""
        found = self._get(request, version)
        if found is None:
            return None
        return part_of(found.data, request) if found.is_whole and request.start is not None else found.data

    def _fetch_versioned(self, request: Request) -> Versioned | None:
        """Fetch one request with its version, as `Versions.get_versioned` says. Raises: StoreError, ReplacedError."""
        if request.start is not None and self._tags and self._ranges:
            found = self._get(request)
            if found is None or found.version is not None or found.is_whole:
                # Without a version, all that is read of the object is taken from these bytes.
                return found and Versioned(found.data, None if found.is_whole else found.version)
        whole = self._get(Request(request.key))
        if whole is None or request.start is None or whole.version is None or not self._ranges:
            return whole and Versioned(whole.data, whole.version if request.start is None else None)
        return Versioned(part_of(whole.data, request), whole.version)

    def getsize(self, key: str) -> int | None:
        """Size of an object in bytes, or None if it is missing."""
        head = self._look_up(key)
        return None if head is None else head[0]

    def _tag(self, key: str) -> object | None:
        """The token of an object; None if it is missing or has none. Raises: StoreError."""
        head = self._look_up(key)
        return None if head is None else head[1]

    def get_one(self, request: Request) -> Buffer | None:
        """Fetch one request. Raises: StoreError."""
        return self._fetch(request)

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order, many at once; near ranges of one object together. Raises: StoreError."""
        return self._fetch_all(requests, {})

    def _fetch_all(self, requests: Sequence[Request], versions: Mapping[str, object]) -> list[Buffer | None]:
        if not self._ranges:
            return self._parts_of_objects(requests, versions)
        merged = coalesce(requests, max_gap_nbytes=MAX_GAP_NBYTES, max_nbytes=MAX_NBYTES)
        if len(merged.requests) > self._at_once:
            merged = coalesce(requests, max_gap_nbytes=MAX_BUSY_GAP_NBYTES, max_nbytes=MAX_NBYTES)
        return merged.cut(
            self.together(lambda request: self._fetch(request, versions.get(request.key)), merged.requests)
        )

    def _parts_of_objects(self, requests: Sequence[Request], versions: Mapping[str, object]) -> list[Buffer | None]:
        keys = list({request.key for request in requests})
        values = self.together(lambda key: self._fetch(Request(key), versions.get(key)), keys)
        found = dict(zip(keys, values, strict=True))
        parts = [(found[request.key], request) for request in requests]
        return [None if whole is None else part_of(whole, request) for whole, request in parts]

    def list_prefix(self, prefix: str = "") -> Iterator[str]:
        """All keys under a path."""
        return iter([key for key, _ in self._listed(prefix)])

    def nbytes_stored(self, path: str = "") -> int:
        """Bytes stored under a path, as the listing says."""
        listed = self._listed(path)
        sizes = self.together(self.getsize, [key for key, nbytes in listed if nbytes is None])
        return sum(nbytes or 0 for nbytes in (*sizes, *(nbytes for _, nbytes in listed)))

    def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
        """Store every (key, bytes) pair, many at once; each replaces its object atomically. Raises: StoreError."""
        self.check_writable()
        checked: dict[str, bytes | memoryview] = {}
        for key, value in items:
            check_key(key)
            checked[key] = byte_view(key, value)
        nodes = [key for key in checked if key.rpartition("/")[2] in _NODES]
        documents = [(key, checked.pop(key)) for key in nodes]
        self._put_all(list(checked.items()))
        self._put_all(documents)

    def _put_all(self, items: Sequence[tuple[str, bytes | memoryview]]) -> None:
        """Store objects, many at once. Raises: StoreError."""
        self.together(lambda item: self._put(*item), items)

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete the keys, many at once; missing ones are ignored. Raises: StoreError."""
        self.check_writable()
        self.together(self._remove, list(dict.fromkeys(keys)))

    def together(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Call a function for each item, `concurrency` at once, but no more than the setting ``remote.concurrency``.

        Raises
        ------
        BaseException
            What the first failing call raised.
        """
        return run_together(function, items, self._at_once)

    @property
    def _at_once(self) -> int:
        return min(self.concurrency, max(int(config["remote.concurrency"]), 1))

    def _replaced(self, key: str) -> ReplacedError:
        return ReplacedError(f"store {self}: {key!r} was replaced while it was read")


class _InCall(threading.local):
    """Whether the current thread makes a call of `run_together`."""

    active = False


_in_call = _InCall()
_pool = Pool()


def run_together(function: Callable[[T], R], items: Sequence[T], concurrency: int = CONCURRENCY) -> list[R]:
    """Call a function for each item on the pool's threads and on this one; returns when all calls have ended.

    Raises: what the first failing call raised; calls that had not begun by then are not made.
    """
    if len(items) < 2 or concurrency < 2 or _in_call.active:
        return [function(item) for item in items]
    results: list[R | None] = [None] * len(items)

    def call(position: int) -> None:
        _in_call.active = True
        try:
            results[position] = function(items[position])
        finally:
            _in_call.active = False

    run_in_threads(call, range(len(items)), min(concurrency, len(items)), _pool, most=CONCURRENCY)
    return results  # type: ignore[return-value]  # every call has ended, so none is None any more


def strong(tag: str | None) -> str | None:
    """An entity tag if it says that every byte is the same (RFC 9110, 8.8.1). No server pins reads to another one."""
    return None if tag is None or tag.startswith("W/") else tag


def part_of(whole: Buffer, request: Request) -> Buffer:
    """The requested part of a whole object."""
    return cut(host_view(whole), request.start, request.length)


# -- errors of servers -------------------------------------------------------------------------------------------------


def lacks_container(error: BaseException | None) -> bool:
    """Whether an error, or one that caused it, says that there is no such bucket or container, not only no object."""
    while error is not None:  # its context may be an error of another store
        if any(word in str(error) for word in ("NoSuchBucket", "ContainerNotFound")):
            return True
        error = error.__cause__
    return False


def remedy(error: Exception, text: str, *, is_refused: bool, is_unreachable: bool) -> str:
    """What to do about an error of a server, on a line of its own; nothing if that is not known.

    text: its message. is_refused, is_unreachable: whether its class says that the server requires other credentials, or
    did not answer.
    """
    if any(words in text for words in _EXPIRED):
        return "\nThe credentials have expired: open the store with new ones (storage_options=, environment)"
    if is_refused or any(word in text for word in _CREDENTIALS):
        return (
            "\nThe server requires credentials, or rejects those given: pass them in storage_options=, set them in the"
            " environment (AWS_ACCESS_KEY_ID, AZURE_STORAGE_ACCOUNT_KEY, GOOGLE_APPLICATION_CREDENTIALS), or pass"
            " storage_options={'anon': True} for public data"
        )
    if isinstance(error, FileNotFoundError) or lacks_container(error):
        return "\nIs the bucket or container named rightly, and does it exist?"
    if is_unreachable:
        return (
            "\nIs the server reachable, are URL and endpoint right, and does it take so many requests at once (setting"
            " remote.concurrency)?"
        )
    return ""


#: Words of servers, and of those who look for credentials.
_CREDENTIALS = ("redential", "169.254.169.254", "InvalidAccessKeyId", "AccessDenied", "Forbidden")
#: What servers say of credentials that were valid once: Amazon's and Google's, and what s3fs makes of it.
_EXPIRED = ("ExpiredToken", "oken has expired", "Request has expired")
