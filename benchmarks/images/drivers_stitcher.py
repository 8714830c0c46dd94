"""multiview-stitcher: the scene fused from Dask arrays."""

from __future__ import annotations

from importlib.metadata import version

from benchmarks.images import scene
from benchmarks.images.contestants import Job
from benchmarks.images.operations import tiles

VERSION = version("multiview-stitcher")


def fused(job: Job) -> list[str]:
    """The scene, written as Zarr."""
    scene.stitched_scene(tiles(job), "fuse", scene.corners(job.case.source.shape))()
    return ["stitched.zarr"]
