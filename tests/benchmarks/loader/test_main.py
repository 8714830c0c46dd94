"""The benchmark of loaders runs, notices wrong answers, and its documentation shows what was measured."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.loader.cases import CASES, Task
from benchmarks.loader.contestant import Batch, Contestant
from benchmarks.loader.data import SMALL, Cache, datasets
from benchmarks.loader.report import document, plot
from benchmarks.loader.worker import Worker
from tests.support.processes import ROOT, output_of

TIMEOUT_S = 300
TENSORSTORE = "benchmarks.loader.drivers_tensorstore:TensorStore"
GZARR = "benchmarks.loader.drivers_gzarr:Gzarr"
FUTURES = "benchmarks.loader.drivers_tensorstore:sample_futures"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    """All data sets, tiny."""
    cache = Cache(tmp_path_factory.mktemp("cache"), SMALL)
    for data in datasets(SMALL).values():
        cache.make(data)
    return cache


def task(case: str) -> Task:
    return Task(CASES[case], datasets(SMALL)[CASES[case].dataset], SMALL)


class Shuffled(Contestant):
    """What is right, out of the source; the subclasses are wrong in one way each."""

    def epoch(self, number: int) -> Any:
        source = np.load(Path(self.place).parents[1] / f"{self.task.data.name}.npy")
        for ids in self.task.batches(number):
            yield self.changed(Batch(ids, self.task.wanted(source, ids)))

    def changed(self, batch: Batch) -> Batch:
        return batch


class Flipped(Shuffled):
    def changed(self, batch: Batch) -> Batch:
        batch.values.flat[-1] += 1
        return batch


class Twice(Shuffled):
    def changed(self, batch: Batch) -> Batch:
        return Batch(np.append(batch.ids, batch.ids[0]), np.append(batch.values, batch.values[:1], 0))


class Short(Shuffled):
    def changed(self, batch: Batch) -> Batch:
        return Batch(batch.ids[1:], batch.values[1:])


class Wider(Shuffled):
    def changed(self, batch: Batch) -> Batch:
        return Batch(batch.ids, batch.values.astype("f8"))


@pytest.mark.parametrize("case", CASES)
def test_contestants_are_timed_and_checked(case: str, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.loader.worker.PAUSE_S", 0.0)
    for where in (GZARR, f"{__name__}:Shuffled", TENSORSTORE, FUTURES):
        worker = Worker(where, case, cache)
        worker.do_hello()
        reply = worker.do_epoch(0, 10.0)
        assert reply["samples"] == task(case).n
        assert reply["steps"] == len(task(case).batches(0))
        assert reply["seconds"] > 0
        assert worker.do_check(1, 10.0)["checked"] == task(case).n
        assert worker.do_first(2)["first_s"] > 0
        worker.do_finish()


@pytest.mark.parametrize(
    ("contestant", "message"),
    [("Flipped", "wrong values"), ("Twice", "came twice"), ("Short", "samples came, not"), ("Wider", "float64, not")],
)
def test_wrong_contents_are_noticed(contestant: str, message: str, cache: Cache) -> None:
    worker = Worker(f"{__name__}:{contestant}", "Cx", cache)
    worker.do_hello()
    with pytest.raises(AssertionError, match=message):
        worker.do_check(0, 10.0)


def test_a_run_writes_results_and_tables(tmp_path: Path, cache: Cache) -> None:
    table, out = tmp_path / "table.md", tmp_path / "loader.json"
    table.write_text("before\n<!-- loader: generated -->\nold\n<!-- end -->\nafter\n")
    options = ["--small", "--rounds", "1", "--only", "Cb", "--peers", "gzarr,tensorstore", "--cache", str(cache.root)]
    options += ["--also", "flipped=tests.benchmarks.loader.test_main:Flipped", "--out", str(out), "--table", str(table)]
    command = [sys.executable, "-m", "benchmarks.loader", *options]
    where = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=ROOT, env=where, check=False)
    assert done.returncode == 1, done.stderr
    assert "Cb, flipped: wrong values" in done.stderr
    results = json.loads(out.read_text())["cases"]["Cb"]["results"]
    assert all(results[name]["samples_per_s"] > 0 for name in ("gzarr", "tensorstore"))
    text = table.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| Cb: 330 samples" in text
    assert "- flipped: wrong values" in text


def test_the_documentation_shows_what_was_measured() -> None:
    measured = ROOT / "benchmarks/results/loader.json"
    text = (ROOT / "docs/benchmarks-loader.md").read_text()
    shown = text.partition("<!-- loader: generated -->\n")[2].partition("<!-- end -->")[0].rstrip("\n")
    assert shown == (document(json.loads(measured.read_text())) if measured.exists() else "")
    assert (ROOT / "docs/speed-loader.svg").read_text() == plot(json.loads(measured.read_text()))


def test_images_of_unequal_shape_are_checked_and_timed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.loader.more", "--small", "--only", "images", "--cache", str(tmp_path)]
    assert re.search(r"gzarr \| [\d,]+ \|", output_of(command, cwd=ROOT, timeout=TIMEOUT_S))
