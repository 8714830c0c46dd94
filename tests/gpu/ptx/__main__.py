"""Prints what every kernel takes of a multiprocessor, and what typical launches cost; --out also writes JSON."""

import argparse
import json
from pathlib import Path

from gzarr.gpu.kernels.sources import BLOCK_THREADS
from tests.gpu.ptx import goals, nvrtc
from tests.gpu.ptx.cost import PROCESSORS, occupancy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="a file for the numbers as JSON")
    parser.add_argument("--arch", type=int, nargs="*", default=list(PROCESSORS))
    chosen = parser.parse_args()
    modules = {arch: nvrtc.kernels(arch) for arch in chosen.arch}
    names = sorted(next(iter(modules.values())).resources)
    resources = {
        name: {
            f"sm_{arch}": {
                **module.resources[name]._asdict(),
                "occupancy": occupancy(arch, module.resources[name], BLOCK_THREADS),
            }
            for arch, module in modules.items()
        }
        for name in names
    }
    found = {
        "CPU seconds to compile": {f"sm_{arch}": round(module.seconds, 2) for arch, module in modules.items()},
        "resources": resources,
        "costs": [
            {"case": case, "kernel": kernel, **{name: round(value, 2) for name, value in cost._asdict().items()}}
            for case in goals.GOALS
            for kernel, cost in goals.costs(case).items()
        ],
    }
    print(f"| kernel | {' | '.join(f'sm_{arch}' for arch in modules)} | spills | shared |")
    print(f"|---|{'---|' * (len(modules) + 2)}")
    for name, by_arch in resources.items():
        cells = [f"{row['registers']} ({row['occupancy']:.0%})" for row in by_arch.values()]
        spills, shared = (max(row[what] for row in by_arch.values()) for what in ("spills", "shared"))
        print(f"| {name} | {' | '.join(cells)} | {spills} | {shared} |")
    print("\n| case | kernel | instructions for 16 bytes | load sectors | store sectors |\n|---|---|---|---|---|")
    for row in found["costs"]:
        sectors = f"{row['load_sectors']} | {row['store_sectors']}"
        print(f"| {row['case']} | {row['kernel']} | {row['instructions']:.0f} | {sectors} |")
    print("\nSeconds of CPU to compile all kernels:", found["CPU seconds to compile"])
    if chosen.out:
        chosen.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
