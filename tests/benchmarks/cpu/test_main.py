"""The CPU benchmark runs, notices wrong answers, and its documentation shows what was measured."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.cpu.catalogue import BY_NAME, WORKLOADS
from benchmarks.cpu.data import SMALL, Cache
from benchmarks.cpu.measure import faults
from benchmarks.cpu.plot import plot
from benchmarks.cpu.race import make_data, race, running
from benchmarks.cpu.report import document, inserted

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 300


def bench(*options: str, cache: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.cpu", "--small", "--rounds", "1", "--cache", str(cache), *options]
    where = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=ROOT, env=where, check=False)


def test_every_workload_runs_in_gzarr_and_gives_the_values_of_the_source(tmp_path: Path) -> None:
    out = tmp_path / "cpu.json"
    done = bench("--peers", "gzarr", "--out", str(out), *chosen_rows(), cache=tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())
    local = {each.name for each in WORKLOADS if each.section != "remote"}
    assert {n for n, each in result["workloads"].items() if "median_s" in each["results"]["gzarr"]} >= local
    assert len(result["chunks"]) == 4  # 1 to 1000 chunks
    assert all(each["gzarr"]["median_s"] > 0 for each in (*result["chunks"].values(), *result["sizes"].values()))


def chosen_rows() -> list[str]:
    """Everything but peak memory, which starts a process for each row."""
    return [word for name in BY_NAME for word in ("--only", name)]


def test_peers_are_timed_beside_gzarr_and_tables_are_written(tmp_path: Path) -> None:
    table = tmp_path / "table.md"
    table.write_text("before\n<!-- cpu: generated -->\nold\n<!-- end -->\nafter\n")
    wanted = ["--only", "open an array", "--only", "20 ms", "--only", "80 small"]
    peers = ["--peers", "gzarr,gzarr in zarr,zarr,tensorstore,zarr 2"]
    done = bench(*peers, "--table", str(table), *wanted, cache=tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    text = table.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert text.count("| one row, 80 small chunks |") == 2
    assert "\n### Through zarr-python (ms)\n" in text
    assert text.count("gzarr's pipeline") == 1
    assert "geometric mean of all workloads" in text
    assert "zarr 2: no environment 'v2'" in text


def test_a_wrong_answer_is_found(tmp_path: Path) -> None:
    cache, workload = Cache(tmp_path, SMALL), BY_NAME["one element"]
    with running(["gzarr"], {"v3": sys.executable}, cache) as runners:
        make_data(runners, [workload], cache)
        source = cache.folder / "i4.npy"
        np.save(source, np.load(source) + 1)
        found = race(runners, workload, rounds=1, budget_s=0)
    assert found == {"gzarr": {"wrong": "the answer differs from the source"}}
    result = {"workloads": {"one element": {"results": found}}, "chunks": {}, "sizes": {}, "memory": {}}
    assert faults(result) == ["gzarr: the answer differs from the source"]


@pytest.mark.parametrize("gone", [False, True])
def test_a_library_whose_process_dies_is_named_and_the_others_go_on(tmp_path: Path, gone: bool) -> None:
    cache, workload = Cache(tmp_path, SMALL), BY_NAME["one element in memory"]
    with running(["zarr", "gzarr"], {"v3": sys.executable}, cache) as runners:
        make_data(runners, [workload], cache)
        assert runners[0].process is not None
        runners[0].process.kill()
        if gone:
            runners[0].process.wait()  # nothing can be sent to it any more
        found = race(runners, workload, rounds=2, budget_s=0)
    assert "process ended" in found["zarr"]["failed"]
    assert len(found["gzarr"]["rounds_s"]) == 2


def test_the_documentation_shows_the_result_that_is_kept() -> None:
    result = json.loads((ROOT / "benchmarks/results/cpu.json").read_text())
    assert inserted(ROOT / "docs/benchmarks.md") == document(result)
    assert (ROOT / "docs/speed.svg").read_text() == plot(result)
