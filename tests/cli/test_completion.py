"""Completion of commands in shells, which Typer does."""

from __future__ import annotations

import os
import subprocess
import sys


def asked(**asking: str) -> str:
    """What the program answers to variables of a shell."""
    command = [sys.executable, "-m", "gzarr"]
    return subprocess.run(command, env={**os.environ, **asking}, capture_output=True, text=True, check=False).stdout


def test_a_script_for_a_shell() -> None:
    assert "_GZARR_COMPLETE=complete_bash" in asked(_GZARR_COMPLETE="source_bash")


def test_commands_are_completed() -> None:
    """As the script for bash asks."""
    assert asked(_GZARR_COMPLETE="complete_bash", COMP_WORDS="gzarr ome thu", COMP_CWORD="2") == "thumbnail\n"
