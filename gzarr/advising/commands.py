"""The command ``gzarr advise``."""

from __future__ import annotations

import argparse
from typing import Any

from gzarr.advising.entry import advise
from gzarr.hierarchy.presets import ACCESS_PATTERNS


def add_command(commands: Any) -> None:
    """Add ``gzarr advise`` to the commands of a parser."""
    parser = commands.add_parser("advise", help="say how an array or a group is best stored for a GPU, and store it so")
    parser.add_argument("path", help="a directory, a zip file, a URL, or an array or group within: data.zarr/foo")
    parser.add_argument(
        "--access", choices=ACCESS_PATTERNS, default="volume", help="how it is read; default: %(default)s"
    )
    parser.add_argument("--apply", metavar="DST", help="copy it there with the changes")
    parser.add_argument("--device", help="where --apply decodes and encodes; default: cpu")
    parser.add_argument("--if-exists", choices=["raise", "replace"], help="default: raise")
    parser.add_argument("--dry-run", action="store_true", help="only say what --apply would do")
    parser.set_defaults(command=_advise, refuse=parser.error)


def _advise(args: argparse.Namespace) -> None:
    for option in ("device", "if_exists", "dry_run") if args.apply is None else ():
        if getattr(args, option):
            args.refuse(f"argument --{option.replace('_', '-')}: only with --apply")
    advice = advise(args.path, args.access)
    print(advice)
    if args.apply is not None:
        if_exists: Any = args.if_exists or "raise"
        done = advice.apply(args.apply, device=args.device or "cpu", if_exists=if_exists, dry_run=args.dry_run)
        print(f"\n{done}")
