"""The steps from a TIFF with heights of the Earth to its masses of land, each a function of gzarr.images."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import gzarr
from examples.relief.relief import COLS, ROWS, load_relief
from gzarr.convert import from_tiff
from gzarr.images import Image, label, map_blocks, map_overlap, open_image

EARTH_RADIUS_KM = 6371.0
CELL_KM = np.pi * EARTH_RADIUS_KM / ROWS  # of latitude; of longitude at the equator
#: Slopes over cells of 37 km are too gentle to see.
EXAGGERATION = 12.0


class Land(NamedTuple):
    """A mass of land: its number in the labels, its size, and the place that names it."""

    number: int
    area_km2: float
    name: str


#: Degrees north and east of a place on each.
PLACES = {
    "Africa and Eurasia": (48, 20),
    "the Americas": (40, -100),
    "Antarctica": (-85, 90),
    "Australia": (-25, 135),
    "Greenland": (72, -40),
    "New Guinea": (-5, 141),
    "Borneo": (1, 114),
    "Madagascar": (-20, 46.5),
    "Sumatra": (0, 101.5),
    "Honshu": (36.5, 138.5),
    "Great Britain": (52.5, -1.5),
    "New Zealand, South Island": (-44, 170.5),
}


def write_tiff(path: Path) -> None:
    """Write the heights in metres as a tiled OME-TIFF, north at the top."""
    import tifffile

    size = {"PhysicalSizeX": CELL_KM, "PhysicalSizeXUnit": "km", "PhysicalSizeY": CELL_KM, "PhysicalSizeYUnit": "km"}
    tifffile.imwrite(path, load_relief().heights[::-1], ome=True, tile=(128, 128), metadata={"axes": "YX", **size})


def convert(tiff: Path, path: Path, device: str) -> Image:
    """Convert the TIFF to an image with the size of its cells, of several levels."""
    from_tiff(tiff, path, ome=True, if_exists="replace")
    return open_image(path, device=device)


def shade(heights: Any) -> Any:
    """Light from the north-west on a block of heights, 128 on flat ground. NumPy's functions take CuPy's arrays too."""
    south, east = np.gradient(heights.astype("f4") * (EXAGGERATION / (1000 * CELL_KM)))
    light = (1 + east + south) / np.sqrt(1 + east**2 + south**2)  # the sun stands 45 degrees high
    return np.clip(light * 128, 0, 255).astype("u1")


def shade_image(image: Image, path: Path) -> Image:
    """Shade an image of heights, with its levels in the same pass. The Earth is round: its west goes on in its east."""
    boundary = {"y": "nearest", "x": "wrap"}
    map_overlap(shade, image, path, depth=1, boundary=boundary, overwrite=True)
    return open_image(path, device=image.device)


def label_land(image: Image) -> Image:
    """Number what is above the sea and connected, and store it with the image."""
    above = map_blocks(lambda heights: heights > 0, image[0], None)
    numbers = gzarr.zeros(image.shape, chunks=image[0].chunks, dtype="u2")
    label(above, numbers)
    return image.write_label("land", numbers)


def measure(labels: npt.NDArray[np.integer]) -> list[Land]:
    """Areas of the named masses of land, the largest first."""
    latitudes = np.radians(90 - (np.arange(ROWS) + 0.5) * 180 / ROWS)
    areas = np.bincount(labels.ravel(), np.repeat(CELL_KM**2 * np.cos(latitudes), COLS))
    found = []
    for name, (north, east) in PLACES.items():
        number = int(labels[int((90 - north) * ROWS / 180), int((180 + east) * COLS / 360)])
        found.append(Land(number, float(areas[number]), name))
    return sorted(found, key=lambda land: -land.area_km2)
