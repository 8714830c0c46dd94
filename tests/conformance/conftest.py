"""Fixtures of the tests of conformance: the peers."""

import pytest

from tests.conformance.peers import TensorStore, ZarrPython, quiet


@pytest.fixture
def zarr_python():
    pytest.importorskip("zarr")
    with quiet():
        yield ZarrPython()


@pytest.fixture
def tensorstore():
    pytest.importorskip("tensorstore")
    return TensorStore()
