"""Bridges to other libraries, Dask and Xarray; each library is imported only where it is used."""
