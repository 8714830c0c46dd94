"""The land of the Earth, from a TIFF to a labelled pyramid: ``python -m examples.images``."""

from __future__ import annotations

import argparse
from pathlib import Path

from examples.images.land import convert, label_land, measure, shade_image, write_tiff
from examples.images.picture import draw, paint


def main(out: Path, device: str) -> None:
    """Run all steps, and print what they made."""
    out.mkdir(parents=True, exist_ok=True)
    write_tiff(out / "heights.ome.tif")
    image = convert(out / "heights.ome.tif", out / "heights.zarr", device)
    print(f"1. {image}")
    shaded = shade_image(image, out / "light.zarr")
    print(f"2. {shaded}")
    labels = label_land(image)
    masses = measure(labels[0][...])
    print(f"3. {labels}: {labels[0][...].max()} masses of land")
    for mass in masses:
        print(f"   {mass.area_km2 / 1e6:6.2f} million km2  {mass.name}")
    map_ = paint(image[0][...], shaded[0][...], labels[0][...], masses)
    subtitle = "Data: NOAA ETOPO, public domain. Connected land in cells of 20 minutes of arc."
    draw(map_, masses, subtitle).save(out / "land.png")
    print(f"4. {out / 'land.png'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m examples.images", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-out"), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    args = parser.parse_args()
    main(args.out, args.device)
