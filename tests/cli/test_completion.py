"""``gzarr completion``."""

from __future__ import annotations

import os
import subprocess
import sys

from gzarr.cli.completion import completion


def test_a_script_for_a_shell(capfd) -> None:
    assert completion("bash") == 0
    out, err = capfd.readouterr()
    assert "_GZARR_COMPLETE=complete_bash" in out
    assert err == ""


def test_commands_are_completed() -> None:
    """As the script for bash asks."""
    asking = {"_GZARR_COMPLETE": "complete_bash", "COMP_WORDS": "gzarr ome thu", "COMP_CWORD": "2"}
    command = [sys.executable, "-m", "gzarr"]
    done = subprocess.run(command, env={**os.environ, **asking}, capture_output=True, text=True, check=False)
    assert done.stdout == "thumbnail\n"
