"""Runs a module on the driver made of software: ``python -m tests.gpu.driver -m benchmarks.gpu --device cuda``."""

import runpy
import sys

from tests.gpu.driver.install import install_later

if __name__ == "__main__":
    install_later()
    sys.argv[:2] = []
    runpy.run_module(sys.argv.pop(0) if sys.argv[0] == "-m" else sys.argv[0], run_name="__main__", alter_sys=True)
