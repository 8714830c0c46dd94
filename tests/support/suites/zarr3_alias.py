"""A pytest plug-in that lets the suite of zarr-python 3 test gzarr, by `gzarr.compat.zarr`.

What follows the first import are private names that tests use beside those of users, and its codecs and data types,
which tests compare with those of arrays. Helpers of the tests are zarr-python's own: its stores, and the modules below
``zarr.core``.
"""

# ruff: noqa: E402  # modules of zarr-python are imported before they are replaced

import importlib
import sys
from collections.abc import Mapping
from typing import Any

for _name in ("core._info", "core.metadata.v2", "core.metadata.v3", "storage._utils", "testing.store", "testing.utils"):
    importlib.import_module(f"zarr.{_name}")

from zarr.abc.store import Store

import gzarr.compat.zarr
import gzarr.dtype
import gzarr.storage
from gzarr.compat.modules import CompatModule, install
from gzarr.hierarchy import options
from gzarr.metadata.documents import as_meta
from gzarr.metadata.model import ArrayMeta, GroupMeta
from gzarr.storage.foreign import ZarrStore


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
for _name, _given in {
    "core.array_spec": {"ArrayConfig": _ArrayConfig},
    "storage._common": {"make_store_path": _make_store_path},
}.items():
    _module = sys.modules[f"zarr.{_name}"]
    install([CompatModule(_module.__name__, vars(_module) | _given, ())])
vars(sys.modules["zarr.codecs"]).update({name: getattr(gzarr.codecs, name) for name in gzarr.codecs.__all__})
vars(sys.modules["zarr"])["dtype"] = sys.modules["zarr.dtype"] = gzarr.dtype
