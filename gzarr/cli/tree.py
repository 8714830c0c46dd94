"""The command ``gzarr tree``."""

from __future__ import annotations

from typing import Any

import gzarr


def add_command(commands: Any) -> None:
    """Add ``gzarr tree`` to the commands of a parser."""
    parser = commands.add_parser("tree", help="draw a group and everything in it")
    parser.add_argument("path", help="a directory, a zip file, a URL, or a group within: data.zarr/foo")
    parser.set_defaults(command=lambda args: print(gzarr.open_group(args.path, mode="r", device="cpu").tree()))
