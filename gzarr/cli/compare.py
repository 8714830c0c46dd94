"""The command ``gzarr compare``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

import gzarr
from gzarr.cli.options import AsJson
from gzarr.display.progress import in_terminal

EXAMPLES = ("gzarr compare data.zarr copy.zarr", "gzarr compare data.zarr copy.zarr --rtol 1e-6 --json")
EPILOG = "Exits with 0 if they are equal, 1 if they differ, 2 if one cannot be opened."


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
) -> int:
    """Compare two arrays or groups: members, metadata, values."""
    found = gzarr.compare(
        a, b, progress=in_terminal(), rtol=rtol, atol=atol, strict=strict, metadata_only=metadata_only
    )
    print(json.dumps(found.to_json(), indent=2) if as_json else found)
    return int(not found.equal)
