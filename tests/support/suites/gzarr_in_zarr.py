"""A pytest plug-in that makes gzarr's codec pipeline known to zarr-python, installed or not."""

from importlib import import_module, util

if util.find_spec("gzarr.interop.zarr") is not None:
    import_module("gzarr.interop.zarr")
