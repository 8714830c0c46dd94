"""Xarray over Zarr groups: the engine "gzarr" opens them, `to_zarr` writes them; zarr-python takes no part.

Names of axes are stored as Xarray stores them, as ``dimension_names`` in v3 and in the attribute
``_ARRAY_DIMENSIONS`` in v2, so ``Dataset.to_zarr`` and ``xarray.open_zarr`` exchange files with gzarr. Xarray decodes
and encodes the CF conventions.
"""

from gzarr.errors import MissingExtraError

try:
    from gzarr.interop.xarray.engine import GzarrBackendEntrypoint, as_dataarray, open_dataset
    from gzarr.interop.xarray.variables import LazyArray
    from gzarr.interop.xarray.writing import to_zarr
except ModuleNotFoundError as error:
    if error.name != "xarray":
        raise
    raise MissingExtraError("gzarr.interop.xarray needs Xarray: pip install 'gzarr[xarray]'") from error

__all__ = ["GzarrBackendEntrypoint", "LazyArray", "as_dataarray", "open_dataset", "to_zarr"]
