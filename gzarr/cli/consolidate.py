"""The command ``gzarr consolidate``."""

from __future__ import annotations

import gzarr
from gzarr.cli.commands import command
from gzarr.cli.options import NodePath


@command("Copy and convert")
def consolidate(path: NodePath) -> None:
    """Store the metadata of a group and of all its members in one document, so that one request opens them all.

    Examples
    --------
    $ gzarr consolidate data.zarr
    """
    node = gzarr.consolidate_metadata(path)
    if isinstance(node, gzarr.Array):
        print(f"{node.store_path} is an array: there is nothing to consolidate")
        return
    print(f"consolidated {node.store_path}: {len(node.members(None))} members")
