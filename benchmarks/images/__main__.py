"""The command line: measures, prints, and writes the files that the options name.

    python -m benchmarks.images                              every case, with the libraries that this Python has
    python -m benchmarks.images --only C --peers gzarr,tensorstore --rounds 5
    python -m benchmarks.images --also mine=pyramid=module:function    see `benchmarks.images.contestants`

`make bench-images` makes the environment and runs everything.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.cpu.__main__ import rounded
from benchmarks.cpu.measure import load, machine
from benchmarks.cpu.race import ROOT
from benchmarks.cpu.report import insert
from benchmarks.images.cases import CASES
from benchmarks.images.contestants import BARE, CONTESTANTS, OWN
from benchmarks.images.data import Cache
from benchmarks.images.race import Setting, race
from benchmarks.images.report import START, document, plot


def main() -> int:
    """Measure. Returns: 1 if gzarr failed, or its answer or that of the bare work was wrong."""
    options = parse_options()
    written = (options.written or options.cache).resolve()
    written.mkdir(parents=True, exist_ok=True)
    setting = Setting(Cache(options.cache.resolve()), written, options.small, options.rounds)
    result: dict[str, Any] = {"machine": machine(), "written": str(options.written or "beside the data"), "cases": {}}
    start = time.perf_counter()
    for name in options.only or CASES:
        result["cases"][name] = race(name, chosen(CASES[name].work, options), setting)
        show(name, result["cases"][name])
    result["seconds"] = time.perf_counter() - start
    result["machine"]["load_at_end"] = load()
    if options.out:
        options.out.write_text(json.dumps(rounded(result), indent=1) + "\n")
    if options.table:
        insert(options.table, document(rounded(result)), START)
        options.table.with_name("speed-images.svg").write_text(plot(rounded(result)))
    faults = faults_of(result)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def parse_options() -> argparse.Namespace:
    """Parse and check the options."""
    names = list(dict.fromkeys(name for each in CONTESTANTS.values() for name in each))
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.images", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[], choices=list(CASES), help="a case; can be repeated")
    parser.add_argument("--peers", metavar="A,B", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument("--also", action="append", default=[], metavar="NAME=WORK=MODULE:FUNCTION", help="one more")
    parser.add_argument("--rounds", type=int, default=99, help="at most (default: as the case says)")
    parser.add_argument("--small", action="store_true", help="tiny images: tests the harness, measures nothing")
    parser.add_argument("--cache", type=Path, default=ROOT / ".bench-cache", help="folder of the data")
    parser.add_argument("--written", type=Path, help="folder of what is written (default: that of the data)")
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    parser.add_argument(
        "--table", type=Path, help="replace the tables of a Markdown file, and speed-images.svg beside it"
    )
    options = parser.parse_args()
    unknown = set((options.peers or "").split(",")) - {"", *names}
    if unknown:
        parser.error(f"no contestant {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return options


def chosen(work: str, options: argparse.Namespace) -> dict[str, str]:
    """The contestants of a kind of work that take part."""
    names = options.peers.split(",") if options.peers else CONTESTANTS[work]
    also = (each.split("=", 2) for each in options.also)
    racing = {name: where for name, where in CONTESTANTS[work].items() if name in names}
    return racing | {name: where for name, kind, where in also if kind == work}


def show(name: str, case: Mapping[str, Any]) -> None:
    """Print a case."""
    print(f"\n{case['title']}", flush=True)
    for each, reply in case["results"].items():
        if "wall_s" not in reply:
            print(f"  {each:20s} {reply.get('absent') or reply.get('failed') or reply.get('wrong')}", flush=True)
            continue
        cells = [f"{reply['wall_s']:8.4g} s", f"CPU {reply['cpu_s']:8.4g} s"]
        cells += [f"peak {reply['peak_bytes'] / 1e6:5.0f} MB"] if "peak_bytes" in reply else []
        what = reply.get("wrong") or reply.get("failed") or reply.get("values", "")
        print(f"  {each:20s} {'  '.join(cells)}  {what}", flush=True)


def faults_of(result: Mapping[str, Any]) -> list[str]:
    """What makes a run worthless, as sentences."""
    return [
        f"{name}, {each}: {reply.get('failed') or reply.get('wrong') or reply.get('values')}"
        for name, case in result["cases"].items()
        for each, reply in case["results"].items()
        if each in {OWN, BARE}
        and (reply.get("failed") or reply.get("wrong") or reply.get("values", "equal") != "equal")
    ]


if __name__ == "__main__":
    sys.exit(main())
