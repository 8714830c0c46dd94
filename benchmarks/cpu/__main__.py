"""The command: python -m benchmarks.cpu [--only NAME ...] [--peers gzarr,tensorstore] [--rounds N] [--small] ..."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.cpu.catalogue import WORKLOADS
from benchmarks.cpu.data import SMALL, Cache, Scale
from benchmarks.cpu.libraries import LIBRARIES, REFERENCES
from benchmarks.cpu.race import ROOT, make_data, race, running


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu", description=__doc__)
    parser.add_argument("--only", action="append", help="workloads whose name contains this; can be repeated")
    parser.add_argument("--peers", help=f"libraries, of {', '.join(LIBRARIES)}")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--python", action="append", default=[], metavar="v3=PATH")
    parser.add_argument("--cache", type=Path, default=ROOT / ".bench-cache")
    parser.add_argument("--profile", action="store_true", help="show where gzarr's time goes")
    a = parser.parse_args()
    pythons = {"v3": sys.executable} | dict(p.split("=", 1) for p in a.python)
    cache = Cache(a.cache, SMALL if a.small else Scale())
    names = a.peers.split(",") if a.peers else list(LIBRARIES)
    chosen = [w for w in WORKLOADS if not a.only or any(part in w.name for part in a.only)]
    with running(names, pythons, cache, None) as runners:
        make_data(runners, chosen, cache)
        print(f"{'':45s}" + "".join(f"{n:>12s}" for n in names) + "   best/gzarr")
        for w in chosen:
            if w.section == "remote":
                continue
            found = race(runners, w, a.rounds)
            times = [f"{found[n]['median_s'] * 1e3:12.3f}" if "median_s" in found[n] else f"{'-':>12s}" for n in names]
            peers = [
                r["median_s"] for n, r in found.items() if "median_s" in r and n != "gzarr" and n not in REFERENCES
            ]
            ratio = f"{min(peers) / found['gzarr']['median_s']:10.2f}" if peers and "median_s" in found["gzarr"] else ""
            print(f"{w.name:45s}" + "".join(times) + ratio, flush=True)
            for n, r in found.items():
                if "wrong" in r or "failed" in r:
                    print("   ", n, r)
            if a.profile:
                print(runners[0].ask("profile", calls=20, lines=20)["text"])


if __name__ == "__main__":
    main()
