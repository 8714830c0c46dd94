"""A pytest plug-in that lets the suite of zarr 2 test gzarr: ``zarr`` is gzarr.

``zarr`` and each of its modules is a stand-in that looks names up in gzarr's public modules. A name that gzarr does not
have is a placeholder: a test module that imports it can be imported, and only the tests that use it fail. The folder in
``ZARR_ALIAS_FOLDER`` holds what of the package ``zarr`` is not replaced: its ``tests``.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
import sys
from abc import ABCMeta
from collections.abc import Iterator, MutableMapping
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np
import zarr2_private

import gzarr
from gzarr.hierarchy import attributes
from gzarr.storage import base

# Where names of a module are looked up; those of modules not listed here, in all of gzarr's public modules.
_HOMES = {
    "zarr": ("gzarr",),
    "zarr.codecs": ("gzarr.codecs", "gzarr"),
    "zarr.errors": ("gzarr.errors",),
    "zarr.storage": ("gzarr.storage",),
}
_PUBLIC = ("gzarr", "gzarr.storage", "gzarr.codecs", "gzarr.errors")
# zarr 2's base of stores is a mapping with methods besides; gzarr takes mappings, and its own base asks for others.
# Its experimental form of v3 was never released as a format: without it, the tests of it skip. The rest is private
# and what tests use, not what they test.
_REPLACED: dict[str, Any] = {
    "zarr.storage.Store": MutableMapping,
    "zarr._storage.store.BaseStore": MutableMapping,
    "zarr._storage.store.v3_api_available": False,
    "zarr._storage.store.DEFAULT_ZARR_VERSION": 2,
    "zarr._storage.store._get_metadata_suffix": lambda _store: "",
    "zarr.context.Context": dict,
    "zarr.meta.json_loads": lambda value: json.loads(bytes(value)),
    "zarr.n5.n5_keywords": ["n5", "dataType", "dimensions", "blockSize", "compression"],
    "zarr.storage.array_meta_key": ".zarray",
    "zarr.storage.attrs_key": ".zattrs",
    "zarr.storage.group_meta_key": ".zgroup",
    "zarr.storage.atexit_rmtree": partial(shutil.rmtree, ignore_errors=True),
    "zarr.storage.atexit_rmglob": lambda _pattern: None,
    "zarr.types.DIMENSION_SEPARATOR": str,
    **zarr2_private.NAMES,
    "zarr.attrs.Attributes": attributes.Attributes,
    "zarr.util.buffer_size": lambda value: np.asarray(memoryview(value)).nbytes,
}
_collected: list[bool] = []


class _Placeholder(ABCMeta):
    """Classes for names that gzarr does not have: importable and inheritable, but no test can call them."""

    def __call__(cls, *_args: Any, **_kwargs: Any) -> Any:
        if not _collected:  # a parameter of tests
            return cls
        raise AttributeError(f"gzarr has no {cls.__name__}")

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _placeholder(f"{cls.__name__}.{name}")

    def __getitem__(cls, _item: Any) -> Any:
        return cls

    def __iter__(cls) -> Iterator[Any]:
        if _collected:
            raise AttributeError(f"gzarr has no {cls.__name__}")
        return iter(())


def _placeholder(name: str) -> Any:
    return _Placeholder(name, (UserWarning,), {})


class _StandIn(ModuleType):
    """A module of zarr."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("__", "pytest", "setup", "setUp", "teardown", "tearDown")):  # what pytest looks for
            raise AttributeError(name)
        if (full := f"{self.__name__}.{name}") in _REPLACED:
            return _REPLACED[full]
        for home in _HOMES.get(self.__name__, _PUBLIC):
            try:
                return getattr(importlib.import_module(home), name)
            except (AttributeError, ModuleNotFoundError):
                continue
        return _placeholder(full)


def pytest_collection_finish() -> None:
    _collected.append(True)


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, fullname: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "zarr" or fullname.startswith("zarr.tests"):
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        folder = os.environ["ZARR_ALIAS_FOLDER"]
        module.__path__, module.__file__ = [folder], f"{folder}/__init__.py"


sys.meta_path.insert(0, _Finder())
base._check_overridden = lambda *_: None  # the tests define stores of zarr's kind beside other tests
gzarr.config.set(default_zarr_format=2)
zarr2_private.add_to_nodes()
if importlib.util.find_spec("numcodecs.tests") is None:  # numcodecs had it until 0.16; the tests of strings need it
    sys.modules["numcodecs.tests"] = ModuleType("numcodecs.tests")
    sys.modules["numcodecs.tests.common"] = common = ModuleType("numcodecs.tests.common")
    common.greetings = ["¡Hola mundo!", "Hej Världen!", "Servus Woid!", "Hei maailma!", "こんにちは世界"]  # type: ignore[attr-defined]
