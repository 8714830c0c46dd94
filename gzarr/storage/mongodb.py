"""Objects as documents ``{"key": ..., "value": ...}`` of a MongoDB collection, as zarr 2 stored them.

A document has at most 16 MB, so chunks and shards must stay below that. Ranges are cut from whole values here.
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from gzarr.errors import StoreError
from gzarr.storage.base import ANY, Buffer, Change, Conditional, Request, pickled
from gzarr.storage.extras import require
from gzarr.storage.flat import DatabaseStore, TaggedObjects, cut_all
from gzarr.storage.rules import as_bytes, check_key, check_path

#: Milliseconds to wait for a server; the driver's own 30 s are long to learn that a name is wrong.
_SELECTION_TIMEOUT_MS = 5000
#: Milliseconds to wait for an answer; the driver waits for ever.
_ANSWER_TIMEOUT_MS = 60_000
#: Largest document (MongoDB manual, "Limits"), less some room for the key.
_MAX_NBYTES = (16 << 20) - 4096
#: Error of a server that has a key already.
_DUPLICATE_KEY = 11000


class MongoDBStore(DatabaseStore):
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

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order, with one query. Raises: StoreError."""
        keys = sorted({request.key for request in requests})
        if not keys:
            return []
        with self._failures(f"read {keys[0]!r}"):
            documents = self.collection.find({"key": {"$in": keys}}, {"_id": 0})
            values = {document["key"]: bytes(document["value"]) for document in documents}
        return cut_all([values.get(request.key) for request in requests], requests)

    def getsize(self, key: str) -> int | None:
        """Size of an object in bytes, or None if it is missing; the server measures it."""
        sizes = self._sizes({"key": key})
        return sizes[0] if sizes else None

    def nbytes_stored(self, path: str = "") -> int:
        """Bytes stored under a path; the server measures them."""
        return sum(self._sizes(_under(path)))

    def _sizes(self, query: dict[str, Any]) -> list[int]:
        stages = [{"$match": query}, {"$project": {"_id": 0, "nbytes": {"$binarySize": "$value"}}}]
        with self._failures("look up sizes"):
            return [int(document["nbytes"]) for document in self.collection.aggregate(stages)]

    def list_prefix(self, prefix: str = "") -> Iterator[str]:
        """All keys under a path, as they were when listing began."""
        with self._failures("list keys"):
            found = self.collection.find(_under(prefix), {"_id": 0, "key": 1})
            return iter([document["key"] for document in found])

    @property
    def conditional(self) -> Conditional | None:
        """Changes on the condition that an object still has the same bytes, which the server compares.

        Other programs change documents without another sign of it.
        """
        return TaggedObjects(self)

    def _write(self, rows: list[tuple[str, bytes]]) -> None:
        operations = [self._replacement(key, data) for key, data in rows]
        with self._failures(f"write {len(operations)} objects"):
            self._prepared().bulk_write(operations, ordered=True)

    def _prepared(self) -> Any:
        """The collection, with an index."""
        # Keys are unique, even if two writers insert one at the same time, and finding them needs no scan.
        if not self._indexed:
            self.collection.create_index("key", unique=True)
            self._indexed = True
        return self.collection

    def _replacement(self, key: str, data: bytes, tag: object = ANY) -> Any:
        """The operation that stores an object, if it has the bytes `tag`."""
        if len(data) > _MAX_NBYTES:
            raise StoreError(
                f"store {self}: key {key!r}: {len(data)} bytes, and a MongoDB document holds {_MAX_NBYTES};"
                " choose smaller chunks"
            )
        document = {"key": key, "value": data}
        if tag is ANY:
            return self._pymongo.ReplaceOne({"key": key}, document, upsert=True)
        if tag is None:
            return self._pymongo.InsertOne(document)
        return self._pymongo.ReplaceOne({"key": key, "value": tag}, document)

    def _set_if(self, changes: Sequence[Change]) -> list[bool]:
        self.check_writable()
        for change in changes:
            check_key(change.key)
        doomed = [key for key, value, tag in changes if value is None and tag is ANY]
        if doomed:
            self._delete(doomed)
        wanted = {
            key: (None if value is None else as_bytes(key, value), tag)
            for key, value, tag in changes
            if value is not None or tag is not ANY
        }
        refused = self._refused(wanted) if wanted else set()
        return [change.key not in refused for change in changes]

    def _refused(self, wanted: dict[str, tuple[bytes | None, object | None]]) -> set[str]:
        """Have changes carried out. Returns: the keys of those that were refused."""
        operations = [
            self._pymongo.DeleteOne({"key": key, "value": tag}) if value is None else self._replacement(key, value, tag)
            for key, (value, tag) in wanted.items()
        ]
        keys = list(wanted)
        there_already = set()
        with self._failures(f"write {len(operations)} objects"):
            try:
                said = self._prepared().bulk_write(operations, ordered=False).bulk_api_result
            except self._pymongo.errors.BulkWriteError as error:
                said = error.details
                if any(failure["code"] != _DUPLICATE_KEY for failure in said["writeErrors"]):
                    raise
                there_already = {keys[failure["index"]] for failure in said["writeErrors"]}
        n_done = sum(said[name] for name in ("nInserted", "nMatched", "nUpserted", "nRemoved"))
        refused = {key for key in there_already if wanted[key][1] is not ANY}  # else another was faster by a moment
        compared = [key for key, (_, tag) in wanted.items() if tag is not None and tag is not ANY]
        if n_done + len(there_already) == len(wanted):
            return refused
        if len(compared) == 1:
            return refused | set(compared)
        # The server says how many of them it carried out, not which: those that are as they should be.
        now = self.get_many([Request(key) for key in compared])
        return refused | {key for key, stored in zip(compared, now, strict=True) if stored != wanted[key][0]}

    def _delete(self, keys: list[str]) -> None:
        with self._failures("delete"):
            self.collection.delete_many({"key": {"$in": keys}})

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
