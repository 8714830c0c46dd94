"""Handwritten digits as a Zarr group, and the loaders of a training.

The pictures are scikit-learn's: 1,797 scans of 8 x 8 pixels (E. Alpaydin and C. Kaynak, 1998, CC BY 4.0,
https://doi.org/10.24432/C50P49).
"""

from __future__ import annotations

from pathlib import Path

import gzarr


def write_pictures(path: Path) -> None:
    """Store the pictures, 16 to a chunk and 16 chunks to a shard, beside what they show."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    root = gzarr.open_group(path, mode="w")
    root.create_array("image", data=digits.images.astype("u1"), chunks=(16, 8, 8), shards=(256, 8, 8))
    root.create_array("label", data=digits.target)


def make_loaders(path: Path, device: str) -> tuple[gzarr.Loader, gzarr.Loader]:
    """Return the loaders of four fifths of the pictures, to train on, and of the rest, to test with."""
    images = gzarr.open_array(path / "image", mode="r", device=device)
    arrays = {"image": images, "label": gzarr.load(path / "label")}
    loader = gzarr.Loader(
        arrays,
        batch_size=64,
        shuffle="exact",
        seed=0,
        memory="40 %",  # by default an array as small as this one is read once and kept
        dtype={"image": "f4"},
        drop_last=True,
    )
    training, test = loader.split(0.8, 0.2)
    return training, test
