"""topozarr: means by its Rust kernel, files by zarr-python."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
import xarray as xr
import xproj  # noqa: F401 - gives datasets the accessor that sets their projection
from topozarr import create_pyramid

from benchmarks.images.contestants import AbsentError, Job

VERSION = version("topozarr")


def pyramid(job: Job) -> list[str]:
    """Write the image and its levels."""
    case, source = job.case, job.case.source
    if case.zarr_format == 2:
        raise AbsentError("writes Zarr format 3 only")
    if source.factors[-2:] != (2, 2) or set(source.factors[:-2]) - {1}:
        raise AbsentError("halves y and x only")
    image = xr.open_zarr(job.cache.group(source), chunks=None, consolidated=False)
    along = {axis: np.arange(n) for axis, n in zip(source.axes, source.shape, strict=True)}
    plan = create_pyramid(image.assign_coords(along).proj.assign_crs(spatial_ref="EPSG:4326"), source.levels + 1)
    for level in range(source.levels + 1):
        plan.encoding[f"/{level}"]["image"] = {"chunks": source.chunks, "shards": case.shards}
    plan.write(str(job.out))
    return [f"{level}/image" for level in range(source.levels + 1)]
