"""``gzarr.*``: what ``dir`` and ``import *`` show."""

import types

import numcodecs
import pytest

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


@pytest.mark.parametrize(("name", "extra"), [("MsgPack", "msgpack"), ("PCodec", "pcodec"), ("ZFPY", "zfp")])
def test_a_codec_that_numcodecs_lacks_is_named_with_its_extra(name, extra, monkeypatch):
    monkeypatch.delattr(numcodecs, name, raising=False)
    with pytest.raises(gzarr.errors.MissingExtraError, match=rf"gzarr\.{name} .*'gzarr\[{extra}\]'"):
        getattr(gzarr, name)
    assert name not in dir(gzarr)
