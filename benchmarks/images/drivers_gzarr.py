"""gzarr itself."""

from __future__ import annotations

from typing import Any

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
    factors = dict(zip(source.axes, source.factors, strict=True))
    image = gzarr.images.create_image(
        job.out,
        gzarr.open_array(job.image, mode="r", device="cpu"),
        axes=source.axes,
        version=case.version,
        levels=source.levels,
        factors=factors,
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


def _gaussian(block: Any) -> Any:
    return ndimage.gaussian_filter(block, SIGMA)
