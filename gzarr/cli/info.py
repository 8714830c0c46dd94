"""The command ``gzarr info``."""

from __future__ import annotations

from typing import Any

import gzarr


def add_command(commands: Any) -> None:
    """Add ``gzarr info`` to the commands of a parser."""
    parser = commands.add_parser("info", help="describe an array or a group")
    parser.add_argument("path", help="a directory, a zip file, a URL, or an array or group within: data.zarr/foo")
    parser.set_defaults(command=lambda args: print(gzarr.open(args.path, mode="r", device="cpu").info))
