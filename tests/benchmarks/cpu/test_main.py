"""The CPU benchmark runs, notices wrong answers, and its documentation shows what was measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from benchmarks.cpu.catalogue import BY_NAME, WORKLOADS
from benchmarks.cpu.data import SMALL, Cache
from benchmarks.cpu.measure import DELAY_S, faults, merged, not_linear, ratio, serving
from benchmarks.cpu.plot import plot
from benchmarks.cpu.race import Runner, make_data, race, running
from benchmarks.cpu.report import document, insert, inserted
from benchmarks.cpu.server import requested_range

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 120


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
    done = bench(
        "--peers",
        "gzarr,gzarr in zarr,zarr,tensorstore,zarr 2",
        "--table",
        str(table),
        *wanted,
        cache=tmp_path / "cache",
    )
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


def test_ratio_is_best_peer_over_gzarr_without_references() -> None:
    times = {"gzarr": 2.0, "zarr": 8.0, "tensorstore": 3.0, "h5py": 1.0}
    assert ratio({name: {"median_s": t} for name, t in times.items()}) == 1.5
    assert ratio({"gzarr": {"median_s": 1.0}, "zarr": {"absent": "no"}}) is None


def test_a_cost_that_grows_is_a_fault() -> None:
    def step(chunks: int, seconds: float) -> dict[str, dict[str, dict[str, float]]]:
        return {f"{chunks:,} missing chunks": {"gzarr": {"median_s": seconds}}}

    linear = {**step(1000, 0.01), **step(10**4, 0.1), **step(10**6, 12)}
    assert not_linear({"chunks": linear, "sizes": {}}) == []
    quadratic = {**step(1000, 0.01), **step(10**4, 1.0)}
    assert not_linear({"chunks": quadratic, "sizes": {}}) == [
        "the cost of a chunk grows: 10,000 missing chunks 10.0 times"
    ]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, (0, 100, 200)),
        ("bytes=10-19", (10, 20, 206)),
        ("bytes=90-", (90, 100, 206)),
        ("bytes=-4", (96, 100, 206)),
    ],
)
def test_the_server_knows_byte_ranges(header: str | None, expected: tuple[int, int, int]) -> None:
    assert requested_range(header, 100) == expected


def test_the_server_serves_ranges_of_files_late(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(range(100)))
    with serving("benchmarks.cpu.server", tmp_path, DELAY_S) as url:
        request = urllib.request.Request(f"{url}/a", headers={"Range": "bytes=5-7"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.read() == bytes([5, 6, 7])
            assert answer.headers["Content-Range"] == "bytes 5-7/100"


def test_the_documentation_shows_the_result_that_is_kept() -> None:
    result = json.loads((ROOT / "benchmarks/results/cpu.json").read_text())
    assert inserted(ROOT / "docs/benchmarks.md") == document(result)
    assert (ROOT / "docs/speed.svg").read_text() == plot(result)


def test_the_figure_shows_the_fastest_peer_and_skips_rows_that_nobody_ran() -> None:
    found = {name: {"median_s": s} for name, s in {"gzarr": 0.2, "zarr": 0.5, "zarrs": 0.4, "h5py": 0.1}.items()}
    machine = {"cpu": "a < b", "cores": 2, "date": "today"}
    figure = plot({"workloads": {"read all, lz4 i4": {"results": found}}, "machine": machine, "rounds": 3})
    assert "400 ms  zarrs-python" in figure
    assert "2.00 times" in figure
    assert "zarr-python 3" not in figure
    assert figure.count("<rect") == len(ET.fromstring(figure).findall("{*}rect")) == 2


def test_tables_need_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing\n")
    with pytest.raises(ValueError, match="has no lines"):
        insert(page, "text")


def test_unknown_names_are_refused_with_those_that_exist(tmp_path: Path) -> None:
    assert "there are gzarr, zarr" in bench("--peers", "nozarr", cache=tmp_path).stderr
    assert "no row contains 'nothing'" in bench("--only", "nothing", cache=tmp_path).stderr


def test_libraries_far_behind_are_timed_in_fewer_rounds() -> None:
    class Fixed(Runner):
        seconds = 1.0

        def ask(self, do: str, **given: Any) -> dict[str, Any]:
            return {"first_s": self.seconds} if do == "prepare" else {"seconds": [self.seconds]}

    class Slow(Fixed):
        seconds = 3.1

    class Slowest(Fixed):
        seconds = 10.1

    racing = [Fixed("peer", None), Slow("slow", None), Slowest("slowest", None), Slowest("gzarr", None)]
    results = race(racing, WORKLOADS[0], 5)
    counts = {name: len(result["rounds_s"]) for name, result in results.items()}
    assert counts == {"peer": 5, "slow": 3, "slowest": 1, "gzarr": 5}


def test_the_best_peer_is_timed_in_all_rounds_however_fast_gzarr_and_references_are() -> None:
    class Fixed(Runner):
        def ask(self, do: str, **given: Any) -> dict[str, Any]:
            return {"first_s": 1.0} if do == "prepare" else {"seconds": [self.about["seconds"]]}

    times = {"gzarr": 1.0, "gzarr in zarr": 1.0, "h5py": 1.0, "zarr": 20.0, "zarr 2": 21.0}
    results = race([Fixed(name, None, {"seconds": each}) for name, each in times.items()], WORKLOADS[0], 4)
    assert [len(result["rounds_s"]) for result in results.values()] == [4] * len(times)


def test_the_rounds_of_two_runs_are_merged() -> None:
    def result(times: list[float], memory: int) -> dict[str, Any]:
        reply = {"rounds_s": times, "median_s": sorted(times)[len(times) // 2]}
        rows = {"a row": {"section": "reads", "results": {"gzarr": reply, "zarr": {"absent": "no"}}}}
        return {"workloads": rows, "rounds": 3, "runs": 1, "memory": memory}

    both = merged(result([1.0, 2.0, 3.0], 1), result([9.0, 2.5, 2.5], 2))
    assert both["workloads"]["a row"]["results"]["gzarr"]["median_s"] == 2.5
    assert both["workloads"]["a row"]["results"]["zarr"] == {"absent": "no"}
    assert (both["rounds"], both["runs"], both["memory"]) == (6, 2, 1)


@pytest.mark.parametrize("fault", ["wrong", "failed"])
def test_a_fault_in_either_of_two_runs_stays(fault: str) -> None:
    def result(reply: dict[str, Any]) -> dict[str, Any]:
        return {"workloads": {"a row": {"section": "reads", "results": {"zarr": reply}}}, "rounds": 1, "runs": 1}

    good, bad = result({"rounds_s": [1.0], "median_s": 1.0}), result({fault: "why"})
    for both in (merged(good, bad), merged(bad, good)):
        assert both["workloads"]["a row"]["results"]["zarr"] == {fault: "why"}


def test_only_runs_of_the_same_rows_libraries_and_arrays_are_merged(tmp_path: Path) -> None:
    first = tmp_path / "first.json"
    old = {"workloads": {}, "libraries": {"gzarr": {}}, "scale": {"side": 8}, "written": "elsewhere"}
    first.write_text(json.dumps(old))
    refused = bench("--merge", str(first), "--only", "one row", cache=tmp_path)
    assert "--merge takes all rows and libraries" in refused.stderr
    assert "was measured with other" in bench("--merge", str(first), cache=tmp_path).stderr
