"""One scenario on one kind of store by one library, in a process of its own, with a hard time limit.

    python -m benchmarks.torture.cell NAME STORE WRITER SEED BUDGET_S FOLDER

prints its counts as JSON. `run` starts that, kills what is left of it, and removes its folder.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.torture import libraries, stores
from benchmarks.torture.catalogue import BY_NAME, SCENARIOS
from benchmarks.torture.scenario import Counts, Scenario, Setting

ROOT = Path(__file__).parents[2]
LIMIT_S = 90.0  # beyond twice the budget: the last round, and children that hang in it


@dataclass(frozen=True, slots=True)
class Cell:
    """A scenario on one kind of store, written by one library."""

    scenario: Scenario
    store: str
    writer: str

    @property
    def name(self) -> str:
        """Scenario, store and, if it is another library, the writer."""
        return ", ".join([self.scenario.name, self.store, *([self.writer] if self.writer != "gzarr" else [])])

    @property
    def unsafe(self) -> bool:
        """Whether nothing is promised: by the documentation of gzarr, or by others."""
        return self.store in self.scenario.unsafe or self.writer != "gzarr"

    @property
    def absence(self) -> str | None:
        """Why this machine and this Python cannot run it; None if they can."""
        return stores.absence(self.store) or libraries.absence(self.writer) or self.scenario.absence()

    def command(self, seed: int, budget_s: float, *, folder: str) -> list[str]:
        """The arguments of this module."""
        return [self.scenario.name, self.store, self.writer, str(seed), f"{budget_s:g}", folder]


def cells(writers: Sequence[str] = ("gzarr",)) -> list[Cell]:
    """Every cell of the libraries. Others than gzarr run on local directories only."""
    return [
        Cell(scenario, store, writer)
        for scenario in SCENARIOS
        for writer in writers
        if writer in scenario.writers
        for store in (scenario.stores if writer == "gzarr" else ("local",))
    ]


def run(cell: Cell, seed: int, budget_s: float, python: str = sys.executable, where: Path | None = None) -> Counts:
    """Run a cell. where: the directory to work in, by default that of temporary files.

    Raises
    ------
    RuntimeError
        If the scenario itself failed.
    """
    folder = tempfile.mkdtemp(prefix="gzarr-torture-", dir=where)
    command = [python, "-m", "benchmarks.torture.cell", *cell.command(seed, budget_s, folder=folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            out, err = process.communicate(timeout=2 * budget_s + LIMIT_S)
        except subprocess.TimeoutExpired:
            return Counts(hung=1, notes=(f"{cell.scenario.name} itself did not end",))
        finally:
            _kill_group(process.pid)
            shutil.rmtree(folder, ignore_errors=True)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{err.decode(errors='replace')[-4000:]}")
    return Counts.from_json(json.loads(out.splitlines()[-1]))


def _kill_group(pid: int) -> None:
    """Kill a process that leads a session, and all processes it left."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    time.sleep(0.05)


def main(arguments: list[str]) -> None:
    """Run a scenario here and print its counts."""
    name, store, writer, seed, budget_s, folder = arguments
    setting = Setting(float(budget_s), int(seed), store, writer, Path(folder))
    stores.import_client(store)
    with stores.served(store, setting.folder):
        counts = BY_NAME[name].run(setting)
    print(json.dumps(counts.to_json()))


if __name__ == "__main__":
    main(sys.argv[1:])
