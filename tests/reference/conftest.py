"""The assumptions of every reference document: an empty working directory and default settings."""

import pytest

import gzarr


@pytest.fixture(autouse=True, params=["cpu", "emulated"])
def _fresh_place(request, tmp_path, monkeypatch):
    """Run each snippet in an empty directory, on the CPU and by the GPU's code paths; put settings back after it."""
    monkeypatch.chdir(tmp_path)
    gzarr.config.set(device=request.param)
    monkeypatch.setattr(gzarr.storage, "default_compressor", "auto")
    yield
    gzarr.config.reset()


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def zarr_format(request):
    """Either format as the default: every call of the documents is written for one and must work for both."""
    gzarr.config.set(default_zarr_format=request.param)
    return request.param


@pytest.fixture
def format_2():
    """The format whose printed codecs and files the older documents show."""
    gzarr.config.set(default_zarr_format=2)
