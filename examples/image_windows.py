"""Windows of a large image: ``python examples/image_windows.py``.

Small chunks let a window read little more than itself; shards keep the number of files small.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import gzarr

SIDE, CHUNK, SHARD, VIEW = 6144, 256, 2048, 1024


def make_image() -> np.ndarray[Any, Any]:
    """Batches in three colours, uint8 (6144, 6144, 3), 113 MB."""
    phase = np.linspace(0, 40, SIDE, dtype="f4")
    batches = [np.add.outer(np.sin(phase * k), np.cos(phase / k)) for k in (1, 2, 3)]
    return (63.5 * (np.stack(batches, axis=-1) + 2)).astype("u1")


def main(device: str = "auto") -> None:
    """Store the image, pan a window of 1024 x 1024 pixels over it, and read an overview."""
    source = make_image()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "image.zarr"
        gzarr.create_array(path, data=source, chunks=(CHUNK, CHUNK, 3), shards=(SHARD, SHARD, 3))
        image = gzarr.open_array(path, mode="r", device=device)
        size = f"{image.nbytes / 1e6:.0f} MB, {image.nbytes_stored / 1e6:.0f} MB stored"
        print(f"{SIDE} x {SIDE} pixels, {size}, read on {image.device}")
        for row, column in ((0, 0), (1000, 700), (3001, 2999), (SIDE - VIEW, SIDE - VIEW)):
            show(image, source, np.s_[row : row + VIEW, column : column + VIEW])
        show(image, source, np.s_[::16, ::16])


def show(image: Any, source: np.ndarray[Any, Any], window: Any) -> None:
    """Read one window, compare it with the source and print how long it took."""
    start = time.perf_counter()
    pixels = image[window]
    pixels = pixels.get() if hasattr(pixels, "get") else pixels  # to the host, which also waits for a GPU
    milliseconds = 1e3 * (time.perf_counter() - start)
    if not np.array_equal(pixels, source[window]):
        raise SystemExit(f"the window {window} differs from the source")
    rows, columns = (f"{part.start or 0}:{part.stop or ''}:{part.step or ''}".rstrip(":") for part in window)
    print(f"   image[{rows}, {columns}]: {pixels.shape[0]} x {pixels.shape[1]} pixels in {milliseconds:.1f} ms")


if __name__ == "__main__":
    main()
