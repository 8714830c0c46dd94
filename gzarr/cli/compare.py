"""The command ``gzarr compare``."""

from __future__ import annotations

import argparse
import json
from typing import Any

import gzarr
from gzarr.display.progress import in_terminal


def add_command(commands: Any) -> None:
    """Add ``gzarr compare`` to the commands of a parser."""
    parser = commands.add_parser(
        "compare",
        help="compare two arrays or groups: members, metadata, values",
        epilog="Exits with 0 if they are equal, 1 if they differ, 2 if one cannot be opened.",
    )
    parser.add_argument("a", metavar="A", help="a directory, a zip file, a URL, or a path within: data.zarr/foo")
    parser.add_argument("b", metavar="B", help="the other one")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    tolerance = "numbers are equal if abs(a - b) <= ATOL + RTOL * abs(b); default: exactly"
    parser.add_argument("--rtol", type=float, default=0.0, help=tolerance)
    parser.add_argument("--atol", type=float, default=0.0, help="see --rtol")
    parser.add_argument("--strict", action="store_true", help="chunks, codecs and format count as well")
    parser.add_argument("--metadata-only", action="store_true", help="leave values out")
    parser.set_defaults(command=_compare, failed=2)


def _compare(args: argparse.Namespace) -> int:
    options = {name: getattr(args, name) for name in ("rtol", "atol", "strict", "metadata_only")}
    found = gzarr.compare(args.a, args.b, progress=in_terminal(), **options)
    print(json.dumps(found.to_json(), indent=2) if args.json else found)
    return int(not found.equal)
