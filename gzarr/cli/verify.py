"""The command ``gzarr verify``."""

from __future__ import annotations

import argparse
import json
from typing import Any

import gzarr
from gzarr.checking.repair import KINDS
from gzarr.display.progress import in_terminal


def add_command(commands: Any) -> None:
    """Add ``gzarr verify`` to the commands of a parser."""
    parser = commands.add_parser(
        "verify",
        help="read and check everything that is stored, and repair what is asked for",
        epilog="Exits with 0 if nothing is wrong, 1 if something is, 2 if nothing can be opened.",
    )
    parser.add_argument("path", help="a directory, a zip file, a URL, or an array or group within: data.zarr/foo")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--repair",
        type=_kinds,
        default=[],
        metavar="KIND,...",
        help="say what a repair would do: chunks (drop bad ones), strays (delete what killed writers have left, and"
        " chunks outside of arrays), consolidated (consolidate metadata again)",
    )
    parser.add_argument(
        "--remove", action="append", default=[], metavar="KEY", help="delete this stray, as the report lists it"
    )
    parser.add_argument("--apply", action="store_true", help="do what --repair and --remove say")
    parser.set_defaults(command=_verify, refuse=parser.error, failed=2)


def _kinds(text: str) -> list[str]:
    kinds = text.split(",")
    for kind in kinds:
        if kind not in KINDS:
            raise argparse.ArgumentTypeError(f"{kind!r} is not one of {', '.join(KINDS)}")
    return kinds


def _verify(args: argparse.Namespace) -> int:
    if args.apply and not args.repair and not args.remove:
        args.refuse("argument --apply: only with --repair or --remove")
    if args.repair or args.remove:
        return _repair(args)
    found = gzarr.verify(args.path, progress=in_terminal())
    print(json.dumps(found.to_json(), indent=2) if args.json else found)
    return int(not found.ok)


def _repair(args: argparse.Namespace) -> int:
    """Repair, and return 0 if nothing is wrong any more."""
    try:
        report = gzarr.repair(args.path, *args.repair, remove=args.remove, apply=args.apply, progress=in_terminal())
    except ValueError as error:
        if isinstance(error, gzarr.GzarrError):
            raise
        args.refuse(f"argument --remove: {error}")
    print(json.dumps(report.to_json(), indent=2) if args.json else report)
    return int(not report.ok or bool(report.left) or (report.dry_run and bool(report.actions)))
