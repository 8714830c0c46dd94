"""The command ``gzarr tree``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import gzarr
from gzarr.cli.colors import colored
from gzarr.cli.commands import command
from gzarr.cli.options import NodePath

if TYPE_CHECKING:
    from gzarr.display.info import Tree


@command("Look at data")
def tree(
    path: NodePath,
    level: Annotated[int | None, typer.Option(metavar="N", help="How many levels. By default, all.")] = None,
    stored: Annotated[bool, typer.Option("--stored", help="Also say how many bytes each array occupies.")] = False,
) -> None:
    """Draw a group and everything in it, with shapes, types, chunks and sizes.

    Examples
    --------
    $ gzarr tree data.zarr
    $ gzarr tree data.zarr/measurements --level 1
    $ gzarr tree data.zarr --stored
    """
    node = gzarr.open(path, mode="r", device="cpu")
    print(repr(_drawn(node, node.basename or "/", level, stored=stored)))


def _drawn(node: gzarr.Array | gzarr.Group, name: str, level: int | None, *, stored: bool) -> Tree:
    """A node and what is below it."""
    from gzarr.display.info import Tree
    from gzarr.hierarchy.group_info import trees_left_out

    if isinstance(node, gzarr.Array):
        return Tree(f"{colored(name, bold=True)} {described(node, stored=stored)}")
    members = () if level == 0 else node.members()
    below = None if level is None else level - 1
    children = [_drawn(member, inner, below, stored=stored) for inner, member in members]
    return Tree(colored(name, "blue", bold=True), [*children, *trees_left_out(node.metadata)])


def described(array: gzarr.Array, *, stored: bool) -> str:
    """An array in a few words: ``(10, 20) int32, chunks (5, 10), 800 B``."""
    from gzarr.display.info import size_text

    facts = [f"{array.shape} {array.dtype}", f"chunks {array.chunks}"]
    if array.shards:
        facts.append(f"shards {array.shards}")
    facts.append(size_text(array.nbytes))
    if stored:
        facts.append(f"{size_text(array.nbytes_stored)} stored")
    return ", ".join(facts)
