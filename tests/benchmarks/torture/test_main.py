"""The frame notices what goes wrong in scenarios, and the command line works."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.torture.catalogue import SCENARIOS
from benchmarks.torture.children import Child, apart
from benchmarks.torture.report import END, START, document, insert, inserted
from benchmarks.torture.scenario import Counts
from gzarr.errors import StoreError

ROOT = Path(__file__).parents[3]


def raising(error: BaseException) -> None:
    raise error


def test_a_child_returns_raises_dies_is_killed_or_hangs() -> None:
    assert apart(lambda: {"a": [1]}).value == {"a": [1]}
    own, raw = apart(raising, StoreError("no")), apart(raising, OSError("no"))
    assert (own.counts().refused, own.counts().raw_errors) == (1, 0)
    assert (raw.counts().refused, raw.counts().raw_errors) == (0, 1)
    assert apart(os._exit, 3).counts().raw_errors == 1
    child = Child(time.sleep, 60)
    child.kill()
    assert child.wait().status == "killed"
    hung = apart(time.sleep, 60, timeout_s=0.3)
    assert hung.counts().hung == 1
    assert "hung" in hung.text


def test_the_command_line(tmp_path: Path) -> None:
    out, page = tmp_path / "out.json", tmp_path / "page.md"
    page.write_text(f"before\n{START}\n{END}\nafter\n")
    options = ["--minutes", "0.005", "--seed", "5", "--only", "parts of chunks", "--store", "local"]
    command = [sys.executable, "-m", "benchmarks.torture", *options, "--json", str(out), "--table", str(page)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    result = json.loads(out.read_text())
    assert done.returncode == int(bool(Counts.from_json(result["cells"][0]).losses)), done.stderr
    assert result["seed"] == 5
    assert document(result) in page.read_text()
    assert page.read_text().endswith("after\n")
    with pytest.raises(ValueError, match="has no lines"):
        insert(out, "")


def test_the_page_names_every_scenario_and_where_it_is_not_promised() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    table = page[page.index("| what happens |") :].partition("\n\n")[0]
    heads, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    promises = {row[-1].strip("`"): dict(zip(heads, row, strict=True)) for row in rows}
    assert {name for name in promises if name} == {each.name for each in SCENARIOS if each.stores != ("none",)}
    columns = {"local": "directory", "zip": "ZIP", "sqlite": "SQLite"}
    columns |= {"views": columns["local"], "memory": "memory", "s3": "S3, GCS, Azure"}
    for each in SCENARIOS:
        for kind in each.stores if each.name in promises else ():
            promised = promises[each.name][columns[kind]]
            assert (promised == "no") == (kind in each.unsafe), (each.name, kind)


def test_the_page_shows_the_last_run() -> None:
    result = json.loads((ROOT / "benchmarks" / "results" / "torture.json").read_text())
    assert inserted(ROOT / "docs" / "reliability.md") == document(result)
    lost = [cell for cell in result["cells"] if Counts.from_json(cell).losses and not cell["unsafe"]]
    assert not lost
