"""Objects as strings of a Redis server, under ``prefix:key``, as zarr 2 named them.

Many requests travel together in one pipeline, so a batch costs one round trip. Redis has no versions of strings, so
shards are read whole. A string has at most 512 MiB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from gzarr.storage.base import ANY, Buffer, Change, Conditional, Request, Versioned, pickled
from gzarr.storage.extras import require
from gzarr.storage.flat import DatabaseStore, TaggedObjects
from gzarr.storage.rules import as_bytes, byte_range, check_key, check_path

#: Seconds to wait for a connection: a server that is there answers within a few milliseconds.
_CONNECT_TIMEOUT_S = 5.0
#: Seconds to wait for an answer, or to send a pipeline: older clients wait for ever, and newer ones too shortly.
_ANSWER_TIMEOUT_S = 60.0
#: Bytes that one pipeline may carry; a server closes connections whose answers pile up.
_PIPELINE_NBYTES = 64 << 20
#: Keys asked for with each step of a listing.
_SCAN_COUNT = 1000


#: Begins the errors of servers, or of proxies before them, that do not let this client watch strings.
_REFUSALS = ("NOPERM", "unknown command", "ERR unknown command")


class _Watch:
    """A connection that watches strings for changes until it stores them; the tag of all of them.

    Watching costs a server nothing, while a script that compares the old bytes takes it longer than storing new ones.
    The commands of one step travel together: reading takes one round trip, and storing another.
    """

    __slots__ = ("_connection", "_pool")

    def __init__(self, client: Any) -> None:
        self._pool = client.connection_pool
        self._connection: Any = None
        try:
            self._connection = self._pool.get_connection()
        except TypeError:  # redis-py < 5.3 asks what for
            self._connection = self._pool.get_connection("WATCH")

    def close(self) -> None:
        """Give the connection back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.release(connection)

    __del__ = close

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        """Fetch strings, watched from now on."""
        # A connection whose last user gave up may still watch others.
        answers = self._send([("UNWATCH",), ("WATCH", *names), ("MGET", *names)])
        found: list[bytes | None] = answers[-1]
        return found

    @property
    def is_open(self) -> bool:
        """Whether it has not stored anything yet."""
        return self._connection is not None

    def set(self, others: Sequence[tuple[Any, ...]], watched: Sequence[tuple[Any, ...]]) -> tuple[list[Any], bool]:
        """Carry out commands, and those about watched strings if none of these was changed since.

        Returns: the answers to the others, and whether those about watched strings were carried out.
        """
        transaction = [("MULTI",), *watched, ("EXEC",)] if watched else []
        try:
            answers = self._send([*others, *transaction])
        finally:
            self.close()
        done = answers[-1] if watched else []
        for error in filter(lambda answer: isinstance(answer, Exception), done or ()):
            raise error
        return answers[: len(others)], done is not None

    def _send(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        connection = self._connection
        try:
            connection.send_packed_command(connection.pack_commands(commands))
            return [connection.read_response() for _ in commands]
        except BaseException:
            connection.disconnect()  # answers may be on their way
            raise


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
        self._response_error = redis.ResponseError
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
        """Changes on the condition that nobody has changed an object.

        If one of those that were read together was changed, none of them is replaced.
        None once the server has refused to watch objects.
        """
        return None if self._unconditional else TaggedObjects(self)

    def _get_tagged(self, keys: Sequence[str]) -> list[Versioned | None]:
        if not keys:
            return []
        names, tag = [self._key(key) for key in keys], ANY
        with self._failures(f"read {keys[0]!r}"):
            try:
                watch = _Watch(self.client)
                values, tag = watch.get(names), watch
            except self._response_error as error:
                if not str(error).startswith(_REFUSALS):
                    raise
                self._go_on_without_conditions(error)
                values = self.client.mget(names)
        return [None if value is None else Versioned(value, tag) for value in values]

    def _set_if(self, changes: Sequence[Change]) -> list[bool]:
        self.check_writable()
        for change in changes:
            check_key(change.key)
        done = [False] * len(changes)
        others = [i for i, change in enumerate(changes) if not isinstance(change.tag, _Watch)]
        watched: dict[_Watch, list[int]] = {}
        for i, change in enumerate(changes):
            if isinstance(change.tag, _Watch) and change.tag.is_open:
                watched.setdefault(change.tag, []).append(i)
        commands = [self._change(change) for change in changes]
        with self._failures(f"write {changes[0].key if changes else ''!r}"):
            if others and not watched:
                watched[_Watch(self.client)] = []
            for watch, positions in watched.items():
                answers, unchanged = watch.set([commands[i] for i in others], [commands[i] for i in positions])
                for i, answer in zip(others, answers, strict=True):
                    done[i] = changes[i].tag is ANY or answer is not None
                for i in positions:
                    done[i] = unchanged
                others = []
        return done

    def _change(self, change: Change) -> tuple[Any, ...]:
        """The command that carries out a change."""
        key, value, tag = change
        if value is None:
            return "DEL", self._key(key)
        return "SET", self._key(key), as_bytes(key, value), *(("NX",) if tag is None else ())

    def _write(self, rows: list[tuple[str, bytes]]) -> None:
        pipeline, nbytes = self.client.pipeline(transaction=False), 0
        with self._failures(f"write {rows[0][0]!r}"):
            for key, data in rows:
                pipeline.set(self._key(key), data)
                nbytes += len(data)
                if nbytes > _PIPELINE_NBYTES:
                    pipeline.execute()
                    nbytes = 0
            pipeline.execute()

    def _delete(self, keys: list[str]) -> None:
        with self._failures("delete"):
            self.client.delete(*map(self._key, keys))

    def close(self) -> None:
        """Close the connections; new ones are made when the store is used again."""
        self.client.close()

    def __reduce__(self) -> tuple[Any, ...]:
        given = (self._prefix, self.dimension_separator)
        return pickled(self, RedisStore, *given, read_only=self.read_only, **self._kwargs)


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
