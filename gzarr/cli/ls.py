"""The command ``gzarr ls``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

import gzarr
from gzarr.cli.colors import colored
from gzarr.cli.commands import command
from gzarr.cli.options import AsJson, NodePath
from gzarr.cli.tree import described
from gzarr.errors.escaping import escaped


@command("Look at data")
def ls(
    path: NodePath,
    long: Annotated[bool, typer.Option("--long", "-l", help="Say what each array is.")] = False,
    stored: Annotated[bool, typer.Option("--stored", help="Also say how many bytes each array occupies.")] = False,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="List groups in groups as well.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the members of a group, one a line; names of groups end with a slash.

    Examples
    --------
    $ gzarr ls data.zarr
    $ gzarr ls data.zarr --long --stored
    $ gzarr ls data.zarr --recursive --json
    """
    from gzarr.storage.rules import without_secrets  # with NumPy, which the help does without

    node = gzarr.open(path, mode="r", device="cpu")
    members = (
        [(without_secrets(path.rstrip("/")), node)]
        if isinstance(node, gzarr.Array)
        else node.members(None if recursive else 0)
    )
    if as_json:
        print(json.dumps([_as_json(name, member) for name, member in members], indent=2))
        return
    shown = [
        (escaped(name), described(member, stored=stored))
        if isinstance(member, gzarr.Array)
        else (f"{escaped(name)}/", "group")
        for name, member in members
    ]
    width = max((len(name) for name, _ in shown), default=0)
    for name, facts in shown:
        styled = colored(name, "blue" if name.endswith("/") else None, bold=True)
        print(f"{styled}{' ' * (width - len(name))}  {facts}" if long or stored else styled)


def _as_json(name: str, node: gzarr.Array | gzarr.Group) -> dict[str, object]:
    if isinstance(node, gzarr.Group):
        return {"name": name, "type": "group"}
    sizes = {"shape": node.shape, "dtype": str(node.dtype), "chunks": node.chunks, "shards": node.shards}
    return {"name": name, "type": "array", **sizes, "nbytes": node.nbytes}
