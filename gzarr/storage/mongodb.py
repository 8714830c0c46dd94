"""Objects as documents ``{"key": ..., "value": ...}`` of a MongoDB collection, as zarr 2 stored them.

A document has at most 16 MB, so chunks and shards must stay below that. Ranges are cut from whole values here.
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Sequence
from typing import Any, Literal

from gzarr.errors import StoreError
from gzarr.storage.capabilities import ANY, Buffer, Change, Conditional, Request
from gzarr.storage.extras import require
from gzarr.storage.flat import KeyConditions, KeyValueStore
from gzarr.storage.remote import run_together
from gzarr.storage.rules import cut, pickled

#: Milliseconds to wait for a server; the driver's own 30 s are long to learn that a name is wrong.
_SELECTION_TIMEOUT_MS = 5000
#: Milliseconds to wait for an answer; the driver waits for ever.
_ANSWER_TIMEOUT_MS = 60_000
#: Largest document (MongoDB manual, "Limits"), less some room for the key.
_MAX_NBYTES = (16 << 20) - 4096
#: Error of a server that has a key already.
_DUPLICATE_KEY = 11000


class MongoDBStore(KeyValueStore):
    """A store in a MongoDB collection; needs ``pip install 'gzarr[mongodb]'``.

    A server that does not answer is noticed by the first call that asks it.

    Parameters
    ----------
    database : str
        Name of the database.
    collection : str
        Name of the collection.
    dimension_separator : {".", "/"}, optional
        For new Zarr v2 arrays that name none.
    read_only : bool
        Whether to refuse changes.
    **kwargs
        Arguments of `pymongo.MongoClient`: ``host``, ``port``, ``username``, ...

    Raises
    ------
    MissingExtraError
        If the extra is not installed.
    """

    concurrency = 64
    _remedy = "; check host, port and user"
    _process_bound = frozenset({"_pymongo", "_client", "_pid", "_indexed"})

    def __init__(
        self,
        database: str = "mongodb_zarr",
        collection: str = "zarr_collection",
        dimension_separator: Literal[".", "/"] | None = None,
        *,
        read_only: bool = False,
        **kwargs: Any,
    ) -> None:
        self._pymongo = require("pymongo", "mongodb", "MongoDBStore")
        self._errors = self._pymongo.errors.PyMongoError
        self._database, self._collection, self._kwargs = database, collection, kwargs
        self.dimension_separator = dimension_separator
        self.read_only = read_only
        self._client: Any = None
        self._pid = 0
        self._name = f"mongodb://{_hosts(kwargs.get('host', 'localhost'), kwargs)}/{database}/{collection}"
        self._indexed = False

    @property
    def client(self) -> Any:
        """The driver's client, a new one after `close` and in a forked child, which has none of its threads."""
        if self._client is None or self._pid != os.getpid():
            self._pid = os.getpid()
            timeouts = {"serverSelectionTimeoutMS": _SELECTION_TIMEOUT_MS, "socketTimeoutMS": _ANSWER_TIMEOUT_MS}
            self._client = self._pymongo.MongoClient(**{**timeouts, **self._kwargs})
            weakref.finalize(self, self._client.close)
        return self._client

    @property
    def collection(self) -> Any:
        """The collection, as an object of the driver."""
        return self.client[self._database][self._collection]

    def _read(self, requests: Sequence[Request]) -> list[Buffer | None]:
        keys = sorted({request.key for request in requests})
        documents = self.collection.find({"key": {"$in": keys}}, {"_id": 0})
        values = {document["key"]: bytes(document["value"]) for document in documents}
        return [cut(values[key], start, length) if key in values else None for key, start, length in requests]

    def _sizes(self, keys: Sequence[str]) -> list[int | None]:
        stages = [
            {"$match": {"key": {"$in": list(keys)}}},
            {"$project": {"_id": 0, "key": 1, "nbytes": {"$binarySize": "$value"}}},
        ]
        found = {document["key"]: int(document["nbytes"]) for document in self.collection.aggregate(stages)}
        return [found.get(key) for key in keys]

    @property
    def conditional(self) -> Conditional | None:
        """Changes on the condition that an object still has the same bytes, which the server compares.

        Other programs change documents without another sign of it.
        """
        return KeyConditions(self)

    def _keys(self, path: str) -> list[str]:
        query = {"key": {"$regex": f"^{re.escape(path)}/"}} if path else {}  # an anchored expression uses the index
        return [document["key"] for document in self.collection.find(query, {"_id": 0, "key": 1})]

    def _prepared(self) -> Any:
        """The collection, with an index."""
        # Keys are unique, even if two writers insert one at the same time, and finding them needs no scan.
        if not self._indexed:
            self.collection.create_index("key", unique=True)
            self._indexed = True
        return self.collection

    def _document(self, key: str, value: Buffer) -> dict[str, Any]:
        if len(value) > _MAX_NBYTES:
            raise StoreError(
                f"store {self}: key {key!r}: {len(value)} bytes, and a MongoDB document holds {_MAX_NBYTES};"
                " choose smaller chunks"
            )
        return {"key": key, "value": value}

    def _change(self, changes: Sequence[Change]) -> list[bool]:
        always = [change for change in changes if change.tag is ANY]
        doomed = [key for key, value, _ in always if value is None]
        if doomed:
            self.collection.delete_many({"key": {"$in": doomed}})
        documents = [self._document(key, value) for key, value, _ in always if value is not None]
        if documents:
            replace = self._pymongo.ReplaceOne
            operations = [replace({"key": document["key"]}, document, upsert=True) for document in documents]
            try:
                self._prepared().bulk_write(operations, ordered=False)
            except self._pymongo.errors.BulkWriteError as error:
                if any(failure["code"] != _DUPLICATE_KEY for failure in error.details["writeErrors"]):
                    raise  # else another was faster by a moment
        on_condition = [change for change in changes if change.tag is not ANY]
        answers = iter(run_together(self._change_if, on_condition))
        return [change.tag is ANY or next(answers) for change in changes]

    def _change_if(self, change: Change) -> bool:
        """Carry out a change if the object has the bytes that are its tag. Returns: whether it does."""
        key, value, tag = change
        collection = self._prepared()
        if tag is None and value is not None:
            try:
                collection.insert_one(self._document(key, value))
            except self._pymongo.errors.DuplicateKeyError:
                return False
            return True
        query = {"key": key, "value": tag}
        if value is None:
            return bool(collection.delete_one(query).deleted_count)
        return bool(collection.replace_one(query, self._document(key, value)).matched_count)

    def close(self) -> None:
        """Close the connections; new ones are made when the store is used again."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def __reduce__(self) -> tuple[Any, ...]:
        given = (self._database, self._collection, self.dimension_separator)
        return pickled(self, MongoDBStore, *given, read_only=self.read_only, **self._kwargs)


def _hosts(given: Any, kwargs: dict[str, Any]) -> str:
    """The servers, with their ports, without the users, passwords and options of URIs."""
    names = []
    for host in [given] if isinstance(given, str) else given or ["localhost"]:
        name = str(host).rpartition("://")[2].rpartition("@")[2].partition("/")[0].partition("?")[0]
        names.append(name if ":" in name or "," in name else f"{name}:{kwargs.get('port') or 27017}")
    return ",".join(names)
