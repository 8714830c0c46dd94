"""``gzarr.*``: what ``dir`` and ``import *`` show."""

import types

import gzarr

MODULES = {"codecs", "convert", "errors", "storage"}


def test_dir_shows_public_names_only():
    names = dir(gzarr)
    assert set(gzarr.__all__) < set(names)
    assert [name for name in names if name.startswith("_")] == ["__version__"]
    assert {name for name in names if isinstance(getattr(gzarr, name), types.ModuleType)} == MODULES


def test_import_star():
    found = {}
    exec("from gzarr import *", found)
    assert set(gzarr.__all__) <= set(found)
