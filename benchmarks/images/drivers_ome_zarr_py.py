"""ome-zarr-py: `write_image` with the mean of windows (`local_mean`)."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numcodecs
import ome_zarr
import zarr
from ome_zarr.format import FormatV04, FormatV05
from ome_zarr.scale import Methods
from ome_zarr.writer import write_image

from benchmarks.images.contestants import Job

VERSION = ome_zarr.__version__


def pyramid(job: Job) -> list[str]:
    """Write the image and its levels."""
    case, source = job.case, job.case.source
    options: dict[str, Any] = {"chunks": source.chunks}
    if case.zarr_format == 2:
        options["compressor"] = numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE)
    else:
        options["compressor"] = zarr.codecs.ZstdCodec(level=3)
    if case.shards:
        options["shards"] = case.shards
    write_image(
        da.from_zarr(str(job.image)),
        zarr.open_group(job.out, mode="w", zarr_format=case.zarr_format),
        scale_factors=[source.factors_of(level) for level in range(1, source.levels + 1)],
        method=Methods.LOCAL_MEAN,
        fmt=FormatV04() if case.zarr_format == 2 else FormatV05(),
        axes=source.axes,
        storage_options=options,
    )
    return [f"s{level}" for level in range(source.levels + 1)]
