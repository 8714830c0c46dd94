"""The command ``gzarr compare``."""

from __future__ import annotations

from typing import Annotated

import typer

import gzarr
from gzarr.cli.commands import command, show
from gzarr.cli.options import AsJson, On, Workers, engine
from gzarr.display.progress import in_terminal


@command("Check data", tells=True)
def compare(
    a: Annotated[
        str, typer.Argument(metavar="A", help="A folder, a zip file, a URL, or a path within: data.zarr/foo.")
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The other one.")],
    as_json: AsJson = False,
    rtol: Annotated[
        float, typer.Option(help="Numbers are equal if abs(a - b) <= ATOL + RTOL * abs(b). By default, exactly.")
    ] = 0.0,
    atol: Annotated[float, typer.Option(help="See --rtol.")] = 0.0,
    strict: Annotated[bool, typer.Option("--strict", help="Chunks, codecs and format count as well.")] = False,
    metadata_only: Annotated[bool, typer.Option("--metadata-only", help="Leave values out.")] = False,
    on: On = None,
    workers: Workers = None,
) -> int:
    """Compare two arrays or groups: members, metadata, values.

    Exits with 0 if they are equal, 1 if they differ, 2 if one cannot be opened.

    Examples
    --------
    $ gzarr compare data.zarr copy.zarr
    $ gzarr compare data.zarr copy.zarr --rtol 1e-6 --json
    """
    found = gzarr.compare(
        a,
        b,
        progress=in_terminal(),
        rtol=rtol,
        atol=atol,
        strict=strict,
        metadata_only=metadata_only,
        **engine(on, workers),
    )
    show(found, as_json=as_json)
    return int(not found.equal)
