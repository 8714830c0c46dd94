"""Drivers of TensorStore, and of h5py as a reference in another format."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cpu.data import Layout
from benchmarks.cpu.driver import BUCKET, KEY, REGION, AbsentError, Driver, check_slow_opens, files, itemsize


class TensorStore(Driver):
    """TensorStore with its defaults (no cache of chunks), but no fsync on writing, like the others."""

    def __init__(self) -> None:
        import tensorstore

        self.lib = tensorstore
        self.version = version("tensorstore")
        self.distant = tensorstore.Context()  # of arrays in buckets, which share credentials and connections

    def _open(self, path: Any, **options: Any) -> Any:
        if not isinstance(path, Path):
            options["context"] = self.distant
        driver = "zarr" if isinstance(path, Path) and (path / ".zarray").exists() else "zarr3"
        try:
            return self.lib.open({"driver": driver, "kvstore": _kvstore(path)}, **options).result()
        except ValueError as error:
            if "filters" in str(error):
                raise AbsentError("TensorStore has no filters of Zarr v2") from error
            if "string data type" in str(error):
                raise AbsentError("TensorStore has no strings") from error
            raise

    def open(self, path: Any) -> Any:
        return self._open(path, read=True)

    def open_writable(self, path: Path) -> Any:
        return self._open(path, read=True, write=True, context=self.lib.Context({"file_io_sync": False}))

    def create(self, path: Any, layout: Layout) -> Any:
        if layout.dtype == "string":
            raise AbsentError("TensorStore has no strings")
        if layout.v2:
            return self._create_v2(path, layout)
        chain: list[dict[str, Any]] = [{"name": "bytes", "configuration": {"endian": "little"}}]
        if layout.codec:
            blosc = {"cname": layout.codec, "clevel": 5, "shuffle": "shuffle", "typesize": itemsize(layout)}
            chain.append({"name": "blosc", "configuration": {**blosc, "blocksize": 0}})
        if layout.shards:
            inner = {"chunk_shape": list(layout.chunks), "codecs": chain}
            chain = [{"name": "sharding_indexed", "configuration": inner}]
        grid = {"name": "regular", "configuration": {"chunk_shape": list(layout.shards or layout.chunks)}}
        metadata = {"shape": list(layout.shape), "data_type": np.dtype(layout.dtype).name, "chunk_grid": grid}
        metadata |= {"fill_value": 0, "codecs": chain}
        spec = {"driver": "zarr3", "kvstore": _kvstore(path), "metadata": metadata}
        context = self.lib.Context({"file_io_sync": False}) if isinstance(path, Path) else self.distant
        return self.lib.open(spec, create=True, delete_existing=True, context=context).result()

    def _create_v2(self, path: Path, layout: Layout) -> Any:
        *filters, compressor = layout.v2 or ()
        if filters:
            raise AbsentError("TensorStore has no filters of Zarr v2")
        shape = {"shape": list(layout.shape), "chunks": list(layout.chunks), "order": "C", "fill_value": 0}
        metadata = {**shape, "dtype": layout.dtype, "compressor": compressor, "filters": None}
        spec = {"driver": "zarr", "kvstore": _kvstore(path), "metadata": metadata}
        context = self.lib.Context({"file_io_sync": False})
        return self.lib.open(spec, create=True, delete_existing=True, context=context).result()

    def read(self, array: Any, selection: Any) -> Any:
        return array[selection].read().result()

    def read_many(self, items: list[tuple[Any, Any]]) -> list[Any]:
        batch = self.lib.Batch()
        reads = [array[selection].read(batch=batch) for array, selection in items]
        batch.submit()
        return [read.result() for read in reads]

    def orthogonal(self, array: Any, selection: Any) -> Any:
        return array.oindex[selection].read().result()

    def points(self, array: Any, coordinates: Any) -> Any:
        return array.vindex[coordinates].read().result()

    def mask(self, array: Any, wanted: Any) -> Any:
        return array[wanted].read().result()

    def field(self, path: Path, name: str) -> Callable[[], Any]:
        spec = {"driver": "zarr3", "kvstore": _kvstore(path), "field": name}
        array = self.lib.open(spec, read=True).result()
        return lambda: array.read().result()

    def cast(self, array: Any, dtype: str) -> Any:
        return self.lib.cast(array, self.lib.dtype(np.dtype(dtype).name)).read().result()

    def write_points(self, array: Any, coordinates: Any, values: Any) -> None:
        array.vindex[coordinates].write(values).result()

    def write(self, array: Any, selection: Any, value: Any) -> None:
        array[selection].write(value).result()

    def append(self, array: Any, value: Any) -> Any:
        rows = array.shape[0]
        array = array.resize(exclusive_max=[rows + len(value), *array.shape[1:]]).result()
        array[rows:].write(value).result()
        return array

    def in_memory(self, path: Path) -> Any:
        context = self.lib.Context()
        held = self.lib.KvStore.open("memory://", context=context).result()
        for key, value in files(path).items():
            held.write(key, value).result()
        spec = {"driver": "zarr3", "kvstore": "memory://"}
        return self.lib.open(spec, read=True, write=True, context=context).result()

    def zipped(self, path: Path) -> Any:
        kvstore = {"driver": "zip", "base": {"driver": "file", "path": str(path)}}
        return self.lib.open({"driver": "zarr3", "kvstore": kvstore}, read=True).result()

    def remote(self, url: str) -> Any:
        base, _, path = url.removeprefix("http://").partition("/")
        kvstore = {"driver": "http", "base_url": f"http://{base}/{path}"}
        return self.lib.open({"driver": "zarr3", "kvstore": kvstore}, read=True).result()

    def bucket(self, endpoint: str, key: str) -> Any:
        os.environ |= {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": KEY}
        where: dict[str, Any] = {"bucket": BUCKET, "path": f"{key}/", "endpoint": endpoint, "aws_region": REGION}
        where["aws_credentials"] = {"type": "environment"}
        return {"driver": "s3", **where}

    def read_members(self, endpoint: str, key: str, names: list[str]) -> list[Any]:
        arrays = (self.open(self.bucket(endpoint, f"{key}/{name}")) for name in names)
        return [array.read().result() for array in arrays]


def _kvstore(path: Any) -> dict[str, Any]:
    return {"driver": "file", "path": str(path)} if isinstance(path, Path) else path


class H5py(Driver):
    """HDF5 files through h5py, with the same chunks and codecs by hdf5plugin."""

    suffix = ".h5"

    def __init__(self) -> None:
        import h5py
        import hdf5plugin

        self.lib, self.plugin = h5py, hdf5plugin
        self.version = h5py.__version__

    def open(self, path: Path) -> Any:
        return self.lib.File(path, "r", rdcc_nbytes=0)["data"]  # no cache of chunks, as in the others

    def check_opens(self, count: int) -> None:
        check_slow_opens(count)

    def open_writable(self, path: Path) -> Any:
        return self.lib.File(path, "r+")["data"]

    def create(self, path: Path, layout: Layout) -> Any:
        if layout.shards:
            raise AbsentError("HDF5 has no shards")
        if layout.dtype == "string":
            raise AbsentError("HDF5 does not compress strings of variable length")
        codec = self.plugin.Blosc(cname=layout.codec, clevel=5, shuffle=1) if layout.codec else {}
        if layout.v2:
            *filters, compressor = layout.v2
            if compressor["id"] == "blosc" or any(each["id"] != "shuffle" for each in filters):
                raise AbsentError("HDF5 has other filters")
            codec = {"compression": "gzip", "compression_opts": compressor["level"], "shuffle": bool(filters)}
        shape = {"shape": layout.shape, "chunks": layout.chunks, "maxshape": (None,) * len(layout.shape)}
        path.unlink(missing_ok=True)
        return self.lib.File(path, "w").create_dataset("data", dtype=layout.dtype, **shape, **codec)

    def orthogonal(self, array: Any, selection: Any) -> Any:
        lists = [s for s in selection if not isinstance(s, slice)]
        if any((np.diff(np.atleast_1d(s)) <= 0).any() for s in lists):
            raise AbsentError("h5py reads lists of increasing indices only")
        if len(lists) > 1:
            raise AbsentError("h5py takes one index list")
        return array[selection]

    def points(self, array: Any, coordinates: Any) -> Any:
        raise AbsentError("h5py has no selection of points")

    def write_points(self, array: Any, coordinates: Any, values: Any) -> None:
        raise AbsentError("h5py has no selection of points")

    def mask(self, array: Any, wanted: Any) -> Any:
        return array[wanted]

    def field(self, path: Path, name: str) -> Callable[[], Any]:
        records = self.open(path).fields(name)
        return lambda: records[...]

    def cast(self, array: Any, dtype: str) -> Any:
        return array.astype(dtype)[...]

    def append(self, array: Any, value: Any) -> Any:
        rows = array.shape[0]
        array.resize(rows + len(value), axis=0)
        array[rows:] = value
        return array
