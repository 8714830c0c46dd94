"""The benchmark of images runs, notices wrong values, and its documentation shows what was measured."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.images import bare
from benchmarks.images.cases import CASES
from benchmarks.images.checking import compared
from benchmarks.images.contestants import CONTESTANTS, Job, function
from benchmarks.images.data import Cache
from benchmarks.images.race import Setting, prepare
from benchmarks.images.regions import Worker, boxes
from benchmarks.images.report import document, plot

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 300


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    """All images, tiny."""
    cache = Cache(tmp_path_factory.mktemp("cache"))
    for name in CASES:
        prepare(CASES[name].small(), Setting(cache, cache.root, small=True))
    return cache


def job(case: str, cache: Cache, out: Path) -> Job:
    return Job(CASES[case].small(), cache, out / "out")


def flipped(job: Job) -> list[str]:
    """A contestant that is wrong in one element of level 1."""
    paths = bare.pyramid(job)
    path = next(each for each in (job.out / "1" / "c").rglob("*") if each.is_file())
    import numcodecs

    values = bytearray(numcodecs.Zstd().decode(path.read_bytes()))
    values[5] ^= 1
    path.write_bytes(numcodecs.Zstd(3).encode(bytes(values)))
    return paths


@pytest.mark.parametrize(
    "case", [n for n, case in CASES.items() if case.work not in {"halo", "regions", "planes", "fuse"}]
)
@pytest.mark.parametrize("name", ["bare", "gzarr"])
def test_values_are_right(case: str, name: str, cache: Cache, tmp_path: Path) -> None:
    pytest.importorskip("tensorstore")
    each = job(case, cache, tmp_path)
    paths = function(CONTESTANTS[each.case.work][name])(each)
    assert compared(each, paths) == {"values": "equal"}


def test_wrong_values_are_noticed(cache: Cache, tmp_path: Path) -> None:
    pytest.importorskip("tensorstore")
    each = job("C", cache, tmp_path)
    found = compared(each, flipped(each))["values"]
    assert found.startswith("level 1: off by ")
    assert found.endswith("level 4: equal")
    with pytest.raises(AssertionError, match="4 levels, not 5"):
        compared(each, ["0", "1", "2", "3"])
    with pytest.raises(AssertionError, match="level 0 differs"):
        compared(job("A", cache, tmp_path), wrong_base(job("A", cache, tmp_path)))


def wrong_base(each: Job) -> list[str]:
    import shutil

    shutil.rmtree(each.out)
    paths = bare.pyramid(each)
    (each.out / "0" / "c" / "3" / "3").unlink()
    return paths


@pytest.mark.parametrize("case", ["regions A", "planes C"])
def test_regions_are_timed_and_checked(case: str, cache: Cache) -> None:
    small = CASES[case].small()
    assert boxes(small, 1) == boxes(small, 1) != boxes(small, 2)
    assert all(s.stop <= n for box in boxes(small, 1) for s, n in zip(box, small.source.shape, strict=True))
    worker = Worker(CONTESTANTS[small.work]["gzarr"], case, str(cache.root), "", "1")
    assert worker.do_check()["values"] == "equal"
    assert worker.do_time(1)["wall_s"] > 0
    worker.read = lambda box: np.zeros([s.stop - s.start for s in box])
    with pytest.raises(AssertionError, match="wrong values"):
        worker.do_check()


def test_a_run_writes_results_and_tables(tmp_path: Path, cache: Cache) -> None:
    table, out = tmp_path / "table.md", tmp_path / "images.json"
    table.write_text("before\n<!-- images: generated -->\nold\n<!-- end -->\nafter\n")
    options = ["--small", "--rounds", "1", "--only", "C", "--peers", "gzarr,nobody", "--cache", str(cache.root)]
    options += ["--also", f"flipped=pyramid={__name__}:flipped", "--also", "gone=pyramid=nowhere:nothing"]
    options += ["--out", str(out), "--table", str(table), "--written", str(tmp_path)]
    command = [sys.executable, "-m", "benchmarks.images", *options]
    where = {**os.environ, "PYTHONPATH": str(ROOT)}

    def run() -> Any:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=ROOT, env=where, check=False
        )

    assert "no contestant nobody" in run().stderr
    command[command.index("gzarr,nobody")] = "gzarr"
    done = run()
    assert done.returncode == 0, done.stderr
    results = json.loads(out.read_text())["cases"]["C"]["results"]
    assert results["gzarr"]["values"] == "equal"
    assert results["gzarr"]["cpu_s"] > 0
    assert results["flipped"]["values"].startswith("level 1: off by")
    text = table.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "- gone: No module named 'nowhere' (C)" in text
    assert not list(tmp_path.glob("bench-images-*"))


def test_the_documentation_shows_what_was_measured() -> None:
    measured = ROOT / "benchmarks/results/images.json"
    text = (ROOT / "docs/benchmarks-images.md").read_text()
    shown = text.partition("<!-- images: generated -->\n")[2].partition("<!-- end -->")[0].rstrip("\n")
    assert shown == (document(json.loads(measured.read_text())) if measured.exists() else "")
    assert (ROOT / "docs/speed-images.svg").read_text() == plot(json.loads(measured.read_text()))
