"""Says in one line on stderr what went wrong, with remedies as one types them in a shell."""

import re
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from gzarr.cli.options import colored
from gzarr.errors import OVERWRITE, REPLACE, RESUME, SKIP, ChunkError
from gzarr.errors.escaping import escaped

#: What to type for the keywords that messages recommend.
_OPTIONS = {
    RESUME: "--resume",
    REPLACE: "--if-exists replace",
    SKIP: "--if-exists skip",
    OVERWRITE: "--if-exists replace",
    "part=(k, n)": "--part K/N",
    "without skip=": "without --skip",
    "skip=": "--skip ",
    "a mask, or False for nothing": "or none for nothing",
}


def complain(message: str) -> None:
    """Print the message of an error as one line."""
    from gzarr.storage.rules import without_secrets  # with NumPy, which the help does without

    message = escaped(without_secrets(_one_line(as_typed(message))))
    print(f"{colored('gzarr:', 'red', bold=True, stream=sys.stderr)} {message}", file=sys.stderr)


def as_typed(message: str) -> str:
    """A message with the keywords that it recommends as one types them in a shell."""
    for keyword, option in _OPTIONS.items():
        message = message.replace(keyword, option)
    return message


def said(error: Exception) -> str:
    """What an error says; of the system's, without its number, and of damage with what finds all of it."""
    if isinstance(error, ChunkError):
        return f"{error}; `gzarr verify` finds all that is damaged; of Zarr, --repair chunks drops it"
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def guess(paths: Iterable[object]) -> str:
    """What may have been meant by paths of which some do not exist, as the end of a message; "" without an idea."""
    for path in paths:
        if not isinstance(path, str) or "://" in path or Path(path).exists():
            continue
        missing = Path(path)
        while missing.name and not missing.parent.is_dir():
            missing = missing.parent
        beside = missing.parent.iterdir() if missing.name and not missing.exists() else ()
        for close in get_close_matches(missing.name, [entry.name for entry in beside], 1):
            return f"; did you mean {str(missing.parent / close / Path(path).relative_to(missing))!r}?"
    return ""


def _one_line(message: str) -> str:
    """A message as one line; a list of reasons becomes one sentence."""
    message = re.sub(r":\n- ", ": ", message).replace("\n- ", "; ")
    message = re.sub(r"(?<=[^.:;!?])\n(?=[A-Z])", ". ", message)
    return " ".join(message.split())
