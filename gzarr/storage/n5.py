"""N5 containers, shown as Zarr v2: attributes.json as .zgroup, .zarray and .zattrs, blocks under v2 chunk keys.

N5 keeps everything that is said of a node in one ``attributes.json``, writes shapes with the fastest axis first, and
stores block (i, j, k) of an array under ``k/j/i``. Blocks have a header, which is the business of a codec
("n5_wrapper", `gzarr.codecs.n5`), so the documents that are shown name that as the compressor. A directory that holds
nodes and has no document is a group, as N5 says.

Source: https://github.com/saalfeldlab/n5#file-system-specification
"""

import json
import os
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Literal

import numpy as np

from gzarr.errors import MetadataError, StoreError
from gzarr.storage.base import Store
from gzarr.storage.capabilities import Buffer, Request, Versions
from gzarr.storage.local import LocalStore
from gzarr.storage.locks import holds_document, while_locked
from gzarr.storage.rules import DOCUMENTS, as_bytes, check_key, check_path, cut, pickled, refuse_normalizing
from gzarr.storage.wrappers import Tokens, WrapperStore

DOCUMENT = "attributes.json"
#: What N5 says of a node itself; all other names in a document are attributes of the user.
_RESERVED = ("n5", "dataType", "dimensions", "blockSize", "compression")
_SHOWN = (".zgroup", ".zarray", ".zattrs")
#: Documents that N5 has no place for.
_REFUSED = ("zarr.json", ".zmetadata")
_VERSION = "2.0.0"  # the one that zarr 2 writes
_CHUNK = re.compile(r"\d+(\.\d+)+$")
_BLOCK = re.compile(r"\d+(/\d+)*$")


class _N5Versions(Tokens):
    """Tokens of the objects that N5 stores, under Zarr's keys."""

    def token(self, key: str) -> object | None:
        return super().token(_to_n5_key(key))

    def tokens(self, keys: Sequence[str]) -> list[object | None]:
        return super().tokens([_to_n5_key(key) for key in keys])


class N5Store(WrapperStore):
    """An N5 container as a store of Zarr v2 nodes; new arrays in it are N5 data sets.

    Parameters
    ----------
    store : Store, str or os.PathLike
        Path of the container, or a store that holds it.
    normalize_keys : bool
        Must be False.
    dimension_separator : {".", "/"}, optional
        Accepted for zarr 2; N5's is always "/".
    read_only : bool
        Whether to refuse changes.
    """

    __contains__, __len__, enclosing = Store.__contains__, Store.__len__, Store.enclosing

    def __init__(
        self,
        store: Store | str | os.PathLike[str],
        normalize_keys: bool = False,
        dimension_separator: Literal[".", "/"] | None = None,
        *,
        read_only: bool = False,
    ) -> None:
        refuse_normalizing("N5Store", normalize_keys)
        super().__init__(store if isinstance(store, Store) else LocalStore(store))
        self.read_only |= read_only
        self.zarr_format, self.dimension_separator = 2, "."

    @property
    def path(self) -> str:
        """Path of the directory, for a container on this machine."""
        return str(getattr(self._store, "root", self._store))

    # -- documents -----------------------------------------------------------------------------------------------

    def _document(self, path: str) -> dict[str, Any] | None:
        """A node's document; None if it has none."""
        key = _join(path, DOCUMENT)
        data = self._store.get_one(Request(key))
        if data is None:
            return None
        try:
            document = json.loads(bytes(data))
            if not isinstance(document, dict):
                raise TypeError(f"expected an object, got {document!r}")  # noqa: TRY301
        except (ValueError, TypeError) as error:
            raise MetadataError(f"{self}: {key}: the document is malformed: {error}") from error
        return document

    def _write(self, path: str, document: Mapping[str, Any]) -> None:
        key = _join(path, DOCUMENT)
        if document:
            self._store.set(key, json.dumps(document, indent=4, sort_keys=True).encode())
        else:
            self._store.delete_many((key,))

    def _shown(self, key: str) -> bytes | None:
        """A Zarr document, made from the N5 document."""
        path, _, name = key.rpartition("/")
        document = self._document(path)
        if name == ".zattrs":
            found: Any = {k: v for k, v in (document or {}).items() if k not in _RESERVED} or None
        elif name == ".zarray":
            found = to_zarr(document, f"{self}: {_join(path, DOCUMENT)}") if is_array(document) else None
        else:
            group = not is_array(document) if document is not None else self._holds_nodes(path)
            found = {"zarr_format": 2} if group else None
        return None if found is None else json.dumps(found, indent=4, sort_keys=True).encode()

    def _holds_nodes(self, path: str) -> bool:
        """Whether a directory without a document has nodes below it and is not inside an array."""
        objects, paths = self._store.list_dir(path)
        if objects or not paths or self._array_above(path) is not None:
            return False
        return any(
            DOCUMENT in self._store.list_dir(_join(path, name))[0] or self._holds_nodes(_join(path, name))
            for name in paths
        )

    def _array_above(self, path: str) -> str | None:
        """The array whose blocks lie at a path, if any."""
        parts = path.split("/")
        for n in range(len(parts) - 1, -1, -1):
            above = "/".join(parts[:n])
            if not _BLOCK.match("/".join(parts[n:])):
                return None
            if is_array(self._document(above)):
                return above
        return None

    # -- reading -------------------------------------------------------------------------------------------------

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order."""
        names = {request.key: request.key.rpartition("/")[2] for request in requests}
        shown = {key: self._shown(key) for key, name in names.items() if name in _SHOWN}
        blocks = [one._replace(key=_to_n5_key(one.key)) for one in requests if names[one.key] not in DOCUMENTS]
        found = iter(self._store.get_many(blocks) if blocks else ())
        return [
            next(found) if names[key] not in DOCUMENTS else (text := shown.get(key)) and cut(text, start, length)
            for key, start, length in requests
        ]

    def getsize(self, key: str) -> int | None:
        """Size of an object in bytes, or None if it is missing."""
        name = key.rpartition("/")[2]
        if name in _SHOWN:
            value = self._shown(key)
            return None if value is None else len(value)
        return None if name in _REFUSED or not key else self._store.getsize(_to_n5_key(key))

    @property
    def versions(self) -> Versions | None:
        """The versions of the objects that hold these."""
        return None if self._store.versions is None else _N5Versions(self._store.versions)

    def list_prefix(self, prefix: str = "") -> Iterator[str]:
        """All keys under a path, in Zarr's names."""
        check_path(prefix)
        objects, paths = self.list_dir(prefix)
        yield from (_join(prefix, name) for name in objects)
        for name in paths:
            yield from self.list_prefix(_join(prefix, name))

    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        """Names directly under a path, sorted: (objects, sub-paths). The chunks of an array lie directly under it."""
        check_path(path)
        if path and self._array_above(path) is not None:
            return [], []
        names, paths = self._store.list_dir(path)
        document = self._document(path) if DOCUMENT in names else None
        objects = [name for name in names if name != DOCUMENT]
        if is_array(document):
            nskip = len(path) + 1 if path else 0
            for name in filter(str.isdecimal, paths):
                blocks = self._store.list_prefix(_join(path, name))
                objects += [".".join(reversed(key[nskip:].split("/"))) for key in blocks]
            paths = [name for name in paths if not name.isdecimal()]
        objects += [name for name in _SHOWN if self._shown(_join(path, name)) is not None]
        return sorted(objects), paths

    def lock_name(self, key: str) -> Hashable:
        """The name of the object that holds this one."""
        return self._store.lock_name(_to_n5_key(key))

    def locked(self, keys: Sequence[str], merged: Sequence[str] | None = None) -> AbstractContextManager[Any]:
        """Lock blocks, as the store below does."""
        below = None if merged is None else [_to_n5_key(key) for key in merged]
        return self._store.locked([_to_n5_key(key) for key in keys], below)

    def node_locked(self, key: str) -> AbstractContextManager[Any]:
        """Lock a node, as the store below does."""
        return self._store.node_locked(_to_n5_key(key))

    def document_locked(self, key: str) -> AbstractContextManager[Any]:
        """Lock one document, as the store below does."""
        return self._store.document_locked(_to_n5_key(key))

    # -- writing -------------------------------------------------------------------------------------------------

    def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
        """Store every (key, bytes) pair. Raises: MetadataError for an array that N5 cannot hold."""
        self.check_writable()
        blocks: list[tuple[str, Buffer]] = []
        documents: list[tuple[str, Buffer]] = []
        for key, value in items:
            check_key(key)
            name = key.rpartition("/")[2]
            if name in _REFUSED:
                raise StoreError(f"{self}: N5 has no place for {key!r}; create nodes in it with zarr_format=2")
            (documents if name in _SHOWN else blocks).append((key, value))
        if blocks:
            self._store.set_many((_to_n5_key(key), value) for key, value in blocks)
        for key, value in documents:
            self._set_document(key, value)

    def _set_document(self, key: str, value: Buffer) -> None:
        path, _, name = key.rpartition("/")
        what = f"{self}: {key}"
        said = json.loads(as_bytes(key, value))

        def change() -> None:
            old = self._document(path) or {}
            if name == ".zattrs":
                taken = [k for k in said if k in _RESERVED]
                if taken:
                    raise MetadataError(f"{what}: N5 uses the name {taken[0]!r} itself; call the attribute otherwise")
                new = {**{k: v for k, v in old.items() if k in _RESERVED}, **said}
            elif name == ".zgroup":
                new = {**old, "n5": _VERSION}
            else:
                new = {**old, **to_n5(said, what), **({} if path else {"n5": _VERSION})}
            self._write(path, new)

        self._change(path, change)

    def _change(self, path: str, change: Callable[[], None]) -> None:
        """Change an N5 document, which is locked meanwhile: here, or by who changes a Zarr document that is a part."""
        key = _join(path, DOCUMENT)
        if holds_document(self._store.lock_name(key)):
            change()
        else:
            while_locked(self._store.document_locked(key), change)

    def _remove(self, path: str, name: str) -> None:
        """Remove the part of an N5 document that a Zarr document shows."""
        old = self._document(path)
        if old is not None and (name == ".zattrs" or is_array(old) == (name == ".zarray")):
            self._write(path, {k: v for k, v in old.items() if (k in _RESERVED) == (name == ".zattrs")})

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete the keys; missing ones are ignored. Deleting a Zarr document removes its part of the N5 document."""
        self.check_writable()
        names = list(keys)
        self._store.delete_many([_to_n5_key(k) for k in names if k.rpartition("/")[2] not in DOCUMENTS])
        for key in names:
            path, _, name = key.rpartition("/")
            if name in _SHOWN:
                self._change(path, partial(self._remove, path, name))

    def __reduce__(self) -> tuple[Any, ...]:
        return pickled(self, N5Store, self._store, read_only=self.read_only)


class N5FSStore(N5Store):
    """`N5Store` on an fsspec file system; arguments are those of `gzarr.storage.FSStore`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        from gzarr.storage.fsspec import FSStore

        super().__init__(FSStore(*args, **kwargs))


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _to_n5_key(key: str) -> str:
    """The N5 key of a Zarr key."""
    path, _, name = key.rpartition("/")
    if name in _SHOWN:
        return _join(path, DOCUMENT)
    return _join(path, "/".join(reversed(name.split(".")))) if _CHUNK.match(name) else key


# -- documents ---------------------------------------------------------------------------------------------------------
# Source: https://github.com/saalfeldlab/n5#file-system-specification


def is_array(document: Mapping[str, Any] | None) -> bool:
    """Whether a document is that of a data set."""
    return document is not None and "dimensions" in document


def to_zarr(document: Mapping[str, Any] | None, what: str) -> dict[str, Any]:
    """The ``.zarray`` of a data set. Raises: MetadataError naming the field."""
    said = document or {}
    try:
        dtype = np.dtype(said["dataType"])
        chunks = list(reversed(said["blockSize"]))
        compression = said.get("compression", said.get("compressionType", {"type": "raw"}))
        if isinstance(compression, str):  # before version 1.1 of N5
            compression = {"type": compression}
        compressor = _compressor_to_zarr(compression)
        shape = list(reversed(said["dimensions"]))
    except (KeyError, TypeError) as error:
        raise MetadataError(f"{what}: the data set is malformed: {error}") from error
    codec = {"id": "n5_wrapper", "compressor_config": compressor, "dtype": dtype.str, "chunk_shape": chunks}
    fixed = {"fill_value": 0, "order": "C", "filters": [], "dimension_separator": ".", "zarr_format": 2}
    return {"shape": shape, "chunks": chunks, "dtype": dtype.str, "compressor": codec, **fixed}


def to_n5(said: Mapping[str, Any], what: str) -> dict[str, Any]:
    """The N5 document of an array. Raises: MetadataError for what N5 does not support."""
    try:
        dtype = np.dtype(said["dtype"])
    except TypeError:
        dtype = np.dtype("V1")
    if dtype.kind not in "biufc":
        raise MetadataError(f"{what}: N5 has no data type for {said['dtype']!r}; it has integers and floats")
    for name, wanted in (("fill_value", (0, None, False, 0.0)), ("order", ("C",)), ("filters", (None, []))):
        if said.get(name) not in wanted and said.get(name) != [0.0, 0.0]:
            raise MetadataError(f"{what}: N5 has no {name}={said[name]!r}; only {wanted[0]!r}")
    if said.get("dimension_separator", ".") != ".":
        raise MetadataError(f"{what}: N5 has its own chunk keys; leave dimension_separator out")
    return {
        "dimensions": list(reversed(said["shape"])),
        "blockSize": list(reversed(said["chunks"])),
        "dataType": dtype.name,
        "compression": _compressor_to_n5(said["compressor"]),
    }


def _compressor_to_n5(config: Mapping[str, Any] | None) -> dict[str, Any]:
    if config is not None and config["id"] == "n5_wrapper":
        config = config["compressor_config"]
    if config is None:
        return {"type": "raw"}
    rest = {k: v for k, v in config.items() if k != "id"}
    match config["id"]:
        case "bz2":
            return {"type": "bzip2", "blockSize": rest.get("level", 1)}
        case "gzip" | "zlib":
            return {"type": "gzip", "level": rest.get("level", 1), "useZlib": config["id"] == "zlib"}
        case "lzma" if rest.get("format", 1) == 1 and rest.get("check", -1) in (-1, 4) and not rest.get("filters"):
            return {"type": "xz", "preset": rest.get("preset") or 6}
    return {"type": config["id"], **rest}


def _compressor_to_zarr(said: Mapping[str, Any]) -> dict[str, Any] | None:
    rest = {k: v for k, v in said.items() if k != "type"}
    match said["type"]:
        case "raw":
            return None
        case "bzip2":
            return {"id": "bz2", "level": rest.get("blockSize", 9)}
        case "gzip":
            level = rest.get("level", -1)
            return {"id": "zlib" if rest.get("useZlib") else "gzip", "level": level if level >= 0 else 6}
        case "xz":
            return {"id": "lzma", "format": 1, "check": -1, "preset": rest.get("preset", 6), "filters": None}
        case "blosc":
            return {"id": "blosc", **{k: v for k, v in rest.items() if k != "nthreads"}}
        case "lz4" if "blockSize" in rest:  # frames of lz4-java, which are told apart by their magic
            return {"id": "lz4"}
    return {"id": said["type"], **rest}
