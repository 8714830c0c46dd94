"""gzarr in the place of zarr 2: import this before anything that imports ``zarr``.

Its modules have the names that users import. Nodes that are created without a format are of format 2 from then on::

    import gzarr.compat.zarr2
    from zarr.creation import open_array
    from zarr.storage import DirectoryStore

    z = open_array(DirectoryStore("data.zarr"), mode="w", shape=4, chunks=2, dtype="i4")
"""

import json
from collections.abc import Mapping, MutableMapping
from typing import Any, Literal

import numpy as np

import gzarr
from gzarr.compat.modules import CompatModule, install
from gzarr.display.info import Report, human_size
from gzarr.dtypes import parse_dtype
from gzarr.dtypes.fill import fill_from_json, fill_to_json
from gzarr.errors import GroupNotFoundError, MetadataError, NodeNotFoundError, SelectionError
from gzarr.hierarchy.attributes import Attributes
from gzarr.indexing.chunking import guess_chunks, parse_shape
from gzarr.indexing.keys import normalize_path
from gzarr.metadata.fields import dump_json
from gzarr.storage import Store


class BaseStore(MutableMapping[str, Any]):
    """What stores of zarr 2 derive from: a mapping of keys to bytes. gzarr takes every mapping as a store."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing; stores that hold something override it."""


BaseStore.register(Store)  # type: ignore[type-abstract]


class AppendingZipStore(gzarr.ZipStore):
    """gzarr's store in an archive with the arguments of zarr 2's, which makes an archive that is missing."""

    def __init__(self, path: Any, compression: int = 0, allowZip64: bool = True, mode: Any = "a", **_: Any) -> None:  # noqa: N803
        super().__init__(path, mode, compression, allowZip64)


def _loads(text: Any) -> Any:
    return text if isinstance(text, Mapping) else json.loads(text if isinstance(text, str) else bytes(text))


def _dumps(value: Any) -> bytes:
    return dump_json(value, 4, "document", sort_keys=True)


def _dtype_from_json(said: Any) -> np.dtype[Any]:
    tupled = [(n, _dtype_from_json(t), *map(tuple, s)) for n, t, *s in said] if isinstance(said, list) else said
    return np.dtype(tupled)


def _dtype_to_json(dtype: np.dtype[Any]) -> Any:
    return dtype.str if dtype.fields is None else dtype.descr


def _fill_from_json(value: Any, dtype: Any, object_codec: Any = None) -> Any:
    return value if np.dtype(dtype).hasobject else fill_from_json(value, parse_dtype(dtype), 2)


def _fill_to_json(value: Any, dtype: Any, object_codec: Any = None) -> Any:
    return value if np.dtype(dtype).hasobject else fill_to_json(value, parse_dtype(dtype), 2)


def _parsed_array(text: Any) -> dict[str, Any]:
    """A ``.zarray`` with NumPy's data type and a fill value of it."""
    document = _parsed_group(text)
    try:
        dtype = _dtype_from_json(document["dtype"])
        lengths = {name: tuple(document[name]) for name in ("shape", "chunks")}
        return document | lengths | {"dtype": dtype, "fill_value": _fill_from_json(document["fill_value"], dtype)}
    except (KeyError, TypeError) as error:
        raise MetadataError(f"no .zarray: {error!r}") from error


def _parsed_group(text: Any) -> dict[str, Any]:
    document = dict(_loads(text))
    if document.get("zarr_format") != 2:
        raise MetadataError(f"zarr_format must be 2, got {document.get('zarr_format')!r}")
    return document


def _dumped_array(document: Mapping[str, Any]) -> bytes:
    base, within = np.dtype(document["dtype"]), ()
    base, within = base.subdtype or (base, ())
    fill_value = _fill_to_json(document["fill_value"], base)
    said = {"zarr_format": 2, "shape": (*document["shape"], *within), "dtype": _dtype_to_json(base)}
    return _dumps({**document, **said, "fill_value": fill_value})


_META = {
    "parse_metadata": _loads,
    "json_loads": _loads,
    "json_dumps": _dumps,
    "decode_array_metadata": _parsed_array,
    "encode_array_metadata": _dumped_array,
    "decode_group_metadata": _parsed_group,
    "encode_group_metadata": lambda _meta=None: _dumps({"zarr_format": 2}),
    "decode_dtype": _dtype_from_json,
    "encode_dtype": _dtype_to_json,
    "decode_fill_value": _fill_from_json,
    "encode_fill_value": _fill_to_json,
    "MetadataError": MetadataError,
    "ZARR_FORMAT": 2,
}
_UTIL = {
    "buffer_size": lambda value: np.asarray(memoryview(value)).nbytes,
    "guess_chunks": guess_chunks,
    "human_readable_size": lambda nbytes: human_size(nbytes).partition("(")[2].rstrip(")") or str(nbytes),
    "InfoReporter": Report,
    "json_dumps": _dumps,
    "json_loads": _loads,
    "normalize_shape": parse_shape,
    "normalize_storage_path": lambda path: normalize_path(path.decode() if isinstance(path, bytes) else path or ""),
}
_KEYS = {"array_meta_key": ".zarray", "attrs_key": ".zattrs", "group_meta_key": ".zgroup"}
_STORAGE = {
    **_KEYS,
    "BaseStore": BaseStore,
    "Store": BaseStore,
    "ZipStore": AppendingZipStore,
    "normalize_storage_path": _UTIL["normalize_storage_path"],
}
_INDEXING = ("ArrayIndexError", "BoundsCheckError", "NegativeStepError", "VindexInvalidSelectionError")
_ERRORS = {**dict.fromkeys(_INDEXING, SelectionError), "PathNotFoundError": NodeNotFoundError}
_TYPES = {"DIMENSION_SEPARATOR": Literal[".", "/"], "MEMORY_ORDER": Literal["C", "F"], "ZARR_VERSION": Literal[2, 3]}
_API = "2.18.7"  # which names and arguments follow
_NONE: dict[str, Any] = {}
_N5 = {"n5_keywords": ["n5", "dataType", "dimensions", "blockSize", "compression"]}

install(
    CompatModule(name, names, homes)
    for name, names, homes in (
        ("zarr", {"__version__": _API, "ZipStore": AppendingZipStore}, ("gzarr",)),
        *((f"zarr.{n}", _NONE, ("gzarr",)) for n in ("convenience", "core", "creation", "hierarchy", "sync")),
        ("zarr.attrs", {"Attributes": Attributes}, ()),
        ("zarr.codecs", {}, ("numcodecs", "numcodecs.registry")),
        ("zarr.errors", {**_ERRORS, "FSPathExistNotDir": GroupNotFoundError}, ("gzarr.errors",)),
        ("zarr.meta", _META, ()),
        ("zarr.n5", _N5, ("gzarr.storage",)),
        ("zarr.storage", _STORAGE, ("gzarr.storage", "gzarr.errors")),
        ("zarr.types", _TYPES, ()),
        ("zarr.util", _UTIL, ()),
        ("zarr.version", {"version": _API}, ()),
    )
)
gzarr.config.set(default_zarr_format=2)
