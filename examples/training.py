"""Shuffled batches for training: ``python examples/training.py``.

Chunks are read in random order, a few at a time, and their samples shuffled in memory. Every chunk is read and decoded
once an epoch; a batch mixes samples of all chunks that are in memory with it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import gzarr

N, SIDE, CHUNK, BATCH = 4096, 64, 64, 128


def write_samples(path: Path) -> None:
    """Store images as uint8 (4096, 64, 64, 3), 64 to a chunk and 16 chunks to a shard, and their labels."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, N)
    shades = rng.integers(0, 20, (N, SIDE, SIDE, 3)) + 20 * labels[:, None, None, None]
    root = gzarr.open_group(path, mode="w")
    root.create_array(
        "images", data=shades.astype("u1"), chunks=(CHUNK, SIDE, SIDE, 3), shards=(16 * CHUNK, SIDE, SIDE, 3)
    )
    root.create_array("labels", data=labels)


def batches(images: Any, labels: Any, rng: np.random.Generator, chunks_at_once: int = 16) -> Iterator[tuple[Any, Any]]:
    """All samples of an epoch in random order, as (images, labels) on the device of the arrays."""
    starts = rng.permutation(np.arange(0, len(images), CHUNK))
    for first in range(0, len(starts), chunks_at_once):
        chosen = starts[first : first + chunks_at_once]
        rows = rng.permutation((chosen[:, None] + np.arange(CHUNK)).ravel())
        some_images, some_labels = images.oindex[rows], labels.oindex[rows]  # one call, one request per chunk
        for at in range(0, len(rows), BATCH):
            yield some_images[at : at + BATCH], some_labels[at : at + BATCH]


def main(device: str = "auto") -> None:
    """Read two epochs, check that every label comes with its images, and print the rate."""
    with tempfile.TemporaryDirectory() as folder:
        write_samples(Path(folder) / "samples.zarr")
        root = gzarr.open_group(Path(folder) / "samples.zarr", mode="r", device=device)
        rng = np.random.default_rng(1)
        for epoch in range(2):
            start, seen = time.perf_counter(), 0
            for images, labels in batches(root["images"], root["labels"], rng):
                # Here the model takes its step; the mean shade of these images tells their label.
                means = images.reshape(len(images), -1).mean(axis=1)
                if not bool((means // 20 == labels).all()):
                    raise SystemExit("an image came with the label of another")
                seen += len(images)
            rate = seen / (time.perf_counter() - start)
            print(f"epoch {epoch}: {seen} samples on {root.device}, {rate:,.0f} samples/s")


if __name__ == "__main__":
    main()
