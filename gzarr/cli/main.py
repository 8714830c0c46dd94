"""The command ``gzarr``: puts its commands together; looks at what is stored and runs the demo."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import gzarr
from gzarr.advising import commands as advising
from gzarr.convert import commands as convert
from gzarr.cpu.compiled.library import status as loop_status
from gzarr.errors import GzarrError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments after the program's name; None takes those of the process.

    Returns: 0, or 1 if the command failed, which one line on stderr explains. (argparse exits with 2 on misuse.)
    """
    args = _parser().parse_args(argv)
    try:
        args.command(args)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (``| head``) has seen enough. Python would complain again when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (GzarrError, OSError) as error:
        print(f"gzarr: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gzarr", description="Zarr arrays on the GPU and the CPU.")
    parser.add_argument(
        "--version", action="version", version=f"gzarr {gzarr.__version__} (compiled loop: {loop_status()})"
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    info = commands.add_parser("info", help="describe an array or a group")
    info.add_argument("path", help="a directory, a zip file, or an array or group within: data.zarr/foo")
    info.set_defaults(command=_info)
    tree = commands.add_parser("tree", help="draw a group and everything in it")
    tree.add_argument("path", help="a directory, a zip file, or a group within: data.zarr/foo")
    tree.set_defaults(command=_tree)
    convert.add_commands(commands)
    advising.add_commands(commands)
    demo = commands.add_parser("demo", help="write and read the relief of the Earth, check it, time it, draw it")
    demo.add_argument("--out", type=Path, default=Path("demo-out"), metavar="DIR", help="default: %(default)s")
    demo.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N; default: %(default)s")
    demo.set_defaults(command=_demo)
    return parser


def _info(args: argparse.Namespace) -> None:
    print(gzarr.open(args.path, mode="r").info)


def _tree(args: argparse.Namespace) -> None:
    print(gzarr.open_group(args.path, mode="r").tree())


def _demo(args: argparse.Namespace) -> None:
    from gzarr.demo.story import run_demo

    run_demo(args.out, args.device)
