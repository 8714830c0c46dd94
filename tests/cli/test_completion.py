"""``gzarr completion``."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_a_script_for_a_shell(shell: str) -> None:
    command = [sys.executable, "-m", "gzarr", "completion", shell]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"_GZARR_COMPLETE=complete_{shell}" in done.stdout


def test_commands_and_options_are_completed() -> None:
    """As the script for bash asks."""
    for words, expected in {
        "gzarr his": "histogram",
        "gzarr ome thu": "thumbnail",
        "gzarr copy --chu": "--chunks",
    }.items():
        asking = {"_GZARR_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        done = subprocess.run(
            [sys.executable, "-m", "gzarr"], env={**os.environ, **asking}, capture_output=True, text=True, check=False
        )
        assert done.stdout.split() == [expected]
