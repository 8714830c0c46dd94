"""Fixtures of the tests of images: the devices, and the versions of OME-Zarr."""

import pytest


@pytest.fixture(params=["cpu", "emulated"])
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["0.4", "0.5"])
def version(request: pytest.FixtureRequest) -> str:
    return request.param
