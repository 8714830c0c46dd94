"""Names: what ``dir`` and ``import *`` show of ``gzarr.*``."""

import types

import numcodecs
import pytest

import gzarr
from tests.support.processes import run_python

MODULES = {"codecs", "convert", "errors", "storage"}
#: Modules that a program which opens arrays need not pay for.
HEAVY = {"asyncio", "difflib", "fsspec", "html", "hashlib", "tracemalloc", "zarr", "cupy", "PIL", "ml_dtypes"}
HEAVY |= {"tensorstore", "kvikio", "torch", "dask"}


def test_dir_shows_public_names_only():
    names = dir(gzarr)
    assert set(gzarr.__all__) < set(names)
    assert [name for name in names if name.startswith("_")] == ["__version__"]
    assert {name for name in names if isinstance(getattr(gzarr, name), types.ModuleType)} == MODULES


def test_the_package_is_imported_without_numpy():
    """The command prints its help, and plug-ins are registered, before anything is done with arrays."""
    code = "import sys, gzarr; print({'numpy', 'numcodecs', 'gzarr.api.open'} & set(sys.modules))"
    assert run_python(code) == "set()\n"


def test_opening_imports_few_modules_more_than_numcodecs_does():
    """Each takes half a millisecond; what few programs need is imported where it is needed."""
    code = (
        "import sys, numcodecs; before = set(sys.modules); import gzarr; gzarr.open_array; gzarr.open_group\n"
        "new = set(sys.modules) - before; ours = {name for name in new if name.startswith('gzarr')}\n"
        f"print(len(ours), len(new - ours), *new & {HEAVY})"
    )
    ours, others, *heavy = run_python(code).split()
    assert not heavy
    assert int(ours) < 180
    assert int(others) < 40


def test_import_star():
    found = {}
    exec("from gzarr import *", found)
    assert set(gzarr.__all__) <= set(found)


@pytest.mark.parametrize(("name", "extra"), [("MsgPack", "msgpack"), ("PCodec", "pcodec"), ("ZFPY", "zfp")])
def test_a_codec_that_numcodecs_lacks_is_named_with_its_extra(name, extra, monkeypatch):
    monkeypatch.delattr(numcodecs, name, raising=False)
    with pytest.raises(gzarr.errors.MissingExtraError, match=rf"gzarr\.{name} .*'gzarr\[{extra}\]'"):
        getattr(gzarr, name)
    assert name not in dir(gzarr)


@pytest.mark.parametrize("module", [gzarr.codecs, gzarr.errors, gzarr.storage])
def test_dir_of_a_module_shows_its_public_names_only(module):
    assert set(getattr(module, "__all__", ())) <= set(dir(module))
    assert not {"annotations", "Any", "os", "re"} & set(dir(module))
    assert not [name for name in dir(module) if name.startswith("_")]
