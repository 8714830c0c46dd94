"""The command ``gzarr copy``."""

from __future__ import annotations

from typing import Annotated

import typer

import gzarr
from gzarr.cli.commands import command
from gzarr.cli.copy_options import CopyOptions
from gzarr.cli.options import where_they_fit, with_options


@command("Copy and convert")
@with_options(CopyOptions)
def copy(
    source: Annotated[
        str, typer.Argument(metavar="SRC", help="A folder, a zip file, a URL, or a path within: data.zarr/foo.")
    ],
    dest: Annotated[str, typer.Argument(metavar="DST", help="Where the copy goes.")],
    options: CopyOptions,
) -> None:
    """Copy an array or a group; rechunk, re-encode, convert v2 <-> v3.

    Examples
    --------
    $ gzarr copy data.zarr s3://bucket/data.zarr
    $ gzarr copy data.zarr rechunked.zarr --chunks 100,100 --compressor zstd:3
    $ gzarr copy old.zarr new.zarr --zarr-format 3 --resume
    $ gzarr copy a.zarr b.zarr --chunks 100,100 --on dask://scheduler:8786
    $ gzarr copy a.zarr b.zarr --chunks 100,100 --part slurm
    """
    print(gzarr.transfer(source, dest, **where_they_fit(source, options.keywords())))
