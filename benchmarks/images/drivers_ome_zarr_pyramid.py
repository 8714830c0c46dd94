"""ome-zarr-pyramid: one pass, the means by TensorStore."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import zarr
from ome_zarr_pyramid import Pyramid, io

from benchmarks.images.contestants import Job

VERSION = version("ome_zarr_pyramid")


def pyramid(job: Job) -> list[str]:
    """Write the image and its levels."""
    case, source = job.case, job.case.source
    image = zarr.open_array(job.image, mode="r")
    scales = [[1.0] * len(source.shape)]
    base = Pyramid().from_arrays([image], axis_order=source.axes, scales=scales, version=case.version, name="image")
    full = base.downscale(n_layers=source.levels + 1, scale_factor=source.factors, downscale_method="mean")
    codec: dict[str, Any] = {"compressor": "zstd", "compressor_params": {"level": 3}}
    if case.zarr_format == 2:
        codec = {"compressor": "blosc", "compressor_params": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle"}}
    if case.shards:
        codec["shard_coefficients"] = tuple(s // c for s, c in zip(case.shards, source.chunks, strict=True))
    io.write_pyramid(full, str(job.out), chunk_shape=source.chunks, **codec)
    return [str(level) for level in range(source.levels + 1)]
