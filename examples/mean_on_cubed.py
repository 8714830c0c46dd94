"""The mean of an array with Cubed, whose tasks keep within a memory that is known before: gzarr reads the chunks.

``python examples/mean_on_cubed.py in.zarr mean.zarr`` needs ``pip install cubed`` (0.27.0 was tried), which brings
zarr-python: Cubed writes what it makes in between, and the result, with that.
"""

import sys
import tempfile

import cubed
import cubed.array_api as xp

import gzarr


def main(source: str, out: str) -> None:
    """Store the mean along axis 0."""
    data = gzarr.open_array(source, "r")
    with tempfile.TemporaryDirectory() as folder:
        spec = cubed.Spec(work_dir=folder, allowed_mem="500MB", reserved_mem="100MB")
        blocks = cubed.from_array(data, chunks=data.chunks, spec=spec)
        cubed.to_zarr(xp.mean(xp.astype(blocks, xp.float64), axis=0), out)
    print(gzarr.open_array(out, "r").info)


if __name__ == "__main__":
    main(*sys.argv[1:])
