"""Verifies that ``device="auto"`` may use the GPU: it must once have given the CPU's results, in a separate process.

A driver that hangs or crashes then does not harm the caller. The child process is spawned, not forked, so that it can
use CUDA; it gets this process's ``sys.path``. The result is cached in a file of the user's cache folder, whose name is
a hash of everything that the result depends on: the GPU, its driver, the libraries, and gzarr's code. A success is
valid as long as these do not change; a failure only for some minutes, as the GPU may just have been full.
"""

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from gzarr.gpu.detection import detect, driver
from gzarr.gpu.detection.driver import cache_folder

#: Compiling all kernels and loading the libraries takes some seconds on a slow machine; anything longer is a hang.
TIMEOUT_S = 60.0
#: How long a failure is valid, so that not every process of a job repeats the check.
FAILURE_S = 600.0
#: How long to wait for a process that was killed, which may never end if the driver holds it.
_KILLED_S = 5.0
#: Most names that one sentence gives.
_SHOWN = 4
_CHILD = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from gzarr.selfcheck import main; main()"


class Verdict(NamedTuple):
    """The result of a self-check.

    Attributes
    ----------
    faults : list of str
        A sentence for each kind of fault; none if the device has passed.
    time : float
        When it was checked, in seconds since 1970.
    """

    faults: list[str]
    time: float

    @property
    def is_valid(self) -> bool:
        """Whether it still holds: a success does, a failure for some minutes."""
        return not self.faults or 0 <= time.time() - self.time < FAILURE_S


def find_faults(timeout_s: float = TIMEOUT_S, *, anew: bool = False) -> list[str]:
    """Why the first CUDA device must not be used; nothing if it passes the self-check, or has passed it before.

    anew: check it even if there is a valid result.
    """
    about = _about()
    path = _file_of(about)
    known = last_verdict(path)
    if known is not None and known.is_valid and not anew:
        return known.faults
    faults = sentences(run_self_check(timeout_s))
    # If another process has meanwhile found that the GPU passes, this failure may only mean that the GPU was full.
    passed = (meanwhile := last_verdict(path)) is not None and not meanwhile.faults
    if path is not None and (anew or not (faults and passed)):
        _remember(path, {"faults": faults, "time": time.time(), "about": about})
    return faults


def last_verdict(path: Path | None = None) -> Verdict | None:
    """The last result for this GPU and its software, however old; None if there is none."""
    path = path or _file_of(_about())
    try:
        document = json.loads("" if path is None else path.read_text())
        verdict = Verdict(document["faults"], float(document["time"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    is_list = isinstance(verdict.faults, list) and all(isinstance(fault, str) for fault in verdict.faults)
    return verdict if is_list else None


def sentences(faults: list[str]) -> list[str]:
    """Faults as "name: what is wrong"; those of which the same is wrong are one."""
    names: dict[str, list[str]] = {}
    for fault in faults:
        name, colon, what = fault.partition(": ")
        names.setdefault(what if colon else fault, []).append(name if colon else "")
    return [f"{_enumerated(these)}: {what}" if these[0] else what for what, these in names.items()]


def _enumerated(names: list[str]) -> str:
    shown = names if len(names) <= _SHOWN else [*names[: _SHOWN - 1], f"{len(names) - _SHOWN + 1} others"]
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def _file_of(about: dict[str, Any]) -> Path | None:
    folder = cache_folder("self-checks")
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:24]
    return None if folder is None else folder / f"{digest}.json"


def run_self_check(timeout_s: float) -> list[str]:
    """The faults that `gzarr.selfcheck` finds, or how its process ended."""
    if not sys.executable or getattr(sys, "frozen", False):
        return ["the self-check needs a Python interpreter to run in, and this program has none of its own"]
    # The check must not depend on the user's settings.
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GZARR_")}
    path = json.dumps([os.fsdecode(entry) for entry in sys.path if isinstance(entry, (str, bytes, os.PathLike))])
    try:
        child = subprocess.Popen(  # noqa: S603 - this Python, with a fixed program
            [sys.executable, "-c", _CHILD, path],
            env={**plain, "GZARR_DEVICE": "cpu"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        return [f"the self-check could not be started: {error}"]
    try:
        out, err = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return [f"the self-check did not end within {timeout_s:.0f} s"]
    finally:
        if child.poll() is None:
            child.kill()
            with suppress(subprocess.TimeoutExpired):
                child.communicate(timeout=_KILLED_S)
    try:
        faults = json.loads(out.splitlines()[-1]) if child.returncode == 0 else None
    except (ValueError, IndexError):
        faults = None
    if not isinstance(faults, list):
        last = err.strip().splitlines()[-1:] or ["it wrote no message"]
        return [f"the self-check ended with status {child.returncode}: {last[0][:500]}"]
    return [str(fault) for fault in faults]


def _about() -> dict[str, Any]:
    """Everything that the result depends on."""
    package = Path(__file__).parents[2]
    files = [path for path in package.rglob("*") if path.suffix in (".py", ".cu", ".cuh")]
    return {
        "gpu": driver.identify(0)._asdict(),
        "versions": detect.versions(),
        "python": platform.python_version(),
        "code": [str(package), max(path.stat().st_mtime_ns for path in files)],
    }


def _remember(path: Path, result: dict[str, Any]) -> None:
    """Write the file atomically. If that fails, the next process checks again."""
    with suppress(OSError):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
        try:
            with os.fdopen(handle, "w") as file:
                json.dump(result, file, indent=1)
            Path(name).replace(path)
        except OSError:  # the disk is full
            Path(name).unlink(missing_ok=True)
