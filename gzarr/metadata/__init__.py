"""Zarr v2 and v3 metadata documents. Only this package (and the functions that create arrays) knows the format."""
