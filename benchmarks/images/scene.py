"""Fuses a scene of 1,000 tiles, or a region of it, by gzarr or by multiview-stitcher.

``python -m benchmarks.images.scene FOLDER make`` stores the tiles. Then ``... FOLDER gzarr fuse`` or ``region`` or the
same of multiview-stitcher, prints seconds, CPU seconds, MB above what there was after the imports, and the largest
difference to the scene that the tiles were cut from.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROWS, COLUMNS, SIDE, STEP, PART = 25, 40, 256, 224, 1024
EXTENT = ((ROWS - 1) * STEP + SIDE, (COLUMNS - 1) * STEP + SIDE)
#: Where the region begins: within a tile.
START = (2000, 3000)


def corners(shape: tuple[int, int]) -> list[tuple[int, int]]:
    """Where the tiles of a scene begin."""
    return [(y, x) for y in range(0, shape[0] - SIDE + 1, STEP) for x in range(0, shape[1] - SIDE + 1, STEP)]


CORNERS = corners(EXTENT)


def scene() -> Any:
    """The scene: waves and noise of 16 bits."""
    y, x = np.mgrid[: EXTENT[0], : EXTENT[1]].astype("f4")
    noise = np.random.default_rng(0).integers(0, 200, EXTENT)
    return (1000 + 500 * np.sin(y / 50) * np.cos(x / 70) + noise).astype("u2")


def make(folder: Path) -> None:
    """Store the tiles as arrays of Zarr v3, and the scene."""
    np.save(folder / "scene.npy", scene())
    cut(folder / "scene.npy", folder / "tiles")


def cut(path: Path, tiles: Path) -> None:
    """Store the tiles of a scene unless they exist."""
    import gzarr

    whole = np.load(path, mmap_mode="r")
    for n, (y, x) in enumerate(corners(whole.shape) if not tiles.exists() else ()):
        gzarr.array(whole[y : y + SIDE, x : x + SIDE], store=tiles / str(n), chunks=(128, 128))


def gzarr_scene(folder: Path, kind: str, places: Any = CORNERS) -> Any:
    """Fuse by gzarr. Returns: the scene or the region."""
    import gzarr.images

    def run() -> Any:
        tiles = [gzarr.open_array(folder / f"tiles/{n}", mode="r") for n in range(len(places))]
        if kind == "fuse":
            return gzarr.images.fuse(tiles, folder / "gzarr.zarr", places)
        return gzarr.images.fuse(tiles, None, places, origin=START, shape=(PART, PART))

    return run


def stitched_scene(folder: Path, kind: str, places: Any = CORNERS) -> Any:
    """Fuse by multiview-stitcher, from Dask arrays."""
    import dask.array as da
    from multiview_stitcher import fusion
    from multiview_stitcher import spatial_image_utils as si_utils

    def run() -> Any:
        sims = []
        for n, corner in enumerate(places):
            tile = da.from_zarr(str(folder / f"tiles/{n}"))
            there = dict(zip("yx", map(float, corner), strict=True))
            sims.append(
                si_utils.get_sim_from_array(
                    tile, dims=["y", "x"], scale={"y": 1.0, "x": 1.0}, translation=there, transform_key="stage"
                )
            )
        given: dict[str, Any] = {"transform_key": "stage", "output_chunksize": 512}
        if kind == "fuse":
            return fusion.fuse(sims, **given, output_zarr_url=str(folder / "stitched.zarr")).data
        part: dict[str, Any] = {
            "spacing": {"y": 1.0, "x": 1.0},
            "origin": dict(zip("yx", map(float, START), strict=True)),
            "shape": {"y": PART, "x": PART},
        }
        return fusion.fuse(sims, **given, output_stack_properties=part).data.compute()

    return run


def main(place: str, library: str, kind: str = "") -> None:
    """Do what the command line says."""
    folder = Path(place)
    folder.mkdir(parents=True, exist_ok=True)
    if library == "make":
        make(folder)
        return
    run = {"gzarr": gzarr_scene, "multiview-stitcher": stitched_scene}[library](folder, kind)
    before, start, used = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter(), time.process_time()
    made = run()
    seconds, cpu = time.perf_counter() - start, time.process_time() - used
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before.ru_maxrss) / 1000
    whole = np.load(folder / "scene.npy", mmap_mode="r")
    right = whole if kind == "fuse" else whole[START[0] : START[0] + PART, START[1] : START[1] + PART]
    found = np.squeeze(np.asarray(made[...]))
    off = int(np.abs(found.astype("i4") - right).max()) if found.shape == right.shape else found.shape
    print(f"{library}, {kind}: {seconds:.2f} s, {cpu:.2f} CPU s, {peak:.0f} MB, off by at most {off}")


if __name__ == "__main__":
    main(*sys.argv[1:])
