"""ngff-zarr: the mean of windows by dask (`DASK_BIN_SHRINK`), written by zarrista."""

from __future__ import annotations

from typing import Any

import dask.array as da
import ngff_zarr
import numcodecs
import zarr

from benchmarks.images.contestants import Job

VERSION = ngff_zarr.__version__
METHOD = ngff_zarr.Methods.DASK_BIN_SHRINK


def pyramid(job: Job) -> list[str]:
    """Write the image and its levels."""
    case, source = job.case, job.case.source
    image = ngff_zarr.to_ngff_image(da.from_zarr(str(job.image)), dims=list(source.axes))
    factors = [source.factors_of(level) for level in range(1, source.levels + 1)]
    chunks = dict(zip(source.axes, source.chunks, strict=True))
    scales = ngff_zarr.to_multiscales(image, scale_factors=factors, method=METHOD, chunks=chunks)
    options: dict[str, Any] = {"compressors": [zarr.codecs.ZstdCodec(level=3)]}
    if case.zarr_format == 2:
        options = {"compressor": numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE)}
    if case.shards:
        per_shard = [s // c for s, c in zip(case.shards, source.chunks, strict=True)]
        options["chunks_per_shard"] = dict(zip(source.axes, per_shard, strict=True))
    ngff_zarr.to_ngff_zarr(str(job.out), scales, version=case.version, **options)
    return [each.path for each in scales.metadata.datasets]
