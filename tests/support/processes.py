"""Python in a process of its own, which imports this tree's gzarr."""

import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def output_of(command: Sequence[object], **options: Any) -> str:
    """What a command prints, which must succeed. The options are those of `subprocess.run`."""
    options = {"timeout": 300} | options
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, (done.returncode, done.stderr, done.stdout)
    return str(done.stdout)


def run_python(code: str, environment: Mapping[str, str] | None = None, args: Sequence[object] = ()) -> str:
    """What the code prints; the environment may extend PYTHONPATH."""
    env = os.environ | {"PYTHONPATH": str(ROOT)} | (environment or {})
    return output_of([sys.executable, "-c", code, *args], env=env)


def forked(*tasks: Callable[[], object]) -> list[int]:
    """Call each function in a forked child of its own, and go on. Returns: the children."""
    children = []
    for task in tasks:
        child = os.fork()
        if not child:
            status = 1
            try:
                task()
                status = 0
            except BaseException:  # noqa: BLE001 - printed, and an exit status
                traceback.print_exc()
            finally:
                os._exit(status)
        children.append(child)
    return children


def wait(children: list[int]) -> None:
    """Wait until children end, which they must without an error."""
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * len(children)


def run_in_child(task: Callable[[], object]) -> None:
    """Call a function in a forked child, which must end without an error; the tests go on in the parent."""
    wait(forked(task))
