"""The tests of all kernels, for suites that launch them elsewhere."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from gzarr.gpu.kernels.sources import KERNELS

#: Kernels with a file of tests each; those of unshuffle launch shuffle, too.
TESTED = sorted(KERNELS.keys() - {"shuffle"})


def kernel_tests() -> dict[str, Callable[..., Any]]:
    """The tests of ``test_KERNEL.py`` for every kernel, each with the kernel's name in its own.

    A file some of whose tests are about the host's part names the others in ``ON_DEVICE``.
    """
    found = {}
    for kernel in TESTED:
        module = import_module(f"tests.gpu.kernels.test_{kernel}")
        names = getattr(module, "ON_DEVICE", [name for name in vars(module) if name.startswith("test_")])
        found |= {f"test_{kernel}_{name.removeprefix('test_')}": getattr(module, name) for name in names}
    return found
