"""A plug-in of pytest that lets the tests of Xarray's engine "zarr" run on gzarr's, if ``GZARR_ENGINE`` is set."""

import os
from functools import wraps
from typing import Any

import xarray as xr
import xarray.backends.api
import zarr

from gzarr.interop.xarray import to_zarr

_open = xr.open_dataset


@wraps(_open)
def _open_dataset(*given: Any, **how: Any) -> xr.Dataset:
    return _open(*given, **how | ({"engine": "gzarr"} if how.get("engine") == "zarr" else {}))


def _to_zarr(
    self: Any, store: Any = None, chunk_store: Any = None, mode: Any = None, synchronizer: Any = None, **how: Any
) -> Any:
    if mode in (None, "w", "w-") and not {"append_dim", "region"} & set(how):
        how = {"zarr_format": zarr.config.get("default_zarr_format"), **how}
    return to_zarr(self, store, mode, **how)


if "GZARR_ENGINE" in os.environ:
    xr.open_dataset = xarray.backends.api.open_dataset = _open_dataset
    xr.Dataset.to_zarr = xr.DataArray.to_zarr = _to_zarr  # type: ignore[method-assign, assignment]
