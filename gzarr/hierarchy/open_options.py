"""Keywords that say how an array or group is reached, not what is stored of it: locks, a second store, caches, trust.

A node hands them to its members with its store (``synchronizer``, ``chunk_store``) and its backend (``chunk_cache``,
``allow_pickle``).
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from gzarr.backend import Backend, Chain
from gzarr.chunk_io.chunk_cache import ChunkCache
from gzarr.codecs.numcodecs import trusted
from gzarr.codecs.spec import ArrayRepr, Step
from gzarr.config import config
from gzarr.devices import backend_for, backend_or_auto
from gzarr.errors import DeviceError, MetadataError
from gzarr.storage import SplitStore, open_store, synchronized
from gzarr.storage.base import Store

#: A backend as it is pickled: device, options of `gzarr.devices.backend_for`, whether pickles are loaded.
PickledBackend: TypeAlias = tuple[str, dict[str, Any], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    """How a node is reached. Each field is a keyword of the functions that open and create.

    Attributes
    ----------
    synchronizer : ProcessSynchronizer, ThreadSynchronizer or mapping of locks, optional
        Locks that writers hold besides gzarr's own: anything that gives a context manager for a key.
    chunk_store : Store, path, URL or mapping, optional
        A second store, for the chunks; metadata stay in the first.
    meta_array : numpy.ndarray or cupy.ndarray, optional
        An array of the kind that reads shall return; another way to give ``device``.
    chunk_cache : ChunkCache or int, optional
        A cache of decoded chunks, or the bytes that a new one may hold. On the CPU only.
    allow_pickle : bool
        Whether pickled objects are loaded. Loading a pickle can run any code, so allow it for trusted data only.
    """

    synchronizer: Any = None
    chunk_store: Any = None
    meta_array: Any = None
    chunk_cache: Any = None
    allow_pickle: bool = False

    def store(self, store: Store) -> Store:
        """Return the store through which the node is reached. Raises TypeError, MissingExtraError, StoreError."""
        if self.chunk_store is not None:
            chunks, path = open_store(self.chunk_store)
            if path:
                raise MetadataError(f"chunk_store={self.chunk_store!r} is a path inside a store; give the store itself")
            store = SplitStore(store, chunks)
        return store if self.synchronizer is None else synchronized(store, self.synchronizer)

    def device(self, device: str | Backend | None) -> str | Backend | None:
        """Return the device asked for, by name or by ``meta_array``. Raises DeviceError, TypeError."""
        if self.meta_array is not None:
            return _device_of(self.meta_array, device)
        # A cache holds chunks on the host: with one, "auto" means the CPU instead of an error.
        is_auto = (config["device"] if device is None else device) == "auto"
        return "cpu" if is_auto and self.chunk_cache is not None else device

    def backend(self, chosen: Backend) -> Backend:
        """Return the backend that reads the node, made from that of a device. Raises DeviceError, TypeError."""
        if self.chunk_cache is None and not self.allow_pickle:
            return chosen
        cache = self.chunk_cache
        if cache is not None and not isinstance(cache, ChunkCache):
            cache = ChunkCache(cache)
        if not isinstance(chosen, AccessBackend):
            return AccessBackend(chosen, cache, allow_pickle=self.allow_pickle)
        # Add to what a group hands to its members.
        cache = chosen.chunk_cache if cache is None else cache
        return AccessBackend(chosen.inner, cache, allow_pickle=self.allow_pickle or chosen.allow_pickle)


NAMES = frozenset(field.name for field in fields(OpenOptions))
_PLAIN = OpenOptions()


def take_open_options(keywords: MutableMapping[str, Any]) -> OpenOptions:
    """Take the keywords of `OpenOptions` out of a caller's keywords."""
    if NAMES.isdisjoint(keywords):
        return _PLAIN
    return OpenOptions(**{name: keywords.pop(name) for name in NAMES & keywords.keys()})


def _device_of(meta_array: Any, device: str | Backend | None) -> str | Backend:
    interface = hasattr(meta_array, "__cuda_array_interface__")
    if not interface and not hasattr(meta_array, "__array_interface__"):
        raise TypeError(f"meta_array must be a NumPy or CuPy array, got {type(meta_array).__name__}")
    wanted = f"cuda:{meta_array.device.id}" if interface else "cpu"
    if device is None:
        return wanted
    if (asked := backend_for(device).device) != wanted:
        raise DeviceError(f"meta_array is on {wanted!r} and device={asked!r}; give one of them")
    return device


class AccessBackend:
    """A backend that caches decoded chunks, or may load pickles; all else is done by the backend inside.

    Attributes
    ----------
    inner : Backend
        The backend inside.
    chunk_cache : ChunkCache or None
        The cache of decoded chunks.
    allow_pickle : bool
        Whether pickles are loaded.
    """

    def __init__(self, inner: Backend, chunk_cache: ChunkCache | None, *, allow_pickle: bool) -> None:
        if chunk_cache is not None and inner.device != "cpu":
            raise DeviceError(
                f"chunk_cache holds chunks in host memory and cannot be used on {inner.device!r}; leave it out, or use"
                " device='cpu'; LRUStoreCache holds encoded bytes for any device"
            )
        self.inner = inner
        self.chunk_cache = chunk_cache
        self.allow_pickle = allow_pickle
        self.device = inner.device
        # Look methods up once, so that calls cost no more than on the backend inside.
        for name, function in vars(type(inner)).items():
            if callable(function) and not name.startswith("_") and name != "prepare":
                setattr(self, name, getattr(inner, name))

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def prepare(self, steps: tuple[Step, ...], chunk: ArrayRepr) -> Chain:
        """Make a chain ready to run. Raises UnknownCodecError, MissingExtraError."""
        if self.allow_pickle:
            steps = tuple(step._replace(spec=trusted(step.spec)) for step in steps)
        return self.inner.prepare(steps, chunk)

    def __reduce__(self) -> tuple[Any, ...]:
        return unpickle_backend, (pickle_backend(self),)


def pickle_backend(backend: Backend) -> PickledBackend:
    """Return what a pickled node stores of its backend; a cache is left out."""
    return backend.device, dict(backend.options), getattr(backend, "allow_pickle", False)


def unpickle_backend(pickled: PickledBackend) -> Backend:
    """Return the backend of a pickled node: on its own device if this process has it, otherwise the best one."""
    device, options, allow_pickle = pickled
    return OpenOptions(allow_pickle=allow_pickle).backend(backend_or_auto(device, options))


def backend_on(backend: Backend, device: str | Backend, **options: Any) -> Backend:
    """Return a backend for another device, with the same trust and, on the CPU, the same cache.

    ``device`` and ``options`` are those of `gzarr.devices.backend_for`. Raises DeviceError, ValueError.
    """
    new = backend_for(device, **options)
    if not isinstance(backend, AccessBackend):
        return new
    cache = getattr(new, "chunk_cache", None) or (backend.chunk_cache if new.device == "cpu" else None)
    return OpenOptions(chunk_cache=cache, allow_pickle=backend.allow_pickle).backend(new)
