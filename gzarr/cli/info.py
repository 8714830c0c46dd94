"""The command ``gzarr info``."""

from __future__ import annotations

import json
from typing import Any

import gzarr
from gzarr.cli.colors import print_report
from gzarr.cli.commands import command
from gzarr.cli.options import AsJson, NodePath


@command("Look at data")
def info(path: NodePath, as_json: AsJson = False) -> None:
    """Describe an array or a group: shape, chunks, codecs, sizes, dimensions, attributes.

    Examples
    --------
    $ gzarr info data.zarr
    $ gzarr info data.zarr/temperature --json
    $ gzarr info s3://bucket/data.zarr
    """
    node = gzarr.open(path, mode="r", device="cpu")
    if as_json:
        print(json.dumps(_as_json(node), indent=2, default=str))
        return
    from gzarr.display.info import Report

    items = list(node.info.items)
    if isinstance(node, gzarr.Array):
        items.append(("Fill value", str(node.fill_value)))
        if node.dimension_names:
            items.append(("Dimensions", ", ".join("-" if name is None else name for name in node.dimension_names)))
    items += [("Attribute", f"{name}: {json.dumps(value, default=str)}") for name, value in node.attrs.items()]
    print_report(Report(items))


def _as_json(node: gzarr.Array | gzarr.Group) -> dict[str, Any]:
    """What ``info`` says, for programs. Only this and the stored document say what the codecs are."""
    from gzarr.metadata.documents import documents

    _, document = documents(node.metadata, node.path)[-1]
    said: dict[str, Any] = {
        "type": "array" if isinstance(node, gzarr.Array) else "group",
        "store": str(node.store),
        "path": node.path,
        "zarr_format": node.metadata.zarr_format,
        "attributes": dict(node.attrs),
    }
    if isinstance(node, gzarr.Group):
        said["arrays"], said["groups"] = list(node.array_keys()), list(node.group_keys())
    else:
        said |= {
            "shape": node.shape,
            "dtype": str(node.dtype),
            "chunks": node.chunks,
            "shards": node.shards,
            "dimension_names": node.dimension_names,
            "fill_value": json.loads(document)["fill_value"],
            "nbytes": node.nbytes,
            "nbytes_stored": node.nbytes_stored,
            "nchunks": node.nchunks,
            "nchunks_initialized": node.nchunks_initialized,
        }
    return {**said, "document": json.loads(document)}
