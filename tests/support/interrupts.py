"""Interrupts (Ctrl-C) at chosen steps of a function."""

import linecache
import sys
from collections.abc import Callable, Collection
from itertools import count
from typing import Any


def interrupted(change: Callable[[], Any], at: int, files: Collection[str | None]) -> bool:
    """Call a function, with an interrupt before one of the lines of some modules. Returns: whether it ended."""
    lines = count()

    def trace(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in files or frame.f_code.co_name == "__del__":  # which may raise nothing
            return None
        source = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        # Python looks for signals after calls, not between a block and the release of its lock, nor where "try" stands.
        if event in ("call", "line") and not source.lstrip().startswith(("with ", "try:")) and next(lines) == at:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        change()
    except KeyboardInterrupt:
        return False
    finally:
        sys.settrace(before)
    return True
