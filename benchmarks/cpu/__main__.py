"""The command line: measures, prints, and writes the files that the options name.

    python -m benchmarks.cpu                                  everything, with the libraries that this Python has
    python -m benchmarks.cpu --python v2=OTHER/bin/python     and zarr 2 from another environment
    python -m benchmarks.cpu --only "one row" --peers gzarr,tensorstore --rounds 5 --profile

`make bench` makes the environments and runs everything.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.cpu.catalogue import BY_NAME, WORKLOADS
from benchmarks.cpu.data import SMALL, Cache, Scale
from benchmarks.cpu.libraries import LIBRARIES
from benchmarks.cpu.measure import faults, mean_ratio, merged, not_linear, ratio, run, servers, written_to
from benchmarks.cpu.plot import plot
from benchmarks.cpu.race import ROOT, make_data, running
from benchmarks.cpu.report import counts_text, digits, document, insert


def main() -> int:
    """Measure. Returns: 1 if an answer was wrong, gzarr failed, or a cost is not linear."""
    options = parse_options()
    pythons = {"v3": sys.executable, **dict(each.split("=", 1) for each in options.python)}
    names = options.peers.split(",") if options.peers else list(LIBRARIES)
    cache = Cache(options.cache.resolve(), scale_of(options), options.written and options.written.resolve())
    first = json.loads(options.merge.read_text()) if options.merge else None
    if first and (refusal := why_not_merged(first, names, cache)):
        print(refusal, file=sys.stderr)
        return 2
    if options.profile:
        return profile(options, pythons, cache)
    print(f"{'milliseconds (memory: MB)':48s}{''.join(f'{name:>12s}' for name in names)}  best/gzarr", flush=True)
    started = time.monotonic()
    only = [each.name for each in WORKLOADS] if first else options.only or []
    result = run(names, pythons, cache, options.rounds, only, lambda *row: show(names, *row))
    print(f"took {(time.monotonic() - started) / 60:.1f} minutes")
    if first:
        result = merged(first, result)
    if mean := mean_ratio(result):
        print(f"best peer / gzarr, geometric mean: {mean:.2f}")
    if options.out:
        options.out.write_text(json.dumps(rounded(result), indent=1) + "\n")
    if options.table:
        insert(options.table, document(rounded(result)))
        options.table.with_name("speed.svg").write_text(plot(rounded(result)))
    faults_found = faults(result) + ([] if options.small else not_linear(result))
    for fault in faults_found:
        print(fault, file=sys.stderr)
    return 1 if faults_found else 0


def parse_options() -> argparse.Namespace:
    """Parse and check the options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", metavar="TEXT", help="rows whose name contains this; can be repeated"
    )
    parser.add_argument("--list", action="store_true", help="print the names of all rows and stop")
    parser.add_argument("--peers", metavar="A,B", help=f"of {', '.join(LIBRARIES)} (default: all)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds in which the libraries take turns (default: 3)")
    parser.add_argument("--side", type=int, default=Scale().side, help="extent of the large arrays (default: 8000)")
    parser.add_argument("--small", action="store_true", help="tiny arrays: tests the harness, measures nothing")
    parser.add_argument("--python", action="append", default=[], metavar="v2=PATH", help="Python of an environment")
    parser.add_argument("--cache", type=Path, default=ROOT / ".bench-cache", help="folder of the data")
    parser.add_argument("--written", type=Path, help="folder to write to (default: that of the data)")
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    parser.add_argument("--merge", type=Path, help="JSON of a run whose rounds count too; its curves and memory stay")
    parser.add_argument("--table", type=Path, help="replace the tables of a Markdown file, and speed.svg beside it")
    parser.add_argument("--profile", action="store_true", help="where gzarr's time goes, of the calling thread")
    options = parser.parse_args()
    if options.list:
        parser.exit(message="\n".join(BY_NAME) + "\n")
    if options.only and not any(part in name for part in options.only for name in (*BY_NAME, "memory")):
        parser.error(f"no row contains {' or '.join(map(repr, options.only))}; --list shows all")
    if options.merge and (options.only or options.peers):
        parser.error("--merge takes all rows and libraries, as a second try of some would favour these")
    unknown = set((options.peers or "").split(",")) - {"", *LIBRARIES}
    if unknown:
        parser.error(f"no library {', '.join(sorted(unknown))}; there are {', '.join(LIBRARIES)}")
    if options.side % 800:
        parser.error(f"--side must be a multiple of 800, for whole chunks; got {options.side}")
    return options


def why_not_merged(first: Mapping[str, Any], names: Sequence[str], cache: Cache) -> str:
    """Why the result of an earlier run is not comparable; empty if it is."""
    pairs = {
        "rows": (list(first["workloads"]), [each.name for each in WORKLOADS]),
        "libraries": (list(first["libraries"]), list(names)),
        "sizes of arrays": (first["scale"], asdict(cache.scale)),
        "folders of writes": (first["written"], written_to(cache)),
    }
    others = [what for what, (before, now) in pairs.items() if before != now]
    return f"the earlier run was measured with other {' and '.join(others)}" if others else ""


def scale_of(options: argparse.Namespace) -> Scale:
    """How large everything is."""
    return SMALL if options.small else Scale(side=options.side)


def show(names: list[str], label: str, replies: Mapping[str, Any]) -> None:
    """Print a row."""
    cells = []
    for name in names:
        reply = replies.get(name, {})
        value = reply["median_s"] * 1e3 if "median_s" in reply else reply.get("over_output_bytes", 0) / 1e6
        cells.append(f"{digits(value) if value else '-':>12s}")
    quotient = ratio(replies)
    print(f"{label:48s}{''.join(cells)}" + (f"{quotient:12.2f}" if quotient else ""), flush=True)
    for name, reply in replies.items():
        if "counts" in reply:
            print(f"    {name}: {counts_text(label, reply)}", flush=True)
        if "wrong" in reply or "failed" in reply:
            print(f"    {name}: {reply.get('wrong') or reply['failed']}", flush=True)


def profile(options: argparse.Namespace, pythons: Mapping[str, str], cache: Cache) -> int:
    """Print where gzarr's time goes in the workloads asked for."""
    chosen = [each for name, each in BY_NAME.items() if not options.only or any(part in name for part in options.only)]
    with servers(cache) as urls, running(["gzarr"], pythons, cache, urls) as (runner,):
        make_data([runner], chosen, cache)
        for each in chosen:
            reply = runner.ask("prepare", workload=each.name)
            if "first_s" in reply:
                reply = runner.ask("profile", calls=options.rounds, lines=20)
            print(f"\n== {each.name} ({options.rounds} calls)\n{reply.get('text', reply)}")
    return 0


def rounded(value: Any) -> Any:
    """The result with times to four digits; the rest is noise."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
