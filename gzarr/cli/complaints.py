"""Says in one line on stderr what went wrong, with remedies as one types them in a shell."""

from __future__ import annotations

import re
import sys

from gzarr.errors import REMEDIES, Remedy

#: Keywords that no command has, as the option that does the same.
_OPTIONS = {"overwrite=True": "--if-exists replace"}


def complain(message: str) -> None:
    """Print the message of an error as one line."""
    for remedy in REMEDIES:
        message = message.replace(str(remedy), in_shell(remedy))
    print(f"gzarr: {_one_line(message)}", file=sys.stderr)


def in_shell(remedy: Remedy) -> str:
    """Write a keyword as an option: ``--if-exists replace``."""
    option = "--" + remedy.keyword.replace("_", "-")
    return _OPTIONS.get(str(remedy), option if remedy.value is True else f"{option} {remedy.value}")


def _one_line(message: str) -> str:
    """A message as one line; a list of reasons becomes one sentence."""
    message = re.sub(r":\n- ", ": ", message).replace("\n- ", "; ")
    message = re.sub(r"(?<=[^.:;!?])\n(?=[A-Z])", ". ", message)
    return " ".join(message.split())
