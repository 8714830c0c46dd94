"""Runs the contestants of a case in turns, every run in a process of its own, and checks what the first run wrote."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cpu.race import ROOT
from benchmarks.images import regions
from benchmarks.images.cases import CASES, Case
from benchmarks.images.contestants import BARE, OWN
from benchmarks.images.data import Cache, filtered, level
from benchmarks.images.operations import WHOLE, right

TIMEOUT_S = 240.0
SLOW = 2.0  # times the least CPU: whoever takes more takes part in one round only


@dataclass(frozen=True)
class Setting:
    """Where data lie and go to, and how much of both.

    Attributes
    ----------
    written : Path
        The folder of what the contestants write.
    small : bool
        Tiny images, for tests of the benchmark.
    rounds : int
        At most, whatever the case says.
    """

    cache: Cache
    written: Path
    small: bool = False
    rounds: int = 99

    def case(self, name: str) -> Case:
        """A case in this setting."""
        return CASES[name].small() if self.small else CASES[name]


def race(name: str, contestants: Mapping[str, str], setting: Setting) -> dict[str, Any]:
    """Measure a case. Returns: for each contestant what it took, or why it is absent."""
    case = setting.case(name)
    prepare(case, setting)
    measure = regions.race if case.box else whole
    results = measure(name, case, contestants, setting)
    return {"title": case.title, "work": case.work, "results": results}


def prepare(case: Case, setting: Setting) -> None:
    """Make the image, its tiny form for warming up, and what is right, where they do not exist."""
    source = case.source
    setting.cache.make(source)
    if not setting.small:
        setting.cache.make(source.shrunk())
    if case.work == "gaussian":
        filtered(setting.cache, source)
    elif case.work in WHOLE:
        for each in (case,) if setting.small else (case, case.small()):
            right(setting.cache, each)
    for number in range(1, source.levels + 1 if case.work == "pyramid" else 0):
        level(setting.cache, source, number, number - 1)
        level(setting.cache, source, number, 0)


def whole(name: str, case: Case, contestants: Mapping[str, str], setting: Setting) -> dict[str, Any]:
    """Rounds of runs."""
    results: dict[str, dict[str, Any]] = {each: {"runs": []} for each in contestants}
    for number in range(min(case.rounds, setting.rounds)):
        racing = [each for each in contestants if number == 0 or takes_part(each, results)]
        turn = number % max(1, len(racing))
        for each in (*racing[turn:], *racing[:turn]):
            reply = once(name, contestants[each], setting, check=number == 0)
            if "wall_s" in reply:
                results[each]["runs"].append({key: reply.pop(key) for key in ("wall_s", "cpu_s", "peak_bytes")})
            results[each] |= {key: value for key, value in reply.items() if key != "paths"}
    return {each: summary(reply) for each, reply in results.items()}


def takes_part(name: str, results: Mapping[str, Any]) -> bool:
    """Whether a contestant is fast enough for a second round. gzarr and the bare work always take part."""
    first = {each: reply["runs"][0]["cpu_s"] for each, reply in results.items() if reply["runs"]}
    peers = [cpu for each, cpu in first.items() if each != BARE]
    return name in first and (name in {OWN, BARE} or first[name] <= SLOW * min(peers))


def once(name: str, where: str, setting: Setting, *, check: bool) -> dict[str, Any]:
    """One run; its values are compared with what is right if asked for."""
    out = setting.written / f"bench-images-{os.getpid()}"
    places = [name, str(setting.cache.root), str(out), "1" if setting.small else "0"]
    try:
        reply = asked("run", where, *places)
        if check and reply.get("paths"):
            reply |= {key: value for key, value in asked("check", *places, *reply["paths"]).items() if key != "absent"}
    finally:
        shutil.rmtree(out, ignore_errors=True)
        shutil.rmtree(f"{out}-warm", ignore_errors=True)
    return reply


def asked(*arguments: str) -> dict[str, Any]:
    """The reply of a worker process."""
    command = [sys.executable, "-m", "benchmarks.images.worker", *arguments]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    where = {**os.environ, "PYTHONPATH": path}
    try:
        done = subprocess.run(
            command, check=False, stdout=subprocess.PIPE, text=True, env=where, cwd=ROOT, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"took more than {TIMEOUT_S:.0f} s"}
    if not done.stdout:
        return {"failed": f"its process ended with {done.returncode}"}
    reply: dict[str, Any] = json.loads(done.stdout)
    return reply


def summary(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Medians of the runs; an absence stays as it is."""
    if not reply["runs"]:
        return {key: value for key, value in reply.items() if key != "runs"}
    medians = {key: statistics.median(run[key] for run in reply["runs"]) for key in reply["runs"][0]}
    return {**reply, **medians}
