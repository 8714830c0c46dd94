"""Finalizers that read and write arrays come at every step of gzarr: nothing waits forever, nothing is lost."""

import subprocess
import sys
from pathlib import Path

from tests.concurrency.reentrant_code import SCENARIOS


def test_nothing_is_lost_and_nothing_waits_when_finalizers_use_what_they_interrupt() -> None:
    command = [sys.executable, "-m", "tests.concurrency.reentrant_code"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=900, check=False, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("re-entrant code came") == len(SCENARIOS)
