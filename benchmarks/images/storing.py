"""Empty arrays of a case, made with gzarr."""

from __future__ import annotations

from typing import Any

import gzarr
from benchmarks.images.contestants import Job


def codec(job: Job) -> Any:
    """The compressor of a case."""
    return gzarr.codecs.BloscCodec("lz4", 5, "shuffle") if job.case.zarr_format == 2 else gzarr.codecs.ZstdCodec(3)


def create(job: Job, name: str, shape: tuple[int, ...]) -> Any:
    """An array of the type and the layout of the case."""
    case, source = job.case, job.case.source
    layout: dict[str, Any] = {"chunks": source.chunks, "shards": case.shards, "compressors": codec(job)}
    layout |= {"shape": shape, "dtype": source.dtype, "fill_value": 0, "zarr_format": case.zarr_format}
    if case.zarr_format == 2:
        layout["dimension_separator"] = "/"
    return gzarr.create_array(job.out / name, device="cpu", **layout)
