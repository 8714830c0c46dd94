"""A pytest plug-in that lets the suite of zarr-python 3 test gzarr: what users import from ``zarr`` is gzarr's.

Helpers of the tests are zarr-python's own: its stores, which gzarr takes as stores, and the private modules below
``zarr.core``, in which public classes and functions are replaced. A public name that gzarr does not have is missing.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import zarr
from zarr.abc.store import Store

import gzarr
import gzarr.api.asynchronous
import gzarr.dtype
import gzarr.storage
from gzarr.hierarchy import options
from gzarr.metadata.documents import as_meta
from gzarr.metadata.model import ArrayMeta, GroupMeta
from gzarr.storage.foreign import ZarrStore

for _name in (
    *("api.asynchronous", "api.synchronous", "core._info", "core.group", "core.metadata.v2", "core.metadata.v3"),
    "dtype",
    *("core.sync_group", "registry", "storage._utils", "testing.store", "testing.utils", "types"),
):
    importlib.import_module(f"zarr.{_name}")

_NODES = {name: getattr(gzarr, name) for name in ("Array", "AsyncArray", "AsyncGroup", "Group")}
_PUBLIC_STORES = ("GpuMemoryStore", "ManagedMemoryStore", "StorePath")


def _public(module: Any) -> dict[str, Any]:
    return {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}


def _stand_in(name: str, names: Mapping[str, Any], *, whole: bool = False) -> ModuleType:
    """Put a module in the place of one of zarr's: with other names, or with these alone."""
    real, module = sys.modules[name], ModuleType(name)
    module.__dict__.update({} if whole else real.__dict__)
    module.__dict__.update(names)
    module.__path__ = getattr(real, "__path__", [])
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, module)
    return module


class _ArrayConfig(options.ArrayConfig):
    """zarr's own can be made from a mapping."""

    __slots__ = ()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> options.ArrayConfig:
        names = ("order", "write_empty_chunks", "read_missing_chunks")
        settings = {name: gzarr.config[f"array.{name}"] for name in names}
        return options.ArrayConfig(**settings | options.given_config(data))


async def _make_store_path(store: Any, *, path: str | None = "", **_keywords: Any) -> gzarr.storage.StorePath:
    return gzarr.storage.StorePath(store, path or "")


def _alias() -> None:
    submodules = {name: getattr(zarr, name) for name in ("abc", "core", "registry", "testing", "types")}
    stores = {name: getattr(gzarr.storage, name) for name in _PUBLIC_STORES}
    _stand_in("zarr", {**_public(gzarr), **submodules, "__version__": zarr.__version__}, whole=True)
    _stand_in("zarr.storage", stores)
    _stand_in("zarr.storage._common", {**stores, "make_store_path": _make_store_path})
    _stand_in("zarr.errors", _public(gzarr.errors))
    _stand_in("zarr.codecs", _public(gzarr.codecs))
    _stand_in("zarr.dtype", _public(gzarr.dtype), whole=True)
    _stand_in("zarr.api", {})
    _stand_in("zarr.api.asynchronous", _public(gzarr.api.asynchronous), whole=True)
    _stand_in("zarr.api.synchronous", _public(gzarr), whole=True)
    _stand_in("zarr.core.config", {"config": gzarr.config})
    _stand_in("zarr.core.array", {**_NODES, "create_array": gzarr.create_array, "from_array": gzarr.from_array})
    _stand_in("zarr.core.array_spec", {"ArrayConfig": _ArrayConfig})
    _stand_in("zarr.core.group", {**_NODES, "create_hierarchy": gzarr.api.asynchronous.create_hierarchy})
    _stand_in("zarr.core.sync_group", {"create_hierarchy": gzarr.create_hierarchy})


def _brought(value: Any, read_only: bool, brought: Any = gzarr.storage._brought) -> Any:
    """Take every store of zarr-python as it is, so that tests find it again."""
    return ZarrStore(value, read_only) if isinstance(value, Store) else brought(value, read_only)


def _equal_to_zarrs(kind: Any) -> None:
    """Let metadata equal zarr-python's objects of the same meaning."""
    equal = kind.__eq__

    def compare(self: Any, other: Any) -> Any:
        return equal(self, as_meta(other) if hasattr(other, "to_dict") else other)

    kind.__eq__ = compare


_equal_to_zarrs(ArrayMeta)
_equal_to_zarrs(GroupMeta)
gzarr.storage._brought = _brought
# What tests ask of a store of zarr-python that they have given is answered by that store.
ZarrStore.__eq__ = lambda self, other: self.store == getattr(other, "store", other)  # type: ignore[method-assign,assignment]
ZarrStore.__getattr__ = lambda self, name: getattr(vars(self)["store"], name)  # type: ignore[attr-defined]
ZarrStore.__hash__ = object.__hash__  # type: ignore[method-assign]
gzarr.Group._async_group = gzarr.Group.async_group  # type: ignore[attr-defined]
gzarr.Array._async_array = gzarr.Array.async_array  # type: ignore[attr-defined]
_alias()
