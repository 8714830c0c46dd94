"""The command line: runs scenarios, prints what they lost, and writes the files that the options name.

    python -m benchmarks.torture --minutes 60                       every scenario on every store of this machine
    python -m benchmarks.torture --only shards --store local --seed 7 --minutes 1
    python -m benchmarks.torture --writer gzarr,zarr,tensorstore --python zarr=OTHER/bin/python

`make torture` does an hour, with the peers from the environment of `make bench`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cpu.measure import load, machine
from benchmarks.torture import libraries
from benchmarks.torture.catalogue import SCENARIOS
from benchmarks.torture.cell import ROOT, Cell, cells, run
from benchmarks.torture.report import document, insert, line
from benchmarks.torture.scenario import Counts


def main() -> int:
    """Run the cells. Returns: 1 if something that is promised was lost."""
    options = parse_options()
    pythons = dict(each.split("=", 1) for each in options.python)
    to_run = list(chosen(options, pythons))
    seed = int(time.time()) if options.seed is None else options.seed
    result: dict[str, Any] = {"machine": machine() | {"folder": folder_of(options)}, "minutes": options.minutes}
    versions = {each: version_of(each, pythons.get(each, sys.executable)) for each in {c.writer: 0 for c in to_run}}
    result |= {"seed": seed, "libraries": versions, "cells": []}
    print(f"seed {seed}", flush=True)
    failed = False
    for cell, budget_s in shared_out(to_run, options.minutes * 60):
        start = time.monotonic()
        try:
            counts = run(cell, seed, budget_s, pythons.get(cell.writer, sys.executable), options.folder)
        except RuntimeError as error:  # the scenario itself is wrong; the others still run
            counts = Counts(raw_errors=1, notes=(str(error),))
        seconds = round(time.monotonic() - start, 1)
        where = {"scenario": cell.scenario.name, "store": cell.store, "writer": cell.writer, "unsafe": cell.unsafe}
        result["cells"].append({**where, "seconds": seconds, **counts.to_json()})
        failed |= bool(counts.losses) and not cell.unsafe
        show(cell, counts, seconds)
        result["machine"]["load_at_end"] = load()
        if options.json:  # each time, as an hour may be cut short
            options.json.write_text(json.dumps(result, indent=1) + "\n")
    if options.table:
        insert(options.table, document(result))
    return int(failed)


def shared_out(to_run: Sequence[Cell], seconds: float) -> Iterator[tuple[Cell, float]]:
    """Cells with the time that each has to do harm, so that all of them, starts and ends included, take so long."""
    end, beyond = time.monotonic() + seconds, 0.0
    for number, cell in enumerate(to_run):
        weights = sum(each.scenario.weight for each in to_run[number:])
        began = time.monotonic()
        share_s = (end - began) * cell.scenario.weight / weights
        budget_s = max(share_s - beyond / max(number, 1), 0.1)
        yield cell, budget_s
        beyond += time.monotonic() - began - budget_s


def chosen(options: argparse.Namespace, pythons: Mapping[str, str]) -> Iterator[Cell]:
    """The cells that the options ask for and that this machine can run; says which it cannot, and why."""
    for cell in cells(options.writer.split(",")):
        if options.only and not any(part in cell.scenario.name for part in options.only):
            continue
        if options.store and cell.store not in options.store.split(","):
            continue
        if cell.writer not in pythons and (absent := cell.absence):
            print(f"{cell.name}: left out: {absent}", flush=True)
        else:
            yield cell


def parse_options() -> argparse.Namespace:
    """Parse and check the options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.torture", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10, help="time for all scenarios together (default: 10)")
    parser.add_argument(
        "--only", action="append", metavar="TEXT", help="scenarios whose name contains this; repeatable"
    )
    parser.add_argument("--store", metavar="A,B", help="kinds of stores (default: all)")
    parser.add_argument("--writer", default="gzarr", metavar="A,B", help=f"of {', '.join(libraries.LIBRARIES)}")
    parser.add_argument("--python", action="append", default=[], metavar="zarr=PATH", help="Python of a library")
    parser.add_argument("--seed", type=int, help="repeats the choices of a run (default: from the clock)")
    parser.add_argument("--folder", type=Path, help="directory to work in (default: that of temporary files)")
    parser.add_argument("--json", type=Path, help="write the result as JSON")
    parser.add_argument("--table", type=Path, help="replace the tables of a Markdown file")
    parser.add_argument("--list", action="store_true", help="print the names of all scenarios and stop")
    options = parser.parse_args()
    if options.list:
        parser.exit(message="\n".join(each.name for each in SCENARIOS) + "\n")
    if options.only and not any(part in each.name for part in options.only for each in SCENARIOS):
        parser.error(f"no scenario contains {' or '.join(map(repr, options.only))}; --list shows all")
    unknown = set(options.writer.split(",")) - set(libraries.LIBRARIES)
    if unknown:
        parser.error(f"no library {', '.join(sorted(unknown))}; there are {', '.join(libraries.LIBRARIES)}")
    return options


def folder_of(options: argparse.Namespace) -> str:
    """The kind of file system that the data are on."""
    import tempfile

    where = str(options.folder or tempfile.gettempdir())
    done = subprocess.run(["stat", "-f", "-c", "%T", where], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def version_of(writer: str, python: str) -> str:
    """The version of a library."""
    code = f"from benchmarks.torture.libraries import LIBRARIES as l; print(l[{writer!r}]().version())"
    done = subprocess.run([python, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def show(cell: Cell, counts: Counts, seconds: float) -> None:
    """Print what a cell lost."""
    print(f"{cell.name:45s} {line(counts)} ({seconds:.0f} s)", flush=True)
    if counts.losses or not counts.operations:
        for note in counts.notes[:3]:
            print(f"    {note}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
