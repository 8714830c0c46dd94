"""A pytest plug-in that lets the suite of zarr 2 test gzarr, by `gzarr.compat.zarr2`.

A name that gzarr does not have there is a placeholder: a test module that imports it can be imported, and only the
tests that use it fail. The folder in ``ZARR_ALIAS_FOLDER`` holds the ``tests`` of the package, which are not replaced.
"""

import importlib.util
import os
import shutil
import sys
from abc import ABCMeta
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any

import zarr2_private

import gzarr.compat.zarr2  # noqa: F401  # which puts modules in the place of those of zarr
from gzarr.compat.modules import CompatModule, install
from gzarr.storage import base

#: Private names that tests use beside those of users. zarr 2's experimental form of v3 was never released as a format:
#: without it, the tests of it skip.
_PRIVATE: dict[str, dict[str, Any]] = {
    "zarr._storage": {},
    "zarr._storage.store": {
        "v3_api_available": False,
        "DEFAULT_ZARR_VERSION": 2,
        "_get_metadata_suffix": lambda _store: "",
    },
    "zarr.context": {"Context": dict},
    "zarr.indexing": {},
    "zarr.storage": {
        "atexit_rmtree": partial(shutil.rmtree, ignore_errors=True),
        "atexit_rmglob": lambda _pattern: None,
    },
    "zarr.util": {},
    **{f"zarr._storage.{name}": {} for name in ("absstore", "v3", "v3_storage_transformers")},
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


def _asked(module: CompatModule, name: str, found: Any = CompatModule.__getattr__) -> Any:
    """Give a placeholder for what gzarr does not have, and pytest's own names to nobody."""
    try:
        return found(module, name)
    except AttributeError:
        if name.startswith(("__", "pytest", "setup", "setUp", "teardown", "tearDown")):
            raise
        return _placeholder(f"{module.__name__}.{name}")


def pytest_collection_finish() -> None:
    _collected.append(True)


for _name, _given in _PRIVATE.items():
    if _name not in sys.modules:
        install([CompatModule(_name, {}, ("gzarr", "gzarr.storage", "gzarr.errors"))])
    vars(sys.modules[_name]).update(_given | zarr2_private.NAMES.get(_name, {}))
CompatModule.__getattr__ = _asked  # type: ignore[method-assign]
_folder = os.environ["ZARR_ALIAS_FOLDER"]
vars(sys.modules["zarr"]).update(__path__=[_folder], __file__=f"{_folder}/__init__.py")
base._check_overridden = lambda *_: None  # the tests define stores of zarr's kind beside other tests
zarr2_private.add_to_nodes()
if importlib.util.find_spec("numcodecs.tests") is None:  # numcodecs had it until 0.16; the tests of strings need it
    sys.modules["numcodecs.tests"] = ModuleType("numcodecs.tests")
    sys.modules["numcodecs.tests.common"] = common = ModuleType("numcodecs.tests.common")
    common.greetings = ["¡Hola mundo!", "Hej Världen!", "Servus Woid!", "Hei maailma!", "こんにちは世界"]  # type: ignore[attr-defined]
