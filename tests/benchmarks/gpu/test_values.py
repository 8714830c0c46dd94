"""Measured values find their way into gzarr's choices, and say where they come from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import values
from benchmarks.gpu.values import limits
from gzarr.gpu.detection import measured
from gzarr.gpu.detection.thresholds import crossover_of
from gzarr.gpu.reading import select
from gzarr.gpu.reading.select import faster_reader as choice_of

ROOT = Path(__file__).parents[3]
MACHINE = {"gpu": "NVIDIA H999", "driver": "600.1", "nvcomp": "6.0.0", "cpu": "a CPU", "cores": 16, "commit": "abc"}
BASIS = "measured on NVIDIA H999, driver 600.1, nvCOMP 6.0.0, a CPU, 16 cores, commit abc"


def small(nchunks: int, nbytes: int) -> dict[str, Any]:
    """Times of which the host's are shorter up to these limits."""
    return {
        "now": "a sentence",
        **{
            f"{codec}, chunks of {each}": {
                str(n): {"host": 100, "device": 200} if n <= nchunks and n * each <= nbytes else
                {"host": 300, "device": 150}
                for n in (1, 2, 4, 8, 16)
            }
            for codec in ("zstd", "none")
            for each in (4096, 32768)
        },
    }  # fmt: skip


def readers(state: str | None, kvikio: float) -> dict[str, Any]:
    found: dict[str, Any] = {"kvikio lacks": None, "state": state}
    for case in ("none, 4096 bytes, plain", "lz4, 4096 bytes, sharded"):
        found[f"{case}, host"] = {"GB_per_s": 2.0, "detour": None}
        found[f"{case}, kvikio"] = {"GB_per_s": kvikio, "detour": None}
    return found


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the table, which gzarr reads anew."""
    path = tmp_path / "measured.json"
    shutil.copy(ROOT / "gzarr" / "gpu" / "detection" / "measured.json", path)
    monkeypatch.setattr(measured, "_table", lambda: json.loads(path.read_text()))
    return path


def test_answers_become_choices(table: Path) -> None:
    answers = {
        "machine": {"answer": MACHINE},
        "small_reads": {"answer": small(4, 65536)},
        "small_writes": {"error": "no answer within 45 s"},
        "readers": {"answer": readers("compat", 3.0)},
    }
    values.update(table, answers)
    reads = crossover_of(measured.SMALL_READS, "NVIDIA H999")
    assert (reads.nchunks, reads.nbytes, reads.basis) == (4, 65536, BASIS)
    assert str(reads) == f"reads of at most 4 chunks and 65536 bytes are decoded on the host ({BASIS})"
    assert crossover_of(measured.SMALL_WRITES, "NVIDIA H999").basis == measured.REASONED
    assert crossover_of(measured.SMALL_READS, "NVIDIA H200").basis == measured.REASONED
    compat = choice_of(gds_active=False, gpu="NVIDIA H999")
    assert compat == ("kvikio", f"GPUDirect Storage is not active; {BASIS}")
    # Not measured in this state, and not at all on another GPU.
    assert choice_of(gds_active=True, gpu="NVIDIA H999") == (
        "kvikio",
        "GPUDirect Storage is active; reasoned, not measured",
    )
    assert choice_of(gds_active=False, gpu="") == ("host", "GPUDirect Storage is not active; reasoned, not measured")
    # A later run keeps what it did not ask.
    values.update(table, {"machine": {"answer": MACHINE}, "readers": {"answer": readers("gds", 1.0)}})
    assert choice_of(gds_active=True, gpu="NVIDIA H999").name == "host"
    assert choice_of(gds_active=False, gpu="NVIDIA H999").name == "kvikio"
    assert crossover_of(measured.SMALL_READS, "NVIDIA H999") == reads


@pytest.mark.parametrize(("gds", "kvikio", "taken"), [(True, 0.5, "host"), (True, 2, "kvikio"), (False, 3, "kvikio")])
def test_auto_takes_the_reader_that_was_faster(
    table: Path, monkeypatch: pytest.MonkeyPatch, gds: bool, kvikio: float, taken: str
) -> None:
    state = "gds" if gds else "compat"
    values.update(table, {"machine": {"answer": MACHINE}, "readers": {"answer": readers(state, 2.0 * kvikio)}})
    monkeypatch.setattr(select, "find_missing_kvikio", lambda: None)
    monkeypatch.setattr(select, "gds_is_active", lambda: gds)
    monkeypatch.setattr(select, "_opener", lambda: None)
    reader, chosen = select.choose_reader("auto", "NVIDIA H999")
    assert reader.name == chosen.name == taken
    assert chosen.why.endswith(BASIS)
    reader, chosen = select.choose_reader("auto")
    assert reader.name == chosen.name == ("kvikio" if gds else "host")
    assert chosen.why.endswith("reasoned, not measured")


@pytest.mark.parametrize(("nchunks", "nbytes"), [(4, 65536), (16, 16384), (1, 32768), (2, 8192)])
def test_limits_are_found_again(nchunks: int, nbytes: int) -> None:
    rows = list(values.timed(small(nchunks, nbytes)))
    found = limits(rows)
    assert all(
        (row.nchunks <= found["nchunks"] and row.nbytes <= found["nbytes"])
        == (row.nchunks <= nchunks and row.nbytes <= nbytes)
        for row in rows
    )


def test_the_table_holds_what_is_looked_up() -> None:
    held = json.loads((ROOT / "gzarr" / "gpu" / "detection" / "measured.json").read_text())
    assert set(held["reasoned"]) == {measured.SMALL_READS, measured.SMALL_WRITES, measured.READERS}
    assert set(held["reasoned"]["readers"]) == {"gds", "compat"}
    for entry in held["measured"].values():
        assert entry["machine"]
