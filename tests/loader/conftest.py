"""Fixtures of the tests of loaders: the devices."""

import pytest


@pytest.fixture(params=["cpu", "emulated"])
def device(request):
    return request.param
