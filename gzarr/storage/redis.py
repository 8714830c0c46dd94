"""Objects as strings of a Redis server, under ``prefix:key``, as zarr 2 named them.

Many requests travel together in one pipeline, so a batch costs one round trip. Redis has no versions of strings, so
shards are read whole. A string has at most 512 MiB.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from gzarr.storage.capabilities import ANY, Buffer, Change, Conditional, Request, Versioned
from gzarr.storage.extras import require
from gzarr.storage.flat import KeyConditions, KeyValueStore
from gzarr.storage.rules import byte_range, pickled

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


class RedisStore(KeyValueStore):
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
        self._response_error, self._watch_error = redis.ResponseError, redis.WatchError
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

    def _read(self, requests: Sequence[Request]) -> list[Buffer | None]:
        if all(request.start is None for request in requests):
            return list(self.client.mget([self._key(request.key) for request in requests]))
        suffixes = [request for request in requests if request.start is not None and request.start < 0]
        sizes = dict(zip(suffixes, self._sizes([request.key for request in suffixes]), strict=True))
        pipeline = self.client.pipeline(transaction=False)
        for request in requests:
            _ask(pipeline, self._key(request.key), request, sizes.get(request))
        answers = pipeline.execute()
        return [value if exists else None for exists, value in zip(answers[::2], answers[1::2], strict=True)]

    def _sizes(self, keys: Sequence[str]) -> list[int | None]:
        pipeline = self.client.pipeline(transaction=False)
        for key in keys:
            pipeline.exists(self._key(key))
            pipeline.strlen(self._key(key))
        answers = pipeline.execute()
        return [int(nbytes) if exists else None for exists, nbytes in zip(answers[::2], answers[1::2], strict=True)]

    def _keys(self, path: str) -> list[str]:
        start = self._key(f"{path}/" if path else "")
        pattern = re.sub(r"([\\*?\[\]])", r"\\\1", start) + "*"
        nskip = len(self._key("").encode())
        # Step by step: the server stays responsive. A key may come twice where the server's table grows meanwhile.
        keys = set(self.client.scan_iter(match=pattern, count=_SCAN_COUNT))
        return [_encoded(key)[nskip:].decode() for key in keys]

    @property
    def conditional(self) -> Conditional | None:
        """Changes on the condition that nobody has changed an object.

        The tag of objects that were read together is the pipeline that watches them: a server does that for nothing,
        while a script that compares the old bytes takes it longer than storing new ones. If one of them was changed,
        none is replaced. None once the server has refused to watch objects.
        """
        return None if self._unconditional else KeyConditions(self)

    def _read_tagged(self, keys: Sequence[str]) -> list[Versioned | None]:
        names, tag = [self._key(key) for key in keys], self.client.pipeline()
        try:
            tag.watch(*names)
            values = tag.mget(names)
        except self._response_error as error:
            if not str(error).startswith(_REFUSALS):
                raise
            self._go_on_without_conditions(error)
            values, tag = self.client.mget(names), ANY
        return [None if value is None else Versioned(value, tag) for value in values]

    def _change(self, changes: Sequence[Change]) -> list[bool]:
        done = [False] * len(changes)
        watched: dict[Any, list[int]] = {}
        for i, change in enumerate(changes):
            watched.setdefault(None if change.tag is ANY or change.tag is None else change.tag, []).append(i)
        for tag, positions in watched.items():
            answers = self._change_some([changes[i] for i in positions], tag)
            for i, answer in zip(positions, answers, strict=True):
                done[i] = answer is not None
        return done

    def _change_some(self, changes: Sequence[Change], watching: Any) -> Sequence[object]:
        """Carry out changes of which all are watched by one pipeline, or none. Returns: None for each refused one."""
        if watching is not None and not watching.watching:  # it has stored something already
            return [None] * len(changes)
        pipeline, nbytes, answers = watching or self.client.pipeline(transaction=False), 0, []
        if watching is not None:
            pipeline.multi()
        try:
            for key, value, tag in changes:
                if watching is None and nbytes > _PIPELINE_NBYTES:
                    answers += pipeline.execute()
                    nbytes = 0
                if value is None:
                    pipeline.delete(self._key(key))
                else:
                    pipeline.set(self._key(key), value, nx=tag is None)
                    nbytes += len(value)
            return [*answers, *pipeline.execute()]
        except self._watch_error:
            return [None] * len(changes)
        finally:
            pipeline.reset()

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
