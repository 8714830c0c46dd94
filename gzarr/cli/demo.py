"""The command ``gzarr demo``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_command(commands: Any) -> None:
    """Add ``gzarr demo`` to the commands of a parser."""
    parser = commands.add_parser("demo", help="store an elevation map of the Earth, read it back, check it, time it")
    parser.add_argument("--out", type=Path, default=Path("demo-out"), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N; default: %(default)s")
    parser.set_defaults(command=_demo)


def _demo(args: argparse.Namespace) -> None:
    from gzarr.demo.tour import run_tour  # here, so that other commands start without it

    run_tour(args.out, args.device)
    print("\nTo draw a picture of it, run `make demo` in a clone of gzarr's repository.")
