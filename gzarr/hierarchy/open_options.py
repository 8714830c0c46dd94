"""Keywords that say how an array or group is reached, not what is stored of it: locks, a second store, caches, trust.

They ride on what a node hands to its members anyway: its store (``synchronizer``, ``chunk_store``) and its backend
(``chunk_cache``, ``allow_pickle``).
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
    """How a node is reached; each field is a keyword of the functions that open and create.

    Attributes:
        synchronizer: locks that writers hold besides gzarr's own: a `ProcessSynchronizer`, a `ThreadSynchronizer`, or
            anything that gives a context manager for a key.
        chunk_store: a second store, for the chunks; metadata stay in the first.
        meta_array: an array of the kind that reads shall give, NumPy or CuPy; the same as ``device``.
        chunk_cache: a `ChunkCache`, or a number of bytes for one of its own; on the CPU only.
        allow_pickle: whether pickled objects are loaded. Loading a pickle can run any code: only of trusted data.
    """

    synchronizer: Any = None
    chunk_store: Any = None
    meta_array: Any = None
    chunk_cache: Any = None
    allow_pickle: bool = False

    def store(self, store: Store) -> Store:
        """The store through which the node is reached. Raises: TypeError, MissingExtraError, StoreError."""
        if self.chunk_store is not None:
            chunks, path = open_store(self.chunk_store)
            if path:
                raise MetadataError(f"chunk_store={self.chunk_store!r} is a path inside a store; give the store itself")
            store = SplitStore(store, chunks)
        return store if self.synchronizer is None else synchronized(store, self.synchronizer)

    def device(self, device: str | Backend | None) -> str | Backend | None:
        """The device asked for, by name or by ``meta_array``. Raises: DeviceError, TypeError."""
        if self.meta_array is not None:
            return _device_of(self.meta_array, device)
        # Who keeps decoded chunks, which lie on the host, and leaves the device to us shall have no error of it.
        is_auto = (config["device"] if device is None else device) == "auto"
        return "cpu" if is_auto and self.chunk_cache is not None else device

    def backend(self, chosen: Backend) -> Backend:
        """The backend with which the node is read, on the device of one. Raises: DeviceError, TypeError."""
        if self.chunk_cache is None and not self.allow_pickle:
            return chosen
        cache = self.chunk_cache
        if cache is not None and not isinstance(cache, ChunkCache):
            cache = ChunkCache(cache)
        if not isinstance(chosen, AccessBackend):
            return AccessBackend(chosen, cache, allow_pickle=self.allow_pickle)
        # What a group hands to its members is added to, not replaced.
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
    if (found := backend_for(device).device) != wanted:
        raise DeviceError(f"meta_array is on {wanted!r} and device={found!r}; give one of them")
    return device


class AccessBackend:
    """A backend that keeps decoded chunks, or may load pickles; all else is that of the backend inside.

    Attributes:
        inner: the backend inside.
        chunk_cache: where decoded chunks are kept, or None.
        allow_pickle: whether pickles are loaded.
    """

    def __init__(self, inner: Backend, chunk_cache: ChunkCache | None, *, allow_pickle: bool) -> None:
        if chunk_cache is not None and inner.device != "cpu":
            raise DeviceError(
                f"chunk_cache keeps chunks in host memory and cannot be used on {inner.device!r}; leave it out, or use"
                " device='cpu'; LRUStoreCache keeps encoded bytes for any device"
            )
        self.inner = inner
        self.chunk_cache = chunk_cache
        self.allow_pickle = allow_pickle
        self.device = inner.device
        # Methods are looked up once: calls cost what they cost on the backend inside.
        for name, function in vars(type(inner)).items():
            if callable(function) and not name.startswith("_") and name != "prepare":
                setattr(self, name, getattr(inner, name))

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def prepare(self, steps: tuple[Step, ...], chunk: ArrayRepr) -> Chain:
        """Make a chain ready to run. Raises: UnknownCodecError, MissingExtraError."""
        if self.allow_pickle:
            steps = tuple(step._replace(spec=trusted(step.spec)) for step in steps)
        return self.inner.prepare(steps, chunk)

    def __reduce__(self) -> tuple[Any, ...]:
        return unpickle_backend, (pickle_backend(self),)


def pickle_backend(backend: Backend) -> PickledBackend:
    """What a pickled node keeps of its backend; a cache stays behind."""
    return backend.device, dict(backend.options), getattr(backend, "allow_pickle", False)


def unpickle_backend(kept: PickledBackend) -> Backend:
    """The backend of a pickled node: on its own device if this process can use that, else on the best there is."""
    device, options, allow_pickle = kept
    return OpenOptions(allow_pickle=allow_pickle).backend(backend_or_auto(device, options))


def backend_on(backend: Backend, device: str | Backend, **options: Any) -> Backend:
    """A backend for another device, with the same trust and, on the CPU, the same cache.

    device, options: of `gzarr.devices.backend_for`. Raises: DeviceError, ValueError.
    """
    new = backend_for(device, **options)
    if not isinstance(backend, AccessBackend):
        return new
    cache = getattr(new, "chunk_cache", None) or (backend.chunk_cache if new.device == "cpu" else None)
    return OpenOptions(chunk_cache=cache, allow_pickle=backend.allow_pickle).backend(new)
