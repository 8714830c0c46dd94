"""The command ``gzarr migrate``."""

from __future__ import annotations

from typing import Annotated

import typer

from gzarr.cli.commands import command
from gzarr.cli.options import NodePath


@command("Copy and convert")
def migrate(
    path: NodePath,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be written.")] = False,
    remove_v2: Annotated[
        bool, typer.Option("--remove-v2", help="Delete the metadata of v2 afterwards; older programs then see nothing.")
    ] = False,
) -> None:
    """Turn Zarr v2 into v3 where it is: new metadata are written, chunks stay as they are.

    Examples
    --------
    $ gzarr migrate data.zarr --dry-run
    $ gzarr migrate data.zarr
    $ gzarr migrate data.zarr --remove-v2
    """
    from gzarr.copying.migrating import migrate

    print(migrate(path, remove_v2=remove_v2, dry_run=dry_run))
