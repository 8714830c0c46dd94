"""The benchmark of loaders runs, notices wrong answers, and its documentation shows what was measured."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.loader import bare, remote
from benchmarks.loader.cases import CASES, Task
from benchmarks.loader.contestant import AbsentError, Batch, Contestant
from benchmarks.loader.contestants import maker
from benchmarks.loader.data import SMALL, Cache, Scale, datasets
from benchmarks.loader.report import document, over_best, plot
from benchmarks.loader.server import Line
from benchmarks.loader.worker import Worker

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 120
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


def test_an_order_is_exact_or_within_blocks() -> None:
    for case in CASES:
        assert sorted(task(case).ids(3)) == list(range(task(case).n))
    each = task("Cb")
    chunks = each.ids(0) // each.data.chunks[0]
    ends = [end for end in (250, 256) if not set(chunks[:end]) & set(chunks[end:])]  # 16 chunks; the last one is short
    assert len(ends) == 1
    assert len(set(chunks[: ends[0]])) == 16
    assert (np.diff(each.ids(0)) < 0).any()


@pytest.mark.parametrize("name", ["images", "shards", "fields", "volume"])
def test_the_bare_work_is_every_chunk_once(name: str, cache: Cache) -> None:
    data = datasets(SMALL)[name]
    done = bare.decode_all(data, cache.path(name))
    assert done["chunks"] == data.nchunks
    assert 0 < done["stored_bytes"] < 2 * data.nbytes


def test_a_line_carries_so_many_bytes_a_second_after_the_delay() -> None:
    line = Line(delay_s=0.5, bytes_per_s=100.0)
    assert line.due(10.0, 100) == 11.5
    assert line.due(10.0, 100) == 12.5  # waits for the line, and no longer for the delay
    assert line.due(20.0, 50) == 21.0
    assert line.served == 250


def test_the_far_store_serves_ranges_and_counts(cache: Cache) -> None:
    import obstore

    data = datasets(SMALL)["fields"]
    keys = [
        path.relative_to(cache.path("fields").parent).as_posix() for path in bare.objects(data, cache.path("fields"))
    ]
    with remote.served(cache.path("fields")) as url:
        asyncio.run(remote.read_all(url, keys))
        stored = sum((cache.path("fields").parent / key).stat().st_size for key in keys)
        assert stored < remote.bytes_served(url) < stored + 300 * len(keys)  # headers
        store = obstore.store.HTTPStore.from_url(url, client_options={"allow_http": True})
        content = (cache.path("fields").parent / keys[0]).read_bytes()
        assert bytes(obstore.get_range(store, keys[0], start=3, end=10)) == content[3:10]


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


def test_tables_show_ratios_and_mark_missed_goals() -> None:
    own = {"version": "1", "samples_per_s": 300.0, "cpu_over_bare": 1.1, "read_over_stored": 1.0, "first_s": 0.2}
    own |= {"cpu_over_decode": 1.5, "decodes": 1.0, "peak_bytes": 10**8, "checked": 10, "steps": 1}
    case = {"n": 100, "batch_bytes": 10**6, "memory": 2 * 10**8, "first_bare_s": 0.1}
    case["results"] = {"gzarr": own, "peer": own | {"samples_per_s": 200.0}, "gone": {"absent": "lacks it"}}
    where = {"cpu": "c", "cores": 2, "system": "s", "date": "d", "load_at_start": 0.1, "load_at_end": 0.2}
    text = document({"machine": where, "rounds": 5, "cases": {"A": case}})
    assert over_best(case) == 1.5
    assert "| A: 100 samples, an image a chunk, LZ4 | 300 | 200 |  | 1.50 |" in text
    assert "| A | 1.5 (at least 1.4) | 1.1 (at most 1.2) | 1 | **2 (at most 1.5)** | 100 (at most 203) |" in text
    assert "| A | gzarr | 1.10 | 1.50 | 1.00 | 1.00 | 2.00 | 100 of 200 |" in text
    assert "- gone: lacks it (A)" in text


def test_the_documentation_shows_what_was_measured() -> None:
    measured = ROOT / "benchmarks/results/loader.json"
    text = (ROOT / "docs/benchmarks-loader.md").read_text()
    shown = text.partition("<!-- loader: generated -->\n")[2].partition("<!-- end -->")[0].rstrip("\n")
    assert shown == (document(json.loads(measured.read_text())) if measured.exists() else "")
    assert (ROOT / "docs/speed-loader.svg").read_text() == plot(json.loads(measured.read_text()))


def test_a_peer_says_which_cases_it_cannot_do() -> None:
    make = maker("benchmarks.loader.drivers_blocks:InSituBatch")
    for case, message in (("D", "no crops"), ("B", "blocks of shards only"), ("Cx", "blocks of chunks only")):
        with pytest.raises(AbsentError, match=message):
            make(task(case), "nowhere")


def test_the_issue_sizes_are_measured() -> None:
    sizes = {name: round(data.nbytes / 1e6) for name, data in datasets(Scale()).items()}
    assert sizes == {"images": 602, "shards": 246, "fields": 369, "volume": 268}
