"""Keywords that say how an array or group is reached, not what is stored of it: locks, caches, trust.

A group hands them to its members with its store (``synchronizer``) and in what it was opened with
(``chunk_cache``, ``allow_pickle``).
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from gzarr.backend import Backend
from gzarr.chunk_io.chunk_cache import ChunkCache
from gzarr.config import config
from gzarr.devices import backend_for, backend_or_auto
from gzarr.errors import DeviceError, MetadataError
from gzarr.storage import synchronized
from gzarr.storage.base import Store
from gzarr.tensors import DeviceArray


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    """How a node is reached. Each field is a keyword of the functions that open and create.

    Attributes
    ----------
    cache : path, optional
        A folder on a fast disk, in which the encoded bytes that are read are kept, for all processes of the host.
    cache_nbytes : int, optional
        Bytes that the folder may hold; None for no limit.
    synchronizer : ProcessSynchronizer, ThreadSynchronizer or mapping of locks, optional
        Locks that writers hold besides gzarr's own: anything that gives a context manager for a key.
    meta_array : numpy.ndarray or cupy.ndarray, optional
        An array of the kind that reads shall return; another way to give ``device``.
    chunk_cache : ChunkCache or int, optional
        A cache of decoded chunks, or the bytes that a new one may hold. On the CPU only.
    allow_pickle : bool
        Whether pickled objects are loaded. Loading a pickle can run any code, so allow it for trusted data only.
    cache_attrs : bool, optional
        Whether attributes are read from memory, which is the default, or from the store each time.
    """

    cache: Any = None
    cache_nbytes: int | None = None
    synchronizer: Any = None
    meta_array: Any = None
    chunk_cache: Any = None
    allow_pickle: bool = False
    cache_attrs: bool | None = None

    def store(self, store: Store) -> Store:
        """Return the store through which the node is reached. Raises TypeError, MissingExtraError, StoreError."""
        if self.cache is None and self.cache_nbytes is not None:
            raise ValueError("cache_nbytes limits a folder: give cache= as well")
        if self.cache is not None:
            from gzarr.storage.disk_cache import DiskCache

            store = DiskCache(store, self.cache, self.cache_nbytes)
        return store if self.synchronizer is None else synchronized(store, self.synchronizer)

    def device(self, device: str | Backend | None) -> str | Backend | None:
        """Return the device asked for, by name or by ``meta_array``. Raises DeviceError, TypeError."""
        if self.meta_array is not None:
            return _device_of(self.meta_array, device)
        # A cache holds chunks on the host: with one, "auto" means the CPU instead of an error.
        is_auto = (config["device"] if device is None else device) == "auto"
        return "cpu" if is_auto and self.chunk_cache is not None else device

    def opened_with(self, outer: OpenedWith) -> OpenedWith:
        """Add to what a group hands to its members, or to the backend of a device. Raises DeviceError, TypeError."""
        cache = self.chunk_cache
        if cache is not None and not isinstance(cache, ChunkCache):
            cache = ChunkCache(cache)
        if cache is not None and outer.backend.device != "cpu":
            raise DeviceError(
                f"chunk_cache holds chunks in host memory and cannot be used on {outer.backend.device!r}; leave it out,"
                " or use device='cpu'; LRUStoreCache holds encoded bytes for any device"
            )
        if self.cache_attrs not in (None, True, False):
            raise MetadataError(f"'cache_attrs' must be True, False or None, got {self.cache_attrs!r}")
        return OpenedWith(
            outer.backend,
            outer.chunk_cache if cache is None else cache,
            self.allow_pickle or outer.allow_pickle,
            outer.cache_attrs if self.cache_attrs is None else self.cache_attrs,
        )


class OpenedWith(NamedTuple):
    """What a node was opened with, besides its store. Groups hand it to their members.

    Attributes
    ----------
    backend : Backend
        The backend of the device.
    chunk_cache : ChunkCache or None
        The cache of decoded chunks.
    allow_pickle : bool
        Whether pickles are loaded.
    cache_attrs : bool
        Whether attributes are read from memory.
    """

    backend: Backend
    chunk_cache: ChunkCache | None = None
    allow_pickle: bool = False
    cache_attrs: bool = True

    @property
    def reading(self) -> tuple[Backend, ChunkCache | None, bool]:
        """What of it reading chunks needs."""
        return self[:3]

    def keywords(self) -> dict[str, Any]:
        """Return it as keywords of the functions that create."""
        return {"device": self.backend, **{name: getattr(self, name) for name in self._fields[1:]}}

    def on(self, device: str | Backend, **options: Any) -> OpenedWith:
        """Return the same for another device; the cache goes along to the CPU only.

        ``device`` and ``options`` are those of `gzarr.devices.backend_for`. Raises DeviceError, ValueError.
        """
        backend = backend_for(device, **options)
        cache = self.chunk_cache if backend.device == "cpu" else None
        return self._replace(backend=backend, chunk_cache=cache)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.backend.device, dict(self.backend.options), self.allow_pickle, self.cache_attrs)


def opened_with_settings() -> OpenedWith:
    """What a node is opened with if nothing is asked for. Raises DeviceError."""
    return OpenedWith(backend_for(None))


def _unpickled(device: str, options: dict[str, Any], allow_pickle: bool, cache_attrs: bool = True) -> OpenedWith:
    """Open a pickled node's device, if this process has it, otherwise the best one. A cache has been left out."""
    return OpenedWith(backend_or_auto(device, options), None, allow_pickle, cache_attrs)


NAMES = frozenset(field.name for field in fields(OpenOptions))
_PLAIN = OpenOptions()


def take_open_options(keywords: MutableMapping[str, Any]) -> OpenOptions:
    """Take the keywords of `OpenOptions` out of a caller's keywords."""
    if NAMES.isdisjoint(keywords):
        return _PLAIN
    return OpenOptions(**{name: keywords.pop(name) for name in NAMES & keywords.keys()})


def _device_of(meta_array: Any, device: str | Backend | None) -> str | Backend:
    wanted = f"cuda:{meta_array.device.id}" if hasattr(meta_array, "__cuda_array_interface__") else "cpu"
    if isinstance(meta_array, DeviceArray):
        wanted = "emulated"
    elif wanted == "cpu" and not hasattr(meta_array, "__array_interface__"):
        raise TypeError(f"meta_array must be a NumPy or CuPy array, got {type(meta_array).__name__}")
    if device is None:
        return wanted
    if (asked := backend_for(device).device) != wanted:
        raise DeviceError(f"meta_array is on {wanted!r} and device={asked!r}; give one of them")
    return device
