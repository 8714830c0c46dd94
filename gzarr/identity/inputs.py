"""What an input is: where it is, its metadata, and stamps of a sample of what is stored.

Theory of operation. A stamp is a short digest of an object's size and version: for files, of the time when they were
changed, which a copy may keep, not of what a system numbers; for entries of ZIP archives, of their checksum. Where a
store has no versions that outlast the process, it is of the last bytes; in memory, and where it has no versions at all,
of all bytes. Of arrays with more objects than `SAMPLED`, a spread and always equal choice is looked at. This takes
10 ms for local files, and a few rounds of concurrent requests to servers.
"""

import os
from collections.abc import Iterator, Sequence
from hashlib import sha256
from math import prod
from typing import Any, NamedTuple

import numpy as np

from gzarr.hierarchy.array import Array
from gzarr.identity.values import contents_of
from gzarr.indexing.grid import Grid
from gzarr.indexing.keys import Coords, join_path
from gzarr.metadata.documents import documents
from gzarr.metadata.model import ArrayMeta
from gzarr.storage.base import Request, Store, host_view, tokens_of
from gzarr.storage.lasting import lasting
from gzarr.storage.rules import without_secrets
from gzarr.tensors import is_on_device, is_tensor, to_host

#: Objects of an array that are looked at: of local stores, and of those that wait for a server.
SAMPLED, SAMPLED_REMOTE = 1000, 250
#: Objects that are read whole where a store has no versions, and how many of them at once.
_SAMPLED_WHOLE, _AT_ONCE = 100, 16
#: Bytes at the end of an object: compressed chunks of other values differ there, and shards have their index there.
_TAIL_NBYTES = 4096
#: Hexadecimal digits of a stamp: the state of a run stays small.
_DIGITS = 6
#: 2 ** 64 divided by the golden ratio: multiples spread evenly, along every axis.
_GOLDEN = 0x9E3779B97F4A7C15


class Input(NamedTuple):
    """What an input is.

    Attributes
    ----------
    said : dict
        JSON values, ``{"stored": ...}`` among them: the stamps of ``keys``, one after the other.
    keys : sequence of str
        The objects that were looked at.
    """

    said: dict[str, Any]
    keys: Sequence[str] = ()

    def changed(self, before: str) -> list[str]:
        """The objects whose stamps differ from those before."""
        now = self.said["stored"]
        pairs = zip(_cut(before), _cut(now), self.keys, strict=False)
        return [key for was, stamp, key in pairs if was != stamp] if len(before) == len(now) else list(self.keys)


def describe_input(value: Any, *, beside: tuple[Store, str] | None = None, most: int = SAMPLED) -> Input:
    """What an input is: an array of gzarr, an array in memory, a mapped file or a dataset of h5py.

    Parameters
    ----------
    value : array-like
        The input. What is nothing of these is said to be ``"unknown"``.
    beside : tuple of Store and str, optional
        A place that moves with the input, if that is in it.
    most : int
        Of how many objects to look at, at most.
    """
    if isinstance(value, Array):
        return _stored_array(value, beside, most)
    file = _file_of(value)
    shaped = {"shape": list(value.shape), "dtype": str(value.dtype)} if hasattr(value, "dtype") else {}
    if file is not None:
        name, part = file
        found = describe_files([name])
        return Input({**found.said, "part": part, **shaped}, found.keys)
    if is_on_device(value):  # to read it would take a copy of it all, and a wait for what computes it
        return Input({"unknown": f"{type(value).__module__}.{type(value).__qualname__} in device memory"})
    if is_tensor(value):
        value = to_host(value)
    if isinstance(value, np.ndarray):
        return Input({"place": "memory", **shaped, "contents": contents_of(value).hex()[:16]})
    return Input({"unknown": f"{type(value).__module__}.{type(value).__qualname__}"})


def describe_files(names: Sequence[str]) -> Input:
    """What files are: their names, and stamps of each. Of a URL, nothing is stamped."""
    stamps = []
    for name in names:
        try:
            info = os.stat(name)  # noqa: PTH116 - of URLs too
            stamps.append(_stamp((info.st_size, info.st_mtime_ns)))
        except (OSError, ValueError):
            stamps.append(_stamp(None))
    first = without_secrets(names[0]) if "://" in names[0] else os.path.abspath(names[0])  # noqa: PTH100
    return Input({"place": first, "stored": "".join(stamps)}, names)


def describe_metadata(meta: ArrayMeta, *, attributes: bool = False) -> dict[str, Any]:
    """Shape, data type, chunks, and a digest of everything in the metadata, user attributes only on request."""
    kept = meta if attributes else meta.holding({}, meta.extra)
    digest = sha256(b"".join(data for _, data in documents(kept, "")))
    return {
        "shape": list(meta.shape),
        "dtype": str(meta.data_type.dtype),
        "chunks": list(meta.chunks),
        "metadata": digest.hexdigest()[:16],
    }


def sampled_keys(meta: ArrayMeta, path: str, most: int) -> list[str]:
    """Keys of stored objects of an array: of all, or of so many that are spread over it."""
    return [join_path(path, meta.keys.encode(coords)) for coords in _spread(meta.grid, most)]


def tails_of(store: Store, keys: Sequence[str]) -> list[object]:
    """Of every object its size, or None, and its last bytes, which a copy of it has too."""
    sizes = store.together(store.getsize, keys)
    return [(size, found and found[-_TAIL_NBYTES:]) for size, found in zip(sizes, _ends_of(store, keys), strict=True)]


def _ends_of(store: Store, keys: Sequence[str]) -> Iterator[bytes | None]:
    """The last bytes of objects; all bytes of those without tokens, of which ranges may mean nothing."""
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        tokens = zip(some, tokens_of(store, some), strict=True)
        for data in store.get_many([Request(key, None if token is None else -_TAIL_NBYTES) for key, token in tokens]):
            yield None if data is None else bytes(host_view(data))


def sampled_contents(array: Array | np.ndarray[Any, Any], most: int = 32) -> str:
    """A digest of some of the contents of an array, which a copy of it has too: rows, or the ends of stored objects."""
    if isinstance(array, Array):
        tails = tails_of(array.store, sampled_keys(array.metadata, array.path, most))
        return sha256(repr(tails).encode()).hexdigest()[:8]
    rows = np.unique(np.linspace(0, max(len(array) - 1, 0), most).astype(int))[: len(array)]
    return sha256(b"".join(contents_of(np.ravel(array[row])[:_TAIL_NBYTES]) for row in rows)).hexdigest()[:8]


def _stored_array(array: Array, beside: tuple[Store, str] | None, most: int) -> Input:
    store, meta = array.store, array.metadata
    most = min(most, SAMPLED_REMOTE) if store.concurrency > 1 else most
    keys = sampled_keys(meta, array.path, most if store.versions is not None else min(most, _SAMPLED_WHOLE))
    stamps = "".join(map(_stamp, _versions(store, keys)))
    told = {**describe_metadata(meta), "dtype": str(array.dtype)}  # of a view, another one
    return Input({"place": place_of(array, beside), **told, "stored": stamps}, keys)


def place_of(array: Array, beside: tuple[Store, str] | None = None) -> str:
    """A name of a place that is the same in every process, without credentials."""
    if beside is not None and beside[0] == array.store and f"{array.path}/".startswith(f"{beside[1]}/".lstrip("/")):
        return f"./{array.path[len(beside[1]) :].lstrip('/')}"
    scheme, _, rest = without_secrets(str(array.store)).partition("://")
    if scheme == "memory":
        return join_path("memory", array.path)
    if os.path.exists(rest):  # noqa: PTH110 - of any kind of store
        rest = os.path.abspath(rest)  # noqa: PTH100 - links are kept: they are the way to a place that has moved
    return join_path(f"{scheme}://{rest}".rstrip("/"), array.path)


def _versions(store: Store, keys: Sequence[str]) -> list[object]:
    """What changes when an object is replaced, and lasts longer than this process."""
    versions = store.versions
    if versions is not None and versions.in_memory:
        whole = store.get_many([Request(key) for key in keys])
        return [None if data is None else contents_of(np.frombuffer(data, "u1")) for data in whole]
    found = [lasting(token) for token in tokens_of(store, keys)]
    others = [number for number, version in enumerate(found) if version is None]
    for number, end in zip(others, _ends_of(store, [keys[number] for number in others]), strict=True):
        found[number] = end and contents_of(np.frombuffer(end, "u1"))
    return found


def _stamp(version: object) -> str:
    return sha256(repr(version).encode()).hexdigest()[:_DIGITS]


def _cut(stamps: str) -> list[str]:
    return [stamps[n : n + _DIGITS] for n in range(0, len(stamps), _DIGITS)]


def _spread(grid: Grid, most: int) -> list[Coords]:
    counts = [axis.nchunks for axis in grid]
    n = prod(counts)
    numbers = range(n) if n <= most else sorted({0, n - 1, *((k * _GOLDEN % (1 << 64)) * n >> 64 for k in range(most))})
    found = []
    for rest in numbers:
        coords: list[int] = []
        for count in reversed(counts):
            rest, at = divmod(rest, count)  # noqa: PLW2901
            coords.insert(0, at)
        found.append(tuple(coords))
    return found


def _file_of(value: Any) -> tuple[str, str] | None:
    """The file that a mapped array or a dataset of h5py reads, and the part of it."""
    if isinstance(value, np.memmap) and value.mode in ("r", "r+") and value.filename is not None:
        value.flush()  # what was written to it shows in the time of the file
        base = value
        while isinstance(base.base, np.memmap):
            base = base.base
        start = value.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        return str(value.filename), repr((base.offset + start, value.strides))
    if type(value).__module__.partition(".")[0] == "h5py" and hasattr(value, "file"):
        return str(value.file.filename), str(value.name)
    return None
