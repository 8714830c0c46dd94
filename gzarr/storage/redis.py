"""Objects as strings of a Redis server, under ``prefix:key``, as zarr 2 named them.

Many requests travel together in one pipeline, so a batch costs one round trip. Redis has no versions of strings, so
objects are read whole. A string has at most 512 MiB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from gzarr.storage.capabilities import ANY, Buffer, Change, Conditional, Request
from gzarr.storage.extras import require
from gzarr.storage.flat import KeyConditions, KeyValueStore
from gzarr.storage.rules import cut, pickled

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
        values = self.client.mget([self._key(request.key) for request in requests])
        pairs = zip(requests, values, strict=True)
        return [None if value is None else cut(value, start, length) for (_, start, length), value in pairs]

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
        return [key[nskip:].decode() for key in set(self.client.scan_iter(match=pattern, count=_SCAN_COUNT))]

    @property
    def conditional(self) -> Conditional | None:
        """Changes on the condition that an object still has the same bytes, which are compared here.

        The server watches the object from that moment on: if another changes it before the new bytes are stored, they
        are not. None once the server has refused to watch objects.
        """
        return None if self._unconditional else KeyConditions(self)

    def _change(self, changes: Sequence[Change]) -> list[bool]:
        compared = [change for change in changes if change.tag is not ANY and change.tag is not None]
        done = self._change_if(compared) if compared else set()
        for batch in _batches([change for change in changes if change.tag is ANY or change.tag is None]):
            pipeline = self.client.pipeline(transaction=False)
            self._queue(pipeline, batch)
            done |= {change.key for change, said in zip(batch, pipeline.execute(), strict=True) if said is not None}
        return [change.key in done for change in changes]

    def _change_if(self, changes: Sequence[Change]) -> set[str]:
        """Carry out changes of objects that have the bytes of their tags; none if one is changed meanwhile.

        Returns: the keys of those that were carried out.
        """
        names = [self._key(change.key) for change in changes]
        with self.client.pipeline() as pipeline:
            try:
                pipeline.watch(*names)
                stored = zip(changes, pipeline.mget(names), strict=True)
                changes = [change for change, value in stored if value == change.tag]
                pipeline.multi()
            except self._response_error as error:
                if not str(error).startswith(_REFUSALS):
                    raise
                self._go_on_without_conditions(error)
            try:
                self._queue(pipeline, changes)
                pipeline.execute()
            except self._watch_error:
                return set()
        return {change.key for change in changes}

    def _queue(self, pipeline: Any, changes: Sequence[Change]) -> None:
        for key, value, tag in changes:
            if value is None:
                pipeline.delete(self._key(key))
            else:
                pipeline.set(self._key(key), value, nx=tag is None)

    def close(self) -> None:
        """Close the connections; new ones are made when the store is used again."""
        self.client.close()

    def __reduce__(self) -> tuple[Any, ...]:
        given = (self._prefix, self.dimension_separator)
        return pickled(self, RedisStore, *given, read_only=self.read_only, **self._kwargs)


def _batches(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Changes that one pipeline carries each."""
    batch, nbytes = [], 0
    for change in changes:
        batch.append(change)
        nbytes += len(change.value or b"")
        if nbytes > _PIPELINE_NBYTES:
            yield batch
            batch, nbytes = [], 0
    if batch:
        yield batch
