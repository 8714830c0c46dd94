"""What code refers to, and where modules come from."""

from __future__ import annotations

import functools
import re
import types

import numpy as np
import pytest

import gzarr
from gzarr.identity.code import Name, names_used, package_of, reference_to


def outer(x):
    import json.decoder
    from os.path import join

    class Inner:
        scale = SIGMA

    def inner(y):
        return np.linalg.norm(y) * Inner.scale

    return json, join, inner(x).shape


SIGMA = 2


def test_globals_are_found_with_their_attributes_in_inner_code_too():
    found = names_used(outer.__code__)
    assert Name(("SIGMA",)) in found
    assert Name(("np", "linalg", "norm")) in found
    assert Name(("join",), "os.path") in found
    assert Name(("",), "json.decoder") in found
    assert {each.parts[0] for each in found} <= {"", "join", "SIGMA", "np", "__name__"}


def test_packages_have_versions_and_own_modules_none():
    assert package_of("numpy.linalg") == f"numpy {np.__version__}"
    assert package_of("re").startswith("Python 3.")
    assert package_of("gzarr.storage") == f"gzarr {gzarr.__version__}"
    assert package_of(__name__) is None
    assert package_of("__main__") is None  # here, pytest's
    assert package_of("no_such_module") is None
    assert package_of(None) is None


@pytest.mark.parametrize("value", [np.add, np.dot, np.ndarray, len, re.compile, functools.partial, gzarr.open_array])
def test_what_is_installed_is_found_by_its_name(value):
    assert re.search(r" of (Python|numpy|gzarr) [\d.]+$", reference_to(value))


@pytest.mark.parametrize(
    "value", [outer, lambda: 1, np.frompyfunc(len, 1, 1), functools.partial(len), types.SimpleNamespace(), 3]
)
def test_what_is_not_installed_is_not(value):
    assert reference_to(value) is None
