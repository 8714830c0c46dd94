"""A pyramid on a Dask cluster of processes: ``python examples/pyramid_on_a_cluster.py``.

Each task reads a block of the image and writes what several levels have of it. Levels are then read as Dask arrays.
Of a larger cluster, give the address of its scheduler: ``Client("tcp://...:8786")``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from distributed import Client, LocalCluster

import gzarr.images
from gzarr.interop import dask as gdask

SIDE, TASK_NBYTES = 3000, 8 << 20


def main() -> None:
    """Store an image, let two processes build its levels, and compare the means of all levels."""
    phase = np.linspace(0, 40, SIDE, dtype="f4")
    pixels = (63.5 * (np.add.outer(np.sin(phase), np.cos(phase)) + 2)).astype("u1")
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,  # type: ignore[no-untyped-call]
        Client(cluster) as client,  # type: ignore[no-untyped-call]
    ):
        image = gzarr.images.create_image(Path(folder) / "image.zarr", pixels, chunks=(256, 256), levels=0)
        image = gzarr.images.build_pyramid(image, max_nbytes=TASK_NBYTES, on=client)
        for level in image:
            mean = float(gdask.from_zarr(level, chunks=(1024, 1024)).mean().compute())
            print(f"{level.shape[0]:5} x {level.shape[1]:4} pixels, mean {mean:.2f}")


if __name__ == "__main__":
    main()
