"""dask: `coarsen` for pyramids, `map_overlap` for filters, dask-image's filter; on threads, in one graph."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numcodecs
import numpy as np
import zarr
from dask_image import ndmeasure
from dask_image.ndfilters import gaussian_filter
from dask_image.ndinterp import affine_transform
from scipy import ndimage

from benchmarks.images.cases import DEPTH, SIGMA
from benchmarks.images.contestants import Job
from benchmarks.images.operations import MATRIX, OFFSET, balls, of_result

VERSION = dask.__version__


def pyramid(job: Job) -> list[str]:
    """Every level as the mean of windows of the one below, rounded half to even."""
    source = job.case.source
    array, names, stored = da.from_zarr(str(job.image)), [], []
    for level in range(source.levels + 1):
        if level:
            means = da.coarsen(np.mean, array, dict(enumerate(source.factors)))
            array = da.rint(means).astype(source.dtype)
        names.append(str(level))
        stored.append(_store(job, array, names[-1]))
    dask.compute(*stored)
    return names


def map_overlap(job: Job) -> list[str]:
    """scipy.ndimage's filter on blocks with halos."""
    array = da.from_zarr(str(job.image))
    smooth = da.map_overlap(_gaussian, array, depth=DEPTH, boundary="reflect", dtype=array.dtype)
    dask.compute(_store(job, smooth, "0"))
    return ["0"]


def dask_image(job: Job) -> list[str]:
    """dask-image's filter."""
    dask.compute(_store(job, gaussian_filter(da.from_zarr(str(job.image)), SIGMA), "0"))
    return ["0"]


def project(job: Job) -> list[str]:
    """The maximum along z."""
    return _made(job, da.from_zarr(str(job.image)).max(0))


def affine(job: Job) -> list[str]:
    """dask-image's transformation."""
    array = da.from_zarr(str(job.image))
    return _made(job, affine_transform(array, MATRIX, OFFSET, order=1, output_chunks=job.case.source.chunks))


def label(job: Job) -> list[str]:
    """dask-image's connected components."""
    return _made(job, ndmeasure.label(da.from_zarr(str(job.image)))[0])


def segment(job: Job) -> list[str]:
    """Blocks with halos compared with a threshold, then dask-image's connected components."""
    found = da.map_overlap(balls, da.from_zarr(str(job.image)), depth=DEPTH, boundary="reflect", dtype=bool)
    return _made(job, ndmeasure.label(found)[0])


def _made(job: Job, array: Any) -> list[str]:
    """Compute and store the result of an operation."""
    made = of_result(job)
    dask.compute(_store(made, array.astype(made.case.source.dtype), "0"))
    return ["0"]


def _gaussian(block: Any) -> Any:
    return ndimage.gaussian_filter(block, SIGMA)


def _store(job: Job, array: Any, name: str) -> Any:
    """Write an array with zarr-python, a shard or a chunk a task."""
    case, source = job.case, job.case.source
    options: dict[str, Any] = {"chunks": source.chunks, "zarr_format": case.zarr_format}
    if case.zarr_format == 2:
        options["compressors"] = numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE)
    else:
        options |= {"shards": case.shards, "compressors": zarr.codecs.ZstdCodec(level=3)}
    out = zarr.create_array(job.out / name, shape=array.shape, dtype=array.dtype, fill_value=0, **options)
    return da.store(array.rechunk(case.shards or source.chunks), out, lock=False, compute=False)
