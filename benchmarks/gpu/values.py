"""Enters what `benchmarks.gpu.questions` measured on a GPU into gzarr's table of measured values.

    python -m benchmarks.gpu.values [--answers benchmarks/results/questions-gpu.json] [--table
    gzarr/gpu/detection/measured.json]

For small reads and writes, the limits lose least against always taking the faster side. The reader is the one that took
less time over all files that both readers bring straight to the device.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gpu.measure import ROOT, write_json
from gzarr.gpu.detection.measured import READERS, SMALL_READS, SMALL_WRITES

#: Ratio below which neither side counts as faster.
SAME = 0.03


class Timed(NamedTuple):
    """A small read or write: chunks, their bytes in total, and the time on either side."""

    nchunks: int
    nbytes: int
    host: float
    device: float


def main() -> None:
    """Update the table if a GPU answered."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", type=Path, default=ROOT / "benchmarks" / "results" / "questions-gpu.json")
    parser.add_argument("--table", type=Path, default=ROOT / "gzarr" / "gpu" / "detection" / "measured.json")
    arguments = parser.parse_args()
    if not arguments.answers.exists():
        print(f"no answers of a GPU at {arguments.answers}: nothing is changed", file=sys.stderr)
        return
    update(arguments.table, json.loads(arguments.answers.read_text()))


def update(table: Path, answers: dict[str, Any]) -> None:
    """Enter the values of one machine. Missing answers leave older values unchanged."""
    machine = answers.get("machine", {}).get("answer")
    if not machine or not machine.get("gpu"):
        print("the answers do not say which GPU gave them: nothing is changed", file=sys.stderr)
        return
    whole = json.loads(table.read_text())
    entry = whole["measured"].setdefault(machine["gpu"], {})
    entry["machine"] = described(machine)
    for part in (SMALL_READS, SMALL_WRITES):
        if rows := list(timed(answers.get(part, {}).get("answer") or {})):
            entry[part] = limits(rows)
    if faster := faster_reader(answers.get(READERS, {}).get("answer") or {}):
        entry[READERS] = {**entry.get(READERS, {}), **faster}
    write_json(table, whole)


def described(machine: dict[str, Any]) -> str:
    """A machine in one phrase."""
    parts = [machine["gpu"], f"driver {machine.get('driver')}", f"nvCOMP {machine.get('nvcomp')}"]
    return ", ".join([*parts, machine["cpu"], f"{machine['cores']} cores", f"commit {machine['commit']}"])


def timed(answer: dict[str, Any]) -> Iterator[Timed]:
    """The rows of `small_reads` or `small_writes`, named "zstd, chunks of 4096" and by the number of chunks."""
    for name, rows in answer.items():
        if name != "now":
            each = int(name.rpartition(" ")[2])
            for n, row in rows.items():
                yield Timed(int(n), int(n) * each, row["host"], row["device"])


def limits(rows: list[Timed]) -> dict[str, int]:
    """The limits on chunks and bytes below which the host does the work, such that the least time is lost."""
    counts = sorted({0, *(row.nchunks for row in rows)})
    sizes = sorted({0, *(row.nbytes for row in rows)})

    def lost(pair: tuple[int, int]) -> float:
        total = 0.0
        for row in rows:
            own = row.host if row.nchunks <= pair[0] and row.nbytes <= pair[1] else row.device
            total += max(math.log(own / min(row.host, row.device)) - SAME, 0)
        return total

    # The first of equals, which is the device.
    nchunks, nbytes = min(itertools.product(counts, sizes), key=lost)
    return {"nchunks": nchunks, "nbytes": nbytes} if nchunks and nbytes else {"nchunks": 0, "nbytes": 0}


def faster_reader(answer: dict[str, Any]) -> dict[str, str]:
    """The faster reader in the state of the machine; nothing if only one could be used."""
    logs = []
    for name, row in answer.items():
        host = answer.get(f"{name.removesuffix(', kvikio')}, host")
        if name.endswith(", kvikio") and host is not None and row["detour"] is None:
            logs.append(math.log(row["GB_per_s"] / host["GB_per_s"]))
    if not logs or answer.get("state") is None:
        return {}
    return {answer["state"]: "kvikio" if sum(logs) > 0 else "host"}


if __name__ == "__main__":
    main()
