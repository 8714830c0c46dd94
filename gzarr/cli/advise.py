"""The command ``gzarr advise``."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import typer

import gzarr
from gzarr.cli.commands import command
from gzarr.cli.options import Device, IfExists, NodePath, misuse

#: `gzarr.hierarchy.presets.AccessPattern`, which takes too long to import for a help text.
Access: TypeAlias = Literal["batch", "plane", "volume", "random"]


@command("Speed")
def advise(
    path: NodePath,
    access: Annotated[Access, typer.Option(help="How it is read.")] = "volume",
    apply: Annotated[str | None, typer.Option(metavar="DST", help="Copy it there with the changes.")] = None,
    device: Device = None,
    if_exists: Annotated[
        IfExists | None, typer.Option(help="What happens to data at DST. By default, an error.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what --apply would do.")] = False,
) -> None:
    """Recommend how to store an array or a group for a GPU, and store it that way.

    Examples
    --------
    $ gzarr advise data.zarr --access batch
    $ gzarr advise data.zarr --access plane --apply better.zarr
    """
    given = {"--device": device, "--if-exists": if_exists, "--dry-run": dry_run}
    for option, value in given.items() if apply is None else ():
        if value:
            raise misuse("only with --apply", option)
    advice = gzarr.advise(path, access)
    print(advice)
    if apply is not None:
        done = advice.apply(apply, device=device or "cpu", if_exists=if_exists or "raise", dry_run=dry_run)
        print(f"\n{done}")
