"""Drivers of gzarr, zarr-python 2 and 3, and zarrs-python, which share zarr's interface."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numcodecs.registry import get_codec

from benchmarks.cpu.data import Layout
from benchmarks.cpu.driver import (
    BUCKET,
    KEY,
    REGION,
    AbsentError,
    Driver,
    check_slow_opens,
    files,
    fill_value,
    itemsize,
)

FUSED = "zarr.core.codec_pipeline.FusedCodecPipeline"
CONCURRENCY = 64  # requests of zarr-python at once, in rows about an object store; its default of 10 is for disks


class Gzarr(Driver):
    """gzarr on the CPU."""

    def __init__(self) -> None:
        import gzarr
        from gzarr.cpu.compiled import library

        self.lib = gzarr
        self.version = f"{gzarr.__version__} (compiled loop: {library.status()})"

    def open(self, path: Path) -> Any:
        return self.lib.open_array(path, mode="r", device="cpu")

    def open_writable(self, path: Path) -> Any:
        return self.lib.open_array(path, mode="r+", device="cpu")

    def create(self, path: Path, layout: Layout) -> Any:
        if layout.v2:
            *filters, compressor = layout.v2
            old = {"chunks": layout.chunks, "filters": filters or None, "compressor": compressor, "zarr_format": 2}
            return self.lib.create_array(
                path, shape=layout.shape, dtype=layout.dtype, fill_value=0, overwrite=True, device="cpu", **old
            )
        codec = layout.codec and self.lib.codecs.BloscCodec(layout.codec, 5, "shuffle")
        if layout.dtype == "string":
            codec = self.lib.codecs.ZstdCodec(level=3)
        kinds = {"chunks": layout.chunks, "shards": layout.shards, "compressors": codec}
        kinds["fill_value"] = fill_value(layout)
        return self.lib.create_array(
            path, shape=layout.shape, dtype=layout.dtype, overwrite=True, device="cpu", **kinds
        )

    def cast(self, array: Any, dtype: str) -> Any:
        return array.astype(dtype)[...]

    def in_memory(self, path: Path) -> Any:
        return self.lib.open_array(self.lib.MemoryStore(files(path)), mode="r+", device="cpu")

    def zipped(self, path: Path) -> Any:
        return self.lib.open_array(self.lib.storage.ZipStore(path, mode="r"), mode="r", device="cpu")

    def remote(self, url: str) -> Any:
        try:
            return self.lib.open_array(url, mode="r", device="cpu")
        except self.lib.StoreError as error:
            raise AbsentError("no HTTP store yet") from error

    def bucket(self, endpoint: str, key: str) -> Any:
        options = {"key": KEY, "secret": KEY, "client_kwargs": {"endpoint_url": endpoint, "region_name": REGION}}
        return self.lib.storage.StoreURL(f"s3://{BUCKET}/{key}", options)

    def read_many(self, items: list[tuple[Any, Any]]) -> list[Any]:
        found: list[Any] = self.lib.read_many(items)
        return found

    def consolidate(self, path: Path) -> None:
        self.lib.consolidate_metadata(path)

    def create_group(self, path: Path) -> Any:
        return self.lib.open_group(path, mode="w", device="cpu")

    def open_group(self, path: Path) -> Any:
        return self.lib.open_group(path, mode="r", device="cpu")


class Zarr3(Driver):
    """zarr-python 3 with one of its codec pipelines. pipeline: its dotted name, or None for the default."""

    def __init__(self, pipeline: str | None = None) -> None:
        import zarr

        if int(zarr.__version__.split(".")[0]) < 3:
            raise AbsentError(f"zarr {zarr.__version__} is installed, not zarr 3")
        if pipeline == FUSED and not hasattr(sys.modules["zarr.core.codec_pipeline"], "FusedCodecPipeline"):
            raise AbsentError(f"zarr {zarr.__version__} has no fused pipeline")
        if pipeline:
            zarr.config.set({"codec_pipeline.path": pipeline})
        self.lib = zarr
        self.version = zarr.__version__

    def open(self, path: Any) -> Any:
        return self.lib.open_array(_place(path), mode="r")

    def check_opens(self, count: int) -> None:
        check_slow_opens(count)

    def open_writable(self, path: Path) -> Any:
        return self.lib.open_array(str(path), mode="r+")

    def create(self, path: Any, layout: Layout) -> Any:
        if layout.v2:
            *filters, compressor = map(get_codec, layout.v2)
            old = {"chunks": layout.chunks, "filters": filters or None, "compressors": compressor, "zarr_format": 2}
            return self.lib.create_array(
                _place(path), shape=layout.shape, dtype=layout.dtype, fill_value=0, overwrite=True, **old
            )
        codecs = self.lib.codecs
        if layout.dtype == "string":
            codec = codecs.ZstdCodec(level=3)
        else:
            name, size = layout.codec, itemsize(layout)
            codec = name and codecs.BloscCodec(cname=name, clevel=5, shuffle="shuffle", typesize=size)
        kinds = {"chunks": layout.chunks, "shards": layout.shards, "compressors": codec}
        kinds["fill_value"] = fill_value(layout)
        return self.lib.create_array(_place(path), shape=layout.shape, dtype=layout.dtype, overwrite=True, **kinds)

    def field(self, path: Path, name: str) -> Callable[[], Any]:
        raise AbsentError("zarr 3 raises TypeError")

    def in_memory(self, path: Path) -> Any:
        buffer = self.lib.core.buffer.default_buffer_prototype().buffer
        held = {key: buffer.from_bytes(value) for key, value in files(path).items()}
        return self.lib.open_array(self.lib.storage.MemoryStore(held), mode="r+")

    def zipped(self, path: Path) -> Any:
        return self.lib.open_array(self.lib.storage.ZipStore(path, mode="r"), mode="r")

    def remote(self, url: str) -> Any:
        return self.lib.open_array(self.lib.storage.FsspecStore.from_url(url, read_only=True), mode="r")

    def bucket(self, endpoint: str, key: str) -> Any:
        from obstore.store import S3Store

        self.lib.config.set({"async.concurrency": CONCURRENCY})
        keys = {"access_key_id": KEY, "secret_access_key": KEY, "region": REGION}
        store = S3Store(BUCKET, prefix=key, endpoint=endpoint, client_options={"allow_http": True}, **keys)
        return self.lib.storage.ObjectStore(store)

    def consolidate(self, path: Path) -> None:
        self.lib.consolidate_metadata(str(path))

    def create_group(self, path: Path) -> Any:
        return self.lib.open_group(str(path), mode="w")

    def open_group(self, path: Any) -> Any:
        return self.lib.open_group(_place(path), mode="r")


def _place(path: Any) -> Any:
    return str(path) if isinstance(path, Path) else path


class ZarrFused(Zarr3):
    """zarr-python 3 with its fused pipeline, and with obstore instead of fsspec for HTTP."""

    def __init__(self) -> None:
        super().__init__(FUSED)

    def remote(self, url: str) -> Any:
        from obstore.store import HTTPStore

        store = HTTPStore.from_url(url, client_options={"allow_http": True})
        return self.lib.open_array(self.lib.storage.ObjectStore(store, read_only=True), mode="r")


class Zarrs(Zarr3):
    """zarr-python 3 with the pipeline of zarrs-python."""

    def __init__(self) -> None:
        import zarrs

        super().__init__("zarrs.ZarrsCodecPipeline")
        self.version = f"{zarrs.__version__} (zarr {self.version})"

    def bucket(self, endpoint: str, key: str) -> Any:
        raise AbsentError("zarrs makes two requests at once, whatever its threads: 1,000 chunks take 22 s")


class GzarrInZarr(Zarr3):
    """zarr-python 3 with gzarr's pipeline."""

    def __init__(self) -> None:
        import gzarr.interop.zarr as plugin

        pipeline = plugin.CodecPipeline
        super().__init__(f"{pipeline.__module__}.{pipeline.__name__}")


class Zarr2(Driver):
    """zarr 2, on v2 arrays with the same chunks and codecs."""

    suffix = ".v2"

    def __init__(self) -> None:
        import numcodecs
        import zarr

        if not zarr.__version__.startswith("2."):
            raise AbsentError(f"zarr {zarr.__version__} is installed, not zarr 2")
        self.lib, self.numcodecs = zarr, numcodecs
        self.version = zarr.__version__

    def open(self, path: Path) -> Any:
        return self.lib.open_array(str(path), mode="r")

    def open_writable(self, path: Path) -> Any:
        return self.lib.open_array(str(path), mode="r+")

    def create(self, path: Path, layout: Layout) -> Any:
        if layout.shards:
            raise AbsentError("zarr 2 has no shards")
        if layout.v2:
            *filters, compressor = map(get_codec, layout.v2)
            old = {"chunks": layout.chunks, "filters": filters or None, "compressor": compressor, "fill_value": 0}
            return self.lib.open_array(str(path), mode="w", shape=layout.shape, dtype=layout.dtype, **old)
        if layout.dtype == "string":
            text, codec = self.numcodecs.VLenUTF8(), self.numcodecs.Zstd(3)
            kinds = {"chunks": layout.chunks, "dtype": object, "object_codec": text, "compressor": codec}
            return self.lib.open_array(str(path), mode="w", shape=layout.shape, fill_value="", **kinds)
        codec = layout.codec and self.numcodecs.Blosc(layout.codec, 5, self.numcodecs.Blosc.SHUFFLE)
        return self.lib.open_array(
            str(path), mode="w", shape=layout.shape, chunks=layout.chunks, dtype=layout.dtype, compressor=codec
        )

    def cast(self, array: Any, dtype: str) -> Any:
        return array.astype(dtype)[...]

    def in_memory(self, path: Path) -> Any:
        return self.lib.open_array(self.lib.storage.KVStore(files(path)), mode="r+")

    def zipped(self, path: Path) -> Any:
        return self.lib.open_array(self.lib.storage.ZipStore(str(path), mode="r"), mode="r")

    def remote(self, url: str) -> Any:
        return self.lib.open_array(self.lib.storage.FSStore(url), mode="r")

    def create_group(self, path: Path) -> Any:
        return self.lib.open_group(str(path), mode="w")

    def consolidate(self, path: Path) -> None:
        self.lib.consolidate_metadata(str(path))

    def open_consolidated(self, path: Path) -> Any:
        return self.lib.open_consolidated(str(path), mode="r")

    def open_group(self, path: Path) -> Any:
        return self.lib.open_group(str(path), mode="r")
