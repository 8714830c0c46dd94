"""Exchanges every data type x codec x layout with a peer and prints what failed. Slow; run by hand:

python -m tests.conformance.sweep zarr-python|tensorstore [2|3] [share]
"""

from __future__ import annotations

import re
import sys
from collections import Counter

from tests.conformance import cases
from tests.conformance.limits import limits_of, possible
from tests.conformance.peers import Gzarr, Peer, TensorStore, ZarrPython, exchange


def main(peer_name: str, zarr_format: int = 3, every: int = 1) -> int:
    """Run and print. Returns: number of failures."""
    peer: Peer = TensorStore() if peer_name == "tensorstore" else ZarrPython()
    ours = Gzarr()
    chosen = [c for c in cases.product(zarr_format, peer.name)[::every] if possible(peer, c)]
    failed: Counter[str] = Counter()
    where: dict[str, list[cases.Case]] = {}
    example: dict[str, str] = {}
    for case in chosen:
        for writer, reader in ((ours, peer), (peer, ours)):
            for problem in exchange(writer, reader, case):
                message = problem.removeprefix(f"{case}: {writer.name} -> {reader.name}: ")
                kind = f"{writer.name} -> {reader.name}: {re.sub('[0-9]+', '#', message)[:60]}"
                failed[kind] += 1
                where.setdefault(kind, []).append(case)
                example.setdefault(kind, problem)
    print(f"{peer.name}, v{zarr_format}: {len(chosen)} cases, {sum(failed.values())} failures")
    for kind, count in failed.most_common(40):
        print(f"{count:6} {kind}\n       e.g. {example[kind][:400]}")
        for what in ("layout", "codecs"):
            print(f"       {what}: {', '.join(sorted({getattr(c, what).name for c in where[kind]}))[:300]}")
        print(f"       dtypes: {', '.join(sorted({str(c.dtype) for c in where[kind]}))[:300]}")
    for limit in limits_of(peer):
        print(f"left out: {limit.reason}")
    return sum(failed.values())


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1], *(int(a) for a in sys.argv[2:]))))
