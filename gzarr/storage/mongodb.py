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
from gzarr.storage.rules import check_path, cut, pickled

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
        found = self._measured({"key": {"$in": list(keys)}})
        return [found.get(key) for key in keys]

    def nbytes_stored(self, path: str = "") -> int:
        """Bytes stored under a path; the server measures them."""
        with self._failures("look up sizes"):
            return sum(self._measured(_under(path)).values())

    def _measured(self, query: dict[str, Any]) -> dict[str, int]:
        stages = [{"$match": query}, {"$project": {"_id": 0, "key": 1, "nbytes": {"$binarySize": "$value"}}}]
        return {document["key"]: int(document["nbytes"]) for document in self.collection.aggregate(stages)}

    @property
    def conditional(self) -> Conditional | None:
        """Changes on the condition that an object still has the same bytes, which the server compares.

        Other programs change documents without another sign of it.
        """
        return KeyConditions(self)

    def _keys(self, path: str) -> list[str]:
        return [document["key"] for document in self.collection.find(_under(path), {"_id": 0, "key": 1})]

    def _prepared(self) -> Any:
        """The collection, with an index."""
        # Keys are unique, even if two writers insert one at the same time, and finding them needs no scan.
        if not self._indexed:
            self.collection.create_index("key", unique=True)
            self._indexed = True
        return self.collection

    def _operation(self, change: Change) -> Any:
        """What carries out a change, if the object has the bytes that are its tag."""
        key, data, tag = change
        query = {"key": key} if tag is ANY or tag is None else {"key": key, "value": tag}
        if data is None:
            return self._pymongo.DeleteOne(query)
        if len(data) > _MAX_NBYTES:
            raise StoreError(
                f"store {self}: key {key!r}: {len(data)} bytes, and a MongoDB document holds {_MAX_NBYTES};"
                " choose smaller chunks"
            )
        document = {"key": key, "value": data}
        if tag is None:
            return self._pymongo.InsertOne(document)
        return self._pymongo.ReplaceOne(query, document, upsert=tag is ANY)

    def _change(self, changes: Sequence[Change]) -> list[bool]:
        doomed = [key for key, value, tag in changes if value is None and tag is ANY]
        if doomed:
            self.collection.delete_many({"key": {"$in": doomed}})
        others = {change.key: change for change in changes if change.value is not None or change.tag is not ANY}
        refused = self._refused(others) if others else set()
        return [change.key not in refused for change in changes]

    def _refused(self, changes: dict[str, Change]) -> set[str]:
        """Have changes carried out. Returns: the keys of those that were refused."""
        keys = list(changes)
        there_already = set()
        try:
            operations = [self._operation(change) for change in changes.values()]
            said = self._prepared().bulk_write(operations, ordered=False).bulk_api_result
        except self._pymongo.errors.BulkWriteError as error:
            said = error.details
            if any(failure["code"] != _DUPLICATE_KEY for failure in said["writeErrors"]):
                raise
            there_already = {keys[failure["index"]] for failure in said["writeErrors"]}
        n_done = sum(said[name] for name in ("nInserted", "nMatched", "nUpserted", "nRemoved"))
        refused = {key for key in there_already if changes[key].tag is not ANY}  # else another was faster by a moment
        if n_done + len(there_already) == len(keys):
            return refused
        compared = [key for key in keys if changes[key].tag is not None and changes[key].tag is not ANY]
        if len(compared) == 1:
            return refused | set(compared)
        # The server says how many of them it carried out, not which: those that are as they should be.
        now = self._read([Request(key) for key in compared])
        return refused | {key for key, stored in zip(compared, now, strict=True) if stored != changes[key].value}

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


def _under(path: str) -> dict[str, Any]:
    """A query for the keys under a path; an anchored expression uses the index."""
    check_path(path)
    return {"key": {"$regex": f"^{re.escape(path)}/"}} if path else {}
