"""The command line: measures, prints, and writes the files that the options name.

    python -m benchmarks.loader                              every case, with the libraries that this Python has
    python -m benchmarks.loader --only Cx --peers gzarr,tensorstore --rounds 7
    python -m benchmarks.loader --also mine=module:name      another loader, as `benchmarks.loader.contestant` has them

`make bench-loader` makes the environment and runs everything.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.cpu.__main__ import rounded
from benchmarks.cpu.measure import load, machine
from benchmarks.cpu.race import ROOT
from benchmarks.cpu.report import digits, insert
from benchmarks.loader import remote
from benchmarks.loader.cases import CASES
from benchmarks.loader.contestants import CONTESTANTS
from benchmarks.loader.data import SMALL, Cache, Scale
from benchmarks.loader.race import Limits, cases, race
from benchmarks.loader.report import START, document, over_best, plot


def main() -> int:
    """Measure. Returns: 1 if an answer was wrong or gzarr failed."""
    options = parse_options()
    names = options.peers.split(",") if options.peers else list(CONTESTANTS)
    racing = {name: CONTESTANTS[name] for name in names} | dict(each.split("=", 1) for each in options.also)
    cache = Cache(options.cache.resolve(), SMALL if options.small else Scale())
    result: dict[str, Any] = {"machine": machine(), "rounds": options.rounds, "cases": {}}
    limits = Limits(options.rounds, options.rounds + 2, options.part)
    for case in cases(options.only):
        result["cases"][case.name] = race(case, racing, cache, limits)
        show(case.name, result["cases"][case.name])
    if options.remote:
        result["remote"] = remote.measure(racing, cache, min(options.rounds, 3))
        for name, case in result["remote"]["cases"].items():
            for each, reply in case["results"].items():
                print(f"remote {name:3s} {each:20s} {json.dumps(rounded(reply))}", flush=True)
    result["machine"]["load_at_end"] = load()
    if options.out:
        options.out.write_text(json.dumps(rounded(result), indent=1) + "\n")
    if options.table:
        insert(options.table, document(rounded(result)), START)
        options.table.with_name("speed-loader.svg").write_text(plot(rounded(result)))
    faults = faults_of(result)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def parse_options() -> argparse.Namespace:
    """Parse and check the options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.loader", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[], choices=list(CASES), help="a case; can be repeated")
    parser.add_argument("--peers", metavar="A,B", help=f"of {', '.join(CONTESTANTS)} (default: all)")
    parser.add_argument("--also", action="append", default=[], metavar="NAME=MODULE:MAKER", help="one more contestant")
    parser.add_argument("--rounds", type=int, default=5, help="rounds in which the contestants take turns (default: 5)")
    parser.add_argument("--part", type=float, default=0.6, help="seconds of an epoch of what keeps nothing (0.6)")
    parser.add_argument("--remote", action="store_true", help="also a store 20 ms away")
    parser.add_argument("--small", action="store_true", help="tiny arrays: tests the harness, measures nothing")
    parser.add_argument("--cache", type=Path, default=ROOT / ".bench-cache", help="folder of the data")
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    parser.add_argument(
        "--table", type=Path, help="replace the tables of a Markdown file, and speed-loader.svg beside it"
    )
    options = parser.parse_args()
    unknown = set((options.peers or "").split(",")) - {"", *CONTESTANTS}
    if unknown:
        parser.error(f"no contestant {', '.join(sorted(unknown))}; there are {', '.join(CONTESTANTS)}")
    return options


def show(name: str, case: Mapping[str, Any]) -> None:
    """Print a case."""
    best = over_best(case)
    print(
        f"\n{name}: bare work {case['bare_cpu_s']:.3g} s of CPU" + (f", gzarr / best peer {best:.2f}" if best else ""),
        flush=True,
    )
    for each, reply in case["results"].items():
        if "samples_per_s" not in reply:
            print(f"  {each:20s} {reply.get('absent') or reply.get('failed') or reply.get('wrong')}")
            continue
        cells = [f"{digits(reply['samples_per_s']):>8s}/s", f"CPU {reply['cpu_over_bare']:6.2f}"]
        cells += [f"read {reply['read_over_stored']:6.2f}", f"decodes {reply.get('decodes', float('nan')):5.2f}"]
        cells += [f"first {reply.get('first_s', 0) / case['first_bare_s']:5.2f}"]
        cells += [f"peak {reply['peak_bytes'] / 1e6:5.0f} of {case['memory'] / 1e6:.0f} MB"]
        print(f"  {each:20s} {'  '.join(cells)}", flush=True)


def faults_of(result: Mapping[str, Any]) -> list[str]:
    """Failures of gzarr, and wrong answers of any contestant, as sentences."""
    tables = [(name, case["results"]) for name, case in result["cases"].items()]
    tables += [(f"{name}, remote", case["results"]) for name, case in result.get("remote", {}).get("cases", {}).items()]
    return [
        f"{name}, {each}: {reply[key]}"
        for name, results in tables
        for each, reply in results.items()
        for key in ("wrong", "failed")
        if key in reply and (key == "wrong" or each == "gzarr")
    ]


if __name__ == "__main__":
    sys.exit(main())
