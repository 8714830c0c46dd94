"""Databases as stores under the names of zarr 2: DBM files, LMDB, Redis and MongoDB.

Each is four functions of the library that does the work. Objects are read and written whole and one at a time, and
nothing is compared before it is replaced: let no two processes write to one chunk, shard or node at a time. For more,
use `SQLiteStore` on one machine, and the URL of a bucket.
"""
# os.path: the stores take what users call a path and give it back unchanged.
# ruff: noqa: PTH100

import dbm
import os
import re
import weakref
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal

from gzarr.concurrency import Pool, new_lock
from gzarr.storage.capabilities import Buffer, Change, Request
from gzarr.storage.extras import require
from gzarr.storage.flat import KeyValueStore
from gzarr.storage.forks import inside_library, one_call
from gzarr.storage.rules import cut, pickled

#: Seconds that servers may take to accept a connection, and to answer.
_CONNECT_S, _ANSWER_S = 5.0, 60.0
#: Address space for the map of LMDB, as in zarr 2: a sparse file.
_MAP_NBYTES = 1 << 40
#: What LMDB has open, by process and path.
_environments: weakref.WeakValueDictionary[tuple[int, Hashable], Any] = weakref.WeakValueDictionary()
_opening = new_lock()


class DatabaseStore(KeyValueStore):
    """What the stores of databases share.

    Parameters
    ----------
    dimension_separator : {".", "/"}, optional
        For new Zarr v2 arrays that name none.
    read_only : bool
        Whether to refuse changes.
    """

    _process_bound = frozenset({"_opened", "_pid", "_pool", "_opening"})

    def __init__(
        self, name: str, separator: Literal[".", "/"] | None, read_only: bool, *given: Any, options: dict[str, Any]
    ) -> None:
        self._given, self._options = given, options  # arguments, and those of the library
        self._name, self.dimension_separator, self.read_only = name, separator, read_only
        self._opened: Any = None
        self._pid = 0
        self._opening = new_lock()

    @abstractmethod
    def _open(self) -> Any:
        """Open the database."""

    @abstractmethod
    def _get(self, key: str) -> bytes | None:
        """The value of a key, or None."""

    @abstractmethod
    def _put(self, key: str, value: Buffer) -> None:
        """Store a value."""

    @abstractmethod
    def _drop(self, key: str) -> None:
        """Delete a value, if there is one."""

    @property
    def client(self) -> Any:
        """The database, which is opened when it is first used, and anew in a forked child and after `close`."""
        opened = self._opened
        if opened is None or self._pid != os.getpid():
            with self._opening:
                if self._opened is None or self._pid != os.getpid():
                    self._opened, self._pid = self._open(), os.getpid()
                opened = self._opened
        return opened

    def _read(self, requests: Sequence[Request]) -> list[Buffer | None]:
        values = {key: self._get(key) for key in dict.fromkeys(request.key for request in requests)}
        found = ((values[key], start, length) for key, start, length in requests)
        return [None if value is None else cut(value, start, length) for value, start, length in found]

    def _change(self, changes: Sequence[Change]) -> list[bool]:
        for key, value, _ in changes:
            if value is None:
                self._drop(key)
            else:
                self._put(key, value)
        return [True] * len(changes)

    def close(self) -> None:
        """Close the database; it is opened again when the store is used again."""
        opened, self._opened = self._opened, None
        if opened is not None and self._pid == os.getpid() and hasattr(opened, "close"):
            opened.close()

    def __reduce__(self) -> tuple[Any, ...]:
        owners: dict[str, Any] = {"dbm": DBMStore, "lmdb": LMDBStore, "redis": RedisStore, "mongodb": MongoDBStore}
        owner = owners[self._name.partition("://")[0]]
        said = {} if owner is DBMStore else {"read_only": self.read_only}
        return pickled(self, owner, *self._given, **self._options, **said)


class DBMStore(DatabaseStore):
    """A store in a DBM file, which one process at a time may use; close it when writing is done.

    Parameters
    ----------
    path : str or os.PathLike
        Path of the file; some kinds of DBM add endings to it.
    flag : str
        ``"c"`` opens the file and makes it if it is missing, ``"w"`` only opens it, ``"r"`` opens it for reading,
        ``"n"`` begins an empty one.
    mode : int
        Permissions of a new file.
    open : callable, optional
        What opens it, by default `dbm.open`.
    write_lock : bool
        Accepted for zarr 2; one thread uses the file for all.
    dimension_separator : {".", "/"}, optional
        For new Zarr v2 arrays that name none.
    **open_kwargs
        Arguments of `open`.
    """

    _errors = Exception  # every kind of DBM raises its own

    def __init__(
        self,
        path: str | os.PathLike[str],
        flag: str = "c",
        mode: int = 0o666,
        open: Callable[..., Any] | None = None,
        write_lock: bool = True,
        dimension_separator: Literal[".", "/"] | None = None,
        **open_kwargs: Any,
    ) -> None:
        self.path, self.flag = os.path.abspath(os.fsdecode(path)), flag
        given = (self.path, "c" if flag[:1] == "n" else flag, mode, open, write_lock, dimension_separator)
        name, read_only = f"dbm://{os.fsdecode(path)}", flag[:1] == "r"
        super().__init__(name, dimension_separator, read_only, *given, options=open_kwargs)
        self._pool = Pool()  # dbm.sqlite3 serves only the thread that opened it, and others one at a time
        self._place = os.path.realpath(self.path)
        with self._failures(f"open the file with flag {flag!r}"):
            self._pool.call(lambda: self.client)
        self.flag = given[1]  # it is not emptied a second time

    def _open(self) -> Any:
        path, _, mode, given, *_ = self._given
        opener: Any = given or dbm.open
        return opener(path, self.flag, mode, **self._options)

    def _get(self, key: str) -> bytes | None:
        def value() -> "bytes | None":
            try:
                return bytes(self.client[key.encode()])
            except KeyError:
                return None

        return self._pool.call(value)

    def _put(self, key: str, value: Buffer) -> None:
        self._pool.call(lambda: self.client.__setitem__(key.encode(), bytes(value)))

    def _drop(self, key: str) -> None:
        def delete() -> None:
            with suppress(KeyError):
                del self.client[key.encode()]

        self._pool.call(delete)

    def _keys(self, path: str) -> list[str]:
        return self._pool.call(lambda: [name.decode() for name in self.client.keys()])  # noqa: SIM118 - no mapping

    def flush(self) -> None:
        """Write all changes to the file, if its kind can."""
        self._pool.call(self._sync)

    def _sync(self) -> None:
        getattr(self.client, "sync", lambda: None)()

    def close(self) -> None:
        """Close the file; it is opened again when the store is used again."""
        if self._pid != os.getpid():
            self._opened = None
        self._pool.call(super().close)


class LMDBStore(DatabaseStore):
    """A store in an LMDB database; needs ``pip install 'gzarr[lmdb]'``. Close it when writing is done.

    Keys have at most 511 bytes. Stores of one path share what the first of them has opened.

    Parameters
    ----------
    path : str or os.PathLike
        Path of the database, a directory; made if it is missing.
    buffers : bool
        Accepted for zarr 2; answers are always copies.
    dimension_separator : {".", "/"}, optional
        For new Zarr v2 arrays that name none.
    read_only : bool
        Whether to refuse changes.
    **kwargs
        Arguments of `lmdb.open`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        buffers: bool = True,
        dimension_separator: Literal[".", "/"] | None = None,
        *,
        read_only: bool = False,
        **kwargs: Any,
    ) -> None:
        self._errors = require("lmdb", "lmdb", "LMDBStore").Error
        self.path = os.path.abspath(os.fsdecode(path))
        self._place = os.path.realpath(self.path)
        given = (self.path, buffers, dimension_separator)
        super().__init__(f"lmdb://{os.fsdecode(path)}", dimension_separator, read_only, *given, options=kwargs)
        with self._failures("open the database"):
            _ = self.client

    def _open(self) -> Any:
        options = {"map_size": _MAP_NBYTES, "metasync": False, "sync": False, "readonly": self.read_only}
        place = (os.getpid(), self._place)  # LMDB refuses to open a file twice
        with _opening:
            for other in [key for key in _environments if key[0] != place[0] and key[1] == place[1]]:
                _environments.pop(other).close()  # inherited by a fork, which the parent keeps
            environment = _environments.get(place)
            if environment is None:
                opened = require("lmdb", "lmdb", "LMDBStore").open(self.path, **{**options, **self._options})
                environment = _environments[place] = opened
        return environment

    @contextmanager
    def _transaction(self, *, write: bool = False) -> Iterator[Any]:
        """A transaction, which no fork cuts in two."""
        with inside_library(), one_call(self._place), self.client.begin(write=write) as transaction:
            yield transaction

    def _get(self, key: str) -> bytes | None:
        with self._transaction() as transaction:
            return transaction.get(key.encode())

    def _put(self, key: str, value: Buffer) -> None:
        with self._transaction(write=True) as transaction:
            transaction.put(key.encode(), value)

    def _drop(self, key: str) -> None:
        with self._transaction(write=True) as transaction:
            transaction.delete(key.encode())

    def _keys(self, path: str) -> list[str]:
        with self._transaction() as transaction, transaction.cursor() as cursor:
            return [name.decode() for name in cursor.iternext(keys=True, values=False)]

    def flush(self) -> None:
        """Write all changes to the disk."""
        if not self.read_only:
            self.client.sync(True)

    def close(self) -> None:
        """Write all changes to the disk and close the database; it is opened again when the store is used again."""
        if self._opened is not None and self._pid == os.getpid():
            self.flush()
        self._opened = None  # LMDB closes what nobody uses


class RedisStore(DatabaseStore):
    """A store on a Redis server; needs ``pip install 'gzarr[redis]'``.

    Parameters
    ----------
    prefix : str
        What the keys of this store begin with on the server, before a colon.
    dimension_separator : {".", "/"}, optional
        For new Zarr v2 arrays that name none.
    read_only : bool
        Whether to refuse changes.
    **kwargs
        Arguments of `redis.Redis`: ``host``, ``port``, ``db``, ``password``, ...
    """

    concurrency = 64
    _remedy = "; check host, port and password"

    def __init__(
        self,
        prefix: str = "zarr",
        dimension_separator: Literal[".", "/"] | None = None,
        *,
        read_only: bool = False,
        **kwargs: Any,
    ) -> None:
        self._errors = require("redis", "redis", "RedisStore").RedisError
        self._prefix = f"{prefix}:"
        host = kwargs.get("unix_socket_path") or f"{kwargs.get('host', 'localhost')}:{kwargs.get('port', 6379)}"
        name = f"redis://{host}/{kwargs.get('db', 0)}/{prefix}"
        super().__init__(name, dimension_separator, read_only, prefix, dimension_separator, options=kwargs)

    def _open(self) -> Any:
        timeouts = {"socket_connect_timeout": _CONNECT_S, "socket_timeout": _ANSWER_S}
        return require("redis", "redis", "RedisStore").Redis(**{**timeouts, **self._options, "decode_responses": False})

    def _get(self, key: str) -> bytes | None:
        return self.client.get(self._prefix + key)

    def _put(self, key: str, value: Buffer) -> None:
        self.client.set(self._prefix + key, bytes(value))

    def _drop(self, key: str) -> None:
        self.client.delete(self._prefix + key)

    def _keys(self, path: str) -> list[str]:
        pattern = re.sub(r"([\\*?\[\]])", r"\\\1", self._prefix + (f"{path}/" if path else "")) + "*"
        nskip = len(self._prefix.encode())
        return [key[nskip:].decode() for key in set(self.client.scan_iter(match=pattern, count=1000))]


class MongoDBStore(DatabaseStore):
    """A store in a MongoDB collection; needs ``pip install 'gzarr[mongodb]'``. Documents have at most 16 MB.

    Parameters
    ----------
    database, collection : str
        Names of the database and the collection.
    dimension_separator : {".", "/"}, optional
        For new Zarr v2 arrays that name none.
    read_only : bool
        Whether to refuse changes.
    **kwargs
        Arguments of `pymongo.MongoClient`: ``host``, ``port``, ``username``, ...
    """

    concurrency = 64
    _remedy = "; check host, port and user"

    def __init__(
        self,
        database: str = "mongodb_zarr",
        collection: str = "zarr_collection",
        dimension_separator: Literal[".", "/"] | None = None,
        *,
        read_only: bool = False,
        **kwargs: Any,
    ) -> None:
        self._errors = require("pymongo", "mongodb", "MongoDBStore").errors.PyMongoError
        host = str(kwargs.get("host", "localhost")).rpartition("@")[2].removeprefix("mongodb://").partition("/")[0]
        name = f"mongodb://{host}:{kwargs.get('port', 27017)}/{database}/{collection}"
        super().__init__(
            name, dimension_separator, read_only, database, collection, dimension_separator, options=kwargs
        )

    def _open(self) -> Any:
        timeouts = {"serverSelectionTimeoutMS": _CONNECT_S * 1000, "socketTimeoutMS": _ANSWER_S * 1000}
        client = require("pymongo", "mongodb", "MongoDBStore").MongoClient(**{**timeouts, **self._options})
        weakref.finalize(self, client.close)
        return client

    @property
    def collection(self) -> Any:
        """The collection, as an object of the driver."""
        return self.client[self._given[0]][self._given[1]]

    def _get(self, key: str) -> bytes | None:
        found = self.collection.find_one({"key": key}, {"_id": 0, "value": 1})
        return None if found is None else bytes(found["value"])

    def _put(self, key: str, value: Buffer) -> None:
        self.collection.replace_one({"key": key}, {"key": key, "value": bytes(value)}, upsert=True)

    def _drop(self, key: str) -> None:
        self.collection.delete_many({"key": key})

    def _keys(self, path: str) -> list[str]:
        query = {"key": {"$regex": f"^{re.escape(path)}/"}} if path else {}
        return [document["key"] for document in self.collection.find(query, {"_id": 0, "key": 1})]
