"""Damaged input raises an error that names its chunk, and leaves the device usable; each case in its own process."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu
HERE = Path(__file__).parent
#: What nvCOMP may do with such input is not defined: a case may hang.
TIMEOUT_S = 300


@pytest.mark.parametrize("case", ["damaged_chunk_is_named", "truncated", "flipped"])
def test_damage(cuda: Any, case: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command += ["-k", case, str(HERE / "damage.py")]
    done = subprocess.run(command, cwd=HERE.parents[2], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert " passed" in done.stdout
