"""The options of a new array, how an array object reads and writes, and the marker for an option not given."""

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, fields
from dataclasses import field as dataclass_field
from inspect import signature
from typing import Any, Literal, NamedTuple

from gzarr.backend import Backend
from gzarr.chunk_io.chunk_cache import ChunkCache
from gzarr.config import config
from gzarr.devices import backend_for, backend_or_auto
from gzarr.errors import DeviceError, MetadataError
from gzarr.storage import synchronized
from gzarr.storage.base import Store
from gzarr.tensors import DeviceArray


class _Unset:
    """Marks keywords that were not given, where None means something."""

    def __repr__(self) -> str:
        return "<default>"


UNSET: Any = _Unset()
#: Keywords of zarr that change nothing here: metadata are always cached, chunks are decoded in part where possible.
HARMLESS = frozenset({"cache_metadata", "cachesize", "cache_type", "partial_decompress"})
#: The similarity from which a name is taken for a misspelt keyword, between "storre" as "store" and as "stream".
_CLOSE = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayOptions:
    """The options of a new array. Each field is a keyword of the creation functions.

    Attributes
    ----------
    shape : int or sequence of int
        Extents.
    dtype : dtype-like, optional
        Anything that `gzarr.dtypes.parse_dtype` takes; "array:i4" for elements that are arrays of a type. By default
        float64.
    chunks : optional
        See `gzarr.indexing.chunking.parse_chunks`.
    shards : tuple, dict, "auto" or None
        Shape of the shards; None for none.
    compressor : codec, None or "default", optional
        One codec (numcodecs object, gzarr or zarr-python codec, dict), or None for none.
    compressors : codec, sequence of codecs, None or "auto", optional
        One or several such codecs, or None for none.
    filters : codec or sequence of codecs, optional
        Codecs between the array and its bytes.
    serializer : codec, optional
        The codec from array to bytes.
    codecs : sequence of codecs, optional
        The whole chain instead of the four above; a missing serializer is added.
    object_codec : codec, optional
        For ``dtype=object``: the numcodecs codec that turns objects into bytes.
    fill_value : scalar, optional
        Value of unwritten elements; None is "undefined" in v2 and the data type's default in v3.
    order : {"C", "F"}, optional
        Memory order in chunks.
    zarr_format : {2, 3}, optional
        By default the configured format, but 2 for arrays of Python objects.
    attributes : mapping
        User attributes.
    dimension_names : sequence of str or None, optional
        Names of the axes (v3).
    dimension_separator : {".", "/"}, optional
        Separator of the chunk coordinates in keys.
    chunk_key_encoding : str, mapping or object, optional
        {"name": "default" or "v2", "separator": "/" or "."}; v2 arrays have "v2".
    read_missing_chunks : bool, optional
        Whether chunks that are not stored are read as the fill value.
    write_empty_chunks : bool, optional
        Whether chunks equal to the fill value are stored.
    layout : str, optional
        "gpu" for chunks, shards and a compressor that suit GPUs, where none are given (`gzarr.hierarchy.presets`);
        "gpu:batch", "gpu:plane", "gpu:volume" or "gpu:random" if it is known how the array will be read.
    """

    shape: Any = None
    dtype: Any = None
    chunks: Any = None
    shards: Any = None
    compressor: Any = UNSET
    compressors: Any = UNSET
    filters: Any = UNSET
    serializer: Any = UNSET
    codecs: Any = UNSET
    object_codec: Any = None
    fill_value: Any = UNSET
    order: Any = None
    zarr_format: Any = None
    attributes: Mapping[str, Any] = dataclass_field(default_factory=dict)
    dimension_names: Any = None
    dimension_separator: Any = None
    chunk_key_encoding: Any = None
    write_empty_chunks: bool | None = None
    read_missing_chunks: bool | None = None
    layout: str | None = None


def check_keywords(given: Iterable[str], typed: type, function: Callable[..., Any]) -> None:
    """Raise TypeError for a keyword that is no field of the TypedDict of a function; suggest one that it takes."""
    name = next((name for name in given if name not in typed.__annotations__), None)
    if name is None:
        return
    if name == "maxshape":
        raise TypeError("unknown keyword 'maxshape'; leave it out: every array can be resized")
    from difflib import get_close_matches

    named = {
        p.name for p in signature(function).parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    known = sorted(named - {"self", name} | typed.__annotations__.keys())
    near = get_close_matches(name, known, 1, _CLOSE)
    hint = f"did you mean {near[0]!r}?" if near else f"known keywords: {', '.join(known)}"
    raise TypeError(f"unknown keyword {name!r}; {hint}")


def is_default(value: Any) -> bool:
    """Return whether a keyword for codecs leaves the choice open."""
    return value is UNSET or (isinstance(value, str) and value in ("auto", "default"))


def as_list(value: Any) -> list[Any]:
    """Return one or several codecs as a list."""
    if value is None:
        return []
    return list(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else [value]


@dataclass(frozen=True, slots=True)
class ArrayConfig:
    """How an array object reads and writes.

    Attributes
    ----------
    order : {"C", "F"}
        Memory order of the elements in a chunk.
    write_empty_chunks : bool
        Whether chunks equal to the fill value are stored.
    read_missing_chunks : bool
        Whether chunks that are not stored are read as the fill value, instead of raising `ChunkNotFoundError`.
    """

    order: Literal["C", "F"] = "C"
    write_empty_chunks: bool = False
    read_missing_chunks: bool = True


_NAMES = tuple(field.name for field in fields(ArrayConfig))
#: Of zarr-python's, which change nothing here: requests are joined by rules of the store.
_HARMLESS = frozenset({"sharding_coalesce_max_gap_bytes", "sharding_coalesce_max_bytes"})


def given_config(value: Any) -> dict[str, Any]:
    """Return what a ``config=`` sets: an `ArrayConfig`, one of zarr-python, a mapping or None.

    Raises TypeError for names that are none of its fields, MetadataError for values that those cannot have.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        value = {name: getattr(value, name) for name in _NAMES if hasattr(value, name)}
    unknown = sorted(value.keys() - {*_NAMES, *_HARMLESS})
    if unknown:
        raise TypeError(f"config has no {', '.join(map(repr, unknown))}; it has {', '.join(_NAMES)}")
    given = {name: value[name] for name in _NAMES if value.get(name) is not None}
    for name, item in given.items():
        allowed: tuple[Any, ...] = ("C", "F") if name == "order" else (True, False)
        if item not in allowed:
            raise MetadataError(f"config: {name} must be {' or '.join(map(repr, allowed))}, got {item!r}")
    return given


def given_usage(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a caller's keywords say of how an array object reads and writes: those of `Array`."""
    given = {name: keywords.get(name) for name in ("write_empty_chunks", "read_missing_chunks")}
    if keywords.get("config") is None:
        return given
    asked = given_config(keywords.get("config"))
    return {name: asked.get(name) if value is None else value for name, value in given.items()}


# -- how an array or group is reached ----------------------------------------------------------------------------------


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

    def opened_with(self, outer: "OpenedWith") -> "OpenedWith":
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

    def on(self, device: str | Backend, **options: Any) -> "OpenedWith":
        """Return the same for another device; the cache goes along to the CPU only.

        ``device`` and ``options`` are those of `gzarr.devices.backend_for`. Raises DeviceError, ValueError.
        """
        backend = backend_for(device, **options)
        return self._replace(backend=backend, chunk_cache=self.chunk_cache if backend.device == "cpu" else None)

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
