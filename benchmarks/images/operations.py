"""The cases project, affine, label, segment and fuse: by SciPy in memory (the bare work), by gzarr; what is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import ndimage

import gzarr
import gzarr.images
from benchmarks.images import scene
from benchmarks.images.contestants import Job
from benchmarks.images.data import Cache
from benchmarks.images.storing import create

VERSION = gzarr.__version__
MATRIX, OFFSET = np.array([[1, 0, 0], [0, 0.98, -0.17], [0, 0.17, 0.98]]), (0.5, 12.25, -7.5)  # turns y and x by 10°
REACH = 16  # the filter's halo of 4 and the extent of a ball


def balls(block: Any) -> Any:
    """What a segmenter does before it numbers objects: smooth, and compare with a threshold."""
    return ndimage.gaussian_filter(block.astype("f4"), 1) > 0.5


def segmented(block: Any) -> Any:
    """The objects of a block by numbers."""
    return ndimage.label(balls(block))[0]


WHOLE: dict[str, Callable[[Any], Any]] = {
    "project": lambda values: values.max(0),
    "affine": lambda values: ndimage.affine_transform(values, MATRIX, OFFSET, order=1),
    "label": lambda values: ndimage.label(values)[0],
    "segment": segmented,
    "fuse": np.asarray,
}


def right(cache: Cache, case: Any) -> Any:
    """What NumPy and SciPy make of the whole image; of tiles, the scene that they were cut from."""

    def make(cache: Cache, source: Any, path: Any) -> None:
        with path.open("wb") as file:
            np.save(file, WHOLE[case.work](np.load(cache.right(source, "level-0"))))

    if case.work == "fuse":
        scene.cut(cache.right(case.source, "level-0"), cache.folder / f"{case.source.name}-tiles")
    return cache.values(case.source, case.work, make)


def of_result(job: Job) -> Job:
    """The job with the shape, the chunks and the type of the result as those of its image."""
    source, skip = job.case.source, int(job.case.work == "project")
    dtype = "i4" if job.case.work in {"label", "segment"} else source.dtype
    source = replace(source, shape=source.shape[skip:], chunks=source.chunks[skip:], dtype=dtype)
    return replace(job, case=replace(job.case, source=source))


def in_memory(job: Job) -> list[str]:
    """Read the whole image, call NumPy or SciPy once, write the result."""
    from benchmarks.images import bare

    image, made = np.empty(job.case.source.shape, job.case.source.dtype), of_result(job)
    for where, chunk in bare.stored_chunks(job):
        image[bare.box(where, job.case.source.chunks)] = chunk
    create(made, "0", made.case.source.shape)
    bare.write(made, "0", bare.cut(WHOLE[job.case.work](image), made))
    return ["0"]


def by_gzarr(job: Job) -> list[str]:
    """The same out of core."""
    image, made = gzarr.open_array(job.image, mode="r", device="cpu"), of_result(job)
    out = create(made, "0", made.case.source.shape)
    if job.case.work == "project":
        gzarr.images.project(image, out, 0, "max")
    elif job.case.work == "affine":
        gzarr.images.affine(image, out, MATRIX, OFFSET, order=1)
    elif job.case.work == "label":
        gzarr.images.label(image, out)
    else:
        gzarr.images.segment(segmented, image, out, REACH)
    return ["0"]


def fused(job: Job) -> list[str]:
    """The scene by gzarr."""
    scene.gzarr_scene(tiles(job), "fuse", scene.corners(job.case.source.shape))()
    return ["gzarr.zarr"]


def tiles(job: Job) -> Any:
    """A folder for the scene, with the tiles in it."""
    job.out.mkdir(parents=True)
    (job.out / "tiles").symlink_to(job.cache.folder / f"{job.case.source.name}-tiles")
    return job.out
