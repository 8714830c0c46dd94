"""Measures how fast arrays are read into GPU memory and written from it; `benchmarks.gpu.run` documents the rows.

    python -m benchmarks.gpu --out benchmarks/results [--small] [--device cuda|emulated] [--budget-s 440]

The emulated device is a test of this program and says nothing about speed.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from benchmarks.gpu.run import run
from benchmarks.gpu.sizes import SHRINK
from gzarr.gpu.detection.detect import find_missing


def main() -> None:
    """Measure, and write the result after every row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the JSON files")
    parser.add_argument("--device", choices=["cuda", "emulated"], help="default: cuda if there is one")
    parser.add_argument("--small", action="store_true", help="small arrays, few cases: a test of the program")
    parser.add_argument("--budget-s", type=float, default=440, help="no row begins after this; writing data counts")
    arguments = parser.parse_args()
    command = shlex.join(["python", "-m", "benchmarks.gpu", *sys.argv[1:]])
    kind = arguments.device or _best_device()
    try:
        print(run(arguments.out, kind, arguments.budget_s, small=arguments.small or SHRINK > 1, command=command))
    except RuntimeError as error:
        sys.exit(str(error))


def _best_device() -> str:
    missing = find_missing()
    if missing is None:
        return "cuda"
    print(f"on the emulated device, because there is no usable GPU: {missing}", file=sys.stderr)
    return "emulated"


if __name__ == "__main__":
    main()
