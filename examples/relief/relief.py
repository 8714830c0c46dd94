"""The data of the demo: the relief of the Earth on a 20-arc-minute grid, and the windows that are read from it.

`README.md` beside this file documents the origin, the licence and the format of ``relief.xz``.
"""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Heights = npt.NDArray[np.int16]
ROWS, COLS, CELLS_PER_DEGREE = 540, 1080, 3
#: South, north, west and east edge of the Himalaya and Tibet, in degrees.
HIMALAYA = (24, 42, 70, 104)
#: Latitudes of the rows that are read whole: through the Himalaya, along the equator, through the Andes.
PARALLELS = (28, 0, -22)
#: The overview has every eighth cell.
STEP = 8
#: Name, degrees north, degrees east. The mean of a cell 37 km wide is far below a single summit.
PLACES = (
    ("Mount Everest", 27.99, 86.93),
    ("Lhasa", 29.65, 91.10),
    ("La Paz", -16.50, -68.15),
    ("Aconcagua", -32.65, -70.01),
    ("South Pole", -89.99, 0.0),
    ("Denali", 63.07, -151.00),
    ("Addis Ababa", 9.03, 38.74),
    ("Mont Blanc", 45.83, 6.86),
    ("Denver", 39.74, -104.99),
    ("Dead Sea", 31.50, 35.50),
    ("Puerto Rico Trench", 19.70, -67.30),
    ("Challenger Deep", 11.37, 142.59),
)


class Relief(NamedTuple):
    """Heights on a grid of cells.

    Attributes
    ----------
    heights : Heights
        Mean height of each cell in metres above sea level, int16 (540, 1080), south to north, west to east.
    lat : npt.NDArray[np.float64]
        Latitudes of the cell centres in degrees north, float64 (540,).
    lon : npt.NDArray[np.float64]
        Longitudes of the cell centres in degrees east, float64 (1080,), from -180 to 180.
    """

    heights: Heights
    lat: npt.NDArray[np.float64]
    lon: npt.NDArray[np.float64]


class ReliefWindow(NamedTuple):
    """One selection, for a Zarr array and for the source in memory.

    Attributes
    ----------
    name : str
        What it shows.
    call : str
        The read as a user writes it.
    key : object
        What is selected; it means the same to NumPy.
    indexer : str
        "oindex" or "vindex"; "" for plain indexing.
    """

    name: str
    call: str
    key: Any
    indexer: str = ""

    def read(self, array: Any) -> Any:
        """Read the window from an open array."""
        return (getattr(array, self.indexer) if self.indexer else array)[self.key]


def load_relief() -> Relief:
    """Unpack the relief into host memory."""
    packed = Path(__file__).with_name("relief.xz").read_bytes()
    lat = (np.arange(ROWS) + 0.5) / CELLS_PER_DEGREE - 90
    lon = (np.arange(COLS) + 0.5) / CELLS_PER_DEGREE - 180
    return Relief(unpack_heights(packed), lat, lon)


def unpack_heights(packed: bytes) -> Heights:
    """Reverse ``tools/pack_relief.py``: .xz, byte planes, zigzag, differences along both axes.

    Returns: int16 (540, 1080). Sums wrap around at 16 bits, as the differences did.
    Raises: lzma.LZMAError if the bytes are damaged.
    """
    planes = np.frombuffer(lzma.decompress(packed, format=lzma.FORMAT_XZ), "u1")
    high, low = planes.reshape(2, ROWS, COLS).astype("u2")
    zigzag = high << 8 | low
    residual = (zigzag >> 1 ^ -(zigzag & 1)).view("i2")
    heights: Heights = residual.cumsum(axis=1, dtype="i2").cumsum(axis=0, dtype="i2")
    return heights


def windows() -> tuple[ReliefWindow, ReliefWindow, ReliefWindow, ReliefWindow, ReliefWindow]:
    """The whole Earth, a region, an overview, three parallels, twelve places: one way of reading each."""
    south, north, west, east = HIMALAYA
    r0, r1, c0, c1 = row_of(south), row_of(north), column_of(west), column_of(east)
    rows = [row_of(lat) for lat in PARALLELS]
    points = [row_of(lat) for _, lat, _ in PLACES], [column_of(lon) for _, _, lon in PLACES]
    return (
        ReliefWindow("The whole Earth", "relief[...]", ...),
        ReliefWindow("The Himalaya and Tibet", f"relief[{r0}:{r1}, {c0}:{c1}]", np.s_[r0:r1, c0:c1]),
        ReliefWindow("The Earth, every 8th cell", f"relief[::{STEP}, ::{STEP}]", np.s_[::STEP, ::STEP]),
        ReliefWindow("Three parallels", f"relief.oindex[{rows}, :]", np.s_[rows, :], "oindex"),
        ReliefWindow("Twelve places", "relief.vindex[rows, cols]", points, "vindex"),
    )


def row_of(lat: float) -> int:
    """Row of the cell that holds a latitude in degrees north."""
    return int((lat + 90) * CELLS_PER_DEGREE)


def column_of(lon: float) -> int:
    """Column of the cell that holds a longitude in degrees east."""
    return int((lon + 180) * CELLS_PER_DEGREE)
