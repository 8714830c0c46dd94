"""The costs of the host are measured for reads and writes, with two trees in turn."""

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.gpu import host

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
ROOT = Path(__file__).parents[3]
#: Rows and columns of the array, and bytes of its chunks.
SIDE, CHUNK_NBYTES = 256, 4096
CASES = [host.Case("read", "plain", CHUNK_NBYTES, "none"), host.Case("write", "sharded", CHUNK_NBYTES, "blosc-lz4")]


def test_costs_are_measured_of_two_trees(tmp_path: Path) -> None:
    result = host.measure({"after": ROOT, "before": ROOT}, CASES, SIDE, 1)
    json.dumps(result)
    assert [(row["tree"], row["direction"]) for row in result["rows"]] == [
        (tree, case.direction) for case in CASES for tree in ("after", "before")
    ]
    for row in result["rows"]:
        assert row["nchunks"] == 64
        assert row["files"] == (64 if row["layout"] == "plain" else 1)
        assert row["floor"] > 0
        assert row["cpu"] >= row["caller"] > 0
        assert row["besides"] == pytest.approx(row["cpu"] - row["floor"], abs=2e-3)  # of one round
        assert row["lock"] is None or 0 <= row["lock"] < 1e6
    lines = host.table(result).splitlines()
    assert len(lines) == 1 + len(CASES)
    assert lines[1].split()[:5] == ["read", "plain", "4", "KiB", "none"]
