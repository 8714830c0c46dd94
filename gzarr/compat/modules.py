"""Modules with the names of zarr's: what is asked of them is found in gzarr's modules."""

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class CompatModule(ModuleType):
    """A module in the place of one of zarr's.

    Parameters
    ----------
    name : str
        Its name: "zarr" or one that begins with "zarr.".
    names : Mapping
        What it has by itself.
    homes : iterable of str
        Modules whose public names it has, too; the first that has a name is taken.
    real : ModuleType, optional
        The module that it replaces: where what is below it is found.
    """

    def __init__(
        self, name: str, names: Mapping[str, Any], homes: Iterable[str], real: ModuleType | None = None
    ) -> None:
        super().__init__(name, f"gzarr in the place of {name}.")
        self.__path__ = getattr(real, "__path__", [])
        self.__spec__ = getattr(real, "__spec__", None) or ModuleSpec(name, None)
        vars(self).update(names, _homes=tuple(homes))

    def __getattr__(self, name: str) -> Any:
        for home in () if name.startswith("_") else vars(self)["_homes"]:
            try:
                return getattr(import_module(home), name)
            except AttributeError:
                continue
        raise AttributeError(f"gzarr in the place of {self.__name__} has no {name!r}")

    def __dir__(self) -> list[str]:
        found = {name for home in self._homes for name in dir(import_module(home))}
        return sorted(name for name in found.union(vars(self)) if not name.startswith("_"))

    @property
    def __all__(self) -> list[str]:
        """What ``import *`` takes."""
        return dir(self)


def install(modules: Iterable[ModuleType]) -> None:
    """Put modules in the place of those of their names. Parents come before what is in them. Raises: ImportError."""
    for module in modules:
        if module.__name__ == "zarr" and type(sys.modules.get("zarr")) is CompatModule:
            raise ImportError("another module of gzarr.compat stands for zarr; use one of them in a process")
        parent, _, last = module.__name__.rpartition(".")
        sys.modules[module.__name__] = module
        if parent:
            setattr(sys.modules[parent], last, module)
