"""The demo's data: the relief of the Earth on a 20-arc-minute grid, unpacked from the file that the package ships.

`README.md` beside this file says where the data comes from and how the file is made.
"""

from __future__ import annotations

import lzma
from dataclasses import dataclass
from importlib import resources

import numpy as np
import numpy.typing as npt

from gzarr.errors import GzarrError

ROWS, COLS = 540, 1080
CELLS_PER_DEGREE = 3


@dataclass(frozen=True, slots=True, eq=False)
class Relief:
    """Heights on a grid of cells.

    Attributes:
        heights: mean height of each cell in metres above sea level, int16 (540, 1080), south to north, west to east.
        lat: latitudes of the cell centres in degrees north, float64 (540,).
        lon: longitudes of the cell centres in degrees east, float64 (1080,), from -180 to 180.
    """

    heights: npt.NDArray[np.int16]
    lat: npt.NDArray[np.float64]
    lon: npt.NDArray[np.float64]


def load_relief() -> Relief:
    """Unpack the relief that ships with gzarr.

    Returns: heights and coordinates, in host memory.
    Raises: GzarrError if the file is damaged.
    """
    packed = resources.files("gzarr.demo").joinpath("relief.xz").read_bytes()
    lat = (np.arange(ROWS) + 0.5) / CELLS_PER_DEGREE - 90
    lon = (np.arange(COLS) + 0.5) / CELLS_PER_DEGREE - 180
    return Relief(unpack_heights(packed), lat, lon)


def unpack_heights(packed: bytes) -> npt.NDArray[np.int16]:
    """Undo, in reverse, what ``tools/pack_relief.py`` does: .xz, byte planes, zigzag, differences along both axes.

    Returns: int16 (540, 1080). Sums wrap around at 16 bits, as the differences did.
    Raises: GzarrError if the bytes are not a relief file.
    """
    try:
        planes = np.frombuffer(lzma.decompress(packed, format=lzma.FORMAT_XZ), dtype="u1")
    except lzma.LZMAError as error:
        raise GzarrError(f"relief.xz is damaged ({error}); reinstall gzarr") from error
    if planes.size != 2 * ROWS * COLS:
        expected = 2 * ROWS * COLS
        raise GzarrError(f"relief.xz is damaged (expected {expected} bytes, got {planes.size}); reinstall gzarr")
    high, low = planes.reshape(2, ROWS, COLS).astype("u2")
    zigzag = high << 8 | low
    residual = (zigzag >> 1 ^ -(zigzag & 1)).view("i2")
    heights: npt.NDArray[np.int16] = residual.cumsum(axis=1, dtype="i2").cumsum(axis=0, dtype="i2")
    return heights
