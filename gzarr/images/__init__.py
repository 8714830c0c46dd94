"""Large images: OME-Zarr, pyramids in one pass, filters with halos, labels, plates. On the CPU or a GPU."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what `__getattr__` finds
    pass

# Public names, by the module that has them, which is imported when they are first asked for.
_MODULES: dict[str, str] = {}

__all__: list[str] = []

if not TYPE_CHECKING:  # a type checker would take every name to exist

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return getattr(import_module(f"gzarr.images.{_MODULES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
