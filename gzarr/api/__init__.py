"""The functions that users call."""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """Import what `import gzarr` need not: ``gzarr.api.asynchronous`` is there without an import, as in zarr-python."""
    if name != "asynchronous":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("gzarr.api.asynchronous")
