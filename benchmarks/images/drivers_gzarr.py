"""gzarr itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import ndimage

import gzarr
import gzarr.images
from benchmarks.images.cases import DEPTH, SIGMA
from benchmarks.images.contestants import Job
from benchmarks.images.storing import codec, create

VERSION = gzarr.__version__


def pyramid(job: Job) -> list[str]:
    """Write the image and its levels in one pass."""
    case, source = job.case, job.case.source
    layout: dict[str, Any] = {"chunks": source.chunks, "shards": case.shards, "compressors": codec(job)}
    image = gzarr.images.create_image(
        job.out,
        gzarr.open_array(job.image, mode="r", device="cpu"),
        axes=source.axes,
        version=case.version,
        levels=source.levels,
        factors=dict(zip(source.axes, source.factors, strict=True)),
        method="mean",
        device="cpu",
        **layout,
    )
    return [each.path for each in image.metadata.datasets]


def gaussian(job: Job) -> list[str]:
    """scipy.ndimage's filter on blocks with halos."""
    image = gzarr.open_array(job.image, mode="r", device="cpu")
    gzarr.images.map_overlap(_gaussian, image, create(job, "0", image.shape), DEPTH)
    return ["0"]


def halo_read(job: Job) -> list[str]:
    """Blocks with halos, with which nothing is done: the results are all fill, which is not stored."""
    image = gzarr.open_array(job.image, mode="r", device="cpu")
    gzarr.images.map_overlap(_nothing, image, create(job, "0", image.shape), DEPTH)
    return []


def plain_read(job: Job) -> list[str]:
    """Every chunk once, a layer of chunks at a time, into the same memory."""
    image = gzarr.open_array(job.image, mode="r", device="cpu")
    layer = np.empty((image.chunks[0], *image.shape[1:]), image.dtype)
    for low in range(0, image.shape[0], image.chunks[0]):
        n = min(image.chunks[0], image.shape[0] - low)
        image.get_basic_selection(slice(low, low + n), out=layer[:n])
    return []


def _gaussian(block: Any) -> Any:
    return ndimage.gaussian_filter(block, SIGMA)


def _nothing(block: Any) -> Any:
    return np.broadcast_to(block.dtype.type(0), block.shape)
