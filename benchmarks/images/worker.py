"""One contestant on one case in its own process: prints what it took as one JSON line.

    python -m benchmarks.images.worker run MODULE:NAME CASE CACHE OUT SMALL
    python -m benchmarks.images.worker check CASE CACHE OUT SMALL PATH [PATH ...]

A run does the case on a tiny image first, which imports what is imported late. The output of the library goes to
stderr.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.cpu.worker import peak_bytes, reset_peak
from benchmarks.images.cases import CASES, Case
from benchmarks.images.contestants import AbsentError, Job, function
from benchmarks.images.data import Cache
from benchmarks.loader.worker import cpu_s


def main() -> None:
    """Do what is asked, and print the reply."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    what, *given = sys.argv[1:]
    replies.write(json.dumps(answered(run if what == "run" else check, *given)) + "\n")


def answered(do: Callable[..., dict[str, Any]], *given: str) -> dict[str, Any]:
    """The reply, or why there is none."""
    try:
        return do(*given)
    except (AbsentError, ImportError) as error:
        return {"absent": str(error) or type(error).__name__}
    except Exception as error:  # noqa: BLE001 - whatever a library raises is what is reported of it
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"[:300]}


def job_of(case: str, cache: str, out: str, small: str) -> Job:
    """The job that the arguments name."""
    each: Case = CASES[case]
    return Job(each.small() if small == "1" else each, Cache(Path(cache)), Path(out))


def run(where: str, case: str, cache: str, out: str, small: str) -> dict[str, Any]:
    """Time one run."""
    do, job = function(where), job_of(case, cache, out, small)
    warm = replace(job, case=CASES[case].small(), out=job.out.with_name(job.out.name + "-warm"))
    do(warm)
    shutil.rmtree(warm.out, ignore_errors=True)
    before, cpu, start = reset_peak(), cpu_s(), time.perf_counter()
    paths = do(job)
    reply = {"wall_s": time.perf_counter() - start, "cpu_s": cpu_s() - cpu, "peak_bytes": peak_bytes() - before}
    version = getattr(sys.modules[do.__module__], "VERSION", "")
    return reply | {"version": version, "paths": paths}


def check(case: str, cache: str, out: str, small: str, *paths: str) -> dict[str, Any]:
    """Compare what was written with what is right."""
    from benchmarks.images.checking import compared

    return compared(job_of(case, cache, out, small), list(paths))


if __name__ == "__main__":
    main()
