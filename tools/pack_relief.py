"""Packs ETOPO20 from NetCDF: ``python tools/pack_relief.py etopo20.nc examples/relief/relief.xz``.

Needs NumPy and SciPy (for the NetCDF). ``examples/relief/README.md`` documents the data and the format of the file.
"""

from __future__ import annotations

import argparse
import lzma
from pathlib import Path

import numpy as np
import numpy.typing as npt

ROWS, COLS = 540, 1080


def read_relief(path: Path) -> npt.NDArray[np.int16]:
    """Read heights in metres as (540, 1080): south to north, and from 180 degrees west to 180 degrees east."""
    from scipy.io import netcdf_file  # imported here, so that `pack` needs NumPy alone

    with netcdf_file(path, mmap=False) as file:
        heights = file.variables["ROSE"].data.astype("f8")
        lat = file.variables["ETOPO20Y"].data.astype("f8")
        lon = file.variables["ETOPO20X1_1081"].data.astype("f8")
    if heights.shape != (ROWS, COLS + 1) or not np.array_equal(heights[:, 0], heights[:, -1]):
        raise SystemExit(f"{path}: expected a grid of {ROWS} x {COLS + 1} cells whose last column repeats the first")
    heights, lon = heights[:, :-1], (lon[:-1] + 180) % 360 - 180
    first = int(np.argmin(lon))
    heights, lon = np.roll(heights, -first, axis=1), np.roll(lon, -first)
    # The coordinates of the file are rounded sums; they agree with these to within a thousandth of a degree.
    if np.abs(lat - ((np.arange(ROWS) + 0.5) / 3 - 90)).max() > 1e-3:
        raise SystemExit(f"{path}: the latitudes are not the cell centres of a 20-arc-minute grid")
    if np.abs(lon - ((np.arange(COLS) + 0.5) / 3 - 180)).max() > 1e-3:
        raise SystemExit(f"{path}: the longitudes are not the cell centres of a 20-arc-minute grid")
    return np.rint(heights).astype("i2")


def pack(heights: npt.NDArray[np.int16]) -> bytes:
    """Difference along both axes, zigzag, split into high and low bytes, compress as .xz. Reversible to the bit."""
    residual = np.diff(np.diff(heights, axis=0, prepend=np.int16(0)), axis=1, prepend=np.int16(0)).astype("i2")
    zigzag = ((residual << 1) ^ (residual >> 15)).view("u2").astype("<u2")
    planes = zigzag.view("u1").reshape(-1, 2).T[::-1].tobytes()
    # No literal context beyond the previous byte's top bits, no alignment: both planes are streams of single bytes.
    lzma2 = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}
    return lzma.compress(planes, format=lzma.FORMAT_XZ, filters=[lzma2])


def main() -> None:
    """Pack the file named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="ETOPO20 as NetCDF, with variables ROSE, ETOPO20Y, ETOPO20X1_1081")
    parser.add_argument("target", type=Path, help="the .xz file to write")
    args = parser.parse_args()
    args.target.write_bytes(pack(read_relief(args.source)))
    print(f"{args.target}: {args.target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
