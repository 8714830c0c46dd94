"""What every reference document takes for granted: an empty working directory and default settings."""

import pytest

import gzarr


@pytest.fixture(autouse=True)
def _fresh_place(tmp_path, monkeypatch):
    """Run each snippet in an empty directory, and put settings back after it."""
    monkeypatch.chdir(tmp_path)
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
