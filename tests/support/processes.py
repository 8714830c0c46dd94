"""Python in a process of its own, which imports this tree's gzarr."""

import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_python(code: str, environment: Mapping[str, str] | None = None) -> str:
    """What the code prints; the environment may extend PYTHONPATH."""
    env = os.environ | {"PYTHONPATH": str(ROOT)} | (environment or {})
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr, done.stdout)
    return done.stdout


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
