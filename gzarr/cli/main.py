"""The command ``gzarr``: puts the commands together and runs one."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Sequence

import gzarr
from gzarr.advising import commands as advise
from gzarr.cli import compare, demo, info, ome, tree, verify
from gzarr.convert import commands as convert
from gzarr.copying import commands as copy
from gzarr.cpu.compiled.library import status as loop_status
from gzarr.errors import GzarrError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv
        The arguments after the program's name; None for those of the process.

    Returns
    -------
    int
        What the command returns, or 0; 1 if it failed, which one line on stderr explains (2 for commands whose result
        is 0 or 1); 130 if Ctrl-C stopped it. Misuse exits with 2.
    """
    args = None
    try:
        try:
            args = _parser().parse_args(argv)
            status: int = args.command(args) or 0
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader (``| head``) has seen enough. Python would complain again when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as stop:
        if argv is None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C does not wait for threads
        _complain(": ".join(("interrupted", *getattr(stop, "__notes__", ()))))
        return 130  # 128 + SIGINT, as shells say it
    except (GzarrError, OSError) as error:
        _complain(str(error))
        return int(getattr(args, "failed", 1))
    return status


def _complain(message: str) -> None:
    """Print one line on stderr; a list of reasons becomes one sentence."""
    message = re.sub(r":\n- ", ": ", message).replace("\n- ", "; ")
    message = re.sub(r"(?<=[^.:;!?])\n(?=[A-Z])", ". ", message)
    print(f"gzarr: {_in_options(' '.join(message.split()))}", file=sys.stderr)


def _in_options(message: str) -> str:
    """A message that names the commands' options where it named keywords: ``--if-exists replace``."""
    message = message.replace("overwrite=True", "if_exists='replace'")
    return re.sub(
        r"\b(if_exists|resume|format)=(?:True|'(\w+)')?",
        lambda match: " ".join(filter(None, (f"--{match[1].replace('_', '-')}", match[2]))),
        message,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gzarr",
        description=gzarr.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,  # the version is one line, however long
    )
    parser.add_argument(
        "--version", action="version", version=f"gzarr {gzarr.__version__} (compiled loop: {loop_status()})"
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for module in (info, tree, verify, compare, copy, convert, ome, advise, demo):
        module.add_command(commands)
    return parser
