"""The command ``gzarr tree``."""

from __future__ import annotations

import gzarr
from gzarr.cli.options import NodePath

EXAMPLES = ("gzarr tree data.zarr", "gzarr tree data.zarr/measurements")


def tree(path: NodePath) -> None:
    """Draw a group and everything in it."""
    print(gzarr.open_group(path, mode="r", device="cpu").tree())
