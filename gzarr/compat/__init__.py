"""gzarr under the name ``zarr``, for code that imports ``zarr`` and cannot be changed.

``import gzarr.compat.zarr``, before whatever imports ``zarr``, puts modules with gzarr's names in the place of
zarr-python 3's; ``import gzarr.compat.zarr2`` in the place of zarr 2's. Both last as long as the process.
"""
