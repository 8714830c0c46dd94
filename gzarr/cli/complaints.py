"""Says in one line on stderr what went wrong, with remedies as one types them in a shell."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from gzarr.cli.colors import colored
from gzarr.errors import REMEDIES, Remedy
from gzarr.errors.escaping import escaped

#: Keywords that no command has, as the option that does the same.
_OPTIONS = {"overwrite=True": "--if-exists replace"}


def complain(message: str) -> None:
    """Print the message of an error as one line."""
    from gzarr.storage.rules import without_secrets  # with NumPy, which the help does without

    for remedy in REMEDIES:
        message = message.replace(str(remedy), in_shell(remedy))
    print(
        f"{colored('gzarr:', 'red', bold=True, stream=sys.stderr)} {escaped(without_secrets(_one_line(message)))}",
        file=sys.stderr,
    )


def said(error: Exception) -> str:
    """What an error says; of the system's, without its number."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def in_shell(remedy: Remedy) -> str:
    """Write a keyword as an option: ``--if-exists replace``."""
    option = "--" + remedy.keyword.replace("_", "-")
    return _OPTIONS.get(str(remedy), option if remedy.value is True else f"{option} {remedy.value}")


def guess(paths: Iterable[object]) -> str:
    """What may have been meant by paths of which some do not exist, as the end of a message; "" without an idea."""
    for path in paths:
        if not isinstance(path, str) or "://" in path or Path(path).exists():
            continue
        missing = Path(path)
        while missing.name and not missing.parent.is_dir():
            missing = missing.parent
        beside = missing.parent.iterdir() if missing.name else ()
        for close in get_close_matches(missing.name, [entry.name for entry in beside], 1):
            return f"; did you mean {str(missing.parent / close / Path(path).relative_to(missing))!r}?"
    return ""


def _one_line(message: str) -> str:
    """A message as one line; a list of reasons becomes one sentence."""
    message = re.sub(r":\n- ", ": ", message).replace("\n- ", "; ")
    message = re.sub(r"(?<=[^.:;!?])\n(?=[A-Z])", ". ", message)
    return " ".join(message.split())
