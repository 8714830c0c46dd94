"""The GPU benchmark runs through on the emulated device."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import cases, run
from benchmarks.gpu import rows as gpu_rows
from benchmarks.gpu.loading import loader_cases
from benchmarks.gpu.peers import PEERS

ROOT = Path(__file__).parents[3]


def test_all_is_measured_and_described(result: dict[str, Any]) -> None:
    assert result["complete"]
    assert (result["device"], result["small"], result["left_out"]) == ("emulated", True, [])
    assert result["machine"]["gpu"] is None
    assert result["machine"]["cores"] >= 1
    assert result["command"] == "python -m benchmarks.gpu --small"
    assert result["date"]
    assert set(result["peers"]) == {*PEERS, "raw KvikIO", "bare nvCOMP"}
    for name in ("zarr-python, GPU mode", "raw KvikIO", "bare nvCOMP"):
        assert result["peers"][name].startswith("absent: ")
    assert all(rate > 0 for rate in result["ceilings"].values())
    # Codecs that a peer lacks; gzarr reads them all.
    assert {row["contender"] for row in result["failed"]} <= set(PEERS) - {"gzarr on the CPU, upload"}


def test_a_case_that_fails_takes_no_other_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = [cases.Case(codec, 4096, "plain", cases.TINY) for codec in ("blosc-lz4", "none")]
    monkeypatch.setattr(run, "cases", lambda *, small: some)
    reads = run.Run.reads

    def fail_first(self: Any, case: Any, *args: Any) -> None:
        if case.codec == "blosc-lz4":
            raise MemoryError("not enough")
        reads(self, case, *args)

    monkeypatch.setattr(run.Run, "reads", fail_first)
    found = json.loads(run.run(tmp_path, "emulated", math.inf, small=True).read_text())
    assert [row["error"] for row in found["failed"] if "contender" not in row] == ["MemoryError: not enough"]
    assert {row["codec"] for row in found["rows"] if row["table"] == "file"} == {"none"}


def test_a_wrong_answer_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.Device, "equal", lambda self, one, other: False)
    monkeypatch.setattr(gpu_rows.np, "array_equal", lambda one, other: False)
    monkeypatch.setattr(run, "CAP_SHARES", (2,))
    some = [cases.Case("zstd", 4096, "plain", 256, full=True), cases.StreamsCase("zstd", 1)]
    some += loader_cases(small=True)[:1]
    monkeypatch.setattr(run, "cases", lambda *, small: some)
    found = json.loads(run.run(tmp_path, "emulated", math.inf, small=True).read_text())
    assert {row["contender"] for row in found["rows"]} == {"raw pinned upload", "raw read by threads"}
    assert {row["table"] for row in found["failed"]} == {"resident", "file", "write", "memory", "streams", "loader"}
    assert all("wrong" in row["error"] for row in found["failed"])
