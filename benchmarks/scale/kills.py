"""Kills workers at random moments, many times, to see whether an operation ever hangs or is wrong.

``python -m benchmarks.scale.kills --engine processes --rounds 50 --seed 0`` runs each round in a process of its own: a
few operations on small arrays with two workers, one of which is killed now and then. A round that takes too long prints
the stacks of all threads and counts as hung. The same seed kills at the same times, as far as the machine allows.
"""

import argparse
import faulthandler
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.scale.run import Operations, _alone, engine, killing, pids_of, prepare


def one_round(kind: str, names: list[str], seed: int, limit_s: float, longest_s: float) -> None:
    """Operations on one engine whose workers are killed."""
    random.seed(seed)
    faulthandler.dump_traceback_later(limit_s, exit=True)
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        prepare(root, 8 << 20)
        work = Operations(root)
        _alone()
        n_killed, began = 0, time.perf_counter()
        with engine(kind, 2) as on:
            for number, name in enumerate(names):
                expected = getattr(work, name)(root / f"here{number}")
                with killing(lambda: pids_of(on), longest_s=longest_s) as killed:
                    same = getattr(work, name)(root / f"there{number}", on=on) == expected
                n_killed += len(killed)
                if not same:
                    raise SystemExit(f"{name} on {kind} with seed {seed} is wrong")
    print(f"seed {seed}: {n_killed} killed, {time.perf_counter() - began:.1f} s", flush=True)
    faulthandler.cancel_dump_traceback_later()


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="processes")
    parser.add_argument("--operations", default="stats,stats,rechunk,stats,rechunk")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that a round may take")
    parser.add_argument("--longest", type=float, default=0.4, help="seconds between kills, at most")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        one_round(given.engine, given.operations.split(","), given.seed, given.limit, given.longest)
        return
    failed = []
    for seed in range(given.seed, given.seed + given.rounds):
        command = [sys.executable, "-m", "benchmarks.scale.kills", *sys.argv[1:], "--one", "--seed", str(seed)]
        try:
            if subprocess.run(command, timeout=given.limit + 60, check=False).returncode:
                failed.append(seed)
        except subprocess.TimeoutExpired:
            print(f"seed {seed} did not end", flush=True)
            failed.append(seed)
    print(f"{given.rounds} rounds on {given.engine}: failed with seeds {failed}", flush=True)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
