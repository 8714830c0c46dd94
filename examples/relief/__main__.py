"""The tour, and a picture of what it read: ``python -m examples.relief``, or ``make demo``."""

from __future__ import annotations

import argparse
from pathlib import Path

import gzarr
from examples.relief.picture import draw_picture
from examples.relief.relief import COLS, ROWS
from examples.relief.tour import run_tour


def main() -> None:
    """Run the tour, then draw the windows that were read."""
    parser = argparse.ArgumentParser(prog="python -m examples.relief", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-out"), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N; default: %(default)s")
    parser.add_argument("--tiles", type=int, default=8, help="copies along each axis to time; default: %(default)s")
    args = parser.parse_args()
    answers = run_tour(args.out, args.device, tiles=args.tiles)
    path = args.out / "relief.png"
    device = gzarr.open_group(args.out / "relief-v3.zarr", mode="r", device=args.device).device
    data = f"NOAA ETOPO20, {ROWS} x {COLS} cells. Zarr v3 (sharded) and v2"
    draw_picture(answers, f"{data}, read on {device}: every window equals the source.").save(path)
    print(f"\n5. A picture of what was read\n   {path}")


if __name__ == "__main__":
    main()
