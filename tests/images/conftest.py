"""Fixtures of the tests of images: the devices, and the versions of OME-Zarr."""

import pytest


@pytest.fixture(params=["cpu", "emulated"])
def device(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=["0.4", "0.5"])
def version(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name
