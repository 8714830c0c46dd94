"""The calls that races consist of, for gzarr and for its peers."""

from __future__ import annotations

import contextlib
import importlib.util
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks.torture.stores import Place


@dataclass(frozen=True, slots=True)
class Layout:
    """How an array is stored. compressed: with Zstandard."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None = None
    zarr_format: int = 3
    compressed: bool = False
    dtype: str = "int64"


class Library:
    """The calls of one library on nodes of a place. The fill value is 0."""

    name = ""

    def version(self) -> str:
        """Its version, as the table shows it."""
        return version(self.name)

    def create(self, place: Place, path: str, layout: Layout, mode: str = "w-") -> Any:
        """Create an array. mode: "w-" where nothing is, "w" in place of what is there, "a" if it is missing."""
        raise NotImplementedError

    def open(self, place: Place, path: str, *, read_only: bool = False) -> Any:
        """Open an array."""
        raise NotImplementedError

    def write(self, array: Any, selection: Any, value: Any) -> None:
        """Store values in a basic selection."""
        array[selection] = value

    def write_otherwise(self, array: Any, selection: tuple[slice, ...], value: Any, how: int) -> None:
        """Store values in a basic selection, said by another kind of selection, if the library has some."""
        self.write(array, selection, value)

    def vary(self, n: int) -> None:
        """Choose what every process may choose for itself."""

    def read(self, array: Any, selection: Any = ...) -> Any:
        """Read a basic selection as a NumPy array."""
        return array[selection]

    def append(self, array: Any, value: Any) -> None:
        """Add rows at the end."""
        array.append(value)

    def resize(self, place: Place, path: str, array: Any, shape: tuple[int, ...]) -> None:
        """Give an array other extents."""
        array.resize(shape)

    def chunks(self, array: Any) -> tuple[int, ...]:
        """The chunk shape of an open array."""
        return tuple(array.chunks)

    def create_group(self, place: Place, path: str, zarr_format: int) -> Any:
        """Create a group where nothing is."""
        raise NotImplementedError

    def open_node(self, place: Place, path: str) -> Any:
        """Open an array or a group."""
        raise NotImplementedError

    def members(self, place: Place, path: str) -> list[str]:
        """The names of the members of a group, listed."""
        raise NotImplementedError

    def set_attribute(self, node: Any, key: str, value: Any) -> None:
        """Set one attribute of an open node."""
        node.attrs[key] = value

    def attributes(self, place: Place, path: str) -> dict[str, Any]:
        """The attributes of a node, read anew."""
        raise NotImplementedError

    def consolidate(self, place: Place) -> None:
        """Write the consolidated document of the root."""
        raise NotImplementedError

    def consolidated_members(self, place: Place) -> list[str]:
        """The members of the root by its consolidated document."""
        raise NotImplementedError

    def delete(self, place: Place, path: str) -> None:
        """Delete a node."""
        raise NotImplementedError


class Gzarr(Library):
    """gzarr, with its defaults."""

    name = "gzarr"

    def __init__(self) -> None:
        import gzarr

        self.lib = gzarr
        gzarr.zeros(1)[...]  # forked children find imported what they need

    def version(self) -> str:
        return self.lib.__version__

    def create(self, place: Place, path: str, layout: Layout, mode: str = "w-") -> Any:
        options: dict[str, Any] = {"chunks": layout.chunks, "zarr_format": layout.zarr_format, "fill_value": 0}
        if layout.shards:
            options["shards"] = layout.shards
        options["compressors"] = _zstd_gzarr(layout) if layout.compressed else None
        return self.lib.open_array(
            place.store(), mode, path=path, shape=layout.shape, dtype=layout.dtype, device="cpu", **options
        )

    def open(self, place: Place, path: str, *, read_only: bool = False) -> Any:
        mode = "r" if read_only else "r+"
        return self.lib.open_array(place.store("r" if read_only else "a"), mode, path=path, device="cpu")

    def write_otherwise(self, array: Any, selection: tuple[slice, ...], value: Any, how: int) -> None:
        if how == 0:
            self.write(array, selection, value)
            return
        indices = [np.arange(n)[part] for n, part in zip(array.shape, selection, strict=True)]
        if how == 1:
            array.oindex[tuple(indices)] = value
        elif how == 2:
            array.vindex[np.ix_(*indices)] = value
        else:
            mask = np.zeros(array.shape, "?")
            mask[selection] = True
            array.vindex[mask] = value

    def vary(self, n: int) -> None:
        self.lib.config.set({"cpu.native": n % 3 > 0})

    def create_group(self, place: Place, path: str, zarr_format: int) -> Any:
        return self.lib.open_group(place.store(), "w-", path=path, zarr_format=zarr_format)

    def open_node(self, place: Place, path: str) -> Any:
        return self.lib.open(place.store(), mode="r+", path=path)

    def members(self, place: Place, path: str) -> list[str]:
        return list(self.lib.open_group(place.store("r"), "r", path=path, use_consolidated=False))

    def attributes(self, place: Place, path: str) -> dict[str, Any]:
        return dict(self.lib.open(place.store(), mode="r", path=path, use_consolidated=False).attrs)

    def consolidate(self, place: Place) -> None:
        self.lib.consolidate_metadata(place.store())

    def consolidated_members(self, place: Place) -> list[str]:
        return list(self.lib.open_consolidated(place.store()))

    def delete(self, place: Place, path: str) -> None:
        del self.lib.open_group(place.store(), "r+")[path]


class Zarr(Library):
    """zarr-python 3, with its defaults."""

    name = "zarr"

    def __init__(self) -> None:
        import zarr

        self.lib = zarr

    def create(self, place: Place, path: str, layout: Layout, mode: str = "w-") -> Any:
        options: dict[str, Any] = {"chunks": layout.chunks, "zarr_format": layout.zarr_format, "fill_value": 0}
        if layout.shards:
            options["shards"] = layout.shards
        options["compressors"] = "auto" if layout.compressed else None
        store = self.lib.storage.LocalStore(str(place.path))
        if mode == "a":
            del options["compressors"]
            return self.lib.open_array(store, path=path, mode="a", shape=layout.shape, dtype=layout.dtype, **options)
        return self.lib.create_array(
            store, name=path, shape=layout.shape, dtype=layout.dtype, overwrite=mode == "w", **options
        )

    def open(self, place: Place, path: str, *, read_only: bool = False) -> Any:
        return self.lib.open_array(str(place.path), path=path, mode="r" if read_only else "r+")

    def create_group(self, place: Place, path: str, zarr_format: int) -> Any:
        return self.lib.open_group(str(place.path), path=path or None, mode="w-", zarr_format=zarr_format)

    def open_node(self, place: Place, path: str) -> Any:
        return self.lib.open(str(place.path), path=path or None, mode="r+")

    def members(self, place: Place, path: str) -> list[str]:
        return list(self.lib.open_group(str(place.path), path=path, mode="r", use_consolidated=False))

    def attributes(self, place: Place, path: str) -> dict[str, Any]:
        return dict(self.lib.open(str(place.path), path=path or None, mode="r").attrs)

    def consolidate(self, place: Place) -> None:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.lib.consolidate_metadata(str(place.path))

    def consolidated_members(self, place: Place) -> list[str]:
        return list(self.lib.open_consolidated(str(place.path)))

    def delete(self, place: Place, path: str) -> None:
        del self.lib.open_group(str(place.path), mode="r+")[path]


class TensorStore(Library):
    """TensorStore with its defaults: every file is flushed to the disk. It has no groups, attributes or appends."""

    name = "tensorstore"

    def __init__(self) -> None:
        import tensorstore

        self.lib = tensorstore

    def _spec(self, place: Place, path: str) -> dict[str, Any]:
        return {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(place.path / path)}}

    def create(self, place: Place, path: str, layout: Layout, mode: str = "w-") -> Any:
        chain: list[dict[str, Any]] = [{"name": "bytes", "configuration": {"endian": "little"}}]
        if layout.compressed:
            chain.append({"name": "zstd", "configuration": {"level": 0}})
        if layout.shards:
            inner = {"chunk_shape": list(layout.chunks), "codecs": chain}
            chain = [{"name": "sharding_indexed", "configuration": inner}]
        grid = {"name": "regular", "configuration": {"chunk_shape": list(layout.shards or layout.chunks)}}
        metadata: Mapping[str, Any] = {
            "shape": list(layout.shape),
            "data_type": np.dtype(layout.dtype).name,
            "chunk_grid": grid,
            "fill_value": 0,
            "codecs": chain,
        }
        how = {"w-": {"create": True}, "w": {"create": True, "delete_existing": True}}
        how["a"] = {"create": True, "open": True}
        return self.lib.open(self._spec(place, path) | {"metadata": metadata}, **how[mode]).result()

    def open(self, place: Place, path: str, *, read_only: bool = False) -> Any:
        return self.lib.open(self._spec(place, path), read=True, write=not read_only).result()

    def write(self, array: Any, selection: Any, value: Any) -> None:
        array[selection].write(value).result()

    def read(self, array: Any, selection: Any = ...) -> Any:
        return array[selection].read().result()

    def create_group(self, place: Place, path: str, zarr_format: int) -> Any:
        """Nothing: what it knows are arrays."""

    def chunks(self, array: Any) -> tuple[int, ...]:
        return tuple(array.chunk_layout.read_chunk.shape)

    def delete(self, place: Place, path: str) -> None:
        self.lib.KvStore.open({"driver": "file", "path": f"{place.path / path}/"}).result().delete_range(
            self.lib.KvStore.KeyRange()
        ).result()

    def resize(self, place: Place, path: str, array: Any, shape: tuple[int, ...]) -> None:
        array.resize(exclusive_max=list(shape)).result()


def _zstd_gzarr(layout: Layout) -> Any:
    return [{"name": "zstd", "configuration": {"level": 1, "checksum": False}}] if layout.zarr_format == 3 else "auto"


LIBRARIES: dict[str, Callable[[], Library]] = {"gzarr": Gzarr, "zarr": Zarr, "tensorstore": TensorStore}


def import_ahead(*packages: str) -> None:
    """Import all modules of some packages, so that forked children find what they need."""
    for package in packages:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)


def absence(name: str) -> str | None:
    """Why a library cannot take part; None if it can."""
    return None if importlib.util.find_spec(name) else f"{name} is not installed"
