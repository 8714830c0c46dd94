"""The command ``gzarr info``."""

from __future__ import annotations

import gzarr
from gzarr.cli.options import AsJson, NodePath

EXAMPLES = ("gzarr info data.zarr", "gzarr info data.zarr/temperature --json", "gzarr info s3://bucket/data.zarr")


def info(path: NodePath, as_json: AsJson = False) -> None:
    """Describe an array or a group."""
    found = gzarr.open(path, mode="r", device="cpu")
    print(found.info)
