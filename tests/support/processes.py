"""Python in a process of its own, which imports this tree's gzarr."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_python(code: str, environment: Mapping[str, str] | None = None) -> str:
    """What the code prints; the environment may extend PYTHONPATH."""
    env = os.environ | {"PYTHONPATH": str(ROOT)} | (environment or {})
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr, done.stdout)
    return done.stdout
