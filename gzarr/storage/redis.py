"""Objects as strings of a Redis server, under ``prefix:key``, as zarr 2 named them.

Many requests travel together in one pipeline, so a batch costs one round trip. Redis has no versions of strings, so
shards are read whole. A string has at most 512 MiB.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from gzarr.storage.base import ANY, Buffer, Change, Conditional, Request, Versioned, host_view, pickled
from gzarr.storage.extras import require
from gzarr.storage.flat import DatabaseStore
from gzarr.storage.rules import as_bytes, byte_range, check_key, check_path

#: Seconds to wait for a connection: a server that is there answers within a few milliseconds.
_CONNECT_TIMEOUT_S = 5.0
#: Seconds to wait for an answer, or to send a pipeline: older clients wait for ever, and newer ones too shortly.
_ANSWER_TIMEOUT_S = 60.0
#: Bytes that one pipeline may carry; a server closes connections whose answers pile up.
_PIPELINE_NBYTES = 64 << 20
#: Keys asked for with each step of a listing.
_SCAN_COUNT = 1000
#: Replaces or deletes a string if it still has a digest, "" for a missing one; a server carries out a script alone.
_CHANGE = """
local now = redis.call('GET', KEYS[1])
if (now and redis.sha1hex(now) or '') ~= ARGV[1] then return 0 end
if ARGV[2] then redis.call('SET', KEYS[1], ARGV[2]) else redis.call('DEL', KEYS[1]) end
return 1
"""


class _Digests(Conditional):
    """Replaces strings that have the digest of the bytes that were read."""

    __slots__ = ("_store",)

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    def get_tagged(self, keys: Sequence[str]) -> list[Versioned | None]:
        found = self._store.get_many([Request(key) for key in keys])
        return [None if data is None else Versioned(data, _digest(data)) for data in found]

    def set_if(self, changes: Sequence[Change]) -> list[bool]:
        return self._store._set_if(changes)  # noqa: SLF001 - one module, two classes


class RedisStore(DatabaseStore):
    """A store on a Redis server; needs ``pip install 'gzarr[redis]'``.

    A server that does not answer is noticed by the first call that asks it.

    Parameters
    ----------
    prefix : str
        What the keys of this store begin with on the server, before a colon.
    dimension_separator : {".", "/"}, optional
        For new Zarr v2 arrays that name none.
    read_only : bool
        Whether to refuse changes.
    **kwargs
        Arguments of `redis.Redis`: ``host``, ``port``, ``db``, ``password``, ``unix_socket_path``, ...

    Raises
    ------
    MissingExtraError
        If the extra is not installed.
    """

    concurrency = 64
    _remedy = "; check host, port and password"
    _process_bound = frozenset({"client"})

    def __init__(
        self,
        prefix: str = "zarr",
        dimension_separator: Literal[".", "/"] | None = None,
        *,
        read_only: bool = False,
        **kwargs: Any,
    ) -> None:
        redis = require("redis", "redis", "RedisStore")
        self._errors = redis.RedisError
        self._refused, self._forbidden = redis.ResponseError, redis.exceptions.NoPermissionError
        self._prefix, self._kwargs = prefix, kwargs
        self.dimension_separator = dimension_separator
        self.read_only = read_only
        host = kwargs.get("unix_socket_path") or f"{kwargs.get('host', 'localhost')}:{kwargs.get('port', 6379)}"
        self._name = f"redis://{host}/{kwargs.get('db', 0)}/{prefix}"
        # Two more tries within a tenth of a second: the client's own take four to learn that there is no server.
        backoff = require("redis.backoff", "redis", "RedisStore").ExponentialBackoff(cap=0.1, base=0.02)
        retry = require("redis.retry", "redis", "RedisStore").Retry(backoff, 2)
        timeouts = {"socket_connect_timeout": _CONNECT_TIMEOUT_S, "socket_timeout": _ANSWER_TIMEOUT_S}
        # Values are bytes, whatever else the caller's clients make of them.
        self.client = redis.Redis(**{**timeouts, "retry": retry, **kwargs, "decode_responses": False})

    def _key(self, key: str) -> str:
        return f"{self._prefix}:{key}"

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order, in one round trip. Raises: StoreError."""
        if all(request.start is None for request in requests):
            with self._failures("read"):
                return list(self.client.mget([self._key(request.key) for request in requests])) if requests else []
        suffixes = [request for request in requests if request.start is not None and request.start < 0]
        sizes = dict(zip(suffixes, self._sizes([request.key for request in suffixes]), strict=True))
        pipeline = self.client.pipeline(transaction=False)
        for request in requests:
            _ask(pipeline, self._key(request.key), request, sizes.get(request))
        with self._failures("read"):
            answers = pipeline.execute()
        return [value if exists else None for exists, value in zip(answers[::2], answers[1::2], strict=True)]

    def _sizes(self, keys: Sequence[str]) -> list[int]:
        pipeline = self.client.pipeline(transaction=False)
        for key in keys:
            pipeline.strlen(self._key(key))
        with self._failures("look up sizes"):
            return list(pipeline.execute())

    def getsize(self, key: str) -> int | None:
        """Size of an object in bytes, or None if it is missing."""
        pipeline = self.client.pipeline(transaction=False)
        pipeline.exists(self._key(key))
        pipeline.strlen(self._key(key))
        with self._failures(f"look up {key!r}"):
            exists, nbytes = pipeline.execute()
        return int(nbytes) if exists else None

    def nbytes_stored(self, path: str = "") -> int:
        """Bytes stored under a path."""
        return sum(self._sizes(list(self.list_prefix(path))))

    def list_prefix(self, prefix: str = "") -> Iterator[str]:
        """All keys under a path. The server is asked step by step and stays responsive during the scan."""
        check_path(prefix)
        start = self._key(f"{prefix}/" if prefix else "")
        pattern = re.sub(r"([\\*?\[\]])", r"\\\1", start) + "*"
        nskip = len(self._key("").encode())
        with self._failures("list keys"):
            # A key may come twice where the server's table grows meanwhile.
            keys = set(self.client.scan_iter(match=pattern, count=_SCAN_COUNT))
        return iter([_encoded(key)[nskip:].decode() for key in keys])

    @property
    def conditional(self) -> Conditional | None:
        """Changes on the condition that an object still has the same digest, which the server computes.

        None once the server has refused to run scripts.
        """
        return None if self._unconditional else _Digests(self)

    def _write(self, rows: list[tuple[str, bytes]]) -> None:
        with self._failures(f"write {rows[0][0]!r}"):
            self._send(("SET", self._key(key), data) for key, data in rows)

    def _set_if(self, changes: Sequence[Change]) -> list[bool]:
        self.check_writable()
        for change in changes:
            check_key(change.key)
        with self._failures(f"write {changes[0].key if changes else ''!r}"):
            try:
                answers = self._send(self._change(*change) for change in changes)
            except self._refused as error:
                if not isinstance(error, self._forbidden) and "unknown command" not in str(error):
                    raise
                self._go_on_without_conditions(error)
                answers = self._send(self._change(*change._replace(tag=ANY)) for change in changes)
                return [True] * len(changes)
        return [change.tag is ANY or bool(answer) for change, answer in zip(changes, answers, strict=True)]

    def _change(self, key: str, value: Buffer | None, tag: object | None) -> tuple[Any, ...]:
        """The command that carries out a change."""
        data = () if value is None else (as_bytes(key, value),)
        if tag is ANY:
            return ("SET" if data else "DEL", self._key(key), *data)
        return "EVAL", _CHANGE, 1, self._key(key), tag or "", *data

    def _send(self, commands: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Have commands carried out, in one round trip unless their bytes are too many for one. Returns: answers."""
        answers: list[Any] = []
        pipeline, nbytes = self.client.pipeline(transaction=False), 0
        for command in commands:
            pipeline.execute_command(*command)
            nbytes += len(command[-1])
            if nbytes > _PIPELINE_NBYTES:
                answers += pipeline.execute()
                nbytes = 0
        return [*answers, *pipeline.execute()]

    def _delete(self, keys: list[str]) -> None:
        with self._failures("delete"):
            self.client.delete(*map(self._key, keys))

    def close(self) -> None:
        """Close the connections; new ones are made when the store is used again."""
        self.client.close()

    def __reduce__(self) -> tuple[Any, ...]:
        given = (self._prefix, self.dimension_separator)
        return pickled(self, RedisStore, *given, read_only=self.read_only, **self._kwargs)


def _digest(data: Buffer) -> str:
    return hashlib.sha1(host_view(data), usedforsecurity=False).hexdigest()


def _encoded(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else key


def _ask(pipeline: Any, name: str, request: Request, nbytes: int | None) -> None:
    """Ask for a request's bytes; beforehand, whether they exist, since a missing string reads as an empty one."""
    pipeline.exists(name)
    start, length = request.start, request.length
    if start is None:
        pipeline.get(name)
        return
    if start < 0:
        begin, end = byte_range(start, length, nbytes or 0)
    else:
        begin, end = min(start, 1 << 60), 1 << 61 if length is None else min(start, 1 << 60) + min(length, 1 << 60)
    if end > begin:
        pipeline.getrange(name, begin, end - 1)
    else:
        pipeline.getrange(name, 1 << 61, 1 << 61)  # an empty range of an object that may be there
