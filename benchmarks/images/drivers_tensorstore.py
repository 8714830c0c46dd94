"""TensorStore: its downsample driver, level by level, each from the one that was written before."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorstore as ts

from benchmarks.images.contestants import Job

VERSION = __import__("importlib.metadata").metadata.version("tensorstore")


def pyramid(job: Job) -> list[str]:
    """Copy the image, then write every level as the mean of windows of the one below."""
    source = job.case.source
    below = ts.open({"driver": "zarr3", "kvstore": f"file://{job.image}/"}, read=True).result()
    for level in range(source.levels + 1):
        out = ts.open(spec(job, str(level)), shape=source.shape_of(level), create=True).result()
        out.write(ts.downsample(below, source.factors, "mean") if level else below).result()
        below = out
    return [str(level) for level in range(source.levels + 1)]


def spec(job: Job, name: str) -> dict[str, Any]:
    """How an array is stored."""
    case, source = job.case, job.case.source
    where = {"kvstore": f"file://{job.out}/{name}/", "create": True}
    if case.zarr_format == 2:
        codec = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1}
        metadata = {"chunks": source.chunks, "dtype": np.dtype(source.dtype).newbyteorder("<").str}
        metadata |= {"compressor": codec, "dimension_separator": "/", "fill_value": 0}
        return {"driver": "zarr", **where, "metadata": metadata}
    codecs: list[Any] = ["bytes", {"name": "zstd", "configuration": {"level": 3}}]
    if case.shards:
        codecs = [{"name": "sharding_indexed", "configuration": {"chunk_shape": source.chunks, "codecs": codecs}}]
    grid = {"name": "regular", "configuration": {"chunk_shape": case.shards or source.chunks}}
    metadata = {"data_type": np.dtype(source.dtype).name, "chunk_grid": grid, "codecs": codecs, "fill_value": 0}
    return {"driver": "zarr3", **where, "metadata": metadata}
