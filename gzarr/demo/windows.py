"""The windows that the demo reads: one for each way of asking an array for a part of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gzarr.demo.relief import CELLS_PER_DEGREE


@dataclass(frozen=True, slots=True)
class Window:
    """One selection, asked of a Zarr array and of the source in memory.

    Attributes:
        name: what it shows.
        call: the read as a user would write it.
        read: asks an opened array.
        expected: asks the source, a NumPy array, in another way that must give the same.
    """

    name: str
    call: str
    read: Callable[[Any], Any]
    expected: Callable[[npt.NDArray[np.int16]], npt.NDArray[np.int16]]


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """What was read back, in host memory, int16 metres.

    Attributes:
        whole: the whole grid, (540, 1080), south to north.
        region: the Himalaya.
        overview: every eighth cell.
        parallels: whole rows, (3, 1080), north to south.
        places: the places, (12,).
    """

    whole: npt.NDArray[np.int16]
    region: npt.NDArray[np.int16]
    overview: npt.NDArray[np.int16]
    parallels: npt.NDArray[np.int16]
    places: npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Place:
    """A point on the map.

    Attributes:
        name: what it is called.
        lat, lon: degrees north and east.
        side: where its label goes, in steps of 15 pixels to the right (negative: to the left) and of 20 downwards.
    """

    name: str
    lat: float
    lon: float
    side: tuple[int, int] = (1, 0)


#: Places whose cells tell something: summits and plateaus, two depressions, two trenches. A cell is 37 km wide, so
#: its mean lies far below a single summit.
PLACES = (
    Place("Mount Everest", 27.99, 86.93, (1, 2)),
    Place("Lhasa", 29.65, 91.10, (6, -1)),
    Place("La Paz", -16.50, -68.15),
    Place("Aconcagua", -32.65, -70.01, (-1, 0)),
    Place("South Pole", -89.99, 0.0, (1, -1)),
    Place("Denali", 63.07, -151.00, (1, -1)),
    Place("Addis Ababa", 9.03, 38.74),
    Place("Mont Blanc", 45.83, 6.86, (-1, -1)),
    Place("Denver", 39.74, -104.99, (1, -1)),
    Place("Dead Sea", 31.50, 35.50, (1, 0)),
    Place("Puerto Rico Trench", 19.70, -67.30, (1, -1)),
    Place("Challenger Deep", 11.37, 142.59, (-1, 0)),
)

#: (south, north, west, east) in degrees.
HIMALAYA = (24, 42, 70, 104)
#: Parallels whose rows are read whole, north to south: through the Himalaya, the equator, through the Andes.
PARALLELS = (28, 0, -22)
OVERVIEW_STEP = 8


def cell_row(lat: float) -> int:
    """Row of the cell that holds a latitude in degrees north."""
    return int((lat + 90) * CELLS_PER_DEGREE)


def cell_col(lon: float) -> int:
    """Column of the cell that holds a longitude in degrees east."""
    return int((lon + 180) * CELLS_PER_DEGREE)


def make_windows() -> tuple[Window, Window, Window, Window]:
    """The region, the overview, the parallels and the places, in this order."""
    return _region(), _overview(), _parallels(), _places()


def _region() -> Window:
    south, north, west, east = HIMALAYA
    r0, r1, c0, c1 = cell_row(south), cell_row(north), cell_col(west), cell_col(east)
    return Window(
        "The Himalaya and Tibet",
        f"relief[{r0}:{r1}, {c0}:{c1}]",
        read=lambda array: array[r0:r1, c0:c1],
        expected=lambda source: source[r0:r1][:, c0:c1],
    )


def _overview() -> Window:
    step = OVERVIEW_STEP
    return Window(
        "The Earth, every 8th cell",
        f"relief[::{step}, ::{step}]",
        read=lambda array: array[::step, ::step],
        expected=lambda source: source[::step][:, ::step],
    )


def _parallels() -> Window:
    rows = [cell_row(lat) for lat in PARALLELS]
    return Window(
        "Three parallels",
        f"relief.oindex[{rows}, :]",
        read=lambda array: array.oindex[rows, :],
        expected=lambda source: np.stack([source[row] for row in rows]),
    )


def _places() -> Window:
    rows = np.array([cell_row(place.lat) for place in PLACES])
    cols = np.array([cell_col(place.lon) for place in PLACES])
    return Window(
        "Twelve places",
        "relief.vindex[rows, cols]",
        read=lambda array: array.vindex[rows, cols],
        expected=lambda source: source[rows, cols],
    )
