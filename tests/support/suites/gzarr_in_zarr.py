"""A pytest plug-in that makes gzarr's codec pipeline known to zarr-python, installed or not."""

import gzarr.interop.zarr  # noqa: F401
